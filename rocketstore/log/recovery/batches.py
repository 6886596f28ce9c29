"""The batch queues of a store without a writer, completed with the units that a crash left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore._native.format.scanner import read_message
from rocketstore.errors import CorruptRecordError
from rocketstore.log.mapped_files.memory_log import MemoryLog
from rocketstore.log.read.batch_queue import BatchUnit
from rocketstore.log.read.batch_queues import BatchQueues
from rocketstore.log.read.inner_batch import count_of, is_inner_batch
from rocketstore.log.read.read_view import ReadView
from rocketstore.values.system_flags import IN_QUEUES, TRANSACTION_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketstore._native.format.message import Message
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.recovery.report import RecoveryReport

__all__ = ["recovered_batches"]


def recovered_batches(
    layout: StoreLayout, log: MappedFileQueue, report: RecoveryReport
) -> BatchQueues:
    """Batch queues up to the end of a recovered log. Units that RocketMQ had not dispatched are
    made in memory: its own recovery would write them."""
    view = ReadView(0, report.begin, report.end, report.end)
    if isinstance(log, MemoryLog):
        return _NoBatchQueues(layout, lambda: view)
    batches = BatchQueues(layout, lambda: view)
    if log.access != "write" and report.mode.endswith("unclean") and batches.topics():
        _complete(batches, log, report)
    return batches


class _NoBatchQueues(BatchQueues):
    """The batch queues of an untrusted store: none, since its queue files are not opened."""

    def topics(self) -> list[str]:
        return []

    def queues(self, topic: str) -> list[int]:
        return []

    def queue(self, topic: str, queue_id: int) -> None:
        return None


def _complete(batches: BatchQueues, log: MappedFileQueue, report: RecoveryReport) -> None:
    topics = frozenset(batches.topics())
    ends: dict[tuple[str, int], int] = {}
    found: dict[tuple[str, int], list[BatchUnit]] = {}
    for record in _records(log, report):
        key = (record.topic, record.queue_id)
        if record.topic not in topics or not is_inner_batch(record):
            continue  # RocketMQ makes no unit of a single message in such a topic
        if record.sys_flag & TRANSACTION_TYPE not in IN_QUEUES:
            continue
        if key not in ends:
            queue = batches.queue(*key)
            if queue is None:
                continue
            ends[key] = queue.max_offset
        count = count_of(record)
        if record.queue_offset >= ends[key]:
            ends[key] = record.queue_offset + count
            found.setdefault(key, []).append(
                BatchUnit(
                    record.physical_offset,
                    record.size,
                    record.tags_code,
                    record.store_timestamp_ms,
                    record.queue_offset,
                    count,
                )
            )
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
