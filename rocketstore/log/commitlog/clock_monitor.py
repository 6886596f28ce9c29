"""Reports steps of the wall clock, which the store times of a run do not follow (D-28)."""

from __future__ import annotations

import logging
import time
from typing import Final

from rocketstore._native.os import syscalls

__all__ = ["ClockMonitor"]

logger = logging.getLogger(__name__)

#: Smallest step that is reported, ms.
STEP_MS: Final = 10_000


class ClockMonitor:
    """`look` is called each second: a step is logged once, and again when the clock is stepped
    back."""

    def __init__(self) -> None:
        self._begin_ms = self._reported_ms = _ahead_ms()

    def look(self) -> None:
        ahead_ms = _ahead_ms()
        step_ms = ahead_ms - self._reported_ms
        if abs(step_ms) > STEP_MS:
            self._reported_ms = ahead_ms
            logger.warning(
                "the clock was stepped by %+d s; store times follow it at the next open, "
                "until then they are %+d s off",
                round(step_ms / 1000), round((self._begin_ms - ahead_ms) / 1000),
            )  # fmt: skip


def _ahead_ms() -> int:
    """Wall clock less monotonic clock: it changes only when the former is set."""
    return syscalls.realtime_ms() - time.monotonic_ns() // 1_000_000
