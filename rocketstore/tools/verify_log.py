"""Walks the log: every record, its checksums, and how records follow each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketstore._native.scanner import read_message, resynchronise
from rocketstore.errors import CorruptRecordError
from rocketstore.log.layout import is_safe_topic
from rocketstore.log.light_queues import light_queues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rocketstore._native.mapped_file import MappedFile
    from rocketstore._native.message import Message
    from rocketstore.tools.findings import Findings, Progress

__all__ = ["LogFacts", "QueueFacts", "walk_log"]

BLANK_MAGIC = bytes.fromhex("cbd43194")
BLANK_SIZE_MIN = 8
BOTH_CHECKSUMS = 3
TRANSACTION_TYPE = 0xC
COMMIT = 0x8
INNER_BATCH = 0x80


@dataclass(slots=True)
class QueueFacts:
    """What the log says about one queue: `first` and `next` queue offset, and how many lie
    between."""

    first: int
    next: int
    records: int


@dataclass(slots=True)
class LogFacts:
    """What the log says about the derived files. `files` by start offset; there may be gaps."""

    begin: int
    end: int
    queues: dict[tuple[str, int], QueueFacts]
    files: dict[int, MappedFile]

    def message_at(self, physical_offset: int) -> Message:
        """The record that begins at an offset, or `CorruptRecordError`."""
        size = next((file.size for file in self.files.values()), 1)
        position = physical_offset % size
        file = self.files.get(physical_offset - position)
        if file is None or not physical_offset < self.end:
            raise CorruptRecordError(physical_offset, "outside the log")
        message = read_message(file, position, file.size, verify=0)
        if message.physical_offset != physical_offset:
            raise CorruptRecordError(physical_offset, "physical offset")
        return message


def walk_log(
    segments: Sequence[MappedFile],
    begin: int,
    limit: int | None,
    findings: Findings,
    progress: Progress | None,
) -> LogFacts:
    """Reads every record from `begin` up to `limit`, or to the end of the log where that is
    None."""
    facts = LogFacts(begin, begin, {}, {file.start_offset: file for file in segments})
    # Files that were made ahead and never used stand behind the end (format 1.2).
    used = len(segments)
    while (
        used > 1
        and segments[used - 1].find_data(0, segments[used - 1].size) == segments[used - 1].size
    ):
        used -= 1
    total = sum(segment.size for segment in segments[:used])
    done = 0
    for segment in segments[:used]:
        last = segment is segments[used - 1]
        findings.counts.segments += 1
        position = max(0, begin - segment.start_offset)
        end = segment.size if limit is None else min(segment.size, limit - segment.start_offset)
        _walk_segment(segment, position, end, last and limit is None, facts, findings)
        done += segment.size
        if progress is not None:
            progress("log", done, total)
    return facts


def _walk_segment(
    segment: MappedFile,
    position: int,
    end: int,
    at_the_end: bool,
    facts: LogFacts,
    findings: Findings,
) -> None:
    """Records of one file. `at_the_end`: the log may end in this one."""
    while position < end:
        rest = segment.size - position
        head = segment.read(position, min(rest, BLANK_SIZE_MIN))
        if rest < BLANK_SIZE_MIN:
            if any(head):
                findings.add(segment.path, position, "bytes where not even a blank fits")
            break
        if head[4:] == BLANK_MAGIC:
            findings.counts.blanks += 1
            if int.from_bytes(head[:4], "big", signed=True) != rest:
                findings.add(segment.path, position, "the blank does not reach the end of its file")
            facts.end = max(facts.end, segment.end_offset)
            break
        if not any(head):
            _nothing(segment, position, at_the_end, findings)
            if segment.find_data(position, segment.size) == segment.size:
                break
        else:
            size = _record(segment, position, facts, findings)
            if size:
                position += size
                facts.end = segment.start_offset + position
                continue
        found = resynchronise(segment, position + 1, end)
        findings.counts.lost_bytes += (end if found is None else found) - position
        if found is None:
            break
        position = found


def _nothing(segment: MappedFile, position: int, at_the_end: bool, findings: Findings) -> None:
    """Zeros stand where a record could begin."""
    data = segment.find_data(position, segment.size)
    if data < segment.size:
        findings.add(segment.path, position, f"zeros, then bytes again at {data}")
    elif not at_the_end:
        findings.add(segment.path, position, "zeros up to the end of the file, without a blank")


def _record(segment: MappedFile, position: int, facts: LogFacts, findings: Findings) -> int:
    """Size of the record at a position; 0 when none stands there that can be believed."""
    try:
        message = read_message(segment, position, segment.size, verify=BOTH_CHECKSUMS)
        findings.counts.records += 1
        findings.counts.record_bytes += message.size
    except CorruptRecordError as error:
        findings.add(segment.path, position, error.reason)
        try:
            # With its lengths and place right only its content is damaged: it still counts in its queue.
            message = read_message(segment, position, segment.size, verify=0)
        except CorruptRecordError:
            return 0
        findings.counts.lost_bytes += message.size
    offset = message.physical_offset
    if message.prepared_transaction_offset >= offset and message.prepared_transaction_offset > 0:
        findings.add(segment.path, position, "its prepared message lies behind it")
    # Inner batches count messages, not records, and have batch queues (format 4.2).
    if message.sys_flag & TRANSACTION_TYPE in (0, COMMIT) and not message.sys_flag & INNER_BATCH:
        own = (message.topic, message.queue_id, message.queue_offset)
        for topic, queue_id, queue_offset in (own, *light_queues(message)):
            if queue_id < 0 or not is_safe_topic(topic.encode("utf-8", "replace")):
                continue  # Such a name gets no queue; its record is read by offset (DESIGN 8).
            reason = _follow(facts.queues, topic, queue_id, queue_offset)
            if reason:
                findings.add(segment.path, position, reason)
    return message.size


def _follow(
    queues: dict[tuple[str, int], QueueFacts], topic: str, queue_id: int, queue_offset: int
) -> str:
    """Queue offsets of one queue follow each other (format 15.2, equation 6); the fault, or ""."""
    known = queues.get((topic, queue_id))
    if known is None:
        queues[topic, queue_id] = QueueFacts(queue_offset, queue_offset + 1, 1)
        return ""
    expected = known.next
    known.next = max(expected, queue_offset + 1)
    known.records += 1
    if queue_offset == expected:
        return ""
    return f"{topic}/{queue_id}: queue offset {queue_offset} follows {expected - 1}"
