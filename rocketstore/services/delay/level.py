"""One delay level: its queue, how far delivery has come in it, and what was left over."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.values.kept_errors import without_frames

if TYPE_CHECKING:
    from rocketstore.services.delay.waiting import WaitingQueue

__all__ = ["FIRST_PAUSE_S", "LONGEST_PAUSE_S", "Level"]

logger = logging.getLogger(__name__)

#: Pauses after an error: doubled with each, seconds.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 60.0
#: Messages of one level that are left over; with more of them the level waits.
MOST_UNDELIVERED: Final = 1000
#: How far a store time may be ahead of the clock before that counts as set back, ms.
SLACK_MS: Final = 1000


def _pause_s(tries: int) -> float:
    return min(FIRST_PAUSE_S * float(1 << min(tries, 20)), LONGEST_PAUSE_S)


@dataclass(slots=True)
class Level:
    """What delivery knows of one queue of the schedule topic. Only its thread changes it."""

    path: str  # of the store, for log lines
    queue: WaitingQueue
    #: Queue offset of the next message.
    next: int
    #: Messages below it that could not be delivered, with what was wrong. Replaced, never changed.
    undelivered: dict[int, Exception | None]
    #: When the next one is due; None while there is none.
    due_ms: int | None = None
    error: Exception | None = None
    failures: int = 0
    # By how much store times were ahead of the clock when that was first seen, and the last look.
    _ahead_ms: int = 0
    _last_ms: int = 0
    _paused_until_s: float = 0.0
    _retries: int = 0
    _retry_at_s: float = 0.0

    @property
    def number(self) -> int:
        return self.queue.queue_id + 1

    # ---- times ----

    def is_due(self, now_ms: int) -> bool:
        """Whether the next message is due; notes when it will be."""
        due_ms = self.queue.due_ms(self.next)
        if due_ms is None:
            due_ms = now_ms  # the read says what is wrong with it
        if due_ms > now_ms:
            due_ms -= self._ahead(now_ms)
        self.due_ms = due_ms
        return due_ms <= now_ms

    def _ahead(self, now_ms: int) -> int:
        """By how much the clock was set back since the next message was stored, ms.

        Its store time then lies ahead of the clock. It waits for its delay from now on, and those
        behind it keep their distance.
        """
        if now_ms < self._last_ms:
            self._ahead_ms = 0
        self._last_ms = now_ms
        try:
            found = self.queue.fetch(self.next, 1).messages
        except (CorruptRecordError, ReadFailedError):
            found = []  # it is told when the message is due
        ahead_ms = max((message.store_timestamp_ms - now_ms for message in found), default=0)
        if ahead_ms <= SLACK_MS:
            self._ahead_ms = 0
        elif not self._ahead_ms:
            self._ahead_ms = ahead_ms
        return self._ahead_ms

    # ---- errors ----

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
            "%s: messages of delay level %d wait for %.1f s more: %r",
            *(self.path, self.number, pause_s, error),
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
            "%s: the delayed message %d of level %d cannot be delivered; it is tried again: %r",
            *(self.path, queue_offset, self.number, error),
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
