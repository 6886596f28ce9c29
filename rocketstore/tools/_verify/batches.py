"""Walks the batch queues: every unit against its record, and every inner batch for its unit."""

from __future__ import annotations

from pathlib import Path

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.layout.listing import has_place, list_files, usual_size
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.read.batch_queue import (
    BATCH_UNIT_SIZE,
    BatchQueues,
    BatchUnit,
    batch_directory,
    decode_unit,
)
from rocketstore.log.read.batch_reader import disagreement
from rocketstore.log.read.fetch_result import ReadView
from rocketstore.tools._verify.facts import LogFacts
from rocketstore.tools._verify.queues import odd_file
from rocketstore.tools.report import Findings
from rocketstore.values.plural import counted

__all__ = ["walk_batches"]


def walk_batches(
    layout: StoreLayout,
    facts: LogFacts,
    findings: Findings,
    *,
    growing: bool,
) -> None:
    """Every batch queue. Its topics have no plain queues: what the log says of such is dropped from
    `facts`, and where the batch queues end is added. Units of single messages are not missed:
    RocketMQ makes none in such a topic (format 4.2)."""
    batches = BatchQueues(layout, lambda: ReadView(0, 0, 0, 0))
    topics = frozenset(batches.topics())
    single = sum(facts.queues.pop(key).records for key in list(facts.queues) if key[0] in topics)
    if single:
        text = (
            f"{counted(single, 'record')} of topics with batch queues are no inner batch: RocketMQ "
        )
        text += "makes no units of them, and they are not looked for in a queue"
        findings.notice("derived", str(layout.batch_consume_queue), text, code="batch")
    found = {(topic, queue_id) for topic in topics for queue_id in batches.queues(topic)}
    for topic, queue_id in sorted(found | set(facts.batches)):
        directory = batch_directory(layout, topic, queue_id)
        walk = _BatchWalk(topic, queue_id, facts, findings, growing)
        walk.run(directory)
        facts.ends[topic, queue_id] = walk.next_offset
        without = facts.batches.get((topic, queue_id), 0) - walk.matching - walk.bad
        waiting = max(0, min(without, facts.waiting_batches.get((topic, queue_id), 0)))
        findings.counts.undispatched += waiting
        without -= waiting
        if without > 0:
            findings.add(
                "derived",
                str(directory),
                0,
                f"{counted(without, 'record')} without a unit",
                code="hidden",
            )


class _BatchWalk:
    """One queue: its units in order."""

    def __init__(
        self, topic: str, queue_id: int, facts: LogFacts, findings: Findings, growing: bool
    ) -> None:
        self._topic = topic
        self._queue_id = queue_id
        self._facts = facts
        self._findings = findings
        self._growing = growing
        self._last_physical_offset = -1
        self.next_offset = 0
        self.matching = 0
        self.bad = 0

    def run(self, directory: Path) -> None:
        files = list_files(directory)
        self._findings.counts.queues += 1
        size = usual_size(files) or 0
        expected = files[0][0] if files else 0
        ended = False
        for start, length in files:
            path = str(directory / f"{start:020d}")
            if length != size or size < BATCH_UNIT_SIZE or not has_place(start, size):
                self._findings.add("derived", path, 0, odd_file(start, length, size))
                expected += size if start == expected else 0
                continue
            if start != expected:
                self._findings.add(
                    "derived", path, 0, f"the file of {expected} is missing before it"
                )
            expected = start + size
            file = MappedFile.open(path, start, size, "read")
            try:
                ended = self._file(file, ended)
            finally:
                file.close()

    def _file(self, file: MappedFile, ended: bool) -> bool:
        """Units of one file. True when the queue ended in it, or before."""
        for position in range(0, file.size - BATCH_UNIT_SIZE + 1, BATCH_UNIT_SIZE):
            unit = decode_unit(file.read(position, BATCH_UNIT_SIZE))
            if self._growing and unit.physical_end > self._facts.end:
                return True
            if ended:
                if unit.written:
                    self._findings.add(
                        "derived", file.path, position, "units after the end of the queue"
                    )
                    return True
            elif not unit.written:
                ended = True
            else:
                self._findings.counts.units += 1
                reason = self._unit(unit)
                if reason:
                    self.bad += 1
                    self._findings.add("derived", file.path, position, reason)
        return ended

    def _unit(self, unit: BatchUnit) -> str:
        """What is wrong with one unit, or ""."""
        before, self._last_physical_offset = self._last_physical_offset, unit.physical_offset
        expected, self.next_offset = self.next_offset, unit.next_offset
        if unit.physical_offset <= before:
            return f"points to {unit.physical_offset}, the unit before to {before}"
        if unit.base_offset < expected:
            return f"begins at queue offset {unit.base_offset}, the unit before ends at {expected}"
        if unit.physical_offset < self._facts.begin:
            return ""  # Its record has expired.
        try:
            record = self._facts.message_at(unit.physical_offset)
        except CorruptRecordError as error:
            return f"points to {unit.physical_offset}: {error.reason}"
        fault = disagreement(unit, record, self._topic, self._queue_id)
        if fault:
            self.next_offset = unit.base_offset  # the next unit is not to blame
            return fault
        if unit.tags_code != record.tags_code:
            return f"has tags code {unit.tags_code}, the record {record.tags_code}"
        if unit.store_timestamp_ms != record.store_timestamp_ms:
            return (
                f"has store time {unit.store_timestamp_ms}, the record {record.store_timestamp_ms}"
            )
        self.matching += 1
        return ""
