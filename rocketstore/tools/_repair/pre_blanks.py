"""Pre-blanks that keep RocketMQ from messages (format 6.3), and the filler records that take their
place.

RocketMQ dispatches nothing after a pre-blank at the end of a queue, and consumers of the log's
first file are given nothing after one. An earlier repair left such pre-blanks, and rebuilt queues
have them where filler records are. Their units are pointed at filler records of an earlier repair.
"""

from __future__ import annotations

import dataclasses
import logging
from bisect import bisect_left, bisect_right
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy

from rocketstore._native.format import queue_file
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.api.scan import scan
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE
from rocketstore.tools._repair.damage import DamagedRange
from rocketstore.tools._repair.units import (
    FILLER_BODY_BYTES,
    is_delayed,
    placed,
    queue_files,
    units_into,
)
from rocketstore.tools.filler_records import RECORD_BYTES_MIN, REPAIR_TOPIC
from rocketstore.values.system_flags import ROLLED_BACK, TRANSACTION_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rocketstore.store import Store
    from rocketstore.tools._repair.units import PointedFiller

    Integers = NDArray[numpy.int64]

logger = logging.getLogger(__name__)

__all__ = ["PreBlanks", "find_pre_blanks", "point_them", "pre_blank_end", "with_ends"]


REASON: Final = "a queue has a pre-blank"
#: Pre-blanks in a row that are looked at; more cannot be lost messages of one file.
RUN_MAX: Final = 1 << 16
POINTED_FILLER_BYTES: Final = RECORD_BYTES_MIN + FILLER_BODY_BYTES


class PreBlankEnd(NamedTuple):
    """The last unit of a queue, a pre-blank: `number` of its file. `physical_offset`: of the unit
    before that is none; -1 without one."""

    path: str
    start: int
    number: int
    physical_offset: int


class PreBlank(NamedTuple):
    path: str
    start: int
    number: int


class PreBlanks(NamedTuple):
    """Pre-blanks in a row; the units around them point to these offsets. `after` None: they end
    their queue."""

    units: tuple[PreBlank, ...]
    before: int
    after: int | None


def find_pre_blanks(store: Store) -> list[PreBlanks]:
    """Those that RocketMQ is led astray by."""
    layout, begin, _ = store._open().log_bounds()
    size = store.config.commit_log_file_size_bytes
    found = []
    for directory in sorted(layout.consume_queue.glob("*/*")):
        last: list[PreBlank] = []
        if begin < size and not is_delayed(directory.parent.name):
            rows, last = _in_front(directory, size)
            found += rows
        end = pre_blank_end(directory)
        if end is not None:
            units = last or [PreBlank(end.path, end.start, end.number)]
            found.append(PreBlanks(tuple(units), end.physical_offset, None))
    return found


def _in_front(directory: Path, limit: int) -> tuple[list[PreBlanks], list[PreBlank]]:
    """Pre-blanks before units that point below `limit`; and those after such units at the end of
    the queue."""
    found: list[PreBlanks] = []
    run: list[PreBlank] = []
    before = -1
    for path, start, offsets, sizes in _files(directory):
        if not run and PRE_BLANK_SIZE not in sizes:
            before = int(offsets[-1])
        else:
            units = zip(offsets.tolist(), sizes.tolist(), strict=True)
            for number, (offset, size) in enumerate(units):
                if size == PRE_BLANK_SIZE:
                    if len(run) < RUN_MAX:
                        run.append(PreBlank(path, start, number))
                    continue
                if run and offset < limit:
                    found.append(PreBlanks(tuple(run), before, offset))
                run, before = [], offset
        if before >= limit:
            return found, []
    return found, run if len(run) < RUN_MAX else []


def _files(directory: Path) -> Iterator[tuple[str, int, Integers, Integers]]:
    """Path and start of each file of a queue, physical offsets and sizes of what is written
    there."""
    for path, start, size in queue_files(directory):
        file = MappedFile.open(path, start, size, "read")
        try:
            units = queue_file.units_array(file, 0, queue_file.written_units(file))
        finally:
            file.close()
        if not len(units):
            return
        yield path, start, units["physical_offset"].astype("i8"), units["size"].astype("i8")


