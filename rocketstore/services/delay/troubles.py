"""What keeps messages of one queue from being delivered: pauses, and messages that are left over."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final

from rocketstore.values.kept_errors import without_frames

__all__ = ["FIRST_PAUSE_S", "LONGEST_PAUSE_S", "Troubles"]

logger = logging.getLogger(__name__)

#: Pauses after an error: doubled with each, seconds.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 60.0
#: Messages of one queue that are left over; with more of them the queue waits.
MOST_UNDELIVERED: Final = 1000


def _pause_s(tries: int) -> float:
    return min(FIRST_PAUSE_S * float(1 << min(tries, 20)), LONGEST_PAUSE_S)


class Troubles:
    """Of one queue whose messages wait. Only the thread of delivery changes it."""

    def __init__(self, path: str, name: str, undelivered: Iterable[int]) -> None:
        """`path`: of the store, for log lines, as `name`."""
        self.path, self.name = path, name
        #: Messages that could not be delivered, with what was wrong. Replaced, never changed.
        self.undelivered: dict[int, Exception | None] = dict.fromkeys(undelivered)
        self.error: Exception | None = None
        self.failures = 0
        self._paused_until_s = 0.0
        self._retries = 0
        self._retry_at_s = 0.0

    @property
    def paused_s(self) -> float:
        """Seconds for which nothing is tried."""
        return max(0.0, self._paused_until_s - time.monotonic())

    def pause(self, error: Exception) -> float:
        """Nothing of the level is delivered for a while; gives the seconds."""
        pause_s = _pause_s(self.failures)
        self.failures += 1
        self.error = without_frames(error)
        self._paused_until_s = time.monotonic() + pause_s
        logger.warning(
            "%s: messages of %s wait for %.1f s more: %r", self.path, self.name, pause_s, error
        )
        return pause_s

    def went_well(self) -> None:
        self.failures, self.error = 0, None

    def leave(self, queue_offset: int, error: Exception) -> None:
        """A message that cannot be delivered is left over and tried again; the others go on. Raises
        `error` where there are too many of them."""
        if len(self.undelivered) >= MOST_UNDELIVERED:
            raise error
        logger.error(
            "%s: the delayed message %d of %s cannot be delivered; it is tried again: %r",
            *(self.path, queue_offset, self.name, error),
        )
        self.undelivered = {**self.undelivered, queue_offset: without_frames(error)}
        self._retries = 1
        self._retry_at_s = time.monotonic() + FIRST_PAUSE_S

    @property
    def retry_s(self) -> float | None:
        """Seconds until what is left over is tried again; None where nothing is."""
        return max(0.0, self._retry_at_s - time.monotonic()) if self.undelivered else None

    def failed_again(self, queue_offset: int, error: Exception) -> None:
        self.undelivered = {**self.undelivered, queue_offset: without_frames(error)}

    def delivered(self, queue_offset: int) -> None:
        """A message that was left over is delivered after all."""
        self.undelivered = {at: e for at, e in self.undelivered.items() if at != queue_offset}

    def retried(self) -> None:
        """All that is left over was tried once more."""
        self._retry_at_s = time.monotonic() + _pause_s(self._retries)
        self._retries += 1
