"""Queues whose numbering began again at 0: a topic that was deleted and made again, a light queue
of a lite topic that expired (D-12). RocketMQ removes the queue's directory; the records stay in the
log with their old, higher queue offsets.

The queue of the last numbering is the one that counts. A record of an older one has no unit. Nor has
the later one of two records with the same queue offset.
"""

from __future__ import annotations

import logging
from typing import Final

from rocketstore.log.dispatch.unit_records import Find, Unit, holds
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.units import PRE_BLANK_SIZE

__all__ = ["RUN_MAX", "Restarts", "first_stays", "is_of_older_numbering"]

logger = logging.getLogger(__name__)

#: Records in a row, a count, that are a new numbering whatever follows: they are kept in memory.
RUN_MAX: Final = 1000


def is_of_older_numbering(
    queue: ConsumeQueue, queue_offset: int, physical_offset: int, find: Find
) -> bool:
    """Whether the numbering of a queue began again after this record: what has its queue offset,
    or a lower one, lies further on in the log."""
    if not queue.files:
        return False
    end = queue.written_end
    there = queue.unit(queue_offset) if queue_offset < end else None
    if there is not None and there[0] > physical_offset:
        return holds(queue, queue_offset, there, find)
    if there is not None and 0 < there[1] < PRE_BLANK_SIZE:
        return False
    before = min(queue_offset, end) - 1
    lower = queue.unit(before) if before >= 0 else None
    return lower is not None and lower[0] > physical_offset and holds(queue, before, lower, find)


def first_stays(queue: ConsumeQueue, queue_offset: int, physical_offset: int, find: Find) -> bool:
    """Whether the unit at `queue_offset` belongs to an earlier record with the same queue offset.
    As in RocketMQ it is kept then, unless it is out of order itself: a later record does not hide a
    good one."""
    there, before = queue.unit(queue_offset), queue.unit(queue_offset - 1)
    if there is None or there[0] >= physical_offset or (before and before[0] > there[0]):
        return False
    if not holds(queue, queue_offset, there, find):
        return False
    logger.warning(
        "%s: the records at %d and %d both have queue offset %d: the later one gets no unit",
        queue.name, there[0], physical_offset, queue_offset,
    )  # fmt: skip
    return True


class Restarts:
    """Records whose queue offsets are taken by earlier ones, as long as they count up from 0.

    They are a new numbering unless the old one goes on: copies of records may be in the log, too.
    """

    def __init__(self) -> None:
        self._begun: dict[tuple[str, int], tuple[int, list[Unit]]] = {}

    def units(self, queue: ConsumeQueue, queue_offset: int, unit: Unit) -> list[Unit]:
        """All units of the new numbering up to this one; none while it is not known to be one."""
        place = queue.topic, queue.queue_id
        end, units = self._begun.pop(place, (0, []))
        if queue_offset == 0:
            end, units = queue.written_end, []
            last = queue.unit(end - 1) if end else None
            if last is not None and last[0] > unit[0]:
                return []  # the old numbering goes on after this record
        if queue_offset != len(units) or end != queue.written_end:
            return []
        units.append(unit)
        if len(units) < min(end, RUN_MAX):
            self._begun[place] = end, units
            return []
        return units

    def left(self) -> list[tuple[str, int, int, list[Unit]]]:
        """Topic, queue id, end of the old numbering and units of each that was not decided."""
        begun, self._begun = self._begun, {}
        return [(*place, end, units) for place, (end, units) in begun.items()]
