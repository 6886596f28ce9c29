"""Checks whether a checkpoint of ours still describes the bytes of the log (D-02).

A checkpoint is taken with a fingerprint of the log below its durable offset D: names and sizes of
the segments, the record that ends at D, and the last bytes below D. Another writer, a restored
backup or a replaced disk changes one of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rocketstore._native.format.checkpoint_slots import crc32c
from rocketstore.log.layout.log_dirs import gap_text
from rocketstore.log.layout.log_place import tail_bytes
from rocketstore.log.layout.paths import segment_name

if TYPE_CHECKING:
    from rocketstore.log.commitlog.checkpoint import CheckpointFile, OwnCheckpoint
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue

__all__ = ["Verdict", "discard_checkpoint", "fingerprint", "judge_checkpoint", "lost_its_end"]

#: Most segments that a checkpoint may speak of, a count. Their names are made to compare them.
SEGMENTS_MAX = 1 << 20
#: Bytes of the last record, or blank, that are read. A blank may fill a file of any length.
RECORD_BYTES_MOST = 64 << 20
#: Names made at a time, a count.
NAMES_STEP = 4096
#: Values of `cut` that mark a discarded checkpoint: another program wrote last; the log does not
#: fit, and nothing shows another program.
DISCARDED = -2
UNFIT = -3


class Verdict(NamedTuple):
    """`speaks`: the checkpoint may be used. `stands`: the bytes below its durable offset are the
    same. `missing`: segments that it speaks of are not there. `why` says what is missing or
    differs."""

    speaks: bool
    stands: bool
    missing: bool
    why: str


def fingerprint(log: MappedFileQueue, flushed: int, last_record_start: int) -> dict[str, int]:
    """The fields of an `OwnCheckpoint` that tie it to the bytes below `flushed`.

    `last_record_start`: where the record (or blank) begins that ends at `flushed`; -1 when unknown.
    Bytes below `flushed` never change, so a writer may go on meanwhile.
    """
    starts = [file.start_offset for file in log.files if file.start_offset < flushed]
    return {
        "flushed": flushed,
        "segment_count": len(starts),
        "segments_digest": _digest(starts, log.file_size or 0),
        **_record_fields(log, flushed, last_record_start),
        "tail_crc": crc32c(tail_bytes(log.files, flushed)),
    }


def discard_checkpoint(
    file: CheckpointFile, own: OwnCheckpoint | None, *, another: bool
) -> OwnCheckpoint | None:
    """Marks our checkpoint as discarded, durably: it does not describe this log any more.

    Called after `another` program has written (D-01), before a mark says that rocketstore did: a
    recovery that is killed must not leave a checkpoint that seems true. Returns the checkpoint as
    stored now.
    """
    if own is None or own.cut <= DISCARDED:
        return own
    cut = DISCARDED if another else UNFIT
    discarded = dataclasses.replace(own, generation=own.generation + 1, cut=cut, clean=False)
    file.store(discarded)
    return discarded


def judge_checkpoint(own: OwnCheckpoint, log: MappedFileQueue) -> Verdict:
    """Compares a checkpoint with the log. Which program wrote last, it does not say (D-01)."""
    why = _contradiction(own, log)
    if why:
        return Verdict(False, False, False, why)
    missing = _missing(own, log)
    if missing:
        return Verdict(False, False, True, missing)
    why = _difference(own, log)
    if not why and own.cut <= DISCARDED:
        why = "no recovery has finished since it did not fit, or another program wrote"
        return Verdict(False, True, False, why)
    return Verdict(not why, not why, False, why)


def lost_its_end(own: OwnCheckpoint, log: MappedFileQueue) -> bool:
    """Whether a log has not the bytes below the durable offset of a checkpoint, unless they were
    trimmed: it lost its end, and may have grown again."""
    tail = crc32c(tail_bytes(log.files, own.flushed))
    return own.flushed > max(own.minimum, log.begin_offset) and tail != own.tail_crc


def _contradiction(own: OwnCheckpoint, log: MappedFileQueue) -> str:
    """What no rocketstore writes, or "". Such a checkpoint would cut messages off, or hide them
    (decision 0031)."""
    if own.minimum > own.flushed:
        return f"its minimum {own.minimum} is above its end {own.flushed}"
    if own.cut >= 0 and own.cut != own.flushed:
        return f"its cut {own.cut} is not at its end {own.flushed}"
    file = log.find(own.minimum)
    if file is not None:
        below = own.minimum - file.start_offset
        if below and file.find_data(0, below) < below:
            return f"its minimum {own.minimum} has records before it in its segment"
    return ""


def _missing(own: OwnCheckpoint, log: MappedFileQueue) -> str:
    """Which segments that the checkpoint speaks of are not there, or ""."""
    size = log.file_size or 0
    if not log.files and own.minimum == own.flushed and not own.segment_count:
        return ""  # a log that was given up, and begins again there with the next record
    if own.flushed > log.end_offset:
        return f"the log ends at {log.end_offset}, but is durable up to {own.flushed}"
    if size and log.start_for(own.minimum) < log.begin_offset:
        return f"the log begins at {log.begin_offset}, but should at {own.minimum}"
    # What retention has taken is not missing: its minimum was written down first (D-27).
    lost = [
        gap_text(start, end)
        for start, end in log.gaps
        if start < own.flushed and own.minimum < end and own.segment_count
    ]
    return lost[0] if lost else ""


def _difference(own: OwnCheckpoint, log: MappedFileQueue) -> str:
    """What is not as the checkpoint has it, or ""."""
    size = log.file_size or 0
    last = log.start_for(own.flushed - 1) if own.flushed > 0 and size else 0
    count = own.segment_count if size else 0
    first = last - size * (count - 1)
    if count > SEGMENTS_MAX or (count and first < 0):
        return f"it speaks of {own.segment_count} segments, which the log cannot have had"
    starts = range(first, last + 1, size) if count else ()
    if _digest(starts, size) != own.segments_digest:
        return "the names and sizes of the segments differ"
    found = _record_fields(log, own.flushed, own.last_record_start)
    known = (own.last_record_start, own.last_record_size, own.last_record_crc)
    if tuple(found.values()) != known:
        return f"the record before {own.flushed} differs"
    if crc32c(tail_bytes(log.files, own.flushed)) != own.tail_crc:
        return f"the bytes below {own.flushed} differ"
    return ""


def _digest(starts: Sequence[int], size: int) -> int:
    digest = 0
    for step in range(0, len(starts), NAMES_STEP):
        names = starts[step : step + NAMES_STEP]
        text = "".join(f"{segment_name(start)} {size}\n" for start in names)
        digest = crc32c(text.encode(), digest)
    return digest


def _record_fields(log: MappedFileQueue, flushed: int, start: int) -> dict[str, int]:
    """Place, size and checksum of the last record; none when it does not lie in one file."""
    file = log.find(start) if 0 <= start < flushed else None
    if file is None or flushed > file.end_offset:
        return {"last_record_start": -1, "last_record_size": 0, "last_record_crc": 0}
    record = file.read(start - file.start_offset, min(flushed - start, RECORD_BYTES_MOST))
    return {
        "last_record_start": start,
        "last_record_size": flushed - start,
        "last_record_crc": crc32c(record),
    }
