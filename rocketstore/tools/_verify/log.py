"""Walks the log: every record, its checksums, and how records follow each other.

`scan_log` is the quick way: native, on all cores, and content with nothing but a sound log.
`walk_log` reads records one by one, names what is wrong, and gathers what the queues should have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rocketstore._native.format.constants import BLANK_BYTES, BLANK_MAGIC
from rocketstore._native.format.message import Message
from rocketstore._native.format.scanner import (
    VERIFY_BODY_CRC,
    VERIFY_RECORD_CRC,
    ScanResult,
    SearchBudget,
    read_message,
    resynchronise,
    scan_segment,
)
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.dispatch.generations import RUN_MAX
from rocketstore.log.queues.multi_dispatch import is_multi_dispatched, multi_dispatch_queues
from rocketstore.log.recovery.parallel_scan import part_begin
from rocketstore.tools._verify.facts import LogFacts, LostUnits, QueueFacts, Scope
from rocketstore.tools._verify.names import has_queue, note_without_queue
from rocketstore.tools.parallel import map_on_all_cores
from rocketstore.tools.report import Findings
from rocketstore.values.arguments import Progress
from rocketstore.values.system_flags import IN_QUEUES, INNER_BATCH, TRANSACTION_TYPE

__all__ = ["scan_log", "walk_log"]

BOTH_CHECKSUMS = VERIFY_BODY_CRC | VERIFY_RECORD_CRC
#: Bytes of a file that a thread scans in one go.
PART_BYTES = 32 << 20


def scan_log(
    segments: Sequence[MappedFile], scope: Scope, findings: Findings, progress: Progress | None
) -> LogFacts | None:
    """Counts the records of a log in which nothing is wrong; None when something may be."""
    used = _used(segments, scope)
    facts = _no_facts(segments, scope)
    parts = [part for segment in used for part in _parts(segment, scope)]
    total = sum(segment.size for segment in used)
    done = blanks = record_bytes = 0

    def scan(part: _SegmentPart) -> ScanResult:
        return scan_segment(part.segment, part.begin, part.end, verify=BOTH_CHECKSUMS)

    for part, result in zip(parts, map_on_all_cores(scan, parts), strict=True):
        if not _ends_well(part, result, last=part is parts[-1]):
            return None
        segment, blank = part.segment, result.status == "blank"
        blanks += blank
        facts.records += result.records
        record_bytes += result.end_position - part.begin
        here = segment.size if blank else result.end_position
        facts.end = max(facts.end, segment.start_offset + here)
        done += (segment.size if part.closing else part.end) - part.begin
        if progress is not None:
            progress("log", done, total)
    counts = findings.counts
    counts.segments, counts.records, counts.blanks = len(used), facts.records, blanks
    counts.record_bytes, counts.lost_bytes = record_bytes, 0
    return facts


def _no_facts(segments: Sequence[MappedFile], scope: Scope) -> LogFacts:
    files = {file.start_offset: file for file in segments}
    return LogFacts(scope.begin, scope.begin, files, scope.minimum)


class _SegmentPart(NamedTuple):
    """Records of [begin, end) in a segment; `closing`: the last of it. Others end where the next
    one begins."""

    segment: MappedFile
    begin: int
    end: int
    closing: bool


def _parts(segment: MappedFile, scope: Scope) -> list[_SegmentPart]:
    """Parts of a file that can be scanned at the same time: they begin where a record can be
    believed. Where it is wrong to believe it, the part in front does not end there, which
    `_ends_well` sees."""
    first, end = _part(segment, scope)
    begins, budget = [first], SearchBudget()
    while end - begins[-1] >= 2 * PART_BYTES:
        target = begins[-1] + PART_BYTES
        found = part_begin(segment, target, target + PART_BYTES, BOTH_CHECKSUMS, budget)
        if found is None:
            break
        begins.append(found)
    ends = [*begins[1:], end]
    return [
        _SegmentPart(segment, *bounds, bounds[1] == end)
        for bounds in zip(begins, ends, strict=True)
    ]


def _used(segments: Sequence[MappedFile], scope: Scope) -> list[MappedFile]:
    """Without files after the limit, and without preallocated files that are unused after the
    end."""
    limit = scope.limit
    used = [file for file in segments if limit is None or file.start_offset < limit]
    while len(used) > 1 and used[-1].find_data(0, used[-1].size) == used[-1].size:
        used.pop()
    return used


def _part(segment: MappedFile, scope: Scope) -> tuple[int, int]:
    """Positions in a file between which the scope has records."""
    end = segment.size
    if scope.limit is not None:
        end = max(0, min(end, scope.limit - segment.start_offset))
    return min(end, max(0, scope.begin - segment.start_offset)), end


def _ends_well(part: _SegmentPart, result: ScanResult, *, last: bool) -> bool:
    """Whether the records of a part end as they should: where the next part begins, or, in the last
    one of a file, at the limit, in a blank, or in zeros."""
    segment, position = part.segment, result.end_position
    if result.status == "end":
        return part.closing or position == part.end
    if result.status == "blank":
        rest = segment.size - position
        return part.closing and int.from_bytes(segment.read(position, 4), "big") == rest
    return last and segment.find_data(position, segment.size) == segment.size


def walk_log(
    segments: Sequence[MappedFile], scope: Scope, findings: Findings, progress: Progress | None
) -> LogFacts:
    """Reads record after record, names every fault, and steps over it."""
    used = _used(segments, scope)
    facts = _no_facts(segments, scope)
    counts = findings.counts
    counts.segments, counts.records, counts.blanks = len(used), 0, 0
    counts.record_bytes = counts.lost_bytes = 0
    total = sum(segment.size for segment in used)
    done = 0
    before = scope.minimum
    for segment in used:
        facts.hole(before, segment.start_offset)
        before = segment.end_offset
        _Walk(segment, scope, facts, findings, last=segment is used[-1]).run()
        done += segment.size
        if progress is not None:
            progress("log", done, total)
    for place, known in list(facts.queues.items()):
        if known.again:
            begin_again(facts, place)
    return facts


def begin_again(facts: LogFacts, place: tuple[str, int]) -> None:
    """The numbering of a queue began again: what counts is what came since."""
    count = facts.queues[place].again
    facts.queues[place] = QueueFacts(0, count, count)


#: What is said of a record with queue offset 0 that lies between other records of its queue.
STRAY: Final = "queue offset 0 follows others, which go on behind it"
#: What a page holds after the last record of a log that RocketMQ wrote with `writeWithoutMmap`.
PADDING: Final = "stale bytes behind the last record, up to the end of its page: RocketMQ's padding"


class _Walk:
    """The records of one file. `last`: the log ends in it."""

    def __init__(
        self, segment: MappedFile, scope: Scope, facts: LogFacts, findings: Findings, *, last: bool
    ) -> None:
        self._segment = segment
        self._scope = scope
        self._facts = facts
        self._findings = findings
        self._last = last

    def run(self) -> None:
        segment, counts, budget = self._segment, self._findings.counts, SearchBudget()
        position, end = _part(segment, self._scope)
        while position < end:
            rest = segment.size - position
            head = segment.read(position, min(rest, BLANK_BYTES))
            if head[4:] == BLANK_MAGIC:
                counts.blanks += 1
                if int.from_bytes(head[:4], "big", signed=True) != rest:
                    self._fault(position, "the blank does not reach the end of its file")
                self._facts.end = segment.end_offset
                return
            data = position if any(head) else segment.find_data(position, segment.size)
            if data == segment.size:
                if not self._last and rest >= BLANK_BYTES:
                    self._fault(position, "zeros up to the end of the file, without a blank")
                    self._facts.hole(segment.start_offset + position, segment.end_offset)
                return
            size = self._record(position) if data == position else 0
            if size == 0:
                found = resynchronise(segment, position + 1, end, budget=budget)
                if found is None and self._last and self._scope.padding(segment, position):
                    self._findings.notice("log", segment.path, PADDING)
                    return
                if found is None and self._last and self._scope.growing:
                    return  # It is being written just now.
                if found is None and segment.size < self._facts.file_size:
                    pass  # the file lacks its end, which is named already
                elif data > position:
                    self._fault(position, f"zeros, then bytes again at {data}")
                else:
                    self._fault(position, self._reason(position))
                size = (end if found is None else found) - position
                counts.lost_bytes += size
                here = segment.start_offset + position
                self._facts.hole(here, here + size)
                if found is None:
                    return
            else:
                self._facts.end = segment.start_offset + position + size
            position += size

    def _fault(self, position: int, reason: str) -> None:
        self._findings.add("log", self._segment.path, position, reason)

    def _reason(self, position: int) -> str:
        """Why no record can be believed at a position."""
        try:
            read_message(self._segment, position, self._segment.size, verify=0)
        except CorruptRecordError as error:
            return error.reason
        return ""

    def _record(self, position: int) -> int:
        """Size of the record at a position; 0 when its frame does not hold."""
        segment, counts = self._segment, self._findings.counts
        try:
            message = read_message(segment, position, segment.size, verify=0)
        except CorruptRecordError:
            return 0
        damaged = False
        try:
            read_message(segment, position, segment.size, verify=BOTH_CHECKSUMS)
        except CorruptRecordError as error:
            if error.reason != "record crc" or not self._scope.foreign(message.physical_offset):
                # Lengths and place are right: only its content is damaged, it still counts in its
                # queue.
                damaged = True
                self._fault(position, error.reason)
                counts.lost_bytes += message.size
                counts.records -= 1
                counts.record_bytes -= message.size
            else:
                counts.stale_checksums += 1
                if not self._scope.allow_stale_crc:
                    text = "its own checksum does not hold, its body is whole"
                    self._findings.add(
                        "log", segment.path, position, f"record crc: {text}", code="record-crc"
                    )
        counts.records += 1
        counts.record_bytes += message.size
        self._facts.records += 1
        if not damaged:
            self._facts.stored(message.store_timestamp_ms)
        self._queues(position, message, damaged=damaged)
        return message.size

    def _begins_again(self, place: tuple[str, int], queue_offset: int, position: int) -> bool:
        """Whether the numbering of a queue begins again with this record, or may do so: as a
        dispatcher decides it (`log.dispatch.generations`)."""
        known = self._facts.queues[place]
        if queue_offset == 0:
            known.again, known.again_at = 0, (self._segment.path, position)
        if queue_offset == known.again < known.next:
            known.again += 1
            if known.again >= min(known.next, RUN_MAX):
                begin_again(self._facts, place)
            return True
        if known.again:
            text = f"{place[0]}/{place[1]}: {STRAY}"
            self._findings.add("log", *known.again_at, text, code="twice")
            known.again = 0
        return False

    def _take_back(self, known: QueueFacts) -> None:
        """The record in front jumped ahead of its queue, which goes on here as if it were not
        there: it is the odd one, as for a dispatcher."""
        odd = known.gaps.pop()
        known.next, known.records = odd.first, known.records - 1
        text = f"{odd.topic}/{odd.queue_id}: queue offset {odd.end} follows {odd.first - 1}"
        text += ", lower ones follow"
        self._findings.add("log", odd.file, odd.position, text, code="twice")

    def _queues(self, position: int, message: Message, *, damaged: bool) -> None:
        """Queue offsets of one queue follow each other (format 15.2, equation 6). What a damaged
        record says of its queue counts only where it fits: else the records after it would look
        wrong."""
        if message.sys_flag & TRANSACTION_TYPE not in IN_QUEUES:
            return
        if message.sys_flag & INNER_BATCH:
            # Inner batches count messages, not records, and have batch queues (format 4.2).
            place = (message.topic, message.queue_id)
            waits = self._scope.waits(message)
            for counts in (self._facts.batches, self._facts.waiting_batches)[: 1 + waits]:
                counts[place] = counts.get(place, 0) + 1
            return
        own = (message.topic, message.queue_id, message.queue_offset)
        further = multi_dispatch_queues(message) if is_multi_dispatched(message.topic) else []
        for topic, queue_id, queue_offset in (own, *further):
            if not has_queue(message, topic, queue_id):
                if not damaged:
                    note_without_queue(self._facts, message, topic, queue_id)
                continue
            known = self._facts.queues.get((topic, queue_id))
            if damaged and (known is None or queue_offset != known.next):
                continue
            if damaged:
                self._facts.damaged.append(
                    (topic, queue_id, queue_offset, message.store_timestamp_ms)
                )
            if known is None:
                new = QueueFacts(queue_offset, queue_offset + 1, 1)
                self._facts.queues[topic, queue_id] = new
                continue
            jumped = known.gaps and known.gaps[-1].end == known.next - 1
            if jumped and known.gaps[-1].first <= queue_offset < known.next - 1:
                self._take_back(known)
            if queue_offset > known.next:
                place = (self._segment.path, position)
                known.gaps.append(LostUnits(topic, queue_id, known.next, queue_offset, *place))
            elif self._begins_again((topic, queue_id), queue_offset, position):
                continue
            elif queue_offset != known.next:
                text = f"{topic}/{queue_id}: queue offset {queue_offset} follows {known.next - 1}"
                self._findings.add("log", self._segment.path, position, text, code="twice")
                continue  # another record has the unit: a dispatcher gives it to the first one
            known.next = queue_offset + 1
            known.records += 1
