"""The two checkpoint files of a store: ours, which recovery trusts, and RocketMQ's, which Java reads."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from rocketstore._native import checkpoint as native
from rocketstore._native import syscalls

__all__ = ["CheckpointFile", "OwnCheckpoint", "RocketmqCheckpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnCheckpoint:
    """How far a store is durable (docs/format.md, "Our checkpoint"). Offsets are physical, -1 is none."""

    generation: int = 0
    flushed: int = 0
    dispatched: int = 0
    indexed: int = 0
    minimum: int = 0
    last_record_start: int = -1
    last_store_timestamp_ms: int = 0
    cut: int = -1
    max_unflushed: int = 0
    segment_count: int = 0
    segments_digest: int = 0
    last_record_size: int = 0
    last_record_crc: int = 0
    tail_crc: int = 0
    queue_count: int = 0
    queues_digest: int = 0
    clean: bool = False
    boot_id: bytes = bytes(16)
    run_id: bytes = bytes(16)


class CheckpointFile:
    """Two slots in separate blocks; the valid newer one counts, the other one is written next (D-40)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1
        self._next_slot = 0

    def load(self) -> OwnCheckpoint | None:
        """The newest whole slot; None when there is none."""
        try:
            fd = syscalls.open(str(self._path), os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            slots = [
                native.unpack_slot(syscalls.pread(fd, native.SLOT_BYTES, n * native.SLOT_BYTES))
                for n in range(2)
            ]
        finally:
            syscalls.close(fd)
        newest = max(
            (n for n in range(2) if slots[n] is not None),
            key=lambda n: (slots[n] or {})["generation"],
            default=None,
        )
        if newest is None:
            return None
        self._next_slot = 1 - newest
        return OwnCheckpoint(**(slots[newest] or {}))

    def store(self, checkpoint: OwnCheckpoint) -> None:
        """Writes and syncs the other slot. After an error the same slot is tried again next time, so
        that the whole one stays."""
        if self._fd < 0:
            self._create()
        slot = native.pack_slot(**dataclasses.asdict(checkpoint))
        syscalls.pwrite(self._fd, slot, self._next_slot * native.SLOT_BYTES)
        syscalls.fdatasync(self._fd)
        self._next_slot = 1 - self._next_slot

    def _create(self) -> None:
        new = not self._path.exists()
        self._fd = syscalls.open(str(self._path), os.O_RDWR | os.O_CREAT)
        if new:
            syscalls.fallocate(self._fd, 0, 2 * native.SLOT_BYTES)
            syscalls.fsync(self._fd)
            syscalls.sync_directory(str(self._path.parent))

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            syscalls.close(fd)


class RocketmqCheckpoint:
    """RocketMQ's `checkpoint`: times of forced data (format.md 8). Bytes we do not know stay."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def load(self) -> tuple[int, int, int, int, int]:
        """(physic, logics, index) times, master flushed and confirm offset; zeros without a file."""
        return native.unpack_rocketmq(self._read())

    def _read(self) -> bytes:
        try:
            fd = syscalls.open(str(self._path), os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return syscalls.pread(fd, native.ROCKETMQ_BYTES, 0)
        finally:
            syscalls.close(fd)

    def store(self, physic: int, logics: int, index: int, master: int, confirm: int) -> None:
        """Overwrites the page in place and syncs it, as RocketMQ does."""
        page = native.pack_rocketmq((physic, logics, index, master, confirm), self._read())
        if self._fd < 0:
            new = not self._path.exists()
            self._fd = syscalls.open(str(self._path), os.O_RDWR | os.O_CREAT)
            syscalls.pwrite(self._fd, page, 0)
            syscalls.fsync(self._fd)
            if new:
                syscalls.sync_directory(str(self._path.parent))
            return
        syscalls.pwrite(self._fd, page, 0)
        syscalls.fdatasync(self._fd)

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            syscalls.close(fd)
