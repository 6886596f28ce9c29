"""The two checkpoint files of a store: ours, which recovery trusts, and RocketMQ's, which Java
reads.

Neither syncs the files it speaks of: the caller syncs them before it stores a checkpoint (D-18).
"""

from __future__ import annotations

import dataclasses
import errno
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketstore._native.format import checkpoint_slots as native
from rocketstore._native.os import syscalls
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.layout.atomic_files import open_fixed_file

__all__ = ["NOT_INDEXED", "CheckpointFile", "OwnCheckpoint", "RocketmqCheckpoint", "RocketmqTimes"]

logger = logging.getLogger(__name__)

SLOTS: Final = 2
HOLDS: Final = "a checkpoint"
#: `indexed` of a store that ran without its index, an offset; the next open with one rebuilds it.
NOT_INDEXED: Final = 0
#: Margin before the checkpoint's times, ms: later records may not be synced (format 8.3).
SAFETY_MS: Final = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCheckpoint:
    """How far a store is durable. Offsets are physical, -1 is none; see RS_OWN_* in rs_format.h."""

    generation: int = 0
    flushed: int = 0
    dispatched: int = 0
    indexed: int = 0
    minimum: int = 0
    last_record_start: int = -1
    last_record_size: int = 0
    last_record_crc: int = 0
    tail_crc: int = 0
    last_store_timestamp_ms: int = 0
    cut: int = -1
    max_unflushed: int = 0
    segment_count: int = 0
    segments_digest: int = 0
    queue_count: int = 0
    queues_digest: int = 0
    index_files: int = 0
    clean: bool = False
    boot_id: bytes = bytes(16)
    run_id: bytes = bytes(16)


class CheckpointFile:
    """Two slots in separate 4 KiB blocks. The valid newer one counts, the other one is written
    next.

    A slot whose write failed is not the next one written (D-40): its block may be bad, and a second
    try on it proves nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._lock = SignalSafeLock("a checkpoint file", reentrant=False)
        self._fd = -1  # opened by the first store and kept: one syncing descriptor (D-12)
        self._slot: int | None = None  # the one to write next; None: not looked yet
        self._failed: int | None = None  # the one whose write failed last, in this run
        self._newest = -1  # generation of the newest slot that is valid
        self._unread = False  # a slot could not be read: what was loaded may be an older one

    def load(self) -> OwnCheckpoint | None:
        """The newest valid slot; None if there is none. Changes nothing on disk."""
        with self._lock():
            return self._look()

    def _look(self) -> OwnCheckpoint | None:
        slots = self._read()
        valid = [number for number in range(SLOTS) if slots[number] is not None]
        if not valid:
            self._slot, self._newest = 0, -1
            return None
        found = {number: OwnCheckpoint(**(slots[number] or {})) for number in valid}
        # Equal generations: a store was tried again after an error, and both made it to the disk.
        best = max(valid, key=lambda number: (found[number].generation, found[number].flushed))
        self._slot, self._newest = 1 - best, found[best].generation
        return found[best]

    def _read(self) -> list[dict[str, Any] | None]:
        try:
            fd = syscalls.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return [None] * SLOTS
        slots: list[dict[str, Any] | None] = []
        try:
            for number in range(SLOTS):
                try:
                    data = syscalls.pread(fd, native.SLOT_BYTES, number * native.SLOT_BYTES)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    logger.warning("%s: slot %d cannot be read: %s", self._path, number, error)
                    data, self._unread = b"", True
                slots.append(native.unpack_slot(data))
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
            data = native.pack_slot(**dataclasses.asdict(checkpoint))
            if self._fd < 0:
                self._fd = open_fixed_file(self._path, SLOTS * native.SLOT_BYTES, HOLDS)
            slot = self._slot or 0
            if slot == self._failed:
                slot = 1 - slot
            self._failed = slot  # until it is known to be on disk
            syscalls.pwrite(self._fd, data, slot * native.SLOT_BYTES)
            syscalls.fdatasync(self._fd)
            self._failed = None
            self._slot, self._newest = 1 - slot, checkpoint.generation

    @property
    def failed(self) -> bool:
        """Whether a write or a sync has failed: what a slot holds is not known, and no other may be
        written."""
        return self._failed is not None

    def close(self) -> None:
        with self._lock():
            fd, self._fd = self._fd, -1
        if fd >= 0:
            syscalls.close(fd)


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


class RocketmqCheckpoint:
    """RocketMQ's `checkpoint`, overwritten in place as Java does. Bytes without a meaning stay."""

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._lock = SignalSafeLock("a checkpoint file", reentrant=False)
        self._fd = -1

    def load(self) -> RocketmqTimes:
        """The values of the file; zeros for what it lacks, all zeros if it is missing."""
        return RocketmqTimes(*native.unpack_rocketmq(self._read()))

    def _read(self) -> bytes:
        try:
            fd = syscalls.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return syscalls.pread(fd, native.ROCKETMQ_BYTES, 0)
        finally:
            syscalls.close(fd)

    def reserve(self) -> None:
        """Gives the file its length and blocks, before a disk may be full. What it holds stays.

        Raises:
            DiskFullError: no room.
        """
        with self._lock():
            if self._fd < 0:
                self._fd = open_fixed_file(self._path, native.ROCKETMQ_BYTES, HOLDS)

    def store(self, times: RocketmqTimes) -> None:
        """Writes the numbers and syncs them. A short file gets the length Java maps."""
        physic, logics, index, master, confirm, offset = times
        values = physic, logics, index, master, confirm, offset
        page = native.pack_rocketmq(values)[: native.ROCKETMQ_USED_BYTES]
        self.reserve()
        with self._lock():
            syscalls.pwrite(self._fd, page, 0)
            syscalls.fdatasync(self._fd)

    def close(self) -> None:
        with self._lock():
            fd, self._fd = self._fd, -1
        if fd >= 0:
            syscalls.close(fd)
