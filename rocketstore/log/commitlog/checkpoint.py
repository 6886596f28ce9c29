"""The two checkpoint files of a store: ours, which recovery trusts, and RocketMQ's, which Java
reads.

Neither syncs the files it speaks of: the caller syncs them before it stores a checkpoint (D-18).

Ours counts while it still describes the bytes of the log (D-02). It is taken with a fingerprint of
the log below its durable offset D: names and sizes of the segments, the record that ends at D, and
the last bytes below D. Another writer, a restored backup or a replaced disk changes one of them.
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rocketstore._native.format.codec import crc32c
from rocketstore._native.format.constants import (
    CHECKPOINT_BYTES,
    OWN_CHECKPOINT_BYTES,
    OWN_SLOT_STRIDE,
)
from rocketstore._native.os import syscalls
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.layout.log_dirs import gap_text
from rocketstore.log.layout.log_place import tail_bytes
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.layout.state_files import open_fixed_file
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue

__all__ = [
    "DISCARDED",
    "NOT_INDEXED",
    "CheckpointFile",
    "OwnCheckpoint",
    "RocketmqCheckpoint",
    "RocketmqTimes",
    "Verdict",
    "discard_checkpoint",
    "fingerprint",
    "judge_checkpoint",
    "lost_its_end",
]

logger = logging.getLogger(__name__)

SLOTS: Final = 2
HOLDS: Final = "a checkpoint"
#: `indexed` of a store that ran without its index, an offset; the next open with one rebuilds it.
NOT_INDEXED: Final = 0
#: Margin before the checkpoint's times, ms: later records may not be synced (format 8.3).
SAFETY_MS: Final = 3000
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


#: A slot without its checksum (format 20.2): MAGIC, then the fields of OwnCheckpoint in their order.
SLOT: Final = struct.Struct(">8s9q7I3x?16s16sI")
#: Magic and version.
MAGIC: Final = b"RSCP\0\0\0\1"
#: No store counts its generations up to here; one that did would have none to go on with.
GENERATIONS_END: Final = 1 << 62
#: The CRC-32C of those bytes, after them.
CHECKSUM: Final = struct.Struct(">I")
#: The fields of RocketmqTimes in their order (format 8). What follows them is kept as it is.
TIMES: Final = struct.Struct(">6q")


@dataclass(frozen=True, slots=True)
class OwnCheckpoint:
    """How far a store is durable. Offsets are physical, -1 is none."""

    generation: int = 0  # grows with each store; the greater one of two valid slots counts
    flushed: int = 0  # D: everything below is durable
    dispatched: int = 0  # queue units of records below are durable
    indexed: int = 0  # index entries of records below are durable
    minimum: int = 0  # smallest physical offset kept (D-27)
    last_record_start: int = -1  # record (or blank) that ends at D
    last_store_timestamp_ms: int = 0
    cut: int = -1  # intended cut (D-22)
    max_unflushed: int = 0  # bound of D-14 in force, bytes
    segment_count: int = 0
    segments_digest: int = 0  # CRC-32C of names and sizes
    last_record_size: int = 0
    last_record_crc: int = 0  # CRC-32C
    tail_crc: int = 0  # CRC-32C of the last 4 KiB (or less) below D
    queue_count: int = 0
    queues_digest: int = 0  # CRC-32C of the sorted queue names
    clean: bool = False  # True after a clean stop
    boot_id: bytes = bytes(16)
    run_id: bytes = bytes(16)
    index_files: int = 0

    def __post_init__(self) -> None:
        offsets = (self.generation, self.dispatched, self.indexed, self.minimum, self.max_unflushed)
        if min(offsets) < 0 or min(self.flushed, self.last_record_start, self.cut) < UNFIT:
            raise ValueError(f"an offset of the checkpoint is negative: {self}")
        if not len(self.boot_id) == len(self.run_id) == 16:
            raise ValueError("boot_id and run_id have 16 bytes")

    def packed(self) -> bytes:
        """The slot: as many bytes as one lies from the other."""
        fields = SLOT.pack(MAGIC, *[getattr(self, name) for name in self.__slots__])
        return (fields + CHECKSUM.pack(crc32c(fields))).ljust(OWN_SLOT_STRIDE, b"\0")


def unpacked(slot: bytes) -> OwnCheckpoint | None:
    """The checkpoint of a slot. None: it is torn, of another version, or none that `packed` gives."""
    size = SLOT.size + CHECKSUM.size
    if len(slot) < size or not slot.startswith(MAGIC):
        return None
    try:
        found = OwnCheckpoint(*SLOT.unpack_from(slot)[1:])
    except ValueError:
        return None
    sane = found.generation < GENERATIONS_END and found.packed()[:size] == slot[:size]
    return found if sane else None


class _FixedFile:
    """A file of one length; the first store opens it, and keeps the descriptor (D-12)."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._path = os.fspath(path)
        self._size_bytes = size_bytes
        self._lock = SignalSafeLock("a checkpoint file", reentrant=False)
        self._fd = -1

    def _open(self) -> None:
        if self._fd < 0:
            self._fd = open_fixed_file(self._path, self._size_bytes, HOLDS)

    def _write(self, data: bytes, position: int) -> None:
        syscalls.pwrite(self._fd, data, position)
        syscalls.fdatasync(self._fd)

    def close(self) -> None:
        with self._lock():
            fd, self._fd = self._fd, -1
        if fd >= 0:
            syscalls.close(fd)


