"""Walks the key index, both checkpoints and the offsets of groups."""

from __future__ import annotations

import os
from pathlib import Path

from rocketstore._native.format import index_file
from rocketstore._native.format.codec import crc32c
from rocketstore._native.format.constants import CHECKPOINT_BYTES
from rocketstore._native.os import syscalls
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from rocketstore.consuming.offset_tables import entries_without_sense
from rocketstore.errors import CorruptRecordError, ReplicationError
from rocketstore.log.commitlog.checkpoint import DISCARDED, CheckpointFile, OwnCheckpoint
from rocketstore.log.index.inspection import key_hashes, tags_hash
from rocketstore.log.index.segment import Header, IndexSegment, is_index_name
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.lock import rocketstore_wrote_last
from rocketstore.log.layout.log_place import tail_bytes
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.state_files import read_json
from rocketstore.replication.role.state import load_state
from rocketstore.tools._verify.broker import check_side_file, document_of
from rocketstore.tools._verify.facts import LogFacts
from rocketstore.tools._verify.holes import hole_at
from rocketstore.tools.report import Findings
from rocketstore.values.arguments import Progress

__all__ = [
    "check_checkpoint",
    "check_offsets",
    "check_role",
    "offsets_fault",
    "own_checkpoint",
    "walk_index",
]

