"""Units of a consume queue (format 6.1) and the files that hold units of any kind."""

from __future__ import annotations

import functools
import operator
import os
from typing import Final

from rocketstore._native.format import queue_file
from rocketstore._native.format.constants import PRE_BLANK_SIZE, UNIT_SIZE
from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.layout.paths import segment_name

__all__ = [
    "PRE_BLANK_SIZE",
    "QUEUE_OFFSET_MAX",
    "SIZE_MAX",
    "UNIT_SIZE",
    "UnitRefusedError",
    "check_gap",
    "has_units_up_to",
    "name_records_in_order",
    "unwritten_runs",
]

#: Largest record that a unit is believed to name, bytes; garbage names larger ones.
SIZE_MAX: Final = 64 << 20
#: Largest gap that is filled, units; an offset after a larger one is not believed.
GAP_UNITS_MAX: Final = 1 << 22
#: Largest read, bytes; beyond it a file is mapped.
READ_BYTES_MAX: Final = 64 << 10
#: Largest queue offset; the file after its unit still ends at an i64.
QUEUE_OFFSET_MAX: Final = (1 << 62) // UNIT_SIZE


class UnitRefusedError(ValueError):
    """A queue offset that a record cannot have; nothing was changed."""


def check_gap(queue: str, end: int, queue_offset: int) -> int:
    """Count of units missing between the end of a queue and an offset; UnitRefusedError for too
    many."""
    if queue_offset - end > GAP_UNITS_MAX:
        raise UnitRefusedError(f"{queue}: {queue_offset} is too far behind its end, {end}")
    return queue_offset - end


def has_units_up_to(directory: str | os.PathLike[str], file_size: int, end: int) -> bool:
    """Whether the file with the last unit below `end` has that unit and all before it. One read, so
    that a caller can ask for many queues. False if the read would be too large, or fails."""
    position = (end - 1) * UNIT_SIZE
    start = position - position % file_size
    size = position - start + UNIT_SIZE
    if size > READ_BYTES_MAX:
        return False
    try:
        fd = syscalls.open(os.path.join(directory, segment_name(start)), os.O_RDONLY)
    except OSError:
        return False
    try:
        data = syscalls.pread(fd, size, 0)
    except OSError:
        return False
    finally:
        syscalls.close(fd)
    return len(data) == size and _are_written(data)


def _are_written(units: bytes) -> bool:
    """Whether each unit has a physical offset of at least 0 and a size above 0. Looks at one byte
    of all units at a time; a number is not negative if its first byte is an ASCII one."""
    sizes = [units[at::UNIT_SIZE] for at in range(8, 12)]
    if not (units[0::UNIT_SIZE].isascii() and sizes[0].isascii()):
        return False
    joined = functools.reduce(operator.or_, (int.from_bytes(part, "big") for part in sizes))
    return 0 not in joined.to_bytes(len(sizes[0]), "big")


def unwritten_runs(file: MappedFile, count: int) -> list[tuple[int, int]]:
    """First unit and number of each run of units among the first `count` of a file that nobody
    wrote. RocketMQ takes such a unit for the end of the queue."""
    import numpy  # here: a queue without holes does without it

    units = queue_file.units_array(file, 0, count)
    unwritten = (units["size"] <= 0) | (units["physical_offset"] < 0)
    steps = numpy.flatnonzero(numpy.diff(numpy.pad(unwritten.astype("i1"), 1))).tolist()
    return [(begin, end - begin) for begin, end in zip(steps[::2], steps[1::2], strict=True)]


def name_records_in_order(file: MappedFile, count: int) -> bool:
    """Whether the first `count` units of a file can be those of a queue: each record begins where
    the one before ends, or later, and none is larger than any."""
    units = queue_file.units_array(file, 0, count)
    offsets, sizes = units["physical_offset"].astype("i8"), units["size"].astype("i8")
    records = (sizes > 0) & (offsets >= 0) & (sizes != PRE_BLANK_SIZE)
    offsets, sizes = offsets[records], sizes[records]
    return bool((offsets[1:] - offsets[:-1] >= sizes[:-1]).all() and (sizes <= SIZE_MAX).all())