class CheckpointFile(_FixedFile):
    """Two slots in separate 4 KiB blocks. The valid newer one counts, the other one is written
    next.

    A slot whose write failed is not the next one written (D-40): its block may be bad, and a second
    try on it proves nothing.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, OWN_CHECKPOINT_BYTES)
        self._slot: int | None = None  # the one to write next; None: not looked yet
        self._failed: int | None = None  # the one whose write failed last, in this run
        self._newest = -1  # generation of the newest slot that is valid
        self._unread = False  # a slot could not be read: what was loaded may be an older one

    def load(self) -> OwnCheckpoint | None:
        """The newest valid slot; None if there is none. Changes nothing on disk."""
        with self._lock():
            return self._look()

    def _look(self) -> OwnCheckpoint | None:
        found = {number: own for number, own in enumerate(self._read()) if own is not None}
        if not found:
            self._slot, self._newest = 0, -1
            return None
        # Equal generations: a store was tried again after an error, and both made it to the disk.
        best = max(found, key=lambda number: (found[number].generation, found[number].flushed))
        self._slot, self._newest = 1 - best, found[best].generation
        return found[best]

    def _read(self) -> list[OwnCheckpoint | None]:
        slots: list[OwnCheckpoint | None] = []
        try:
            fd = syscalls.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return slots
        try:
            for number in range(SLOTS):
                try:
                    data = syscalls.pread(fd, OWN_SLOT_STRIDE, number * OWN_SLOT_STRIDE)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    logger.warning("%s: slot %d cannot be read: %s", self._path, number, error)
                    data, self._unread = b"", True
                slots.append(unpacked(data))
        finally:
            syscalls.close(fd)
        return slots

    def store(self, checkpoint: OwnCheckpoint) -> None:
        """Writes the other slot and syncs it.

        Raises:
            ValueError: not newer than the one in the file; `load` would not find it.
            DiskFullError: the file is not there yet and there is no room for it.
            OSError: final for this run (D-13); the content of the slot is not known.
        """
        with self._lock():
            if self._slot is None:
                self._look()
            if checkpoint.generation <= self._newest:
                if self._unread:
                    raise OSError(errno.EIO, "a slot was read the second time only", self._path)
                raise ValueError(f"generation {checkpoint.generation} is not above {self._newest}")
            data = checkpoint.packed()
            self._open()
            slot = self._slot or 0
            if slot == self._failed:
                slot = 1 - slot
            self._failed = slot  # until it is known to be on disk
            self._write(data, slot * OWN_SLOT_STRIDE)
            self._failed = None
            self._slot, self._newest = 1 - slot, checkpoint.generation

    @property
    def failed(self) -> bool:
        """Whether a write or a sync has failed: what a slot holds is not known, and no other may be
        written."""
        return self._failed is not None


class RocketmqTimes(NamedTuple):
    """The values of RocketMQ's checkpoint. 0 or below means nothing; any value may be found."""

    physic_ms: int
    logics_ms: int
    index_ms: int
    master_flushed: int
    confirm: int
    #: Start of the last record whose queue units were forced, a physical offset.
    logics_offset: int = 0

    @property
    def minimum_ms(self) -> int:
        """Records stored up to here were forced, and so were their queue units (format 8.3)."""
        return max(0, min(self.physic_ms, self.logics_ms) - SAFETY_MS)


class RocketmqCheckpoint(_FixedFile):
    """RocketMQ's `checkpoint`, overwritten in place as Java does. Bytes without a meaning stay."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, CHECKPOINT_BYTES)

    def load(self) -> RocketmqTimes:
        """The values of the file; zeros for what it lacks, all zeros if it is missing."""
        return RocketmqTimes(*TIMES.unpack_from(self._read().ljust(TIMES.size, b"\0")))

    def _read(self) -> bytes:
        try:
            fd = syscalls.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return syscalls.pread(fd, CHECKPOINT_BYTES, 0)
        finally:
            syscalls.close(fd)

    def reserve(self) -> None:
        """Gives the file its length and blocks, before a disk may be full. What it holds stays.

        Raises:
            DiskFullError: no room.
        """
        with self._lock():
            self._open()

    def store(self, times: RocketmqTimes) -> None:
        """Writes the numbers and syncs them. A short file gets the length Java maps."""
        with self._lock():
            self._open()
            self._write(TIMES.pack(*times), 0)


# ---- whether ours still describes the log ----


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
