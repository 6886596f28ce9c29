"""Checks a store against itself: log, queues, index, checkpoints, stored offsets."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.config import StoreConfig
from rocketstore.log.follow.writer_monitor import WriterMonitor
from rocketstore.log.layout.listing import has_place, usual_size
from rocketstore.log.layout.log_dirs import list_log, log_directories
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.store_json import load_store_state
from rocketstore.log.read.batch_queues import batch_topics
from rocketstore.tools._verify.batches import walk_batches
from rocketstore.tools._verify.derived import check_checkpoint, check_offsets, walk_index
from rocketstore.tools._verify.log import Scope, scan_log, walk_log
from rocketstore.tools._verify.queues import check_lost, compare_queues, walk_queues
from rocketstore.tools.report import Findings, VerifyReport

if TYPE_CHECKING:
    from collections.abc import Callable

    from rocketstore.tools._verify.log import LogFacts
    from rocketstore.values.callbacks import Progress

__all__ = ["verify"]

INDEX_SLOTS = 5_000_000
INDEX_ENTRIES = 20_000_000


def verify(
    path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    index_slots: int = INDEX_SLOTS,
    index_entries: int = INDEX_ENTRIES,
    commit_log_dir: str = "",
) -> VerifyReport:
    """Walks every record, queue unit and index entry of a store, without a lock.

    A record is checked for its structure, its place, both checksums and the queue offset before it.
    A unit and an index entry are checked against the record they point to, and each record for its
    unit.

    With a live writer only what it has published is checked, and units of the newest records may be
    missing. The same holds for the tail of a store that was not stopped cleanly, which the next
    open completes.

    Args:
        progress: called with (what, done, total): bytes of the log, then numbers of queues and of
            index files.
        index_slots: shape of the index files, which they do not hold themselves.
        index_entries: the same.
        commit_log_dir: all directories of the log, with "," between them, where it has several or
            lies outside of the store.

    Raises:
        ConfigError: a shape of index files that none has; it says what is allowed.
        NotADirectoryError, FileNotFoundError: no directory, or one that holds other files and no
            store.
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
        seen = watch.see()
        limit: int | None = None
        if seen.state == "live" and watch.page is not None:
            limit = watch.page.positions.dispatched
        segments = _open_segments(layout, findings)
        begin = segments[0].start_offset if segments else 0
        growing = seen.state != "none"
        scope = Scope(begin, limit, growing, _foreign(layout))
        facts = _walk(layout, segments, scope, findings, progress)
        shape = (config.index_slots, config.index_entries)
        walk_index(layout, facts, findings, progress, shape, growing=growing)
        if not growing:
            check_checkpoint(layout, facts, findings)
            check_offsets(layout, facts, findings)
    finally:
        watch.close()
        for segment in segments:
            segment.close()
    return VerifyReport(
        path=str(root),
        writer=seen.state,
        begin_offset=facts.begin,
        end_offset=facts.end,
        counts=findings.counts,
        faults=tuple(findings.faults),
        fault_count=findings.fault_count,
    )


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
    if found and not any(part.name in found for part in parts):
        text = "holds other files and no store"
        raise FileNotFoundError(errno.ENOENT, text, os.fspath(layout.root))


def _walk(
    layout: StoreLayout,
    segments: list[MappedFile],
    scope: Scope,
    findings: Findings,
    progress: Progress | None,
) -> LogFacts:
    """Log and queues: the quick way where it proves that all is well, else record by record."""
    facts = scan_log(segments, scope, findings, progress)
    quick = facts is not None and not batch_topics(layout)
    if facts is None or not quick:
        facts = walk_log(segments, scope, findings, progress)
    queues = walk_queues(layout, facts, findings, progress, growing=scope.growing)
    if quick and sum(queue.own for queue in queues) == facts.records == sum(
        q.matching for q in queues
    ):
        # Units rise, each matches a record of its own, and there are as many as records: none is
        # missing, and the queue offsets in the log follow each other as the units do.
        facts.ends = {(queue.topic, queue.queue_id): queue.next for queue in queues}
        return facts
    if quick:
        facts = walk_log(segments, scope, findings, progress)
    tail_may_miss = scope.growing or layout.abort.exists()
    walk_batches(layout, facts, findings, growing=scope.growing, tail_may_miss=tail_may_miss)
    compare_queues(layout, queues, facts, findings, tail_may_miss=tail_may_miss)
    check_lost(layout, facts, findings)
    facts.ends.update((place, known.next) for place, known in facts.queues.items())
    return facts


def _foreign(layout: StoreLayout) -> Callable[[int], bool]:
    """Whether another program wrote at an offset: everywhere in a store that is not ours."""
    state = load_store_state(layout)
    return (lambda _: True) if state is None else state.is_foreign


def _open_segments(layout: StoreLayout, findings: Findings) -> list[MappedFile]:
    """The log's files in order; those of another length, and gaps, are faults."""
    found = list_log(layout)
    size = usual_size(found) or 0
    segments: list[MappedFile] = []
    for start, length, path in found:
        if length != size or not has_place(start, size):
            if length != size:
                text = f"{length} bytes at {start}, the others have {size}"
                findings.add(path, 0, text, "lost_file")
            else:
                findings.add(path, 0, f"{length} bytes at {start} can be no segment")
            continue
        if segments and segments[-1].end_offset != start:
            text = f"the files from {segments[-1].end_offset} up to here are missing"
            findings.add(path, 0, text, "lost_file")
        segments.append(MappedFile.open(path, start, size, "read"))
    return segments
