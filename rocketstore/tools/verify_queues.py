"""Walks the consume queues: every unit against its record, and every record for its unit."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy

from rocketstore._native.mapped_file import MappedFile
from rocketstore._native.scanner import read_units
from rocketstore.errors import CorruptRecordError
from rocketstore.log.extension_units import LAST_ADDRESS, ExtensionUnits, is_address
from rocketstore.log.layout import is_safe_topic
from rocketstore.log.light_queues import light_queues
from rocketstore.log.queue_units import PRE_BLANK_SIZE, UNIT, UNIT_SIZE, list_files

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from rocketstore._native.message import Message
    from rocketstore.log.layout import StoreLayout
    from rocketstore.tools.findings import Findings, Progress
    from rocketstore.tools.verify_log import LogFacts, LostUnits

__all__ = ["QueueSeen", "check_lost", "compare_queues", "walk_queues"]

STEP_UNITS = 8192
# Units of delayed messages hold a time (format 6.2).
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """One queue as its units tell it. `own`: units of records that are of this queue by
    themselves."""

    topic: str
    queue_id: int
    directory: str
    next: int
    matching: int
    own: int
    bad: int


def walk_queues(
    layout: StoreLayout,
    facts: LogFacts,
    findings: Findings,
    progress: Progress | None,
    *,
    growing: bool,
) -> list[QueueSeen]:
    """Every unit of every queue. `growing`: units of records beyond the end may stand there."""
    directories = _queue_directories(layout)
    seen = []
    for done, (topic, queue_id, directory) in enumerate(directories):
        if progress is not None:
            progress("queues", done, len(directories))
        seen.append(_QueueWalk(topic, queue_id, directory, facts, findings, growing).run())
    if progress is not None:
        progress("queues", len(directories), len(directories))
    return seen


def compare_queues(
    layout: StoreLayout,
    seen: list[QueueSeen],
    facts: LogFacts,
    findings: Findings,
    *,
    tail_may_miss: bool,
) -> None:
    """Every record has its unit: none is missing in front, between or behind."""
    found = {(queue.topic, queue.queue_id): queue for queue in seen}
    for (topic, queue_id), known in facts.queues.items():
        queue = found.get((topic, queue_id))
        end = 0 if queue is None else queue.next
        without = known.records - (0 if queue is None else queue.matching + queue.bad)
        behind = min(max(0, without), max(0, known.next - max(end, known.first)))
        findings.counts.undispatched += behind
        if tail_may_miss:
            without -= behind
        if without > 0:
            text = f"{without} records without a unit; the log has {known.first} … {known.next - 1}"
            where = str(layout.queue_directory(topic, queue_id))
            findings.add(where, end * UNIT_SIZE, f"{text}, the queue ends at {end}")


def check_lost(layout: StoreLayout, facts: LogFacts, findings: Findings) -> None:
    """Queue offsets that are missing in the log since `repair` have pre-blanks in their queues."""
    for lost in facts.lost:
        if not _are_pre_blanks(layout.queue_directory(lost.topic, lost.queue_id), lost):
            text = f"queue offset {lost.end} follows {lost.first - 1}"
            findings.add(lost.file, lost.position, f"{lost.topic}/{lost.queue_id}: {text}")


def _are_pre_blanks(directory: Path, lost: LostUnits) -> bool:
    first, end = lost.first * UNIT_SIZE, lost.end * UNIT_SIZE
    for start, size in list_files(directory):
        low, high = max(first, start), min(end, start + size)
        if low != first or low >= high or size % UNIT_SIZE:
            continue  # files in order: each begins where the one before ended
        file = MappedFile.open(str(directory / f"{start:020d}"), start, size, "read")
        try:
            units = numpy.frombuffer(file.read(low - start, high - low), UNIT)
        finally:
            file.close()
        if not _pre_blanks(units).all():
            return False
        first = high
    return first == end


def _queue_directories(layout: StoreLayout) -> list[tuple[str, int, Path]]:
    """Topics and queue ids as the directories say them; other names are no queues (format 6.1)."""
    found = []
    try:
        topics = sorted(entry for entry in layout.consume_queue.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
    for topic in topics:
        if is_safe_topic(os.fsencode(topic.name)):
            ids = (entry for entry in topic.iterdir() if entry.name.isdecimal() and entry.is_dir())
            found += [(topic.name, int(entry.name), entry) for entry in sorted(ids)]
    return found


class _QueueWalk:
    """One queue: its units in order."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        directory: Path,
        facts: LogFacts,
        findings: Findings,
        growing: bool,
    ) -> None:
        self._topic = topic
        self._queue_id = queue_id
        self._directory = directory
        self._extension = ExtensionUnits.beside(directory)
        self._facts = facts
        self._findings = findings
        self._growing = growing
        self._segments = tuple(facts.files[start] for start in sorted(facts.files))
        self._last_physical_offset = -1
        self._next = 0
        self._matching = 0
        self._own = 0
        self._bad = 0

    def run(self) -> QueueSeen:
        findings, directory = self._findings, self._directory
        findings.counts.queues += 1
        files = list_files(directory)
        size = next((length for _, length in files if length), 0)
        ended = False
        expected_start = files[0][0] if files else 0
        for start, length in files:
            path = str(directory / f"{start:020d}")
            if length != size or size % UNIT_SIZE or size == 0:
                findings.add(path, 0, f"{length} bytes, the first file of the queue has {size}")
                continue
            if start != expected_start:
                findings.add(path, 0, f"the file of {expected_start} is missing in front of it")
            expected_start = start + size
            file = MappedFile.open(path, start, size, "read")
            try:
                ended = self._file(file, ended)
            finally:
                file.close()
        self._extension.close()
        return QueueSeen(
            self._topic,
            self._queue_id,
            str(directory),
            self._next,
            self._matching,
            self._own,
            self._bad,
        )

    def _file(self, file: MappedFile, ended: bool) -> bool:
        """Units of one file. True when the queue ended in it, or before."""
        units_in_file = file.size // UNIT_SIZE
        for begin in range(0, units_in_file, STEP_UNITS):
            count = min(STEP_UNITS, units_in_file - begin)
            units = numpy.frombuffer(file.read(begin * UNIT_SIZE, count * UNIT_SIZE), UNIT)
            good = self._written(units)
            if ended:
                if good and not self._growing:
                    position = begin * UNIT_SIZE
                    self._findings.add(file.path, position, "units behind the end of the queue")
                    return True
                continue
            if not self._whole(file, begin, units[:good]):
                self._one_by_one(file, begin, units[:good])
            self._findings.counts.units += good
            if good:
                self._next = file.start_offset // UNIT_SIZE + begin + good
            if good < count:
                return True
        return ended

    def _written(self, units: NDArray[numpy.void]) -> int:
        """How many units, from the first one on, are written and of records that are looked at."""
        good = (units["physical_offset"] >= 0) & (units["size"] > 0)
        if self._growing:
            good &= (units["physical_offset"] < self._facts.end) | _pre_blanks(units)
        return len(units) if good.all() else int(numpy.argmin(good))

    def _whole(self, file: MappedFile, begin: int, units: NDArray[numpy.void]) -> bool:
        """All units at once; False, and nothing counted, when there may be a fault among them."""
        if not len(units):
            return True
        blank = _pre_blanks(units)
        physical = units["physical_offset"][~blank].astype("i8")
        kept = ~blank & (units["physical_offset"] >= self._facts.begin)
        steps = numpy.diff(physical, prepend=self._last_physical_offset)
        if (steps <= 0).any():
            return False
        try:
            messages = read_units(
                file,
                begin * UNIT_SIZE,
                len(units),
                self._segments,
                self._facts.file_size,
                topic=self._topic.encode(),
                queue_id=self._queue_id,
                first_queue_offset=file.start_offset // UNIT_SIZE + begin,
                log_minimum=self._facts.begin,
                limit_offset=self._facts.end,
                verify=0,
                tags_codes=None,
            )
        except CorruptRecordError:
            return False
        codes = units["tags_code"][kept]
        if self._topic != SCHEDULE_TOPIC:
            told = numpy.fromiter((m.tags_code for m in messages), "i8", len(messages))
            if len(messages) != len(codes) or ((told != codes) & (codes > LAST_ADDRESS)).any():
                return False
        for at in numpy.flatnonzero(codes <= LAST_ADDRESS).tolist():
            if self._extension_fault(int(codes[at]), messages[at]):
                return False
        self._matching += len(messages)
        self._own += sum(message.topic == self._topic for message in messages)
        self._findings.counts.pre_blanks += int(blank.sum())
        if len(physical):
            self._last_physical_offset = int(physical[-1])
        return True

    def _one_by_one(self, file: MappedFile, begin: int, units: NDArray[numpy.void]) -> None:
        first = file.start_offset // UNIT_SIZE + begin
        fields = (units[name].tolist() for name in ("physical_offset", "size", "tags_code"))
        for number, unit in enumerate(zip(*fields, strict=True)):
            reason = self._unit(first + number, *unit)
            if reason:
                self._bad += 1
                self._findings.add(file.path, (begin + number) * UNIT_SIZE, reason)

    def _unit(self, queue_offset: int, physical_offset: int, size: int, code: int) -> str:
        """What is wrong with one unit, or ""."""
        if size == PRE_BLANK_SIZE and physical_offset == 0:
            self._findings.counts.pre_blanks += 1
            return ""
        if physical_offset <= self._last_physical_offset:
            return f"points to {physical_offset}, the unit before to {self._last_physical_offset}"
        self._last_physical_offset = physical_offset
        if physical_offset < self._facts.begin:
            return ""  # Its record has expired.
        try:
            message = self._facts.message_at(physical_offset)
        except CorruptRecordError as error:
            return f"points to {physical_offset}: {error.reason}"
        return self._against(message, queue_offset, physical_offset, size, code)

    def _against(
        self, message: Message, queue_offset: int, physical_offset: int, size: int, code: int
    ) -> str:
        """Format 15.2, equation 9."""
        place = (self._topic, self._queue_id, queue_offset)
        own = (message.topic, message.queue_id, message.queue_offset)
        if message.size != size:
            return f"says {size} bytes, the record at {physical_offset} has {message.size}"
        if place != own and place not in light_queues(message):
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
        """What is wrong with the extension unit at an address, or "". None there is no fault: readers look
        at the record then."""
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


def _pre_blanks(units: NDArray[numpy.void]) -> NDArray[numpy.bool_]:
    blank = (units["size"] == PRE_BLANK_SIZE) & (units["physical_offset"] == 0)
    return numpy.asarray(blank, numpy.bool_)
