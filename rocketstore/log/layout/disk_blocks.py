"""Blocks on disk for a part of a file, also where the file system cannot allocate (K-04)."""

from __future__ import annotations

import errno
from typing import Final

from rocketstore._native.os import syscalls

__all__ = ["allocate_blocks", "allocated"]

#: Bytes written by one call; small, so that a sync of another file does not wait long.
STEP_BYTES: Final = 256 * 1024
#: Largest part of a file that is a hole or is none, bytes.
BLOCK_BYTES: Final = 4096
ZERO_BLOCK: Final = bytes(BLOCK_BYTES)
#: Errors of a file system that cannot allocate.
NOT_ALLOCATED: Final = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def allocate_blocks(fd: int, begin: int, end: int) -> None:
    """Gives the bytes [begin, end) of a file their blocks; what it has not yet becomes zeros.

    Where the file system cannot allocate, blocks that look like holes are written. No other thread
    may write there meanwhile. OSError: there are no blocks.
    """
    if not allocated(fd, begin, end):
        _write_blocks(fd, begin, end)


def allocated(fd: int, begin: int, end: int) -> bool:
    """As `allocate_blocks`; False, without a change, where the file system cannot allocate."""
    try:
        syscalls.fallocate(fd, begin, end - begin)
    except OSError as error:
        if error.errno not in NOT_ALLOCATED:
            raise
        return False
    return True


def _write_blocks(fd: int, begin: int, end: int) -> None:
    for position in range(begin - begin % BLOCK_BYTES, end, STEP_BYTES):
        length = min(STEP_BYTES, end - position)
        found = syscalls.pread(fd, length, position)
        if len(found) < length or any(
            ZERO_BLOCK.startswith(found[at : at + BLOCK_BYTES])
            for at in range(0, length, BLOCK_BYTES)
        ):
            syscalls.pwrite(fd, found.ljust(length, b"\0"), position)
