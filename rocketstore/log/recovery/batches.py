"""The batch queues of a store without a writer, completed with the units that a crash left out; of
an untrusted store all units are made from its log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from typing import Final

from rocketstore._native.format.message import Message
from rocketstore._native.format.scanner import read_message
from rocketstore.errors import CorruptRecordError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.mapped_files.memory_log import MemoryLog
from rocketstore.log.read.batch_queue import (
    BatchQueue,
    BatchQueues,
    BatchUnit,
    MemoryBatchQueue,
    batch_directory,
    batch_topics,
)
from rocketstore.log.read.batch_reader import count_of, is_inner_batch
from rocketstore.log.read.fetch_result import ReadView
from rocketstore.log.recovery.report import RecoveryReport
from rocketstore.values.system_flags import IN_QUEUES, TRANSACTION_TYPE

__all__ = ["recovered_batches"]

logger = logging.getLogger(__name__)

#: Largest queue offset of the first message of a batch: those after it have one, too.
_LAST: Final = (1 << 63) - 1 - (1 << 15)


def recovered_batches(
    layout: StoreLayout, log: MappedFileQueue, report: RecoveryReport
) -> BatchQueues:
    """Batch queues up to the end of a recovered log. Units that RocketMQ had not dispatched are
    made in memory: its own recovery would write them."""
    view = ReadView(0, report.begin, report.end, report.end)
    if isinstance(log, MemoryLog):
        return _BatchQueuesOfLog(layout, lambda: view, log, report)
    batches = BatchQueues(layout, lambda: view)
    if log.access != "write" and report.mode.endswith("unclean") and batches.topics():
        _complete(batches, log, report)
    return batches


class _BatchQueuesOfLog(BatchQueues):
    """The batch queues of an untrusted store, whose queue files are not opened: a directory names
    the topic, and the log has what its queues hold. A topic without a batch in the log is none of
    them."""

    def __init__(
        self,
        layout: StoreLayout,
        view: Callable[[], ReadView],
        log: MappedFileQueue,
        report: RecoveryReport,
    ) -> None:
        super().__init__(layout, view)
        topics = frozenset(batch_topics(layout))
        units = _units_of(log, report, topics) if topics else {}
        for (topic, queue_id), found in units.items():
            directory = batch_directory(layout, topic, queue_id)
            queue = MemoryBatchQueue(directory, view, bytes(found))
            self._queues[topic, queue_id] = queue

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self._queues})

    def queues(self, topic: str) -> list[int]:
        return sorted(queue_id for name, queue_id in self._queues if name == topic)

    def queue(self, topic: str, queue_id: int) -> BatchQueue | None:
        return self._queues.get((topic, queue_id))


def _units_of(
    log: MappedFileQueue, report: RecoveryReport, topics: Collection[str]
) -> dict[tuple[str, int], bytearray]:
    """The units of all batches of the log, as they would lie in the files of their queues."""
    ends: dict[tuple[str, int], int] = {}
    found: dict[tuple[str, int], bytearray] = {}
    for record in _records(log, report):
        if record.topic not in topics or not _is_dispatched(record):
            continue
        key, unit = (record.topic, record.queue_id), _unit_of(record)
        if record.queue_id < 0 or not ends.get(key, 0) <= unit.base_offset <= _LAST:
            logger.warning(
                "%s/%d: the batch at %d gets no unit: its queue offset, %d, cannot be",
                *key, record.physical_offset, unit.base_offset,
            )  # fmt: skip
            continue
        ends[key] = unit.next_offset
        found.setdefault(key, bytearray()).extend(unit.pack())
    return found


def _is_dispatched(record: Message) -> bool:
    """RocketMQ makes no unit of a single message in such a topic."""
    return is_inner_batch(record) and record.sys_flag & TRANSACTION_TYPE in IN_QUEUES


def _unit_of(record: Message) -> BatchUnit:
    return BatchUnit(
        record.physical_offset,
        record.size,
        record.tags_code,
        record.store_timestamp_ms,
        record.queue_offset,
        count_of(record),
    )


def _complete(batches: BatchQueues, log: MappedFileQueue, report: RecoveryReport) -> None:
    topics = frozenset(batches.topics())
    ends: dict[tuple[str, int], int] = {}
    found: dict[tuple[str, int], list[BatchUnit]] = {}
    for record in _records(log, report):
        key = (record.topic, record.queue_id)
        if record.topic not in topics or not _is_dispatched(record):
            continue
        if key not in ends:
            queue = batches.queue(*key)
            if queue is None:
                continue
            ends[key] = queue.max_offset
        if record.queue_offset >= ends[key]:
            unit = _unit_of(record)
            ends[key] = unit.next_offset
            found.setdefault(key, []).append(unit)
    for key, units in found.items():
        queue = batches.queue(*key)
        if queue is not None:
            queue.add_tail(units)


def _records(log: MappedFileQueue, report: RecoveryReport) -> Iterator[Message]:
    """Records that a recovery dispatches again. What is no record is passed over as far as it is
    known, else up to the next file."""
    damage = {part.start: part.end for part in report.damage}
    offset = max(report.begin, report.dispatch_start)
    while offset < report.end:
        file = log.find(offset)
        if file is None:
            following = [other.start_offset for other in log.files if other.start_offset > offset]
            offset = min(following, default=report.end)
            continue
        try:
            record = read_message(file, offset - file.start_offset, file.size, verify=0)
        except CorruptRecordError:
            offset = damage.get(offset, file.end_offset)
            continue
        yield record
        offset += record.size
