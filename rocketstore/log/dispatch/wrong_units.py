"""Units of a queue that do not agree with the log.

Some point to records of other queues: files of two queues were swapped, or renamed. A queue that
ends with such a unit ends too far, one that begins with it begins too early. Readers refuse these
units, each with an error. An open takes them out, and dispatches what they hid.

Others point to no record: their messages were lost after they were durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from rocketstore._native.format import queue_file
from rocketstore._native.format.queue_reader import check_units
from rocketstore._native.format.scanner import VERIFY_RECORD_CRC
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.log.dispatch.unit_records import Unit, has_place, record_of
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE

__all__ = ["take_out_units_of_others", "units_of_no_record"]

logger = logging.getLogger(__name__)

#: Topic of the records that `repair` writes over damage: units of any queue may point to them.
REPAIR_TOPIC = "%"


def take_out_units_of_others(
    log: MappedFileQueue, queues: ConsumeQueueStore, begin: int, on_change: Callable[[], None]
) -> None:
    """Clears the units that point to records of other queues, where a queue ends, or in a trimmed
    log begins, with one. `on_change`: called before a queue changes."""
    for queue in queues.all():
        try:
            if _is_suspect(log, queue, begin):
                on_change()
                wrong = [  # the suspect one is among them
                    number
                    for number, unit in _in_doubt(log, queue, begin, log.end_offset)
                    if _is_of_another(log, queue, number, unit, begin)
                ]
                logger.warning(
                    "%s: units of other queues are in it (%d, the first at %d): they are taken out",
                    queue.directory, len(wrong), wrong[0],
                )  # fmt: skip
                queue.clear_units(wrong)
        except ReadFailedError:
            continue  # its reader gets the error


def units_of_no_record(
    log: MappedFileQueue, queue: ConsumeQueue, begin: int, end: int
) -> Iterator[tuple[int, int]]:
    """Queue offset, rising, and physical offset of the units that point to no record, though into
    the log in [begin, end)."""
    for number, unit in _in_doubt(log, queue, begin, end):
        inside = unit[1] != PRE_BLANK_SIZE and begin <= unit[0] < end
        if inside and record_of(unit, log.find) is None:
            yield number, unit[0]


def _is_suspect(log: MappedFileQueue, queue: ConsumeQueue, begin: int) -> bool:
    ends = queue.written_end - 1
    numbers = {ends, queue.min_offset} if begin else {ends}
    return any(
        (unit := queue.unit(number)) is not None and _is_of_another(log, queue, number, unit, begin)
        for number in numbers
        if number >= 0
    )


def _is_of_another(
    log: MappedFileQueue, queue: ConsumeQueue, queue_offset: int, unit: Unit, begin: int
) -> bool:
    """A unit of no record is none, nor one whose record has another checksum: it may be damaged, or
    trimmed. But the unit of a trimmed one does not lie after those of kept ones."""
    if unit[0] < begin and unit[1] != PRE_BLANK_SIZE:
        return queue_offset > queue.min_offset
    message = record_of(unit, log.find, VERIFY_RECORD_CRC)
    if message is None or message.topic == REPAIR_TOPIC:
        return False
    return not has_place(message, queue, queue_offset)


def _in_doubt(
    log: MappedFileQueue, queue: ConsumeQueue, begin: int, end: int
) -> Iterator[tuple[int, Unit]]:
    """Queue offset, rising, and unit: all written ones of each file in which not every unit is of a
    record of this very queue in [begin, end), or a pre-blank."""
    for file in queue.files:
        first = file.start_offset // UNIT_SIZE
        low = max(0, queue.min_offset - first)
        count = min(file.size // UNIT_SIZE, queue.written_end - first) - low
        if count <= 0 or _all_agree(log, queue, file, (low, count), (begin, end)):
            continue
        units = queue_file.units_array(file, low, count)
        fields = (units[name].tolist() for name in ("physical_offset", "size", "tags_code"))
        for number, unit in enumerate(zip(*fields, strict=True), first + low):
            if unit[1] > 0:
                yield number, unit


def _all_agree(
    log: MappedFileQueue,
    queue: ConsumeQueue,
    file: MappedFile,
    part: tuple[int, int],
    bounds: tuple[int, int],
) -> bool:
    low, count = part
    try:
        _, own, pre_blanks, _, _ = check_units(
            file,
            low * UNIT_SIZE,
            count,
            log.files,
            log.file_size or 0,
            topic=queue.topic.encode("utf-8", "surrogateescape"),
            queue_id=queue.queue_id,
            first_queue_offset=file.start_offset // UNIT_SIZE + low,
            log_minimum=bounds[0],
            limit_offset=bounds[1],
            tags=False,
        )
    except CorruptRecordError:
        return False
    return own + pre_blanks == count
