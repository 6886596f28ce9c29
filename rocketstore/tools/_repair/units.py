"""Queue units that point into damaged ranges of the log, and what `repair` writes over them.

A unit becomes a pre-blank, with two exceptions that point to filler records (format 6.3). The last
unit of a queue: RocketMQ takes the end of its record for how far the queue got, 2 GiB after a
pre-blank, and dispatches nothing below. Units of the log's first file: RocketMQ's consumers are
given nothing of that file after a pre-blank.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import numpy

from rocketstore._native.format import queue_file
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.layout.listing import list_files
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE
from rocketstore.log.recovery.report import LostMessages
from rocketstore.puts.put_columns import SCHEDULE_TOPIC
from rocketstore.tools.filler_records import RECORD_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from rocketstore.store import Store

    Integers = NDArray[numpy.int64]

__all__ = [
    "FILLER_BODY_BYTES",
    "PointedFiller",
    "UnitsHit",
    "change_units",
    "is_delayed",
    "messages_of",
    "placed",
    "pointed_fillers",
    "queue_files",
    "units_into",
]

UNITS_STEP: Final = 1 << 16
#: Bytes in the body of a pointed filler record: RocketMQ's clients hand out null for an empty body.
FILLER_BODY_BYTES: Final = 1
#: Properties of pointed fillers in the topic of delayed messages. RocketMQ delivers what becomes
#: due, and drops a message for this topic; without a topic it would try again for ever.
DROPPED: Final = b"REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02"
#: Topic of RocketMQ 5's timer, which drops a message that takes back another, and stops where it
#: reads no time.
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TAKEN_BACK: Final = b"TIMER_DEL_UNIQKEY\x01%%\x02TIMER_OUT_MS\x01%d\x02"


class Interval(Protocol):
    """Physical offsets [start, end)."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...


class Mendable(Interval, Protocol):
    """Where filler records are written, up to `records_end`, the pointed ones first. `time_ms`:
    their store time."""

    @property
    def records_end(self) -> int: ...
    @property
    def time_ms(self) -> int: ...
    @property
    def pointed_fillers(self) -> Sequence[PointedFiller]: ...


