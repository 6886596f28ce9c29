"""Units that the options of a store are written in."""

from __future__ import annotations

import contextlib
import datetime
from typing import Final, NamedTuple

from rocketstore.errors import ConfigError
from rocketstore.values.timestamps import duration_of

__all__ = ["DAY_MS", "GIB", "INT32_MAX", "KIB", "MIB", "IgnoredOption", "duration_within"]

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


def duration_within(
    name: str, value: object, low: datetime.timedelta, high: datetime.timedelta
) -> datetime.timedelta:
    """An option that is a span between the bounds, both included. Raises ConfigError."""
    with contextlib.suppress(TypeError, ValueError):
        if low <= (found := duration_of(name, value)) <= high:
            return found
    raise ConfigError(name, value, f"seconds or a timedelta, from {low} to {high}")
