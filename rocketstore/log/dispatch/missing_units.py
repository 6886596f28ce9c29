"""Which records of the log have no unit in their queue: the look that an open and `verify` take
(K-88).

A queue may lack files or units below the place from which an open dispatches. Then its messages are
in the log, and no consumer gets them. The look walks the headers of records, natively, and holds
each against the unit at its queue offset. It writes nothing.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rocketstore._native.dispatch import unit_look as native
from rocketstore._native.format.codec import decode_properties
from rocketstore._native.format.scanner import SearchBudget, resynchronise
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import ReadFailedError
from rocketstore.log.dispatch.generations import is_of_older_numbering
from rocketstore.log.dispatch.unit_records import Find, holds
from rocketstore.log.layout.paths import is_safe_topic
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.mapping_cache import POINTED_MAX
from rocketstore.log.queues.multi_dispatch import is_multi_dispatched, record_queues
from rocketstore.log.queues.units import QUEUE_OFFSET_MAX, UNIT_SIZE

__all__ = ["LOOK_BYTES", "MissingUnits", "find_missing", "looked_at", "name_missing"]

logger = logging.getLogger(__name__)

#: Log that an open holds against its queues, bytes: all of a log that is not longer, else an equal
#: part from the begin of each file.
LOOK_BYTES: Final = 256 << 20

#: topic, queue id, queue offset, physical offset, size, properties
_Record = tuple[bytes, int, int, int, int, bytes]
#: Called with topic, queue id, queue offset and physical offset of a record that has no unit there.
OnMissing = Callable[[str, int, int, int], None]


class Queues(Protocol):
    """Where a look finds the queues."""

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None: ...


@dataclass(slots=True)
class MissingUnits:
    """Messages of one queue that the log has and the queue has not: `count` of the queue offsets
    `first` … `last`. `begin`: the physical offset of the first one in the log. `parents`: the
    queues whose records name this one (format 6.7)."""

    begin: int
    first: int
    last: int
    count: int = 0
    parents: set[tuple[str, int]] = field(default_factory=set)

    def add(self, queue_offset: int) -> None:
        self.first = min(self.first, queue_offset)
        self.last = max(self.last, queue_offset)
        self.count += 1


def looked_at(log: MappedFileQueue, begin: int, end: int, *, whole: bool) -> list[tuple[int, int]]:
    """The parts of the log in [begin, end) that a look walks, in order."""
    files = [file for file in log.files if file.end_offset > begin and file.start_offset < end]
    each = end - begin if whole or end - begin <= LOOK_BYTES else LOOK_BYTES // len(files)
    lows = [max(begin, file.start_offset) for file in files]
    return [
        (low, min(end, file.end_offset, low + each)) for low, file in zip(lows, files, strict=True)
    ]


def find_missing(
    log: MappedFileQueue,
    queues: ConsumeQueueStore,
    parts: Sequence[tuple[int, int]],
    ignored_topics: Sequence[str],
    twice: dict[tuple[str, int], MissingUnits] | None = None,
) -> dict[tuple[str, int], MissingUnits]:
    """What the queues lack of the records that begin in these parts of the log, by queue. `twice`
    gets the records whose unit is that of another record with the same queue offset."""
    look = _Look(log.find, queues, ignored_topics)
    for begin, end in parts:
        look.walk(begin, end)
    if twice is not None:
        twice.update(look.twice)
    return look.found()


def name_missing(
    find: Find,
    queues: Queues,
    parts: Sequence[tuple[int, int]],
    ignored_topics: Sequence[str],
    on_missing: OnMissing,
    agreed: Collection[tuple[str, int]],
) -> None:
    """The same, one by one in the order of the log: each is passed to `on_missing`. Queues that
    `agreed` are not looked at."""
    look = _Look(find, queues, ignored_topics, on_missing, agreed)
    for begin, end in parts:
        look.walk(begin, end)


class _Look:
    """One look. The native walk stops for what needs Python, and goes on at the same record, or
    after it."""

    def __init__(
        self,
        find: Find,
        queues: Queues,
        ignored_topics: Sequence[str],
        on_missing: OnMissing | None = None,
        agreed: Collection[tuple[str, int]] = (),
    ) -> None:
        self._find = find
        self._queues = queues
        self._ignored = frozenset(map(os.fsencode, ignored_topics))
        self._native = native.UnitLook()
        self._pointed: OrderedDict[tuple[bytes, int], None] = OrderedDict()  # the oldest first
        self._on_missing = on_missing
        self._agreed = agreed
        self._absent: list[tuple[bytes, int]] = []
        self.missing: dict[tuple[str, int], MissingUnits] = {}
        self.twice: dict[tuple[str, int], MissingUnits] = {}

    def walk(self, begin: int, end: int) -> None:
        """The records that begin in [begin, end), which lies in one file."""
        segment = self._find(begin)
        if segment is None:
            return
        budget = SearchBudget()
        offset: int | None = begin
        while offset is not None and offset < end:
            reason, offset = self._native.run(segment, offset, min(end, segment.end_offset))
            if reason in (native.DONE, native.FAULT):
                return
            if reason in (native.END, native.BAD):  # records may lie after zeros
                offset = _behind_damage(segment, offset, min(end, segment.end_offset), budget)
                continue
            record = self._native.current()
            if reason == native.QUEUE:
                self._add(record)
            elif reason != native.FILE or not self._point(record):
                if reason != native.LISTED:
                    self._judge(os.fsdecode(record[0]), record[1], record[2], record)
                for name, queue_id, queue_offset in _further(record):
                    self._judge(name, queue_id, queue_offset, record)
                offset += record[4]

    def _add(self, record: _Record) -> None:
        raw, queue_id = record[:2]
        ignored = raw in self._ignored or not is_safe_topic(raw) or queue_id < 0
        agreed = (os.fsdecode(raw), queue_id) in self._agreed
        self._native.add_queue(raw, queue_id, ignored=ignored, agreed=agreed)

    def _point(self, record: _Record) -> bool:
        """Shows the native walk where the unit of a record lies; False where no file has it."""
        raw, queue_id, queue_offset = record[:3]
        queue = self._queues.get(os.fsdecode(raw), queue_id)
        place = None if queue is None or queue_offset < 0 else _place(queue, queue_offset)
        if place is None:
            if self._on_missing is None and (queue is None or _has_no_file(queue)):
                self._native.count_all(raw, queue_id)  # the rest of them natively
                self._absent.append((raw, queue_id))
            return False
        file, position, available = place
        units = position // UNIT_SIZE + available
        self._native.point(raw, queue_id, file, file.start_offset // UNIT_SIZE, units)
        self._pointed[raw, queue_id] = None
        self._pointed.move_to_end((raw, queue_id))
        if len(self._pointed) > POINTED_MAX:
            oldest, _ = self._pointed.popitem(last=False)
            self._native.point(*oldest, None, 0, 0)  # its file is no longer kept mapped
        return True

    def found(self) -> dict[tuple[str, int], MissingUnits]:
        """What is missing, by queue."""
        for raw, queue_id in self._absent:
            first, last, count = self._native.counted(raw, queue_id)
            known = self.missing.get((os.fsdecode(raw), queue_id))
            if known is not None and count:
                known.first, known.last = min(known.first, first), max(known.last, last)
                known.count += count
        return self.missing

    def _judge(self, topic: str, queue_id: int, queue_offset: int, record: _Record) -> None:
        """Notes that a unit is missing, unless another record rightly has its place."""
        if not 0 <= queue_offset <= QUEUE_OFFSET_MAX or (topic, queue_id) in self._agreed:
            return
        physical_offset, size = record[3:5]
        queue = self._queues.get(topic, queue_id)
        if queue is not None and self._is_taken(queue, queue_offset, physical_offset, size):
            return
        if self._on_missing is not None:
            self._on_missing(topic, queue_id, queue_offset, physical_offset)
            return
        missing = _noted(self.missing, (topic, queue_id), queue_offset, physical_offset)
        missing.parents.add((os.fsdecode(record[0]), record[1]))

    def _is_taken(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size: int
    ) -> bool:
        """Whether the queue has the unit; or that of another record with the same queue offset; or
        its numbering began again after this record, so that a lower queue offset lies further on
        (D-12)."""
        try:
            there = queue.unit(queue_offset)
            if there is not None and there[:2] == (physical_offset, size):
                return True
            if there is not None and holds(queue, queue_offset, there, self._find):
                if there[0] < physical_offset:  # else its numbering may have begun again there
                    place = queue.topic, queue.queue_id
                    _noted(self.twice, place, queue_offset, physical_offset)
                return True
            return is_of_older_numbering(queue, queue_offset, physical_offset, self._find)
        except ReadFailedError:
            return True  # its reader gets the error


def _noted(
    found: dict[tuple[str, int], MissingUnits],
    place: tuple[str, int],
    queue_offset: int,
    physical_offset: int,
) -> MissingUnits:
    """Counts a message in `found`; what is known of its queue."""
    known = found.setdefault(place, MissingUnits(physical_offset, queue_offset, queue_offset))
    known.add(queue_offset)
    return known


def _has_no_file(queue: ConsumeQueue) -> bool:
    try:
        return not queue.files
    except ReadFailedError:
        return False


def _place(queue: ConsumeQueue, queue_offset: int) -> tuple[MappedFile, int, int] | None:
    try:
        return queue.locate(queue_offset)
    except ReadFailedError:
        return None


def _behind_damage(segment: MappedFile, offset: int, end: int, budget: SearchBudget) -> int | None:
    position = offset - segment.start_offset
    found = resynchronise(segment, position + 1, end - segment.start_offset, budget=budget)
    return None if found is None else segment.start_offset + found


def _further(record: _Record) -> Iterator[tuple[str, int, int]]:
    """Further queues of a record (format 6.7)."""
    raw, queue_id, _, physical_offset, _, properties = record
    topic = os.fsdecode(raw)
    if b"INNER_MULTI_DISPATCH" in properties and is_multi_dispatched(topic):
        yield from record_queues(decode_properties(properties), queue_id, physical_offset)
