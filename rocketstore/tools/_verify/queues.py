"""Walks the consume queues: every unit against its record, and every record for its unit."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from rocketstore._native.format import queue_file
from rocketstore._native.format.message import Message
from rocketstore._native.format.queue_reader import check_units
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.layout.listing import has_place, list_files, usual_size
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.directories import queues_in
from rocketstore.log.queues.extension_units import ExtensionUnits, is_address
from rocketstore.log.queues.multi_dispatch import multi_dispatch_queues
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UNIT_SIZE
from rocketstore.puts.put_columns import SCHEDULE_TOPIC
from rocketstore.tools._verify.facts import LogFacts
from rocketstore.tools._verify.holes import DanglingUnits
from rocketstore.tools.filler_records import is_pointed_filler
from rocketstore.tools.parallel import map_on_all_cores
from rocketstore.tools.report import Findings
from rocketstore.values.arguments import Progress

__all__ = ["QueueSeen", "odd_file", "walk_queues"]

STEP_UNITS = 8192


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """One queue as its units describe it. `own`: units of records that are of this queue by
    themselves. `bad`: units that are wrong, `dangling` among them."""

    topic: str
    queue_id: int
    directory: str
    next: int
    matching: int
    own: int
    bad: int
    file_size: int
    dangling: DanglingUnits

    def unit_place(self, queue_offset: int) -> tuple[str, int]:
        """File and position of a unit."""
        position = queue_offset * UNIT_SIZE % (self.file_size or UNIT_SIZE)
        start = queue_offset * UNIT_SIZE - position
        return str(Path(self.directory) / f"{start:020d}"), position


def walk_queues(
    layout: StoreLayout,
    facts: LogFacts,
    findings: Findings,
    progress: Progress | None,
    *,
    growing: bool,
) -> list[QueueSeen]:
    """Every unit of every queue. `growing`: units of records beyond the end may be there."""
    segments = tuple(facts.files[start] for start in sorted(facts.files))
    walks = [
        _QueueWalk(topic, queue_id, Path(path), segments, facts, findings, growing)
        for topic, queue_id, path in queues_in(layout.consume_queue)
    ]
    files = [(walk, *file) for walk in walks for file in walk.files]
    looks = map_on_all_cores(lambda file: file[0].look(*file[1:]), files)
    seen = []
    for done, walk in enumerate(walks):
        if progress is not None:
            progress("queues", done, len(walks))
        seen.append(walk.run(islice(looks, len(walk.files))))
    if progress is not None:
        progress("queues", len(walks), len(walks))
    return seen


def odd_file(start: int, length: int, size: int) -> str:
    """What is wrong with a file that is none of its queue, in which files have `size` bytes."""
    if length != size:
        return f"{length} bytes, the others of the queue have {size}"
    return f"{length} bytes at {start} can be no file of a queue"


class _Look(NamedTuple):
    """The units [begin, end) of a file, and what `check_units` says of them; None where they do
    not all agree with their records."""

    begin: int
    end: int
    checked: tuple[int, int, int, int, int] | None


#: What is wrong with a unit that points to no record: only the whole log shows what that means.
_DANGLING: Final = "points to no record"

#: The owner of the store has removed the file since it was listed: its records have expired.
_GONE = _Look(0, -1, None)


class _QueueWalk:
    """One queue: its units in order."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        segments: tuple[MappedFile, ...],
        facts: LogFacts,
        findings: Findings,
        growing: bool,
    ) -> None:
        self._topic = topic
        self._queue_id = queue_id
        self._directory = directory
        self._extension = ExtensionUnits.of_queue(directory)
        self._facts = facts
        self._findings = findings
        self._growing = growing
        self._segments = segments
        self.files = list_files(directory)
        self._size = usual_size(self.files) or 0
        self._last_physical_offset = -1
        self._next = 0
        self._matching = 0
        self._own = 0
        self._bad = 0
        self._dangling = DanglingUnits()

    def look(self, start: int, length: int) -> _Look | None:
        """Looks at one file, from any thread; None when it is no file of this queue."""
        if length != self._size or length % UNIT_SIZE or not has_place(start, length):
            return None
        try:
            with self._open(start) as file:
                begin, end = self._written(file)
                if self._growing:
                    end = queue_file.first_kept(file, begin, end - begin, self._facts.end)
                try:
                    return _Look(begin, end, self._check(file, begin, end - begin))
                except CorruptRecordError:
                    return _Look(begin, end, None)
        except FileNotFoundError:
            return _GONE

    def _written(self, file: MappedFile) -> tuple[int, int]:
        """The units of a file as readers find them: those of the last file end at the first that
        was not written. In an earlier file zeros before the first kept unit end nothing."""
        end = queue_file.written_units(file)
        units = file.size // UNIT_SIZE
        if end == units or file.start_offset == self.files[-1][0]:
            return 0, end
        minimum = self._facts.minimum
        if queue_file.first_kept(file, 0, end, minimum) < end:
            return 0, end
        begin = queue_file.first_kept(file, end, units - end, minimum)
        return begin, begin + queue_file.written_units(file, begin)

    def run(self, looks: Iterator[_Look | None]) -> QueueSeen:
        """Judges the queue; `looks` gives what `look` said of its files, in order."""
        findings = self._findings
        findings.counts.queues += 1
        ended = False
        expected_start = self.files[0][0] if self.files else 0
        for (start, length), look in zip(self.files, looks, strict=True):
            path = str(self._directory / f"{start:020d}")
            if look is None:
                findings.add("derived", path, 0, odd_file(start, length, self._size))
                expected_start += self._size if start == expected_start else 0
                continue
            if look is _GONE:
                expected_start = start + length
                continue
            if start != expected_start:
                findings.add(
                    "derived", path, 0, f"the file of {expected_start} is missing before it"
                )
            expected_start = start + length
            if ended:
                self._behind(start)
                continue
            self._judge(start, look)
            ended = look.end < length // UNIT_SIZE
        self._extension.close()
        return QueueSeen(
            self._topic,
            self._queue_id,
            str(self._directory),
            self._next,
            self._matching,
            self._own,
            self._bad,
            self._size,
            self._dangling,
        )

    def _open(self, start: int) -> contextlib.closing[MappedFile]:
        path = str(self._directory / f"{start:020d}")
        return contextlib.closing(MappedFile.open(path, start, self._size, "read"))

    def _behind(self, start: int) -> None:
        """A file after the end of the queue. It has no units, unless a writer is at work."""
        if self._growing:
            return
        with self._open(start) as file:
            unit = file.find_data(0, file.size) // UNIT_SIZE
            if unit < file.size // UNIT_SIZE and queue_file.read_unit(file, unit) is not None:
                self._findings.add(
                    "derived", file.path, unit * UNIT_SIZE, "units after the end of the queue"
                )

    def _judge(self, start: int, look: _Look) -> None:
        """The units of a file: all together where all is well, else step by step, where it is not,
        one by one."""
        if look.end == 0:
            return
        self._findings.counts.units += look.end - look.begin
        self._next = start // UNIT_SIZE + look.end
        if look.checked is not None and self._took(look.checked):
            return
        with contextlib.suppress(FileNotFoundError), self._open(start) as file:
            for begin in range(look.begin, look.end, STEP_UNITS):
                count = min(STEP_UNITS, look.end - begin)
                try:
                    took = self._took(self._check(file, begin, count))
                except CorruptRecordError:
                    took = False
                if not took:
                    self._one_by_one(file, begin, count)

    def _check(self, file: MappedFile, begin: int, count: int) -> tuple[int, int, int, int, int]:
        return check_units(
            file,
            begin * UNIT_SIZE,
            count,
            self._segments,
            self._facts.file_size,
            topic=self._topic.encode(),
            queue_id=self._queue_id,
            first_queue_offset=file.start_offset // UNIT_SIZE + begin,
            log_minimum=self._facts.minimum,
            limit_offset=self._facts.end,
            tags=self._topic != SCHEDULE_TOPIC,  # there they hold a time (format 6.2)
        )

    def _took(self, checked: tuple[int, int, int, int, int]) -> bool:
        """Counts units that agree with their records; False, and nothing counted, when they do not
        rise above those before."""
        matching, own, pre_blanks, first, last = checked
        if first >= 0:
            if first <= self._last_physical_offset:
                return False
            self._last_physical_offset = last
        self._matching += matching
        self._own += own
        self._findings.counts.pre_blanks += pre_blanks
        return True

    def _one_by_one(self, file: MappedFile, begin: int, count: int) -> None:
        first = file.start_offset // UNIT_SIZE + begin
        units = queue_file.units_array(file, begin, count)
        fields = (units[name].tolist() for name in ("physical_offset", "size", "tags_code"))
        for number, unit in enumerate(zip(*fields, strict=True)):
            reason = self._unit(first + number, *unit)
            if reason == _DANGLING:
                self._bad += 1
                self._dangling.add(first + number, *unit[:2])
            elif reason:
                self._bad += 1
                at, code = (begin + number) * UNIT_SIZE, "order" * ("the unit before" in reason)
                self._findings.add("derived", file.path, at, reason, code=code)

    def _unit(self, queue_offset: int, physical_offset: int, size: int, code: int) -> str:
        """What is wrong with one unit, or ""."""
        if size == PRE_BLANK_SIZE and physical_offset == 0:
            self._findings.counts.pre_blanks += 1
            return ""
        if physical_offset <= self._last_physical_offset:
            return f"points to {physical_offset}, the unit before to {self._last_physical_offset}"
        reason = ""
        if physical_offset >= self._facts.minimum:  # else its record has expired
            reason = self._at_record(queue_offset, physical_offset, size, code)
        if not reason:  # a wrong one says nothing of those after it
            self._last_physical_offset = physical_offset
        return reason

    def _at_record(self, queue_offset: int, physical_offset: int, size: int, code: int) -> str:
        try:
            message = self._facts.message_at(physical_offset)
        except CorruptRecordError:
            return _DANGLING
        return self._against(message, queue_offset, physical_offset, size, code)

    def _against(
        self, message: Message, queue_offset: int, physical_offset: int, size: int, code: int
    ) -> str:
        """Format 15.2, equation 9."""
        place = (self._topic, self._queue_id, queue_offset)
        own = (message.topic, message.queue_id, message.queue_offset)
        if message.size != size:
            return f"says {size} bytes, the record at {physical_offset} has {message.size}"
        if is_pointed_filler(message):
            return ""
        if place != own and place not in multi_dispatch_queues(message):
            return f"points to {physical_offset}, the record of {own[0]}/{own[1]} at {own[2]}"
        expected = message.tags_code
        if code != expected and not is_address(code) and message.topic != SCHEDULE_TOPIC:
            return f"has tags code {code}, the record {expected}"
        fault = self._extension_fault(code, message) if is_address(code) else ""
        if fault:
            return fault
        self._matching += 1
        self._own += place == own
        return ""

    def _extension_fault(self, address: int, message: Message) -> str:
        """What is wrong with the extension unit at an address, or "". None there is no fault:
        readers look at the record then."""
        unit = self._extension.unit(address)
        if unit is None:
            return ""
        expected = unit.tags_code if message.topic == SCHEDULE_TOPIC else message.tags_code
        if (unit.tags_code, unit.store_timestamp_ms) == (expected, message.store_timestamp_ms):
            return ""
        return (
            f"its extension unit has tags code {unit.tags_code} and store time "
            f"{unit.store_timestamp_ms}, the record {expected} and {message.store_timestamp_ms}"
        )
