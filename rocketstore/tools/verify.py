"""Checks a store against itself: log, queues, index, checkpoints, stored offsets."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

from rocketstore._native.format.codec import decode_record
from rocketstore._native.format.scanner import scan_segment
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.config import StoreConfig
from rocketstore.errors import CorruptRecordError, StoreRecoveringError
from rocketstore.log.commitlog.checkpoint import NOT_INDEXED, OwnCheckpoint, RocketmqCheckpoint
from rocketstore.log.follow.writer_monitor import RECOVERY_S, STEP_S, WriterMonitor, WriterSeen
from rocketstore.log.layout.listing import has_place, usual_size
from rocketstore.log.layout.lock import describe_recovery, rocketstore_wrote_last
from rocketstore.log.layout.log_dirs import NAME_THEM, list_log, log_directories
from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.layout.store_json import has_stale_checksums, load_store_state
from rocketstore.log.queues.directories import rocksdb_queues
from rocketstore.log.read.batch_queue import batch_topics
from rocketstore.log.recovery.quarantine import cuts_with_records
from rocketstore.log.recovery.repair import is_padding
from rocketstore.tools._verify.batches import walk_batches
from rocketstore.tools._verify.broker import REFUSES, check_side_files, check_strays
from rocketstore.tools._verify.derived import (
    check_checkpoint,
    check_offsets,
    check_role,
    own_checkpoint,
    walk_index,
)
from rocketstore.tools._verify.facts import LogFacts, Scope
from rocketstore.tools._verify.in_the_way import BlockedPlaces
from rocketstore.tools._verify.keys import check_keys
from rocketstore.tools._verify.log import scan_log, walk_log
from rocketstore.tools._verify.losses import name_end, name_losses
from rocketstore.tools._verify.missing import check_lost, compare_queues
from rocketstore.tools._verify.names import name_without_queue
from rocketstore.tools._verify.queues import walk_queues
from rocketstore.tools._verify.waiting import waiting_records
from rocketstore.tools.report import Findings, VerifyReport
from rocketstore.values.arguments import Progress
from rocketstore.values.foreign import foreign_names, no_store
from rocketstore.values.plural import counted

__all__ = ["verify"]

INDEX_SLOTS = 5_000_000
INDEX_ENTRIES = 20_000_000
#: Bytes of a file of the log that are read to find its first record, which has the offset that the
#: file is named by.
LOOK_BYTES = 1 << 20


def verify(
    path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    index_slots: int = INDEX_SLOTS,
    index_entries: int = INDEX_ENTRIES,
    commit_log_dir: str = "",
    allow_stale_crc: bool = False,
) -> VerifyReport:
    """Walks every record, queue unit and index entry of a store, without a lock.

    A record is checked for its structure, its place, both checksums and the queue offset before it.
    A unit and an index entry are checked against the record they point to, and each record for its
    unit.

    With a live writer only what it has published is checked, and units of the newest records may be
    missing. The same holds for the tail of a store that was not stopped cleanly, which the next
    open completes; it begins where the checkpoint says that units were on the disk.

    Args:
        progress: called with (what, done, total): bytes of the log, then numbers of queues and of
            index files.
        index_slots: shape of the index files, which they do not hold themselves.
        index_entries: the same.
        commit_log_dir: all directories of the log, with "," between them, where it has several or
            lies outside of the store.
        allow_stale_crc: records whose own checksum does not hold are no faults where another
            program wrote: RocketMQ can put a record again with the checksum of the old one
            (docs/durability.md#recovery). Nothing distinguishes such a record from a
            changed one.

    Raises:
        ConfigError: a shape of index files that none has; it says what is allowed.
        NotADirectoryError, FileNotFoundError: no directory, or one that holds other files and no
            store.
        StoreRecoveringError: a process recovers or rebuilds the store, for more than a second, or
            has begun to since the walk began: queues and index are half made then.
    """
    config = StoreConfig(
        index_slots=index_slots, index_entries=index_entries, commit_log_dir=commit_log_dir
    )
    root = Path(path)
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not the directory of a store")
    layout = StoreLayout(root, log_directories(root, config.commit_log_dir))
    _check_place(layout)
    findings = Findings()
    watch = WriterMonitor(layout)
    segments: list[MappedFile] = []
    try:
        seen, check = _recovered(layout, watch)

        def told(what: str, done: int, total: int) -> None:
            check()
            if progress is not None:
                progress(what, done, total)

        limit: int | None = None
        if seen.state == "live" and watch.page is not None:
            limit = watch.page.positions.dispatched
        segments = _open_segments(layout, findings)
        growing = seen.state != "none"
        own = None if growing else own_checkpoint(layout, findings)
        begin = _begin(segments, own, seen.state, findings)
        waiting = waiting_records(layout, config, seen.state, watch, findings)
        scope = Scope(
            begin,
            limit,
            growing,
            _foreign(layout),
            waits=BlockedPlaces(layout).bound(waiting.unit),
            minimum=_minimum(segments, own, begin),
            padding=_padding(layout, growing=growing),
            allow_stale_crc=allow_stale_crc,
        )
        facts = _walk(layout, segments, scope, findings, told)
        shape = (config.index_slots, config.index_entries)
        walk_index(layout, facts, findings, told, shape, growing=growing)
        name_end(layout, facts, findings)
        check_keys(layout, facts, findings, waiting, in_use=_has_index(layout, own))
        check_strays(layout, facts, findings)
        role = check_role(layout, findings)
        for start, end, count, copy in cuts_with_records(layout.quarantine):
            text = (
                f"[{start}, {end}), which a recovery cut off with {counted(count, 'whole record')}"
            )
            findings.notice("log", str(copy), text, code="cut")
        if not growing:
            check_side_files(layout, findings)
            check_checkpoint(layout, own, facts, findings)
            check_offsets(layout, facts, findings)
        check()
    finally:
        watch.close()
        for segment in segments:
            segment.close()
    return _report(root, seen, role, facts, findings)


def _report(
    root: Path, seen: WriterSeen, role: str, facts: LogFacts, findings: Findings
) -> VerifyReport:
    return VerifyReport(
        path=str(root),
        writer=seen.state,
        role=role,
        begin_offset=facts.begin,
        end_offset=facts.end,
        counts=findings.counts,
        faults=tuple(findings.faults),
        fault_count=sum(findings.kinds.values()),
        kinds=dict(findings.kinds),
        notices=tuple(findings.notices),
        lost_messages=findings.lost,
        hidden_messages=findings.hidden,
        without_queue=findings.without_queue,
    )


def _has_index(layout: StoreLayout, own: OwnCheckpoint | None) -> bool:
    """Whether a store keeps an index, by what its checkpoints say."""
    if own is not None:
        return own.indexed != NOT_INDEXED
    return RocketmqCheckpoint(layout.checkpoint).load().index_ms > 0


def _begin(
    segments: Sequence[MappedFile], own: OwnCheckpoint | None, writer: str, findings: Findings
) -> int:
    """Where the log begins. A log that was given up goes on where our checkpoint says. Without that
    nothing but `writer`, one of ours, knows what was trimmed."""
    if not segments:
        return 0 if own is None else own.minimum
    begin = segments[0].start_offset
    if begin and own is None and writer not in ("live", "recovering"):
        text = f"the log begins at {begin}, what lay in front counts as trimmed; {NAME_THEM}"
        findings.notice("log", segments[0].path, text, code="trimmed")
    return begin


def _minimum(segments: Sequence[MappedFile], own: OwnCheckpoint | None, begin: int) -> int:
    """Where the log should begin, by our checkpoint; where it does, without one."""
    if own is None or not segments:
        return begin
    size = max(segment.size for segment in segments)
    return own.minimum if own.minimum - own.minimum % size < begin else begin


def _recovered(layout: StoreLayout, watch: WriterMonitor) -> tuple[WriterSeen, Callable[[], None]]:
    """The writer, once it has recovered the store, and a function that raises StoreRecoveringError
    where another run of a writer has begun since."""

    def recovering() -> StoreRecoveringError:
        remedy = "verify it once that process is through"
        return StoreRecoveringError(str(layout.root), describe_recovery(layout), remedy)

    deadline = time.monotonic() + RECOVERY_S
    while (seen := watch.see()).state == "recovering":
        if time.monotonic() >= deadline:
            raise recovering()
        time.sleep(STEP_S)
    run = watch.seen

    def check() -> None:
        now = watch.run()
        if now is not None and now[0] != (b"" if run is None else run[0]):
            raise recovering()

    return seen, check


def _check_place(layout: StoreLayout) -> None:
    """Refuses a directory that is no store: one named by mistake must not be reported without
    faults."""
    parts = (
        layout.commit_log,
        layout.consume_queue,
        layout.batch_consume_queue,
        layout.index,
        layout.config,
        layout.own,
        layout.checkpoint,
        layout.abort,
        layout.lock,
    )
    found = os.listdir(layout.root)
    foreign = foreign_names(found)
    if foreign and not any(part.name in found for part in parts):
        raise FileNotFoundError(errno.ENOENT, no_store(foreign), os.fspath(layout.root))


def _walk(
    layout: StoreLayout,
    segments: list[MappedFile],
    scope: Scope,
    findings: Findings,
    progress: Progress | None,
) -> LogFacts:
    """Log and queues: the quick way where it proves that all is well, else record by record."""
    rocksdb = rocksdb_queues(layout)
    if rocksdb is not None:
        walked = walk_log(segments, scope, findings, progress)
        text = "the consume queues are in RocksDB, which is not read: they are not checked"
        findings.notice("derived", str(rocksdb), text)
        walked.ends.update((place, known.next) for place, known in walked.queues.items())
        name_without_queue(layout, (), walked, findings)
        return walked
    facts = scan_log(segments, scope, findings, progress)
    quick = facts is not None and not batch_topics(layout)
    if facts is None or not quick:
        facts = walk_log(segments, scope, findings, progress)
    queues = walk_queues(layout, facts, findings, progress, growing=scope.growing)
    own, matching = sum(queue.own for queue in queues), sum(queue.matching for queue in queues)
    if quick and own == facts.records == matching and not any(queue.bad for queue in queues):
        # Units rise, each matches a record of its own, and there are as many as records: none is
        # missing, and the queue offsets in the log follow each other as the units do.
        facts.ends = {(queue.topic, queue.queue_id): queue.next for queue in queues}
        facts.close(growing=scope.growing)
        return facts
    if quick:
        facts = walk_log(segments, scope, findings, progress)
    facts.close(growing=scope.growing)
    name_without_queue(layout, queues, facts, findings)
    facts.losses = name_losses(queues, facts, findings)
    walk_batches(layout, facts, findings, growing=scope.growing)
    compare_queues(layout, queues, facts, scope, findings)
    check_lost(layout, facts, findings)
    findings.lost = facts.losses.counts.messages()
    facts.ends.update((place, known.next) for place, known in facts.queues.items())
    return facts


def _foreign(layout: StoreLayout) -> Callable[[int], bool]:
    """Whether another program wrote at an offset: everywhere in a store that nothing calls ours."""
    state = load_store_state(layout)
    return state.is_foreign if state is not None else lambda _: has_stale_checksums(layout)


def _padding(layout: StoreLayout, *, growing: bool) -> Callable[[MappedFile, int], bool]:
    """Whether stale bytes may be after the last record: RocketMQ stopped last, and cleanly."""
    if growing or layout.abort.exists() or rocketstore_wrote_last(layout):
        return lambda *_: False
    return partial(is_padding, layout)


def _open_segments(layout: StoreLayout, findings: Findings) -> list[MappedFile]:
    """The log's files in order; those of another length or name, and gaps, are faults."""
    found = list_log(layout)
    size = usual_size(found) or 0
    segments: list[MappedFile] = []
    for number, (start, length, path) in enumerate(found):
        if os.path.dirname(path) == os.fspath(layout.live):
            name = os.path.basename(path)
            text = f"{name} is missing in the log; the next open for writing links it back"
            findings.add("broker", path, 0, text, code="vanished")
        gap = bool(segments) and segments[-1].start_offset + size < start
        text = _other_name(path, start, length, size, gap=gap)
        if size and text:
            findings.add("log", path, 0, text, code="name")
            continue
        if gap:
            text = f"the files from {segments[-1].start_offset + size} up to here are missing"
            findings.add("lost", path, 0, text, code="missing")
        if length != size or not size:
            last = number == len(found) - 1
            _wrong_length(findings, path, start, (length, size), last=last)
        if length:
            segments.append(MappedFile.open(path, start, min(length, size), "read"))
    return segments


def _other_name(path: str, start: int, length: int, size: int, *, gap: bool) -> str:
    """Why a file of the log has the name of another place, or "": two records in it say so, since
    one may have a changed offset. Nor does a log go on after a `gap` with a file of nothing."""
    with suppress(CorruptRecordError, ValueError), open(path, "rb") as file:
        first = file.read(LOOK_BYTES)
        said = decode_record(first, verify=False)["physical_offset"]
        with closing(MappedFile.open(path, said, length, "read")) as named:
            if said != start and scan_segment(named, 0, length, verify=0).records > 1:
                return f"its records are those of {segment_name(said)}"
    belongs = has_place(start, size) and (first.strip(b"\0") or not gap)
    return "" if belongs else f"{length} bytes at {start} can be no segment"


def _wrong_length(
    findings: Findings, path: str, start: int, lengths: tuple[int, int], *, last: bool
) -> None:
    """A short file in the middle lacks bytes of the log; any other is cut, filled or removed by the
    next open for writing, and loses nothing by that."""
    length, size = lengths
    text = f"{length} bytes at {start}" + (f", the others have {size}" if size else "")
    if length < size and not last:
        findings.add("lost", path, 0, text, code="missing")
    elif length == 0:
        findings.add(
            "broker", path, 0, f"{text}; before 5.0 RocketMQ refuses to start", code="length"
        )
    else:
        findings.add("broker", path, 0, f"{REFUSES}{text}", code="length")
