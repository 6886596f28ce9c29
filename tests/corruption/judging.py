"""What becomes of a store in which one byte was changed or the end of a file is gone."""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import ConfigError, CorruptRecordError, ReadFailedError, RocketStoreError
from rocketstore._native.format.queue_reader import read_units
from rocketstore._native.format.scanner import (
    SearchBudget,
    read_message,
    resynchronise,
    scan_segment,
)
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.layout.paths import is_safe_topic
from rocketstore.tools import verify
from rocketstore.tools._verify.facts import Scope
from rocketstore.tools._verify.log import BOTH_CHECKSUMS, walk_log
from rocketstore.tools.report import Findings
from tests.corruption.reference import INDEX, SEGMENT, Placed, Reference, field_at

__all__ = ["FullJudge", "LogJudge", "Tally", "Verdict"]

FIELDS = (
    "topic", "queue_id", "queue_offset", "physical_offset", "size", "body", "properties", "flag",
    "sys_flag", "born_timestamp_ms", "born_host", "store_timestamp_ms", "store_host",
    "reconsume_times", "prepared_transaction_offset",
)  # fmt: skip
DETECTED, HARMLESS, UNDETECTED = "detected", "harmless", "undetected"


@dataclass(frozen=True)
class Verdict:
    """`where`: the field or file that was hit. `outcome`: detected, harmless or undetected."""

    where: str
    outcome: str


