"""Walks a log record by record and judges bytes that are no record: torn tail or damage.

Changes nothing; `recovery` decides what to do.
"""

from __future__ import annotations

import mmap
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from rocketstore._native.format.constants import BLANK_BYTES, BLANK_MAGIC
from rocketstore._native.format.scanner import (
    VERIFY_BODY_CRC,
    VERIFY_LENIENT,
    VERIFY_RECORD_CRC,
    VERIFY_UNTORN,
    Message,
    ScanResult,
    SearchBudget,
    read_message,
    resynchronise,
    scan_segment,
)
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError, OffsetOutOfRangeError
from rocketstore.log.damage import Damage, ValidRun
from rocketstore.log.mapped_files.mapped_files import in_memory_since_marked
from rocketstore.log.recovery.parallel_scan import ParallelScan
from rocketstore.values.system_flags import IN_QUEUES, TRANSACTION_TYPE

__all__ = ["EVERYWHERE", "LogWalk", "Rules"]

#: Log between two reports of progress, bytes.
CHUNK_BYTES = 16 << 20
#: Records after a tear whose topics a report names, a count; later ones count as a range only.
NAMED_RECORDS = 10_000
VALID_RUNS_MAX = 1_000
EVERYWHERE: Final = ((0, (1 << 63) - 1),)  # as `Rules.foreign`


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the walk may assume of the log."""

    #: D, the durable offset: everything below was on disk; -1 if no checkpoint of ours says it.
    durable: int
    #: Distance in bytes: a valid record this far after a fault proves that the fault was durable
    #: (D-20).
    window: int
    #: Readers were shown the log up to here; counts in files that have not left memory since.
    shown: int = 0
    #: Where a clean stop of ours noted the end; -1 without one. A record below it that RocketMQ takes
    #: for whole is damaged, not torn, also where the checkpoint does not fit for just that damage.
    stopped_at: int = -1
    #: Whether the last writer stopped cleanly.
    clean: bool
    #: Whether body CRCs are compared.
    check_crc: bool = True
    #: Ranges whose record CRCs may be stale; `EVERYWHERE` where another program shows.
    foreign: tuple[tuple[int, int], ...] = ()
    #: Whether queues have records beyond D after a clean stop there: the log is an older copy.
    contradicted: bool = False
    #: Known end of the log: a cut that an earlier recovery began (D-22); None if there is none.
    limit: int | None = None


@dataclass(slots=True)
class LogWalk:
    """One walk over `files`, which are in order and may have gaps. `run` fills the rest."""

    files: Sequence[MappedFile]
    rules: Rules
    #: Called with each offset up to which records are good; may take long.
    on_valid: Callable[[LogWalk, int], None] = field(default=lambda walk, offset: None)
    start: int = 0
    end: int = 0
    records: int = 0
    bytes: int = 0
    last_record_start: int = -1
    last_store_timestamp_ms: int = 0
    first_time_fall: int = -1
    record_crc_mismatches: int = 0
    damage: list[Damage] = field(default_factory=list)
    valid_runs: list[ValidRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    #: Budgets of searches, by the starts of files.
    budgets: dict[int, SearchBudget] = field(default_factory=dict, repr=False)
    ahead: ParallelScan = field(default_factory=lambda: ParallelScan(CHUNK_BYTES), repr=False)
    #: Last queue offset of each queue in [start, `counted_to`); -1: nothing is counted.
    queue_ends: dict[tuple[str, int], int] = field(default_factory=dict, repr=False)
    counted_to: int = -1
    #: The first record at or after an offset, as it was last looked for.
    far_record: tuple[int, int | None] = (-1, -1)

    def run(self, start: int, known_from: int | None = None) -> None:
        """Walks from `start`, the start of a record, a blank or a file. `end` is P afterwards.
        `known_from`: where an earlier walk began that was good up to `start`, but for `damage`."""
        self.start = start if known_from is None else known_from
        offset: int | None = start
        with closing(self.ahead):
            while offset is not None:
                self.end = offset
                if self.rules.limit is not None and offset >= self.rules.limit:
                    self.end = self.rules.limit
                    break
                file = self.file_at(offset)
                offset = self._over_gap(offset) if file is None else self._step(file, offset)

    def is_whole(self, offset: int) -> bool:
        """Whether a record or a blank that can be believed begins at `offset`."""
        file = self.file_at(offset)
        if file is None:
            return False
        position = offset - file.start_offset
        verify, _ = self._verify_at(offset)
        to = min(file.size, position + BLANK_BYTES)
        return resynchronise(file, position, to, budget=SearchBudget(), verify=verify) == position

    def are_damaged(self, ranges: Sequence[Damage]) -> bool:
        """Whether no record in `ranges`, which are in order, can be believed."""
        found = ((self._far_record(one.start), one.end) for one in ranges)
        return all(record is None or record >= end for record, end in found)

    # ---- walking ----

    def file_at(self, offset: int) -> MappedFile | None:
        at = bisect_right(self.files, offset, key=_start_of) - 1
        return self.files[at] if at >= 0 and offset < self.files[at].end_offset else None

    def _over_gap(self, offset: int) -> int | None:
        """Where the log continues after missing segments; None at its end."""
        at = bisect_right(self.files, offset, key=_start_of)
        if at == len(self.files):
            return None
        following = self.files[at]
        self._add_damage(offset, following.start_offset, "missing segment")
        return following.start_offset

    def _step(self, file: MappedFile, offset: int) -> int | None:
        """Walks one chunk; returns where to continue, None at the end of the log."""
        position = offset - file.start_offset
        verify, until = self._verify_at(offset)
        to = min(file.size, until - file.start_offset)
        result = self.ahead.scan(file, position, to, verify=verify)
        at = file.start_offset + result.end_position
        self._count(file, offset, result)
        self.end = at
        if at > offset:
            self.on_valid(self, at)
        if result.status == "end":
            return at
        if result.status == "blank":
            return file.end_offset
        return self._judge(file, at, result.status)

    def _verify_at(self, offset: int) -> tuple[int, int]:
        """The `VERIFY_*` bits for records at `offset`, and the end of the range they hold for."""
        rules = self.rules
        until = (1 << 63) - 1 if rules.limit is None else rules.limit
        verify = VERIFY_BODY_CRC | VERIFY_RECORD_CRC if rules.check_crc else 0
        if offset >= rules.durable >= 0:
            # Only here can a record have been written in part.
            verify |= VERIFY_UNTORN
        elif rules.durable >= 0:
            until = min(until, rules.durable)
        for start, end in rules.foreign:
            if start <= offset < end:
                return verify | VERIFY_LENIENT, min(until, end)
            if offset < start:
                until = min(until, start)
        return verify, until

    def _count(self, file: MappedFile, offset: int, result: ScanResult) -> None:
        """Adds the result of a scan from `offset` on."""
        self.bytes += file.start_offset + result.end_position - offset
        if not result.records:
            return
        self.records += result.records
        self.record_crc_mismatches += result.record_crc_mismatches
        if self.first_time_fall < 0:
            fell = result.first_store_timestamp_ms < self.last_store_timestamp_ms
            self.first_time_fall = offset if fell else result.first_time_fall
        self.last_record_start = result.last_record_start
        self.last_store_timestamp_ms = result.last_store_timestamp_ms

    # ---- judging ----

    def _judge(self, file: MappedFile, at: int, status: str) -> int | None:
        """Judges the bytes at `at`, which are no record. Returns where the log continues; None if
        it ends."""
        rules = self.rules
        data = file.find_data(at - file.start_offset, file.size, unwritten=True)
        nothing = data == file.size
        following = next(self._next_valid(at + 1), None)
        if rules.contradicted and at == rules.durable and following is not None:
            self._add_damage(at, following, status)
            return following
        if nothing and following == file.end_offset and self._blank_is_missing(file, at):
            self.notes.append(f"no blank at {at}: the next file follows, so nothing is missing")
            return file.end_offset
        until, zeros = rules.durable, nothing and following is None
        if until <= at < rules.shown and not zeros and in_memory_since_marked(file):
            until = rules.shown
        if at < until:
            until = min(until, until if following is None else following)
            self._add_damage(at, until, status)
            return until
        framed = _read(file, at) if status == "record crc" else None
        if framed is not None and at + framed.size <= rules.stopped_at:
            self._add_damage(at, at + framed.size, status)
            return at + framed.size
        record = next(self._next_records(at + 1), None)
        if following is None or record is None:
            return None
        if rules.durable >= 0:
            torn = self._far_record(at + rules.window) is None and not _was_whole(file, at)
        else:
            torn = self._is_given_up(record)
        if torn:
            self._add_valid_runs(at + 1)
            return None
        self._add_damage(at, following, status)
        return following

    def _next_valid(self, offset: int) -> Iterator[int]:
        """Records and blanks that can be believed, at or after `offset`; the first in each file."""
        first = bisect_right(self.files, offset, key=_end_of)
        for file in islice(self.files, first, None):
            position = max(0, offset - file.start_offset)
            # Holes are not read. A size begins with up to three zeros.
            data = file.find_data(position, file.size, unwritten=True)
            position = max(position, data - 3)
            if data == file.size:
                continue
            verify, _ = self._verify_at(file.start_offset + position)
            budget = self.budgets.setdefault(file.start_offset, SearchBudget())
            found = resynchronise(file, position, file.size, budget=budget, verify=verify)
            if found is not None:
                yield file.start_offset + found

    def _next_records(self, offset: int) -> Iterator[int]:
        """The same without blanks: after a blank its file has no record."""
        return (
            found for found in self._next_valid(offset) if not _is_blank(self.file_at(found), found)
        )

    def _far_record(self, offset: int) -> int | None:
        """The first record at or after `offset`. Looks once for faults near each other."""
        looked_from, found = self.far_record
        if not looked_from <= offset or (found is not None and found < offset):
            found = next(self._next_records(offset), None)
            self.far_record = (offset, found)
        return found

    def _add_damage(self, start: int, end: int, reason: str) -> None:
        """Notes a damaged range; joins it with the one before if no record lies between them. Names
        the topic of a record whose frame is whole."""
        message = _read(self.file_at(start), start)
        topics: tuple[str, ...] = () if message is None else (message.topic,)
        if self.damage and self.damage[-1].end == start:
            before = self.damage.pop()
            start, reason, topics = before.start, before.reason, before.topics + topics
        self.damage.append(Damage(start, end, reason, tuple(dict.fromkeys(topics))))

    def _add_valid_runs(self, offset: int) -> None:
        """Finds all valid records at or after `offset`."""
        named = 0
        while len(self.valid_runs) < VALID_RUNS_MAX:
            start = next(self._next_records(offset), None)
            if start is None:
                return
            file = self.file_at(start)
            assert file is not None
            verify, _ = self._verify_at(start)
            result = scan_segment(file, start - file.start_offset, file.size, verify=verify)
            offset = file.start_offset + result.end_position
            topics = set()
            for message in _messages(self, start, offset):
                if named >= NAMED_RECORDS:
                    break
                named += 1
                topics.add(message.topic)
            self.valid_runs.append(ValidRun(start, offset, result.records, tuple(sorted(topics))))
            if result.status == "blank":
                offset = file.end_offset
            elif result.status != "end":
                offset += 1

    # ---- queue offsets (format.md 15.2, equation 6) ----

    def _blank_is_missing(self, file: MappedFile, at: int) -> bool:
        """D-24: zeros up to the end of `file` replace a blank that never reached the disk, if the
        next file was durable, or the store was stopped cleanly, and every queue goes on in it."""
        following = self.file_at(file.end_offset)
        if following is None or not (self.rules.clean or file.end_offset <= self.rules.durable):
            return False
        messages = _messages(self, following.start_offset, following.end_offset)
        return _go_on(self._queue_ends(at), messages)

    def _is_given_up(self, offset: int) -> bool:
        """Whether an earlier recovery of RocketMQ gave up the record at `offset`, after a fault: a
        record before the fault has the same queue offset (format.md 15.4)."""
        file = self.file_at(offset)
        message = _read(file, offset)
        queue = _queue_of(message) if message is not None else None
        if message is None or queue is None:
            return False
        if message.queue_offset > self._queue_ends(self.end).get(queue, -1):
            return False
        self.notes.append(
            f"what lies after {self.end} was given up before: its numbers were used again"
        )
        return True

    def _queue_ends(self, end: int) -> dict[tuple[str, int], int]:
        """Last queue offset of each queue among the records of this walk below `end`, which
        never falls: each record is read once."""
        begin = self.start if self.counted_to < 0 else self.counted_to
        for message in _messages(self, begin, end):
            queue = _queue_of(message)
            if queue is not None:
                self.queue_ends[queue] = message.queue_offset
        self.counted_to = max(begin, end)
        return self.queue_ends


def _messages(walk: LogWalk, start: int, end: int) -> Iterator[Message]:
    """Records in [start, end), over blanks and known damage."""
    offset = start
    while offset < end:
        file = walk.file_at(offset)
        before = bisect_right(walk.damage, offset, key=_start_of_damage)
        if before and offset < walk.damage[before - 1].end:
            offset = walk.damage[before - 1].end
        elif file is None:
            return
        else:
            message = _read(file, offset)
            if message is not None:
                yield message
            offset = file.end_offset if message is None else offset + message.size


def _go_on(ends: Mapping[tuple[str, int], int], messages: Iterable[Message]) -> bool:
    """Whether each queue's first message follows its last queue offset in `ends`."""
    seen = set()
    for message in messages:
        queue = _queue_of(message)
        if queue is None or queue in seen:
            continue
        seen.add(queue)
        if queue in ends and message.queue_offset != ends[queue] + 1:
            return False
    return True


