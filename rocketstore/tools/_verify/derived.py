"""Walks the key index, both checkpoints and the offsets of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore._native.format import index_file
from rocketstore._native.format.constants import CHECKPOINT_BYTES
from rocketstore.consuming.group_offsets import MAX_DEPTH, MAX_FILE_BYTES, ConsumerOffsets
from rocketstore.errors import CorruptRecordError
from rocketstore.log.commitlog.checkpoint import CheckpointFile
from rocketstore.log.index.store import IndexStore, hash_of
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.rocketmq_json import read_json

if TYPE_CHECKING:
    from pathlib import Path

    from rocketstore.log.index.segment import Header, IndexSegment
    from rocketstore.tools._verify.log import LogFacts
    from rocketstore.tools.report import Findings
    from rocketstore.values.callbacks import Progress

__all__ = ["check_checkpoint", "check_offsets", "offsets_fault", "walk_index"]

# The greatest number of seconds that an entry can hold.
LATE_MOST_S = 0x7FFFFFFF


def walk_index(
    layout: StoreLayout,
    facts: LogFacts,
    findings: Findings,
    progress: Progress | None,
    shape: tuple[int, int],
    *,
    growing: bool,
) -> None:
    """Every entry against its record; entries whose record has expired cannot be judged.

    `shape`: slots and entries. `growing`: entries of records beyond the end may stand there, and
    more come meanwhile.
    """
    index = IndexStore(layout, "read", *shape)
    index.load()
    try:
        known = {segment.name for segment in index.files}
        for name in _names(layout):
            if name not in known:
                findings.add(str(layout.index / name), 0, "not an index file of this store")
        for done, segment in enumerate(index.files):
            if progress is not None:
                progress("index", done, len(index.files))
            _walk_file(segment, facts, findings, growing)
        if progress is not None:
            progress("index", len(index.files), len(index.files))
    finally:
        index.close()


def _names(layout: StoreLayout) -> list[str]:
    try:
        return sorted(path.name for path in layout.index.iterdir())
    except FileNotFoundError:
        return []


def _walk_file(
    segment: IndexSegment,
    facts: LogFacts,
    findings: Findings,
    growing: bool,
) -> None:
    file, shape = segment.file, segment.shape
    findings.counts.index_files += 1
    header = segment.header()
    if not header.sane or not index_file.validate(file, *shape, growing=growing):
        findings.add(file.path, 0, "header or chains do not hold")
    last = min(max(1, header.index_count), shape.entries) - 1
    for number in range(1, last + 1):
        findings.counts.index_entries += 1
        key_hash, physical_offset, late_s, previous = index_file.entry(file, *shape, number)
        position = index_file.entry_position(shape.slots, number)
        if not 0 <= previous < number:
            findings.add(file.path, position, f"entry {number} leads on to {previous}")
        if physical_offset < facts.begin or (growing and physical_offset >= facts.end):
            continue
        reason = _entry(facts, key_hash, physical_offset) or _against_header(
            facts, header, number, physical_offset, late_s, growing
        )
        if reason:
            findings.add(file.path, position, f"entry {number} {reason}")


def _entry(facts: LogFacts, key_hash: int, physical_offset: int) -> str:
    """What is wrong with an entry, or ""."""
    try:
        message = facts.message_at(physical_offset)
    except CorruptRecordError as error:
        return f"points to {physical_offset}: {error.reason}"
    keys = (message.unique_id, *message.keys)
    if any(key and hash_of(message.topic, key) == key_hash for key in keys):
        return ""
    return f"points to {physical_offset}, a record without such a key"


def _against_header(
    facts: LogFacts,
    header: Header,
    number: int,
    physical_offset: int,
    late_s: int,
    growing: bool,
) -> str:
    """How an entry, or its time, contradicts the header, or "" (format.md 7.2, 7.3, 7.5)."""
    # With a writer, count and end are of two moments.
    last = number == header.index_count - 1 and not growing
    if number == 1 and header.begin_offset != physical_offset:
        return f"points to {physical_offset}, its file begins at {header.begin_offset}"
    if last and header.end_offset != physical_offset:
        return f"points to {physical_offset}, its file ends at {header.end_offset}"
    stored_ms = facts.message_at(physical_offset).store_timestamp_ms
    begin_ms = header.begin_timestamp_ms
    if number == 1 and begin_ms != stored_ms:
        return f"was stored at {stored_ms}, its file begins at {begin_ms}"
    if last and not 0 <= header.end_timestamp_ms - stored_ms < 1000:
        return f"was stored at {stored_ms}, its file ends at {header.end_timestamp_ms}"
    if number == 1:
        return ""  # It may be dated against the file before.
    expected_s = max(0, stored_ms - begin_ms) // 1000 if begin_ms > 0 else 0
    if late_s != min(expected_s, LATE_MOST_S):
        return f"says {late_s} s after {begin_ms}, its record was stored at {stored_ms}"
    return ""


def check_checkpoint(layout: StoreLayout, facts: LogFacts, findings: Findings) -> None:
    """Our checkpoint does not speak of bytes that are not there; RocketMQ's has its size."""
    path = layout.own_checkpoint
    if path.exists():
        file = CheckpointFile(path)
        try:
            checkpoint = file.load()
        finally:
            file.close()
        if checkpoint is None:
            findings.add(str(path), 0, "no valid slot")
        else:
            for name in ("flushed", "dispatched", "indexed"):
                claimed = getattr(checkpoint, name)
                if claimed > facts.end:
                    text = f"{name} = {claimed}, the log ends at {facts.end}"
                    findings.add(str(path), 0, text)
    path = layout.checkpoint
    if path.exists() and path.stat().st_size != CHECKPOINT_BYTES:
        findings.add(str(path), 0, f"{path.stat().st_size} bytes, not {CHECKPOINT_BYTES}")


def offsets_fault(root: Path) -> str:
    """Why no group of a store has stored offsets although it has the file of them, or ""."""
    path = StoreLayout(root).consumer_offsets
    document = read_json(path, MAX_FILE_BYTES, MAX_DEPTH) if path.exists() else {}
    if isinstance(document, dict) and isinstance(document.get("offsetTable", {}), dict):
        return ""
    return "holds no offsets, nor does its .bak: all groups start over; restore one of them"


def check_offsets(layout: StoreLayout, facts: LogFacts, findings: Findings) -> None:
    """No group waits beyond the end of its queue (D-17)."""
    path = layout.consumer_offsets
    fault = offsets_fault(layout.root)
    if fault:
        findings.add(str(path), 0, fault)
    offsets = ConsumerOffsets(layout, read_only=True)
    offsets.load()
    for change in offsets.clamp(lambda topic, queue_id: facts.ends.get((topic, queue_id))):
        findings.add(
            str(path),
            0,
            f"group {change.group} stored {change.stored} for {change.topic}/{change.queue_id}, "
            f"which ends at {change.maximum}",
        )