@dataclass
class Tally:
    """Verdicts counted by what was hit."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def add(self, verdict: Verdict) -> None:
        self.counts[verdict.where, verdict.outcome] += 1

    def total(self, outcome: str | None = None) -> int:
        return sum(n for (_, found), n in self.counts.items() if outcome in (None, found))

    def undetected(self) -> dict[str, int]:
        return {where: n for (where, found), n in self.counts.items() if found == UNDETECTED}

    def __str__(self) -> str:
        rows = [f"{'hit':22}{'tried':>10}{'detected':>10}{'harmless':>10}{'undetected':>12}"]
        for where in [*dict.fromkeys(where for where, _ in self.counts), "all"]:
            found = [
                self.counts[where, outcome] if where != "all" else self.total(outcome)
                for outcome in (DETECTED, HARMLESS, UNDETECTED)
            ]
            rows.append(f"{where:22}{sum(found):>10}{found[0]:>10}{found[1]:>10}{found[2]:>12}")
        return "\n".join(rows)


class LogJudge:
    """Judges single bytes of one log file, in memory: some ten thousand a second.

    Every verdict rests on the loops that recovery, readers and `verify` use. What may never be is an
    assertion: damage that reaches beyond the record hit, or a fault that is not named where it is.
    """

    def __init__(self, reference: Reference, number: int) -> None:
        path = reference.segments[number]
        self.start = int(path.name)
        self.original = path.read_bytes()
        self.last = number == len(reference.segments) - 1
        self.file = MappedFile.anonymous(self.start, SEGMENT)
        self.file.write(0, self.original)
        end = self.start + SEGMENT
        self.placed = [one for one in reference.placed if self.start <= one.start < end]
        self._starts = [one.start - self.start for one in self.placed]
        self._expected = [() if one.is_blank else self._read(one) for one in self.placed]
        self._scanned = self._scan(0)
        self._unit = MappedFile.anonymous(0, 20)
        assert self._walk() == [], "the reference is not sound"

    def flip(self, position: int, mask: int, *, name: bool = False) -> Verdict:
        """The byte at `position` changed by `mask`; `name`: `verify` has to name the place, too."""
        self.file.write(position, bytes((self.original[position] ^ mask,)))
        try:
            return self._judge(position, name)
        finally:
            self.file.write(position, self.original[position : position + 1])

    def _judge(self, position: int, name: bool) -> Verdict:
        number = bisect_right(self._starts, position) - 1
        hit = self.placed[number]
        if position >= hit.end - self.start:
            return self._beyond_the_end(name)
        where = field_at(hit.data, position - self._starts[number])
        found = self._scan(0)
        if found == self._scanned:
            if where == "body length" and not self._read(hit)[FIELDS.index("body")]:
                where = "body length made 0"
            return Verdict(where, self._unseen(number, name or hit.is_blank))
        stopped, _ = found
        assert stopped == self._starts[number], f"{where}: seen at {stopped}"
        self._check_confined(number)
        if name:
            faults = self._walk()
            assert faults and faults[0] == self._starts[number], f"{where}: named at {faults}"
            # A damaged queue offset is told where the next one contradicts it, too; a queue id that is
            # another one's now, with an offset that fits there by chance, in both queues.
            most = 3 if where == "queue id" else 2
            assert len(faults) <= most, f"{where}: {faults}"
        return Verdict(where, DETECTED)

    def _unseen(self, number: int, name: bool) -> str:
        """No checksum and no length speaks against the file: what do its queue and `verify` say?"""
        if self._reads_equal(number):
            faults = self._walk() if name else []
            assert faults in ([], [self._starts[number]])
            return DETECTED if faults else HARMLESS
        return UNDETECTED if self._unit_holds(number) else DETECTED

    def _unit_holds(self, number: int) -> bool:
        """Whether the record's queue unit still leads to it (format.md 15.2, equation 9)."""
        topic, queue_id, queue_offset, start, size, _, _, _, sys_flag = self._expected[number][:9]
        if sys_flag & 0xC not in (0, 8) or not is_safe_topic(topic.encode()):
            return True  # There is none.
        self._unit.write(0, struct.pack(">qiq", start, size, 0))
        try:
            read_units(
                self._unit, 0, 1, (self.file,), SEGMENT,
                topic=topic.encode(), queue_id=queue_id, first_queue_offset=queue_offset,
                log_minimum=0, limit_offset=self.start + SEGMENT, verify=0, tags_codes=None,
            )  # fmt: skip
        except CorruptRecordError:
            return False
        return True

    def _beyond_the_end(self, name: bool) -> Verdict:
        """Zeros that nobody wrote to: what stands there cannot be taken for a message."""
        stopped, _ = self._scan(0)
        assert stopped == self._scanned[0]
        if name:
            assert self._walk() == [stopped]
        return Verdict("zeros behind the end", DETECTED)

    def _check_confined(self, number: int) -> None:
        """Reading goes on at the very next record, and all behind it are as they were."""
        start = self._starts[number]
        after = self.placed[number].end - self.start
        found = resynchronise(self.file, start + 1, SEGMENT, budget=SearchBudget())
        if number + 1 == len(self.placed):
            assert found is None
            return
        assert found == after, f"goes on at {found}, not at {after}"
        assert self._scan(after)[0] == self._scanned[0]

    def cut(self, size: int) -> int:
        """The file ends at `size`: how many records are left. Exactly those that are whole."""
        if size == 0:
            return 0
        file = MappedFile.anonymous(self.start, size)
        file.write(0, self.original[:size])
        result = scan_segment(file, 0, size, verify=BOTH_CHECKSUMS)
        left = [one for one in self.placed if one.end - self.start <= size and not one.is_blank]
        assert result.records == len(left), f"{result} of {size} bytes, {len(left)} are whole"
        if left:
            assert result.last_record_start == left[-1].start
        file.close()
        return len(left)

    def _scan(self, position: int) -> tuple[int, str]:
        result = scan_segment(self.file, position, SEGMENT, verify=BOTH_CHECKSUMS)
        return result.end_position, result.status

    def _read(self, one: Placed) -> tuple[Any, ...]:
        position = one.start - self.start
        return fields_of(read_message(self.file, position, SEGMENT, verify=BOTH_CHECKSUMS))

    def _reads_equal(self, number: int) -> bool:
        expected = self._expected[number]
        return not expected or self._read(self.placed[number]) == expected

    def _walk(self) -> list[int]:
        """Positions that `verify` names in this file."""
        findings = Findings()
        never = lambda _: False  # noqa: E731
        scope = Scope(self.start, None, False, never, waits=never, minimum=self.start)
        walk_log([self.file], scope, findings, None)
        return [fault.position for fault in findings.faults]


def fields_of(message: rocketstore.Message) -> tuple[Any, ...]:
    """All that a user can see of a message."""
    return tuple(getattr(message, name) for name in FIELDS)


