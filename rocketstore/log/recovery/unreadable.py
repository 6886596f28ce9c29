"""Units that point to no record, below the place from which a recovery walks the log: the messages
there were lost after they were durable. Only a caller that asks for it pays for this look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore._native.format import queue_file
from rocketstore._native.format.queue_reader import check_units
from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.log.dispatch.unit_records import record_of
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE
from rocketstore.log.recovery.report import LostMessages, RecoveryReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = ["unreadable_messages"]


def unreadable_messages(
    queues: ConsumeQueueStore, log: MappedFileQueue, report: RecoveryReport
) -> tuple[LostMessages, ...]:
    """The messages of all queues that no reader gets, since their units point to no record, without
    those that `report` names already. Relies on: all is dispatched that can be."""
    known = [(one.start, one.end) for one in report.damage]
    if report.missing:
        known += log.gaps
    found = []
    for queue in queues.all():
        try:
            numbers = list(_unreadable(queue, log, report, known))
        except (ReadFailedError, OSError):  # its reader gets the error
            continue
        if numbers:
            found.append(
                LostMessages(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    first=numbers[0],
                    last=numbers[-1],
                    count=len(numbers),
                    why="damaged",
                )
            )
    return tuple(sorted(found, key=lambda one: (one.topic, one.queue_id)))


def _unreadable(
    queue: ConsumeQueue,
    log: MappedFileQueue,
    report: RecoveryReport,
    known: Sequence[tuple[int, int]],
) -> Iterator[int]:
    """Queue offsets, rising."""
    end = queue.written_end
    for file in queue.files:
        first = file.start_offset // UNIT_SIZE
        count = min(file.size // UNIT_SIZE, end - first)
        begin = queue_file.first_kept(file, 0, count, report.begin) if count > 0 else 0
        if begin >= count or _all_agree(queue, file, (begin, count), log, report):
            continue
        units = queue_file.units_array(file, begin, count - begin)
        fields = (units[name].tolist() for name in ("physical_offset", "size"))
        for number, (offset, size) in enumerate(zip(*fields, strict=True), first + begin):
            if not 0 < size != PRE_BLANK_SIZE or not report.begin <= offset < report.end:
                continue
            if any(low <= offset < high for low, high in known):
                continue
            if record_of((offset, size, 0), log.find) is None:
                yield number


def _all_agree(
    queue: ConsumeQueue,
    file: MappedFile,
    bounds: tuple[int, int],
    log: MappedFileQueue,
    report: RecoveryReport,
) -> bool:
    """Whether each of these units of a file is of a record of this very queue, or a pre-blank."""
    begin, end = bounds
    try:
        _, own, pre_blanks, _, _ = check_units(
            file,
            begin * UNIT_SIZE,
            end - begin,
            log.files,
            log.file_size or 0,
            topic=queue.topic.encode("utf-8", "surrogateescape"),
            queue_id=queue.queue_id,
            first_queue_offset=file.start_offset // UNIT_SIZE + begin,
            log_minimum=report.begin,
            limit_offset=report.end,
            tags=False,
        )
    except CorruptRecordError:
        return False
    return own + pre_blanks == end - begin
