"""The time that ages of messages are measured against.

Store times follow the clock at the open and a monotonic clock from there on, so a clock that is
stepped while a store is open changes none of them. Ages are measured in the same way: by a clock
that goes on as it did when the store was opened. A step back is followed at once: everything gets
younger, and nothing goes early. A step ahead is followed once the clock has stood there for an
hour. So is a clock that is so far ahead of the newest message that the whole log would be too old:
it may be that of a machine that has just started and has not asked for the time yet.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from rocketstore.values.clock import ManualClock

if TYPE_CHECKING:
    from rocketstore.values.clock import Clock

__all__ = ["AgeClock"]

logger = logging.getLogger(__name__)

#: Smallest step ahead that is not believed at once, ms: as `log.commitlog.clock_monitor`.
STEP_MS: Final = 10_000
#: How long the clock must stay there, ms.
BELIEVED_AFTER_MS: Final = 3_600_000


def steady_ms() -> int:
    """A time that nobody sets."""
    return time.monotonic_ns() // 1_000_000


class AgeClock:
    """Never ahead of the clock of the store. One that is moved by hand is believed. One thread at a
    time asks."""

    def __init__(self, clock: Clock, newest_ms: int | None, max_age_ms: int | None) -> None:
        """`newest_ms`: a store time near the end of the log; None: it is not known. `max_age_ms`:
        the age at which messages go; None: at no age."""
        self._clock = clock
        wall, steady = clock.now_ms(), steady_ms()
        # Wall clock less steady clock changes only when the former is set.
        self._trusted = wall - steady
        self._doubted: tuple[int, int] | None = None  # the difference, and since when
        if newest_ms is not None and max_age_ms is not None and newest_ms + max_age_ms < wall:
            self._trusted = newest_ms - steady

    def now_ms(self) -> int:
        """The time for ages, milliseconds since 1970."""
        wall, steady = self._clock.now_ms(), steady_ms()
        if isinstance(self._clock, ManualClock):
            return wall
        ahead = wall - steady
        if ahead <= self._trusted + STEP_MS:
            self._trusted, self._doubted = ahead, None
        elif self._doubted is None or abs(ahead - self._doubted[0]) > STEP_MS:
            self._doubted = ahead, steady
            logger.warning(
                "the clock is %d s ahead of where it was, or of the newest message: retention "
                "believes it if it stands there for %d s",
                (ahead - self._trusted) // 1000,
                BELIEVED_AFTER_MS // 1000,
            )
        elif steady - self._doubted[1] >= BELIEVED_AFTER_MS:
            self._trusted, self._doubted = ahead, None
        return self._trusted + steady

    @property
    def doubted(self) -> bool:
        """Whether the wall clock is ahead of `now_ms`."""
        return self._doubted is not None