class QueueFile(Protocol):
    """A file of a queue: its path, and where in the queue's bytes it starts."""

    @property
    def path(self) -> str: ...
    @property
    def start(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PointedFiller:
    """A record within a damaged range that a unit points to, `number` of the file `path`. Where the
    range has no room for one each, units share the last."""

    path: str
    number: int
    start: int
    size: int
    queue_id: int
    queue_offset: int
    properties: bytes

    @property
    def end(self) -> int:
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class UnitsHit:
    """Units of one file that point into damage: their numbers in it, and what they say."""

    path: str
    start: int
    size: int
    numbers: list[int]
    offsets: Integers
    sizes: Integers


def messages_of(hits: Iterable[UnitsHit]) -> list[LostMessages]:
    """The messages of these units, by queue."""
    found: dict[tuple[str, int], list[int]] = {}
    for hit in hits:
        directory = Path(hit.path).parent
        numbers = found.setdefault((directory.parent.name, int(directory.name)), [])
        numbers += [hit.start // UNIT_SIZE + int(number) for number in hit.numbers]
    return [
        LostMessages(
            topic=topic,
            queue_id=queue_id,
            first=min(numbers),
            last=max(numbers),
            count=len(numbers),
            why="damaged",
        )
        for (topic, queue_id), numbers in sorted(found.items())
        if numbers
    ]


def queue_files(directory: Path) -> list[tuple[str, int, int]]:
    """Path, start offset and size of each file of a queue, in order; what can be none is passed
    over."""
    return [
        (str(directory / f"{start:020d}"), start, size)
        for start, size in list_files(directory)
        if size and size % UNIT_SIZE == 0 and start + size < 1 << 63
    ]


def units_into(store: Store, ranges: Sequence[Interval]) -> Iterator[UnitsHit]:
    """Units of all queues that point into the ranges, which are in order."""
    if not ranges:
        return
    layout, _, _ = store._open().log_bounds()
    starts = numpy.array([one.start for one in ranges])
    ends = numpy.array([one.end for one in ranges])
    for directory in sorted(layout.consume_queue.glob("*/*")):
        for path, start, size in queue_files(directory):
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


def is_delayed(topic: str) -> bool:
    """Whether RocketMQ delivers the messages of a topic itself: it reads unit by unit."""
    return topic in (SCHEDULE_TOPIC, TIMER_TOPIC)


def pointed_fillers(store: Store, ranges: Sequence[Mendable]) -> list[list[PointedFiller]]:
    """Of each range: those for units that must not become pre-blanks, in the order of each
    queue."""
    wanted: list[list[tuple[QueueFile, int]]] = [[] for _ in ranges]
    starts = [one.start for one in ranges]
    file_size = store.config.commit_log_file_size_bytes
    for hit in units_into(store, ranges):
        queue = Path(hit.path).parent
        last = _last_unit(queue) - hit.start // UNIT_SIZE
        delayed = is_delayed(queue.parent.name)
        for number, offset in zip(hit.numbers, hit.offsets.tolist(), strict=True):
            at = bisect_right(starts, offset) - 1
            # After a pre-blank RocketMQ passes over the rest of the log's first file. Where it
            # delivers delayed messages itself it does not: it reads unit by unit.
            if number == last or (ranges[at].end < file_size and not delayed):
                wanted[at].append((hit, number))
    return [placed(one, units) for one, units in zip(ranges, wanted, strict=True)]


def placed(one: Mendable, units: Sequence[tuple[QueueFile, int]]) -> list[PointedFiller]:
    """Pointed fillers from the start of a range on, small enough that all have room if their
    records had it."""
    found: list[PointedFiller] = []
    tight = len(units) * (RECORD_BYTES_MIN + FILLER_BODY_BYTES) > one.end - one.start
    body_bytes = 0 if tight else FILLER_BODY_BYTES
    for hit, number in units:
        queue = Path(hit.path).parent
        properties = _properties(queue.parent.name, one.time_ms)
        size = RECORD_BYTES_MIN + body_bytes + len(properties)
        place = _next_place(found, one, size)
        if place is None:
            break  # no record fits
        if place[1] < RECORD_BYTES_MIN + len(properties):
            properties = b""
        queue_offset = hit.start // UNIT_SIZE + number
        found.append(
            PointedFiller(hit.path, number, *place, int(queue.name), queue_offset, properties)
        )
    return found


def _properties(topic: str, time_ms: int) -> bytes:
    """What a pointed filler says in a queue of a topic."""
    if topic == TIMER_TOPIC:
        return DROPPED + TAKEN_BACK % time_ms
    return DROPPED if topic == SCHEDULE_TOPIC else b""


def _last_unit(directory: Path) -> int:
    """Queue offset of the last unit of a queue, -1 without any."""
    for path, start, size in reversed(queue_files(directory)):
        file = MappedFile.open(path, start, size, "read")
        try:
            written = queue_file.written_units(file)
        finally:
            file.close()
        if written:
            return start // UNIT_SIZE + written - 1
    return -1


def _next_place(taken: Sequence[PointedFiller], one: Mendable, size: int) -> tuple[int, int] | None:
    """Start and size of a pointed filler after those that exist: either nothing is left after it,
    or another record fits there. Else that of the last one; None where there is no room at all."""
    start = taken[-1].end if taken else one.start
    room = one.records_end - start
    if room == size or room >= size + RECORD_BYTES_MIN:
        return start, size
    if room >= RECORD_BYTES_MIN:
        return start, room
    return (taken[-1].start, taken[-1].size) if taken else None


def change_units(store: Store, ranges: Sequence[Mendable]) -> int:
    """Points units at their pointed fillers and makes pre-blanks of all others that point into the
    ranges; how many there were."""
    places = {(unit.path, unit.number): unit for one in ranges for unit in one.pointed_fillers}
    changed = 0
    for found in list(units_into(store, ranges)):
        file = MappedFile.open(found.path, found.start, found.size, "write")
        try:
            for number in found.numbers:
                place = places.get((found.path, number))
                # Tags code 0: consumers that ask for tags are not given it.
                unit = queue_file.PRE_BLANK if place is None else (place.start, place.size, 0)
                queue_file.write_unit(file, number, *unit)
            file.sync(found.numbers[0] * UNIT_SIZE, (found.numbers[-1] + 1) * UNIT_SIZE)
        finally:
            file.close()
        changed += len(found.numbers)
    return changed
