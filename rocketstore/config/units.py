"""Units that the options of a store are written in."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["DAY_MS", "GIB", "INT32_MAX", "KIB", "MIB", "IgnoredOption"]

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
INT32_MAX: Final = 2**31 - 1
DAY_MS: Final = 24 * 3600 * 1000


class IgnoredOption(NamedTuple):
    """A setting of a broker that has no effect here, and why. `matters`: with this value RocketMQ keeps
    or leaves something in the store that rocketstore does not."""

    name: str
    value: str
    reason: str
    matters: bool = False
