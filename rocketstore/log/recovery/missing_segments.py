"""Finds missing files of a log from its other files and its queues, where no checkpoint names
them."""

from __future__ import annotations

from rocketstore._native.format import queue_file
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.log.commitlog.checkpoint import CheckpointFile
from rocketstore.log.layout.listing import list_files
from rocketstore.log.layout.log_dirs import NAME_THEM, gap_text, linked_segments, list_log
from rocketstore.log.layout.paths import StoreLayout, segment_name
from rocketstore.log.queues.directories import queues_in
from rocketstore.log.queues.units import UNIT_SIZE, name_records_in_order
from rocketstore.log.read.batch_queue import batches_end

__all__ = ["has_both_ends", "missing_segments"]


def missing_segments(layout: StoreLayout) -> list[str]:
    """The missing ranges of a log that another program may be writing, one sentence each.

    Reads the queues first: a unit is written after its record, so the log reaches as far as they
    do.
    """
    known = max((start + length for start, length, _ in list_log(layout)), default=0)
    queues_end = max(_queues_end(layout, known), batches_end(layout))
    found = []
    end = -1
    for start, length, _ in list_log(layout):
        if end >= 0 and start > end:
            found.append(gap_text(end, start))
        end = max(end, start + length)
    if queues_end > max(end, 0):
        where = "there is no log" if end < 0 else f"the log ends at {end}"
        found.append(f"{where}, but the queues point up to {queues_end}")
    lost = [f"segments of the commit log are missing: {text}; {NAME_THEM}" for text in found]
    return [*linked_segments(layout), *lost]


def has_both_ends(layout: StoreLayout) -> bool:
    """Whether a log that lacks files lacks them in between only: it begins and ends where our
    checkpoint and the queues say. A reader that comes to such a hole reports it."""
    files = list_log(layout)
    if not files or linked_segments(layout):
        return False
    begin, end = files[0][0], max(start + length for start, length, _ in files)
    checkpoint = CheckpointFile(layout.own_checkpoint)
    try:
        own = checkpoint.load()
    finally:
        checkpoint.close()
    if own is not None and not (begin <= own.minimum and own.flushed <= end):
        return False
    return max(_queues_end(layout, end), batches_end(layout)) <= end


def _queues_end(layout: StoreLayout, log_end: int) -> int:
    """End of the last record that any consume queue has; -1 when there is no unit at all. One file
    at a time is mapped: a broker may have many. A file that points beyond `log_end`, and whose
    units can be none, does not count."""
    end = -1
    for _, _, queue in queues_in(layout.consume_queue):
        for start, size in reversed(list_files(queue)):
            last = _file_end(f"{queue}/{segment_name(start)}", start, size, log_end)
            if last >= 0:
                end = max(end, last)
                break
    return end


def _file_end(path: str, start: int, size: int, log_end: int) -> int:
    """As `_queues_end`, of one file."""
    if size < UNIT_SIZE:
        return -1
    try:
        file = MappedFile.open(path, start, size - size % UNIT_SIZE, "read")
    except (FileNotFoundError, ValueError):  # it was taken away, or cut, since it was listed
        return -1
    try:
        count = queue_file.written_units(file)
        end = queue_file.physical_end(file, count)
        return end if end <= log_end or name_records_in_order(file, count) else -1
    finally:
        file.close()