def _start_of(file: MappedFile) -> int:
    return file.start_offset


def _end_of(file: MappedFile) -> int:
    return file.end_offset


def _start_of_damage(damage: Damage) -> int:
    return damage.start


def _was_whole(file: MappedFile, at: int) -> bool:
    """Whether the bytes at `at`, before a record, were a record once: damage, not a torn batch.
    A put or batch that a death cut short has no magic there or, written by a call, nothing in that
    page yet (D-37)."""
    position = at - file.start_offset
    head = file.read(position, min(BLANK_BYTES, file.size - position))
    here = -position % mmap.PAGESIZE or mmap.PAGESIZE
    return any(head[:here]) and any(head[4:]) and in_memory_since_marked(file)


def _is_blank(file: MappedFile | None, offset: int) -> bool:
    if file is None or file.end_offset - offset < BLANK_BYTES:
        return False
    return file.read(offset - file.start_offset, BLANK_BYTES)[4:] == BLANK_MAGIC


def _read(file: MappedFile | None, offset: int) -> Message | None:
    """The record at `offset` if its frame is whole, even if a checksum differs."""
    if file is None:
        return None
    try:
        return read_message(file, offset - file.start_offset, file.size, verify=0)
    except (CorruptRecordError, OffsetOutOfRangeError):
        return None


def _queue_of(message: Message) -> tuple[str, int] | None:
    """The queue that a record has a number in; None for prepared and rolled back ones."""
    if message.sys_flag & TRANSACTION_TYPE not in IN_QUEUES:
        return None
    return message.topic, message.queue_id
