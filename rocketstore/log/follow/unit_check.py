"""Whether a unit is that of its record (format 15.2, equation 9): asked where nobody says how far units are
whole."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketstore._native.scanner import read_message
from rocketstore._native.unit_reader import read_units
from rocketstore.errors import CorruptRecordError
from rocketstore.log.read.batch_reader import record_of
from rocketstore.values.system_flags import IN_QUEUES, TRANSACTION_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketstore._native.mapped_file import MappedFile
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.read.batch_queue import BatchUnit
    from rocketstore.log.read.source import ReadSource

__all__ = ["UnitMatching", "first_stays"]

logger = logging.getLogger(__name__)


def first_stays(
    queue: ConsumeQueue,
    queue_offset: int,
    physical_offset: int,
    find: Callable[[int], MappedFile | None],
) -> bool:
    """Whether the unit that stands there is of a record in front of `physical_offset` that says the same place. As in
    RocketMQ it is kept then, unless it is out of order itself: a later record does not hide a good one."""
    there, before = queue.unit(queue_offset), queue.unit(queue_offset - 1)
    if there is None or there[0] >= physical_offset or (before and before[0] > there[0]):
        return False
    file = find(there[0])
    if file is None:
        return False
    try:
        message = read_message(file, there[0] - file.start_offset, file.size, verify=0)
    except CorruptRecordError:
        return False
    place = (message.topic, message.queue_id, message.queue_offset, message.size)
    in_queue = message.sys_flag & TRANSACTION_TYPE in IN_QUEUES
    if not in_queue or place != (queue.topic, queue.queue_id, queue_offset, there[1]):
        return False
    logger.warning(
        "%s/%d: the records at %d and %d both have queue offset %d: the later one gets no unit",
        queue.topic, queue.queue_id, there[0], physical_offset, queue_offset,
    )  # fmt: skip
    return True


class UnitMatching:
    """Compares units of one store with their records, and tells `found` of each that holds."""

    __slots__ = ("_found", "_source")

    def __init__(self, source: ReadSource, found: Callable[[], None]) -> None:
        self._source = source
        self._found = found

    def units_of(self, topic: str, queue_id: int) -> Callable[[MappedFile, int, int], bool]:
        """For one consume queue: by file, position and queue offset."""
        raw = topic.encode()

        def matches(file: MappedFile, position: int, queue_offset: int) -> bool:
            source = self._source
            try:
                read_units(
                    file,
                    position,
                    1,
                    source.segments(),
                    source.segment_size,
                    topic=raw,
                    queue_id=queue_id,
                    first_queue_offset=queue_offset,
                    log_minimum=source.minimum(),
                    limit_offset=source.visible(),
                    verify=0,
                    tags_codes=None,
                )
            except CorruptRecordError:
                return False
            self._found()
            return True

        return matches

    def batch_unit(self, topic: str, queue_id: int, unit: BatchUnit) -> bool:
        """For a unit of a batch queue."""
        try:
            record_of(self._source, unit, topic, queue_id, verify=0)
        except CorruptRecordError:
            return False
        self._found()
        return True
