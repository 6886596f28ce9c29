"""`rocketstore/group_offsets`: commits that `config/consumerOffset.json` does not hold yet.

A commit costs one write in place and one sync, however many groups there are; the JSON, a new file
each time, costs several. Each record has blocks of its own, so a torn write harms no commit before
it. When the file is full, every few seconds, and at close the commits are merged into the JSON,
which RocketMQ reads, and the next record goes to the begin of the file.

A record says what the JSON held for each offset when it was written (`was`). After a kill an offset
counts if the JSON still holds that number; else another program, or the merge itself, has stored a
newer one since, and that one counts (decision 0032).
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketstore._native.os import syscalls
from rocketstore.log.layout.fixed_files import open_fixed_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["JOURNAL_BYTES", "CommitJournal", "Moved", "journal_stamp", "read_journal"]

#: Length of the file. A commit that does not fit goes into the JSON.
JOURNAL_BYTES: Final = 256 << 10
#: What a disk writes whole.
BLOCK: Final = 512
MAGIC: Final = b"RSCOMIT1"
# Magic, CRC of what follows it, bytes of the text, generation, number of the record in it.
HEAD: Final = struct.Struct("<8sIIQQ")
CHECKED_FROM: Final = 12


class Moved(NamedTuple):
    """One offset of a commit: what the JSON held (None: nothing) and what counts now."""

    key: str
    queue_id: int
    was: int | None
    now: int


class CommitJournal:
    """Written by the one process that has the store open for writing; the caller takes turns."""

    def __init__(self, path: Path) -> None:
        self._path = os.fspath(path)
        self._fd = -1
        self._end = 0  # where the next record goes
        self._generation = _new_generation()
        self._number = 0
        #: Whether a commit since the last sync may be lost with the power.
        self.unsynced = False
        #: Whether a write failed: what the file holds then is not known, and it takes no more in
        #: this run.
        self.failed = False

    def add(self, moved: Iterable[Moved], *, sync: bool) -> bool:
        """Writes a commit, durably if `sync`. False: it does not fit, and nothing was written.

        Raises:
            DiskFullError: the journal has no blocks yet, and there is no room for them; nothing
                was written.
            OSError: it may be in the file or not; `failed` from here on.
        """
        if self.failed:
            return False
        text = json.dumps([list(one) for one in moved], ensure_ascii=False).encode(
            "utf-8", "backslashreplace"
        )
        size = -(-(HEAD.size + len(text)) // BLOCK) * BLOCK
        if self._end + size > JOURNAL_BYTES:
            return False
        if self._fd < 0:
            self._fd = open_fixed_file(self._path, JOURNAL_BYTES, "commits")
        tail = struct.pack("<IQQ", len(text), self._generation, self._number) + text
        record = MAGIC + struct.pack("<I", zlib.crc32(tail)) + tail
        self.failed = True  # until it is known to be there
        syscalls.pwrite(self._fd, record.ljust(size, b"\0"), self._end)
        self.unsynced = True
        if sync:
            syscalls.fdatasync(self._fd)
            self.unsynced = False
        self.failed = False
        self._end += size
        self._number += 1
        return True

    def sync(self) -> None:
        """Makes durable what was added without a sync."""
        if self.unsynced:
            syscalls.fdatasync(self._fd)
            self.unsynced = False

    def begin_anew(self) -> None:
        """The JSON holds all of it, durably: nothing of the file counts from here on."""
        if self._fd >= 0:
            _forget(self._fd)
        elif os.path.exists(self._path):  # at open: what fails later has no descriptor to close
            fd = syscalls.open(self._path, os.O_RDWR)
            try:
                _forget(fd)
            finally:
                syscalls.close(fd)
        self._generation = _new_generation()  # what lies behind the next records is of another
        self._end = self._number = 0
        self.unsynced = False

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            syscalls.close(fd)


def read_journal(path: Path) -> list[Moved]:
    """The commits of a journal in their order; none of a file that is not there or is no journal.
    Never raises on what the bytes are."""
    try:
        fd = syscalls.open(os.fspath(path), os.O_RDONLY)
    except FileNotFoundError:
        return []
    try:
        return _commits(_content(fd))
    finally:
        syscalls.close(fd)


def journal_stamp(path: Path) -> int:
    """Another number for another content; 0 without a journal."""
    try:
        fd = syscalls.open(os.fspath(path), os.O_RDONLY)
    except FileNotFoundError:
        return 0
    try:
        return zlib.crc32(_content(fd))
    finally:
        syscalls.close(fd)


def _forget(fd: int) -> None:
    syscalls.pwrite(fd, bytes(BLOCK), 0)
    syscalls.fdatasync(fd)


def _new_generation() -> int:
    return int.from_bytes(os.urandom(8), "little")


def _content(fd: int) -> bytes:
    return syscalls.pread(fd, min(JOURNAL_BYTES, os.fstat(fd).st_size), 0)


def _commits(content: bytes) -> list[Moved]:
    """What the records of the generation that the file begins with say, as far as they are
    whole."""
    found: list[Moved] = []
    at, generation, count = 0, None, 0
    while at + HEAD.size <= len(content):
        magic, crc, length, of, number = HEAD.unpack_from(content, at)
        end = at + HEAD.size + length
        if magic != MAGIC or end > len(content) or number != count:
            break
        if generation not in (None, of) or zlib.crc32(content[at + CHECKED_FROM : end]) != crc:
            break
        generation, count = of, count + 1
        found += _moved(content[at + HEAD.size : end])
        at = -(-end // BLOCK) * BLOCK
    return found


def _moved(text: bytes) -> list[Moved]:
    """The rows of a record; none where they are not what this module writes."""
    try:
        rows = [Moved(*row) for row in json.loads(text)]
    except (TypeError, ValueError, RecursionError):
        return []
    return rows if all(map(_makes_sense, rows)) else []


def _makes_sense(row: Moved) -> bool:
    numbers = [row.queue_id, row.now, *([] if row.was is None else [row.was])]
    return type(row.key) is str and all(
        type(number) is int and 0 <= number < 1 << 63 for number in numbers
    )
