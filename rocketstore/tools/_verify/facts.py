"""What a walk looks at, and what the log says about the derived files."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketstore._native.format.message import Message
from rocketstore._native.format.scanner import read_message
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.tools._verify.holes import OFFSET_MAX, Hole, Losses

__all__ = ["LogFacts", "LostUnits", "QueueFacts", "Scope"]


@dataclass(frozen=True, slots=True)
class Scope:
    """Which part of the log is looked at, and how strictly.

    `limit`: what a live writer has published; None: up to the end. `growing`: a process writes, so
    that bytes after the end are no fault. `foreign`: whether another program wrote at an offset: it
    may have put a message again with the record checksum of another (docs/durability.md#recovery).
    `waits`: whether a record may have no unit yet: the next open, or the writer, makes it.
    `minimum`: where the log should begin. `padding`: whether stale bytes at a position of a file
    may be after the last record.
    """

    begin: int
    limit: int | None
    growing: bool
    foreign: Callable[[int], bool]
    waits: Callable[[Message], bool]
    minimum: int
    padding: Callable[[MappedFile, int], bool] = lambda *_: False
    allow_stale_crc: bool = False


@dataclass(slots=True)
class QueueFacts:
    """What the log says about one queue: its first and its next queue offset, and its records.
    `gaps`: what no record has: `repair` gave it up, or it is a gap up to the offset of a group
    (D-17), and the queue has to agree."""

    first: int
    next: int
    records: int
    gaps: list[LostUnits] = field(default_factory=list)
    #: Records that count up from 0 after others, a count: the numbering begins again with them,
    #: unless the old one goes on (D-12). File and position of the first one.
    again: int = 0
    again_at: tuple[str, int] = ("", 0)

    def has(self, queue_offset: int) -> bool:
        if not self.first <= queue_offset < self.next:
            return False
        return not any(gap.first <= queue_offset < gap.end for gap in self.gaps)


class LostUnits(NamedTuple):
    """Queue offsets [first, end) that no record has: the next one is in `file` at `position`."""

    topic: str
    queue_id: int
    first: int
    end: int
    file: str
    position: int


@dataclass(slots=True)
class LogFacts:
    """What the log says about the derived files. `files` by start offset; there may be gaps.

    `queues` and `batches`, records that are inner batches, are there after a walk record by record;
    `ends`, the next queue offsets, in the end. `holes` are
    where no record is, in order, once `close` was called. `damaged`: queue place and store time of
    records whose content is damaged. `waiting_batches`: of `batches`, those that may have no unit.
    `indexed`: physical offsets that the index names; `tagged`: those that it names by their tags.
    `without_queue`: of records whose topic or queue id can be no directory, by what is shown of
    them: the physical offset of the first one, and how many.
    """

    begin: int
    end: int
    files: dict[int, MappedFile]
    minimum: int
    records: int = 0
    queues: dict[tuple[str, int], QueueFacts] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    batches: dict[tuple[str, int], int] = field(default_factory=dict)
    waiting_batches: dict[tuple[str, int], int] = field(default_factory=dict)
    without_queue: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    holes: list[Hole] = field(default_factory=list)
    damaged: list[tuple[str, int, int, int]] = field(default_factory=list)
    indexed: array[int] = field(default_factory=lambda: array("q"))
    tagged: array[int] = field(default_factory=lambda: array("q"))
    losses: Losses = field(default_factory=Losses)
    last_stored_ms: int = 0

    @property
    def file_size(self) -> int:
        """A file that lacks its end is smaller."""
        return max((file.size for file in self.files.values()), default=1)

    def stored(self, timestamp_ms: int) -> None:
        """Notes the store time of a record; the records come in order."""
        if self.holes and not self.holes[-1].before_ms:
            self.holes[-1].before_ms = timestamp_ms
        self.last_stored_ms = timestamp_ms

    def hole(self, start: int, end: int) -> None:
        """Notes that [start, end) holds no record, after all holes before."""
        if end > start:
            self.holes.append(Hole(start, end, self.last_stored_ms))

    def close(self, *, growing: bool) -> None:
        """Adds the end of the log to the holes, and what lies between files."""
        ends = [(file.start_offset, file.end_offset) for _, file in sorted(self.files.items())]
        bounds = [(self.minimum, self.minimum), *ends]
        known = {hole.start for hole in self.holes}
        for (_, low), (high, _) in itertools.pairwise(bounds):
            if low < high and low not in known:
                self.holes.append(Hole(low, high))
        if not growing:
            end = max(self.end, *(hole.end for hole in self.holes), 0)
            self.holes.append(Hole(end, OFFSET_MAX, self.last_stored_ms))
        self.holes.sort(key=lambda hole: hole.start)

    def message_at(self, physical_offset: int) -> Message:
        """The record that begins at an offset, or `CorruptRecordError`."""
        position = physical_offset % self.file_size
        file = self.files.get(physical_offset - position)
        if file is None or position >= file.size or physical_offset >= self.end:
            raise CorruptRecordError(physical_offset, "outside the log")
        return read_message(file, position, file.size, verify=0)
