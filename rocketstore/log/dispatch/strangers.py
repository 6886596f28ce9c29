"""Units that point to records of other queues: files of two queues were swapped, or renamed.

A queue that ends with such a unit ends too far, one that begins with it begins too early. Readers
refuse these units, each with an error. An open takes them out, and dispatches what they hid.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rocketstore._native.format import queue_file
from rocketstore._native.format.scanner import VERIFY_RECORD_CRC
from rocketstore.errors import ReadFailedError
from rocketstore.log.dispatch.unit_records import Unit, has_place, record_of
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = ["take_out_strangers"]

logger = logging.getLogger(__name__)

#: Topic of the records that `repair` writes over damage: units of any queue may point to them.
REPAIR_TOPIC = "%"


def take_out_strangers(
    log: MappedFileQueue, queues: ConsumeQueueStore, begin: int, on_change: Callable[[], None]
) -> None:
    """Clears the units that point to records of other queues, where a queue ends, or in a trimmed
    log begins, with one. `on_change`: called before a queue changes."""
    for queue in queues.all():
        try:
            if _is_suspect(log, queue, begin):
                on_change()
                strangers = list(_strangers(log, queue, begin))  # the suspect one is among them
                logger.warning(
                    "%s: units of other queues are in it (%d, the first at %d): they are taken out",
                    queue.directory, len(strangers), strangers[0],
                )  # fmt: skip
                queue.clear_units(strangers)
        except ReadFailedError:
            continue  # its reader gets the error


def _is_suspect(log: MappedFileQueue, queue: ConsumeQueue, begin: int) -> bool:
    ends = queue.written_end - 1
    numbers = {ends, queue.min_offset} if begin else {ends}
    return any(
        (unit := queue.unit(number)) is not None and _is_stranger(log, queue, number, unit, begin)
        for number in numbers
        if number >= 0
    )


def _is_stranger(
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


def _strangers(log: MappedFileQueue, queue: ConsumeQueue, begin: int) -> Iterator[int]:
    """Queue offsets, rising."""
    end = queue.written_end
    for file in queue.files:
        first = file.start_offset // UNIT_SIZE
        for number in range(min(file.size // UNIT_SIZE, end - first)):
            unit = queue_file.read_unit(file, number)
            if unit is not None and _is_stranger(log, queue, first + number, unit, begin):
                yield first + number
