"""Walks the consume queues: every unit against its record, and every record for its unit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy

from rocketstore._native.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.followed_queue import PRE_BLANK_SIZE, UNIT, UNIT_SIZE, list_files
from rocketstore.log.layout import is_safe_topic
from rocketstore.log.light_queues import light_queues

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from rocketstore._native.message import Message
    from rocketstore.log.layout import StoreLayout
    from rocketstore.tools.findings import Findings, Progress
    from rocketstore.tools.verify_log import LogFacts, QueueFacts

__all__ = ["walk_queues"]

STEP_UNITS = 8192
# Units of delayed messages hold a time (format 6.2), those of queues with an extension file an
# address.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
LAST_ADDRESS = -(1 << 31) - 1


def walk_queues(
    layout: StoreLayout,
    facts: LogFacts,
    findings: Findings,
    progress: Progress | None,
    *,
    tail_may_miss: bool,
) -> None:
    """Every queue directory. `tail_may_miss`: the newest records need not have their units yet."""
    directories = list(_queue_directories(layout))
    for done, (topic, queue_id, directory) in enumerate(directories):
        if progress is not None:
            progress("queues", done, len(directories))
        walk = _QueueWalk(topic, queue_id, facts, findings)
        walk.run(directory)
        known = facts.queues.get((topic, queue_id))
        if known is not None:
            walk.compare(directory, known, tail_may_miss)
    found = {(topic, queue_id) for topic, queue_id, _ in directories}
    for (topic, queue_id), known in facts.queues.items():
        if (topic, queue_id) not in found:
            findings.counts.undispatched += known.records
            if not tail_may_miss:
                directory = layout.queue_directory(topic, queue_id)
                findings.add(str(directory), 0, f"no queue for {known.records} records")
    if progress is not None:
        progress("queues", len(directories), len(directories))


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
        facts: LogFacts,
        findings: Findings,
    ) -> None:
        self._topic = topic
        self._queue_id = queue_id
        self._facts = facts
        self._findings = findings
        self._last_physical_offset = -1
        self._next = 0
        self._with_record = 0
        self._bad = 0

    def run(self, directory: Path) -> None:
        findings = self._findings
        findings.counts.queues += 1
        files = list_files(directory)
        size = files[0][1] if files else 0
        ended = False
        expected_start = files[0][0] if files else 0
        for start, length in files:
            path = str(directory / f"{start:020d}")
            if length != size or size == 0 or size % UNIT_SIZE:
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

    def compare(self, directory: Path, known: QueueFacts, tail_may_miss: bool) -> None:
        """Every record of the log has its unit: none is missing in front, between or behind."""
        findings = self._findings
        without = known.records - self._with_record - self._bad
        behind = min(max(0, without), max(0, known.next - max(self._next, known.first)))
        findings.counts.undispatched += behind
        if tail_may_miss:
            without -= behind
        if without > 0:
            text = f"{without} records without a unit; the log has {known.first} … {known.next - 1}"
            findings.add(
                str(directory), self._next * UNIT_SIZE, f"{text}, the queue ends at {self._next}"
            )

    def _file(self, file: MappedFile, ended: bool) -> bool:
        """Units of one file. True when the queue ended in it, or before."""
        units_in_file = file.size // UNIT_SIZE
        for begin in range(0, units_in_file, STEP_UNITS):
            count = min(STEP_UNITS, units_in_file - begin)
            units = numpy.frombuffer(file.read(begin * UNIT_SIZE, count * UNIT_SIZE), UNIT)
            written = (units["physical_offset"] >= 0) & (units["size"] > 0)
            good = count if written.all() else int(numpy.argmin(written))
            if ended:
                if good:
                    position = begin * UNIT_SIZE
                    self._findings.add(file.path, position, "units behind the end of the queue")
                    return True
                continue
            self._units(file, begin, units[:good])
            ended = good < count
            if ended:
                break
        return ended

    def _units(self, file: MappedFile, begin: int, units: NDArray[numpy.void]) -> None:
        first = file.start_offset // UNIT_SIZE + begin
        physical = units["physical_offset"].tolist()
        sizes = units["size"].tolist()
        codes = units["tags_code"].tolist()
        for number, unit in enumerate(zip(physical, sizes, codes, strict=True)):
            reason = self._unit(first + number, *unit)
            if reason:
                self._bad += 1
                self._findings.add(file.path, (begin + number) * UNIT_SIZE, reason)

    def _unit(self, queue_offset: int, physical_offset: int, size: int, code: int) -> str:
        """What is wrong with one unit, or ""."""
        counts = self._findings.counts
        counts.units += 1
        self._next = queue_offset + 1
        if size == PRE_BLANK_SIZE and physical_offset == 0:
            counts.pre_blanks += 1
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
        other = message.topic == SCHEDULE_TOPIC or code <= LAST_ADDRESS
        if code != expected and not other:
            return f"has tags code {code}, the record {expected}"
        self._with_record += 1
        return ""