class FullJudge:
    """Judges a damaged store as its user sees it: `verify`, an open, and a read of everything."""

    def __init__(self, reference: Reference) -> None:
        self.root = reference.root
        self.placed = reference.records
        with rocketstore.open(self.root, "r") as store:
            self.expected = self._gets(store, ())
            assert len(self.expected) == len(self.placed)
            self.queues, errors = self._consumed(store)
            assert not errors
            self.keys = self._queried(store)
            assert self.keys is not None
        report = verify(self.root, **INDEX)
        assert report.ok, report.faults

    def judge(self, path: Path, hit: list[Placed]) -> Verdict:
        """The store as it is now, with `path` damaged; `hit` are the records that were."""
        where = "/".join(path.relative_to(self.root).parts[:2])
        where = where.rpartition("/")[0] if where.startswith(("index", "commitlog")) else where
        where = "consumequeue" if where.startswith("consumequeue") else where
        try:
            report = verify(self.root, **INDEX)
        except ConfigError:  # the byte says that a newer release wrote the store
            with pytest.raises(ConfigError, match=re.escape(str(path))):
                rocketstore.open(self.root, "r")
            return Verdict(where, DETECTED)
        told = [Path(fault.file) for fault in report.faults]
        detected = any(file == path or file in path.parents for file in told)
        try:
            store = rocketstore.open(self.root, "r")
        except RocketStoreError:
            assert detected, f"{path}: open refuses it, verify says nothing"
            return Verdict(where, DETECTED)
        with store:
            gone = tuple(one.start for one in hit)
            found = self._gets(store, gone)
            for offset, fields in self.expected.items():
                assert found.get(offset, fields) == fields, f"{path}: {offset} is read otherwise"
            queues, errors = self._consumed(store)
            equal = found == self.expected and not errors
            equal = equal and queues == self.queues and self._queried(store) == self.keys
            for place, messages in queues.items():
                known = self.queues.get(place, {})
                assert all(known.get(offset) == fields for offset, fields in
                           messages.items()), f"{path}: {place} gives what was never put"  # fmt: skip
        if detected:
            return Verdict(where, DETECTED)
        return Verdict(where, HARMLESS if equal else UNDETECTED)

    def _gets(self, store: rocketstore.Store, gone: tuple[int, ...]) -> dict[int, Any]:
        found = {}
        for one in self.placed:
            try:
                found[one.start] = fields_of(store.get(one.start))
            except RocketStoreError:
                assert one.start in gone, f"the record at {one.start} cannot be read"
        return found

    def _consumed(self, store: rocketstore.Store) -> tuple[dict[Any, Any], int]:
        """By queue: what its consumer gives, by physical offset. And how many errors it met."""
        found: dict[Any, dict[int, Any]] = {}
        errors = 0
        for topic in store.topics(system=True):
            for queue_id in store.queues(topic):
                messages = found[topic, queue_id] = {}
                for message in _skipping(store, topic, queue_id):
                    if message is None:
                        errors += 1
                    else:
                        messages[message.physical_offset] = fields_of(message)
        return found, errors

    def _queried(self, store: rocketstore.Store) -> list[list[int]] | None:
        """What has each key; None where that is refused, which has to be a damage that `verify` names."""
        names = [f"k{number}" for number in range(7)]
        try:
            return [[m.physical_offset for m in store.query("orders", name)] for name in names]
        except ReadFailedError:
            return None


def _skipping(
    store: rocketstore.Store, topic: str, queue_id: int
) -> Iterator[rocketstore.Message | None]:
    """All messages of a queue; None for each that cannot be read."""
    minimum = store.min_queue_offset(topic, queue_id)
    maximum = store.max_queue_offset(topic, queue_id)
    at = minimum
    while at < maximum:
        consumer = store.consumer(topic, queue_id=queue_id, offset=at)
        try:
            for message in consumer:
                yield message
                at = message.queue_offset + 1
            return
        except (CorruptRecordError, ReadFailedError):
            yield None
            # Not from `at`: a damaged offset may have left a gap of millions in front of it.
            at = max(at, consumer.positions[queue_id]) + 1
        finally:
            consumer.close()
