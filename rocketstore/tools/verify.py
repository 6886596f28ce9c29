"""Checks a store against itself: log, queues, index, checkpoints, stored offsets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore._native.mapped_file import MappedFile
from rocketstore.log.followed_queue import list_files
from rocketstore.log.layout import StoreLayout
from rocketstore.log.writer_watch import WriterWatch
from rocketstore.tools.findings import Findings, VerifyReport
from rocketstore.tools.verify_log import walk_log
from rocketstore.tools.verify_queues import walk_queues
from rocketstore.tools.verify_rest import check_checkpoint, check_offsets, walk_index

if TYPE_CHECKING:
    from rocketstore.tools.findings import Progress
    from rocketstore.tools.verify_log import LogFacts

__all__ = ["verify"]

INDEX_SLOTS = 5_000_000
INDEX_ENTRIES = 20_000_000


def verify(
    path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    index_slots: int = INDEX_SLOTS,
    index_entries: int = INDEX_ENTRIES,
) -> VerifyReport:
    """Walks every record, queue unit and index entry of the store in directory `path`, without a
    lock.

    A record is checked for its structure, its place, both checksums and the queue offset in front
    of it; a unit and an index entry against the record they point to; each record for its unit.
    Beside a live writer only what it has published is looked at, and units of the newest records
    may be missing; the same holds for the tail of a store that was not stopped cleanly, which the
    next open completes.

    Args:
        progress: called with (what, done, total): bytes of the log, then numbers of queues and of
            index files.
        index_slots: shape of the index files, which they do not hold themselves.
        index_entries: the same.
    """
    root = Path(path)
    if not root.is_dir():
        raise NotADirectoryError(f"{root} is not the directory of a store")
    layout = StoreLayout(root)
    findings = Findings()
    watch = WriterWatch(layout)
    try:
        seen = watch.see()
        limit: int | None = None
        if seen.state == "live" and watch.page is not None:
            limit = watch.page.positions.visible
        tail_may_miss = seen.state != "none" or layout.abort.exists()
        segments = _open_segments(layout, findings)
        begin = segments[0].start_offset if segments else 0
        try:
            facts = walk_log(segments, begin, limit, findings, progress)
            walk_queues(layout, facts, findings, progress, tail_may_miss=tail_may_miss)
            walk_index(
                layout,
                facts,
                findings,
                progress,
                slots=index_slots,
                entries=index_entries,
            )
        finally:
            for segment in segments:
                segment.close()
        if seen.state == "none":
            check_checkpoint(layout, facts, findings)
            check_offsets(
                layout, lambda topic, queue_id: _maximum(facts, topic, queue_id), findings
            )
    finally:
        watch.close()
    return VerifyReport(
        path=str(root),
        writer=seen.state,
        begin_offset=facts.begin,
        end_offset=facts.end,
        counts=findings.counts,
        faults=tuple(findings.faults),
        fault_count=findings.fault_count,
    )


def _maximum(facts: LogFacts, topic: str, queue_id: int) -> int | None:
    known = facts.queues.get((topic, queue_id))
    return None if known is None else known.next


def _open_segments(layout: StoreLayout, findings: Findings) -> list[MappedFile]:
    """The log's files in order; those of another length, and gaps, are faults."""
    found = list_files(layout.commit_log)
    size = next((length for _, length in found if length), 0)
    segments: list[MappedFile] = []
    for start, length in found:
        path = str(layout.commit_log / f"{start:020d}")
        if length != size or start % size:
            findings.add(path, 0, f"{length} bytes at {start}, the others have {size}")
            continue
        if segments and segments[-1].end_offset != start:
            text = f"the files from {segments[-1].end_offset} up to here are missing"
            findings.add(path, 0, text)
        segments.append(MappedFile.open(path, start, size, "read"))
    return segments