def pre_blank_end(directory: Path) -> PreBlankEnd | None:
    """Of a queue that ends in one."""
    found = None
    for path, start, size in reversed(queue_files(directory)):
        file = MappedFile.open(path, start, size, "read")
        try:
            for number in reversed(range(queue_file.written_units(file))):
                unit = queue_file.read_unit(file, number)
                if unit is not None and unit != queue_file.PRE_BLANK:
                    return found and found._replace(physical_offset=unit[0])
                found = found or PreBlankEnd(path, start, number, -1)
        finally:
            file.close()
    return found


def with_ends(store: Store, rows: Sequence[PreBlanks]) -> list[DamagedRange]:
    """Records of an earlier repair to be overwritten with pointed fillers for these, as far as
    there are any between what the units around say."""
    fillers = _fillers(store) if rows else []
    starts = [one.start for one in fillers]
    room = [(one.end - one.start) // POINTED_FILLER_BYTES for one in fillers]
    wanted: dict[int, list[PreBlank]] = {}
    # Ends of queues first, of which each has one of its own where it can be.
    for row in sorted(rows, key=lambda one: (one.after is not None, -one.before)):
        low = bisect_right(starts, row.before)
        high = len(starts) if row.after is None else bisect_left(starts, row.after)
        taken = _taken(room[low:high], len(row.units))
        if row.after is None and low < high and not taken:
            # The last one alone, in a record that several queues may share.
            taken = _taken(room[low:high], 1) or [high - low - 1]
        if not taken:
            _warn(row)
        for unit, place in zip(reversed(row.units), taken, strict=False):
            wanted.setdefault(low + place, []).append(unit)
            room[low + place] -= 1
    found = []
    for number, units in sorted(wanted.items()):
        pointed_fillers = placed(fillers[number], [(unit, unit.number) for unit in sorted(units)])
        found.append(dataclasses.replace(fillers[number], pointed_fillers=tuple(pointed_fillers)))
    return found


def _taken(room: Sequence[int], count: int) -> list[int]:
    """Where as many have room, the last one first; nothing where not all have."""
    places = (at for at in reversed(range(len(room))) for _ in range(room[at]))
    found = list(islice(places, count))
    return found if len(found) == count else []


def _warn(row: PreBlanks) -> None:
    queue = Path(row.units[0].path).parent
    if row.after is None:
        logger.warning("%s ends in a pre-blank: put a message before RocketMQ starts", queue)
        return
    first = row.units[0].start // UNIT_SIZE + row.units[0].number
    logger.warning(
        "%s: after offset %d, which has no message, RocketMQ's consumers are given nothing more "
        "of the log's first file",
        queue, first,
    )  # fmt: skip


def _fillers(store: Store) -> list[DamagedRange]:
    """Records in place of damage, and that no unit points to."""
    size = store.config.commit_log_file_size_bytes
    names = ("physical_offset", "size", "sys_flag", "store_timestamp_ms")
    found = []
    for chunk in scan(store, columns=names, topics=REPAIR_TOPIC, on_damage="skip"):
        rows = zip(*(chunk[name].tolist() for name in names), strict=True)
        for start, length, flags, time_ms in rows:
            if flags & TRANSACTION_TYPE == ROLLED_BACK:
                file_end = (start // size + 1) * size
                found.append(DamagedRange(start, start + length, REASON, file_end, time_ms))
    taken = {offset for hit in units_into(store, found) for offset in hit.offsets.tolist()}
    return [one for one in found if one.start not in taken]


def point_them(pointed_fillers: Sequence[PointedFiller]) -> None:
    """Overwrites these units, which are pre-blanks, and syncs."""
    for unit in pointed_fillers:
        start = int(Path(unit.path).name)
        file = MappedFile.open(unit.path, start, Path(unit.path).stat().st_size, "write")
        try:
            queue_file.write_unit(file, unit.number, unit.start, unit.size, 0)
            file.sync(unit.number * UNIT_SIZE, (unit.number + 1) * UNIT_SIZE)
        finally:
            file.close()
