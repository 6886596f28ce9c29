"""What rebuilt queues take over from the old ones, because no message of the log says it.

Two things: units of filler records that `repair` wrote, and queue offsets after the last message
that were given out. Without them a consumer at such an offset would miss messages that get the
offset again.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy

from rocketstore._native.format import queue_file
from rocketstore._native.format.scanner import read_message
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.log.dispatch.gap_budget import GapBudget
from rocketstore.log.layout.listing import has_place, list_files
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.directories import queues_in
from rocketstore.log.queues.saved_ends import QueueEnds, load_queue_ends
from rocketstore.log.queues.units import (
    PRE_BLANK_SIZE,
    UNIT_SIZE,
    UnitRefusedError,
    has_units_up_to,
)
from rocketstore.log.read.column_reader import LogFiles
from rocketstore.tools._repair.pre_blanks import pre_blank_end
from rocketstore.tools.filler_records import is_pointed_filler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from rocketstore.engine.rebuild import Derived
    from rocketstore.log.queues.consume_queue import ConsumeQueue

    Integers = NDArray[numpy.int64]

__all__ = ["keep_handed_out"]

logger = logging.getLogger(__name__)


class _Unit(NamedTuple):
    queue_offset: int
    physical_offset: int
    size: int


def keep_handed_out(derived: Derived) -> None:
    """Completes the new queues out of the old ones. Raises OSError, DiskFullError."""
    size = derived.config.consume_queue_file_size_bytes
    made = ConsumeQueueStore(derived.root, "write", size, lambda: derived.begin)
    made.load()
    ends = load_queue_ends(derived.layout)
    if ends.log_end > derived.end:
        ends = QueueEnds()  # of another log
    files, gaps = LogFiles(derived.layout), GapBudget(derived.log_bytes)
    try:
        old = {queue[:2] for queue in queues_in(derived.layout.consume_queue)}
        for topic, queue_id in sorted(old.union((q.topic, q.queue_id) for q in made.all())):
            theirs = derived.layout.queue_directory(topic, queue_id)
            ours = derived.root.queue_directory(topic, queue_id)
            found = list(_pointed_fillers(theirs, ours, size, derived, files))
            end = max(_end_in_pre_blank(theirs), ends.least(topic, queue_id))
            if found or (end and ours.is_dir() and not has_units_up_to(ours, size, end)):
                _complete(made.add(topic, queue_id), found, end, gaps)
    finally:
        files.close()
        made.close()


def _end_in_pre_blank(directory: Path) -> int:
    """Where an old queue ended that ended in one; 0 for others."""
    try:
        blank = pre_blank_end(directory)
    except (OSError, ReadFailedError) as error:
        logger.warning("where %s ended is not known: %s", directory, error)
        return 0
    return 0 if blank is None else blank.start // UNIT_SIZE + blank.number + 1


def _complete(queue: ConsumeQueue, found: list[_Unit], end: int, gaps: GapBudget) -> None:
    try:
        for unit in found:
            begin = queue.files[0].start_offset // UNIT_SIZE if queue.files else 0
            if unit.queue_offset >= begin:
                if queue.files:
                    gaps.take(queue.name, queue.written_end, unit.queue_offset)
                queue.put(unit.queue_offset, unit.physical_offset, unit.size, 0)
        gaps.take(queue.name, queue.written_end, end)
        filled = queue.fill_gap(end)
    except UnitRefusedError as error:
        logger.warning("%s: where it ended is not believed: %s", queue.name, error)
        return
    if filled:
        logger.warning(
            "%s: ends at %d as before, and its last messages (%d) are lost: "
            "put one, or run repair, before RocketMQ starts",
            queue.name, end, filled,
        )  # fmt: skip


def _pointed_fillers(
    old: Path, new: Path, size: int, derived: Derived, log: LogFiles
) -> Iterator[_Unit]:
    """Units of the old queue that point to records of `repair` where the new one has none, in the
    order of both."""
    last = -1
    for start, length in list_files(old):
        if length != size or not has_place(start, size):
            continue
        (offsets, sizes), (ours, _) = _places(old, start, size), _places(new, start, size)
        count = max(len(offsets), len(ours))
        offsets, ours = _filled_up(offsets, count), _filled_up(ours, count)
        before = numpy.maximum.accumulate(ours)
        after = numpy.minimum.accumulate(numpy.where(ours < 0, derived.end, ours)[::-1])[::-1]
        wanted = (offsets >= derived.begin) & (ours < 0) & (offsets > before) & (offsets < after)
        for number in numpy.flatnonzero(wanted).tolist():
            unit = _Unit(start // UNIT_SIZE + number, int(offsets[number]), int(sizes[number]))
            if unit.physical_offset > last and _is_pointed_filler(log, unit):
                last = unit.physical_offset
                yield unit
        last = max(last, int(ours.max(initial=-1)))


def _places(directory: Path, start: int, size: int) -> tuple[Integers, Integers]:
    """Physical offsets and sizes of the units of a file, as far as something is written; -1 for
    what points to no record, nothing where it cannot be read. Most files of many queues are nearly
    empty."""
    path = directory / f"{start:020d}"
    units = numpy.empty(0, queue_file.UNIT_FIELDS)
    try:
        file = MappedFile.open(str(path), start, size, "read")
        try:
            count = queue_file.written_units(file)
            if file.find_data(count * UNIT_SIZE, size) < size:  # units that never reached the disk
                count = size // UNIT_SIZE
            units = queue_file.units_array(file, 0, count)
        finally:
            file.close()
    except FileNotFoundError:
        pass
    except (OSError, ReadFailedError, ValueError) as error:
        logger.warning("what %s said of lost messages is not known: %s", path, error)
    sizes = units["size"].astype("i8")
    points = (sizes > 0) & (sizes != PRE_BLANK_SIZE)
    return numpy.where(points, units["physical_offset"].astype("i8"), -1), sizes


def _filled_up(offsets: Integers, count: int) -> Integers:
    return numpy.pad(offsets, (0, count - len(offsets)), constant_values=-1)


def _is_pointed_filler(log: LogFiles, unit: _Unit) -> bool:
    file = log.at(unit.physical_offset)
    if file is None:
        return False
    try:
        position = unit.physical_offset - file.start_offset
        message = read_message(file, position, file.size, verify=0)
    except CorruptRecordError:
        return False
    return message.size == unit.size and is_pointed_filler(message)
