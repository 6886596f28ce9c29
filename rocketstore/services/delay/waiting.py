"""The queues of the schedule topic: which messages wait there, and when each is due. What delivery
knows of such a queue: pauses, messages that are left over, and how far it has come."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from typing import Final

from rocketstore._native.format.message import Message
from rocketstore._native.format.queue_file import PRE_BLANK, UNIT_SIZE, read_unit
from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC
from rocketstore.log.queues.extension_units import is_address
from rocketstore.log.read.batch_queue import BatchQueue
from rocketstore.log.read.fetch_result import Fetch
from rocketstore.log.read.reader import Reader
from rocketstore.log.read.source import QueueView
from rocketstore.values.kept_errors import without_frames

__all__ = ["SLACK_MS", "Level", "Troubles", "WaitingQueue", "waiting_queues"]

#: Messages that are read at a time.
BATCH: Final = 64


class WaitingQueue:
    """One queue of the schedule topic, whose units hold the time at which each message is due; or
    that of the timer topic, whose units do not."""

    def __init__(self, reader: Reader, queue_id: int, topic: str = SCHEDULE_TOPIC) -> None:
        self.queue_id = queue_id
        self.topic = topic
        self._reader = reader

    def bounds(self, *, catch_up: bool = True) -> tuple[int, int]:
        """Least and next queue offset, after a catch-up."""
        return self._reader.bounds(self.topic, self.queue_id, catch_up=catch_up)

    def due_ms(self, queue_offset: int) -> int | None:
        """When the message of a unit is due by the clock of the day; None without one."""
        unit = self._unit(queue_offset)
        if unit is None:
            return None
        queue, (_, _, due_ms) = unit
        if is_address(due_ms):
            extension = queue.extension.unit(due_ms)
            return None if extension is None else extension.tags_code
        return due_ms

    def physical_offset(self, queue_offset: int) -> int | None:
        """Where the message of a unit lies in the log; None without one."""
        unit = self._unit(queue_offset)
        return None if unit is None else unit[1][0]

    def _unit(self, queue_offset: int) -> tuple[QueueView, tuple[int, int, int]] | None:
        """A unit, with the queue that has it."""
        queue = self._reader.source.queue(self.topic, self.queue_id)
        if queue is None or isinstance(queue, BatchQueue):
            return None
        located = queue.locate(queue_offset)
        if located is None:
            return None
        file, position, _ = located
        unit = read_unit(file, position // UNIT_SIZE)
        return None if unit is None or unit[1] == PRE_BLANK[1] else (queue, unit)

    def fetch(self, queue_offset: int, count: int = BATCH) -> Fetch:
        """Messages from an offset on; errors are those of `Reader.fetch`."""
        return self._reader.fetch(self.topic, self.queue_id, queue_offset, count)

    def messages(self, queue_offset: int) -> Iterator[Message]:
        """The messages from an offset on, as far as they are visible."""
        end = self.bounds()[1]
        while queue_offset < end:
            found = self.fetch(queue_offset)
            yield from found.messages
            if found.next_offset <= queue_offset:
                return
            queue_offset = found.next_offset


def waiting_queues(reader: Reader) -> list[WaitingQueue]:
    """All queues of the schedule topic that there are."""
    return [WaitingQueue(reader, n) for n in sorted(reader.source.queues(SCHEDULE_TOPIC))]


logger = logging.getLogger(__name__)

#: How far a store time may be ahead of the clock before that counts as set back, ms.
SLACK_MS: Final = 1000
#: Pauses after an error: doubled with each, seconds.
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 60.0
#: Messages of one queue that are left over; with more of them the queue waits.
MOST_UNDELIVERED: Final = 1000


def _pause_s(tries: int) -> float:
    return min(FIRST_PAUSE_S * float(1 << min(tries, 20)), LONGEST_PAUSE_S)


class Troubles:
    """What keeps messages of one queue from being delivered: pauses, and messages that are left
    over. Only the thread of delivery changes it."""

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