# The greatest number of seconds that an entry can hold.
LATE_MOST_S = 0x7FFFFFFF
# Entries of offsets that a fault names.
NAMED_MAX = 10


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

    `shape`: slots and entries. `growing`: entries of records beyond the end may be there, and
    more come meanwhile.
    """
    index = IndexStore(layout, "read", *shape)
    index.load()
    try:
        known = {segment.name for segment in index.files}
        for name in _names(layout):
            if name not in known and is_index_name(name):
                findings.add(
                    "derived", str(layout.index / name), 0, "not an index file of this store"
                )
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
        # A link of another user is refused, as one in place of the log is: its target is not known.
        syscalls.close(syscalls.open_directory(os.fspath(layout.index)))
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
        findings.add("derived", file.path, 0, "header or chains do not hold")
    last = min(max(1, header.index_count), shape.entries) - 1
    for number in range(1, last + 1):
        findings.counts.index_entries += 1
        key_hash, physical_offset, late_s, previous = index_file.entry(file, *shape, number)
        position = index_file.entry_position(shape.slots, number)
        if not 0 <= previous < number:
            findings.add("derived", file.path, position, f"entry {number} leads on to {previous}")
        if not facts.indexed or facts.indexed[-1] != physical_offset:
            facts.indexed.append(physical_offset)
        if physical_offset < facts.minimum or (growing and physical_offset >= facts.end):
            continue
        hole = hole_at(facts.holes, physical_offset)
        if hole is not None:  # one fault for all of them
            hole.entries += 1
            hole.last = max(hole.last, physical_offset)
            continue
        reason = _entry(facts, key_hash, physical_offset) or _against_header(
            facts, header, number, physical_offset, late_s, growing
        )
        if reason:
            findings.add("derived", file.path, position, f"entry {number} {reason}")


def _entry(facts: LogFacts, key_hash: int, physical_offset: int) -> str:
    """What is wrong with an entry, or ""."""
    try:
        message = facts.message_at(physical_offset)
    except CorruptRecordError as error:
        return f"points to {physical_offset}: {error.reason}"
    if message.tags and key_hash == tags_hash(message):
        facts.tagged.append(physical_offset)
        return ""
    if key_hash in key_hashes(message):
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


def own_checkpoint(layout: StoreLayout, findings: Findings) -> OwnCheckpoint | None:
    """Our checkpoint; None where there is none that counts: another program wrote last, and the
    next open does not look at it."""
    if not layout.own_checkpoint.exists() or not rocketstore_wrote_last(layout):
        return None
    file = CheckpointFile(layout.own_checkpoint)
    try:
        checkpoint = file.load()
    finally:
        file.close()
    if checkpoint is None:
        findings.add("derived", str(layout.own_checkpoint), 0, "no valid slot")
    return None if checkpoint is None or checkpoint.cut <= DISCARDED else checkpoint


def check_checkpoint(
    layout: StoreLayout, own: OwnCheckpoint | None, facts: LogFacts, findings: Findings
) -> None:
    """Our checkpoint does not speak of bytes that are not there; RocketMQ's has its size. Where
    another fault names the same end, this is not named again."""
    path = str(layout.own_checkpoint)
    if own is not None and not findings.codes["tail"] and not findings.codes["end"]:
        behind = [
            f"{name} = {getattr(own, name)}"
            for name in ("flushed", "dispatched", "indexed")
            if getattr(own, name) > facts.end
        ]
        files = [file for _, file in sorted(facts.files.items())]
        last = files[-1].end_offset if files else 0
        # A recovery keeps damage up to where readers were shown the log, the last record, too.
        if behind and crc32c(tail_bytes(files, own.flushed)) != own.tail_crc:
            text = f"{', '.join(behind)}, but the log ends at {facts.end}"
            findings.add("lost", path, 0, text, code="tail" if own.flushed <= last else "end")
    if facts.minimum < facts.begin:
        text = f"the log begins at {facts.begin}, but should at {facts.minimum}"
        findings.add("lost", path, 0, text, code="begin")
    theirs = layout.checkpoint
    if theirs.exists() and theirs.stat().st_size < CHECKPOINT_BYTES:  # no program reads more
        text = f"{theirs.stat().st_size} bytes, not {CHECKPOINT_BYTES}"
        findings.add("derived", str(theirs), 0, text)


def offsets_fault(root: Path) -> str:
    """Why groups of a store have no stored offsets although it has the file of them, or ""."""
    path = StoreLayout(root).consumer_offsets
    document = read_json(path) if path.exists() else {}
    table = document.get("offsetTable", {}) if isinstance(document, dict) else None
    if not isinstance(table, dict):
        return "holds no offsets, nor does its .bak: all groups start over; restore one of them"
    found = entries_without_sense(table)
    if not found:
        return ""
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return (
        f"entries that are no offsets, where their groups start over: "
        f"{'; '.join(found[:NAMED_MAX])}{more}"
    )


def _lost_groups(layout: StoreLayout) -> str:
    """Which groups the `.bak` knows, where file and journal hold none, or ""."""
    offsets = ConsumerOffsets(layout, read_only=True)
    offsets.load(ours=rocketstore_wrote_last(layout))
    if offsets.groups():
        return ""
    bak = layout.consumer_offsets.with_name(layout.consumer_offsets.name + ".bak")
    document = document_of(bak)
    table = document.get("offsetTable") if isinstance(document, dict) else None
    names = sorted(table) if isinstance(table, dict) else []
    shown = ", ".join(names[:NAMED_MAX]) + (" …" if len(names) > NAMED_MAX else "")
    return f"holds no offset, and once held those of {shown}: they start over" if names else ""


def check_role(layout: StoreLayout, findings: Findings) -> str:
    """The role in replication, "" without one. It can be read, without which no open for writing
    begins; else it is "unknown"."""
    try:
        state = load_state(layout)
    except (OSError, ReplicationError):
        text = (
            "does not say the role of this store, which opens with mode='r' only; restore the file,"
            " or make a new copy of the master in another directory"
        )
        findings.add("config", str(layout.replication), 0, text, code="role")
        return "unknown"
    return "" if state is None else state.role


def check_offsets(layout: StoreLayout, facts: LogFacts, findings: Findings) -> None:
    """No group waits beyond the end of its queue (D-17), and none went back without a commit."""
    path = layout.consumer_offsets
    readable = check_side_file(path, findings, "all groups start over")
    fault = offsets_fault(layout.root)
    if readable and fault:
        findings.add("config", str(path), 0, fault, code="side-file")
    if readable and not fault and (lost := _lost_groups(layout)):
        findings.notice("config", str(path), lost, code="side-file")
    offsets = ConsumerOffsets(layout, read_only=True)
    offsets.load(ours=rocketstore_wrote_last(layout))
    for text in offsets.doubts if readable else ():
        findings.add("offsets", str(path), 0, text, code="doubt")
    for change in offsets.clamp(lambda topic, queue_id: facts.ends.get((topic, queue_id))):
        findings.add(
            "offsets",
            str(path),
            0,
            f"group {change.group} stored {change.was} for {change.topic}/{change.queue_id}, "
            f"which ends at {change.now}",
        )
