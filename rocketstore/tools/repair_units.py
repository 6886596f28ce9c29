"""Units of queues that point into damaged ranges of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy

from rocketstore._native import queue_file
from rocketstore._native.mapped_file import MappedFile
from rocketstore.log.queue_units import PRE_BLANK_SIZE, UNIT_SIZE, list_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from rocketstore.store import Store

    Integers = NDArray[numpy.int64]

__all__ = ["UnitsHit", "clear_units", "units_into"]

UNITS_STEP: Final = 1 << 16


class Interval(Protocol):
    """Physical offsets [start, end)."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


@dataclass(frozen=True, slots=True)
class UnitsHit:
    """Units of one file that point into damage: their numbers in it, and what they say."""

    path: str
    start: int
    size: int
    numbers: list[int]
    offsets: Integers
    sizes: Integers


def units_into(store: Store, ranges: Sequence[Interval]) -> Iterator[UnitsHit]:
    """Units of all queues that point into the ranges, which are in order."""
    if not ranges:
        return
    layout, _, _ = store._log_bounds()
    starts = numpy.array([one.start for one in ranges])
    ends = numpy.array([one.end for one in ranges])
    for directory in sorted(layout.consume_queue.glob("*/*")):
        for start, size in list_files(directory):
            if size == 0 or size % UNIT_SIZE or start + size >= 1 << 63:
                continue
            path = str(directory / f"{start:020d}")
            file = MappedFile.open(path, start, size, "read")
            try:
                for first in range(0, size // UNIT_SIZE, UNITS_STEP):
                    count = min(UNITS_STEP, size // UNIT_SIZE - first)
                    units = queue_file.units_array(file, first, count)
                    offsets, sizes = (units[n].astype("i8") for n in ("physical_offset", "size"))
                    near = numpy.searchsorted(starts, offsets, side="right") - 1
                    hit = (near >= 0) & (offsets < ends[near]) & (sizes > 0)
                    places = numpy.flatnonzero(hit & (sizes != PRE_BLANK_SIZE))
                    if len(places):
                        numbers = (places + first).tolist()
                        yield UnitsHit(path, start, size, numbers, offsets[places], sizes[places])
            finally:
                file.close()


def clear_units(store: Store, ranges: Sequence[Interval]) -> int:
    """Makes pre-blanks of the units that point into the ranges; how many."""
    cleared = 0
    for found in list(units_into(store, ranges)):
        file = MappedFile.open(found.path, found.start, found.size, "write")
        try:
            for number in found.numbers:
                queue_file.write_unit(file, number, *queue_file.PRE_BLANK)
            file.sync(found.numbers[0] * UNIT_SIZE, (found.numbers[-1] + 1) * UNIT_SIZE)
        finally:
            file.close()
        cleared += len(found.numbers)
    return cleared
