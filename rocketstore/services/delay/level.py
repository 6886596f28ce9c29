"""One delay level: its queue, how far delivery has come in it, and what was left over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.services.delay.troubles import Troubles

if TYPE_CHECKING:
    from rocketstore.services.delay.waiting import WaitingQueue

__all__ = ["Level"]

#: How far a store time may be ahead of the clock before that counts as set back, ms.
SLACK_MS: Final = 1000


class Level(Troubles):
    """What delivery knows of one queue of the schedule topic. Only its thread changes it."""

    def __init__(
        self, path: str, queue: WaitingQueue, next: int, undelivered: Iterable[int]
    ) -> None:
        """`next`: queue offset of the next message. `undelivered`: messages below it that could not
        be delivered."""
        super().__init__(path, f"delay level {queue.queue_id + 1}", undelivered)
        self.queue = queue
        self.next = next
        #: When the next one is due; None while there is none.
        self.due_ms: int | None = None
        # By how much store times were ahead of the clock when that was first seen, and the last
        # look.
        self._ahead_ms = 0
        self._last_ms = 0

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
        after it keep their distance.
        """
        if now_ms < self._last_ms:
            self._ahead_ms = 0
        self._last_ms = now_ms
        try:
            found = self.queue.fetch(self.next, 1).messages
        except (CorruptRecordError, ReadFailedError):
            found = []  # the error is reported when the message is due
        ahead_ms = max((message.store_timestamp_ms - now_ms for message in found), default=0)
        if ahead_ms <= SLACK_MS:
            self._ahead_ms = 0
        elif not self._ahead_ms:
            self._ahead_ms = ahead_ms
        return self._ahead_ms
