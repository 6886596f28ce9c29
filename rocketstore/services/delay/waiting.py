"""The queues of the schedule topic: which messages wait there, and when each is due."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rocketstore._native.format.queue_file import PRE_BLANK, UNIT_SIZE, read_unit
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC
from rocketstore.log.queues.extension_units import is_address
from rocketstore.log.read.batch_queue import BatchQueue

if TYPE_CHECKING:
    from rocketstore._native.format.message import Message
    from rocketstore.log.read.fetch_result import Fetch
    from rocketstore.log.read.reader import Reader
    from rocketstore.log.read.source import QueueView

__all__ = ["WaitingQueue", "waiting_queues"]

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
