"""Blocks on disk for the log's files, in growing steps ahead of the writer (decision 0033).

A file of the log has its whole length from the start; its blocks come as the writer comes nearer.
So a store of a few messages takes a few MiB, and not a file of 1 GiB. `MappedFile.reserved` says how
much of a file has blocks. No put stores beyond that, so a full disk stays an exception (D-16).
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import time
from typing import TYPE_CHECKING, Final

from rocketstore._native.os import syscalls
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import BackpressureError, DiskFullError
from rocketstore.log.layout.disk_blocks import allocate_blocks, allocated
from rocketstore.log.mapped_files.mapped_files import descriptor_of
from rocketstore.log.mapped_files.new_file import NO_ROOM

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore._native.sync.positions import Positions
    from rocketstore.log.mapped_files.mapped_files import MappedFiles

__all__ = ["NEVER", "SegmentBlocks"]

logger = logging.getLogger(__name__)

#: What the end of the blocks of a file is a multiple of, bytes: the first store to a page of a
#: mapping takes blocks for its whole folio, of up to 2 MiB, and a folio must have all or none.
STEP_BYTES: Final = 2 << 20
#: What is reserved ahead, as a multiple of what was appended, and what is left of it when more is
#: due: pages are populated as far as four times that ahead.
TIMES_AHEAD: Final = 8
TIMES_LEFT: Final = 4
#: Zeros of a prewritten file that are written and synced at once, bytes: more would hold up puts
#: that wait for the disk.
PIECE_BYTES: Final = 256 << 10
#: The same where the log has used more of the file before than is done of this one, bytes.
HURRIED_BYTES: Final = 4 << 20
#: Longest rest after a piece, seconds.
REST_S: Final = 0.002
#: `st_blocks` counts in these, bytes.
SECTOR_BYTES: Final = 512
#: An offset that no log comes to.
NEVER: Final = 2**63 - 1


class SegmentBlocks:
    """How far the files of one log have blocks: reserved ahead of the writer, or for a put that has
    come to their end. Any thread may call.

    What is reserved ahead grows with what was appended since this was made, so that a fast writer
    soon gets whole files.
    """

    def __init__(
        self, files: MappedFiles, positions: Positions, *, stepwise: bool, max_wait_ms: int
    ) -> None:
        """`stepwise`: False reserves whole files. `max_wait_ms`: how long a thread waits for
        another one's call to the disk (BackpressureError)."""
        self._files = files
        self._positions = positions
        #: Offset from which on `extend` would help.
        self.due_at = NEVER
        self._began = positions.wrote
        self._stepwise = stepwise
        self._lock = SignalSafeLock("the blocks of log files", max(max_wait_ms, 1), reentrant=False)

    def begin(self, fd: int, size: int) -> int:
        """Reserves the first blocks of a new file of `size` bytes; returns where they end. Raises:
        DiskFullError, OSError."""
        try:
            return self._allocate(fd, 0, self._ahead(), size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        try:
            return self._allocate(fd, 0, 1, size)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise _no_room(error, 0, STEP_BYTES if self._stepwise else size, size, None) from error

    def begin_written(self, fd: int, size: int) -> int:
        """As `begin`, for the whole file, and writes it once: a sync of what is put there later only
        overwrites (D-11).

        While more is done of it than the log has used of the file before, each piece is synced by
        itself, and the disk left to others for twice as long as that took. Else a file of zeros
        holds up puts that wait for the disk (bench/results/development.md, "What a durable put waits
        for"). The caller syncs the whole.
        """
        end = self.begin(fd, size)
        before = self._files.end_offset - size
        zeros = memoryview(bytes(HURRIED_BYTES))
        done = 0
        while done < size:
            began = time.monotonic()
            late = min(self._positions.wrote - before - done, HURRIED_BYTES)
            count = min(max(late, PIECE_BYTES), size - done)
            syscalls.pwrite(fd, zeros[:count], done)
            done += count
            if done > self._positions.wrote - before:
                syscalls.fdatasync(fd)
                time.sleep(min(2 * (time.monotonic() - began), REST_S))
        return end

    def take_over(self, file: MappedFile, end: int) -> None:
        """The log goes on at the offset `end` in a file of an earlier run. A sparse copy, or a
        RocketMQ, leaves no blocks there, and neither does our own close."""
        file.reserved = end - file.start_offset

    def watch(self, file: MappedFile) -> None:
        """The log goes on in this file."""
        self.due_at = self._due_at(file)

    def _due_at(self, file: MappedFile) -> int:
        """Offset from which on less is left before the writer than TIMES_LEFT times what was
        appended by then; not before something is."""
        reserved = file.start_offset + file.reserved
        if file.reserved >= file.size:
            return NEVER
        soon = (reserved + TIMES_LEFT * self._began) // (TIMES_LEFT + 1)
        soon = min(soon, reserved - STEP_BYTES // 2)
        return max(soon, self._began) + 1

    def extend(self) -> MappedFile | None:
        """Reserves blocks ahead of the writer; returns the file that got some. Where there is no room
        nothing happens: the put that needs them says so."""
        file = self._files.find(self._positions.wrote)
        with contextlib.suppress(OSError, BackpressureError), self._lock():
            if file is not None and self._positions.wrote >= self._due_at(file):
                self._reserve(file, self._positions.wrote - file.start_offset + self._ahead())
                self.watch(file)
                return file
        return None

    def ensure(self, end: int) -> MappedFile | None:
        """Reserves blocks up to the offset `end`, and ahead of it where there is room; returns the
        file of the byte before it. None: there is none, the put looks again.

        Raises:
            DiskFullError: no room; nothing was changed.
            OSError: there are no blocks.
            BackpressureError: another thread waits for the disk, or this one in a signal's handler.
        """
        file = self._files.find(end - 1)
        if file is None:
            return None
        with self._lock():
            wanted = end - file.start_offset
            with contextlib.suppress(DiskFullError):
                if file.reserved < wanted:
                    self._reserve(file, wanted + self._ahead())
            if file.reserved < wanted:
                self._reserve(file, wanted)
        self.watch(file)
        return file

    def _ahead(self) -> int:
        return max(TIMES_AHEAD * (self._positions.wrote - self._began), STEP_BYTES // 2)

    def _reserve(self, file: MappedFile, wanted: int) -> None:
        reserved = file.reserved
        try:
            with descriptor_of(file) as fd:
                try:
                    file.reserved = self._allocate(fd, reserved, wanted, file.size)
                except OSError:
                    with contextlib.suppress(OSError):  # others need what a part of it took
                        _give_back(fd, reserved, file.size, STEP_BYTES)
                    raise
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            raise _no_room(error, reserved, wanted, file.size, file.path) from error

    def _allocate(self, fd: int, reserved: int, wanted: int, size: int) -> int:
        """Gives a file blocks from `reserved` up to `wanted` at least; returns where they end."""
        begin = reserved - reserved % STEP_BYTES
        end = min(-(-wanted // STEP_BYTES) * STEP_BYTES, size) if self._stepwise else size
        if allocated(fd, begin, end):
            return end
        if self._stepwise:
            self._stepwise = False
            logger.warning("no blocks can be allocated here: log files take their whole size")
        if os.fstat(fd).st_blocks * SECTOR_BYTES < size:
            allocate_blocks(fd, begin, size)
            syscalls.fdatasync(fd)  # some file systems look for room as late as that
        return size

    def close(self) -> None:
        """Gives the blocks after the end of the log back. Nothing is written any more, and what was
        written is on disk."""
        wrote = self._positions.wrote
        for file in self._files.files:
            if self._stepwise and file.end_offset > wrote:
                try:
                    with descriptor_of(file) as fd:
                        used = max(wrote - file.start_offset, 0)
                        _give_back(fd, used, file.size, mmap.PAGESIZE)
                except OSError as error:
                    logger.warning("%s keeps blocks that it does not need: %s", file.path, error)


def _no_room(error: OSError, begin: int, end: int, size: int, path: str | None) -> DiskFullError:
    text = (
        f"no room for the bytes from {begin} to {min(end, size)} of a log file "
        f"(commit_log_file_size_bytes = {size}); nothing was changed, try again when there is some"
    )
    return DiskFullError(error.errno, text, path)


def _give_back(fd: int, used: int, size: int, step: int) -> None:
    """Nobody has stored anything after the first `used` bytes. Whole steps go, since others may
    store to the one that is used in part."""
    begin = -(-used // step) * step
    if begin < size:
        syscalls.punch_hole(fd, begin, size - begin)
