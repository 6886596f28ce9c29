"""Blocks for what is written through the memory of a sparse file: with them a full disk is an exception and not
a signal (D-19)."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from rocketstore._native import syscalls
from rocketstore.log.layout.descriptors import descriptor_of

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile

__all__ = ["RESERVE_BYTES", "ReservedBlocks"]

#: Blocks are reserved in steps of this size, or as much again as the file has up to the larger one: a file
#: that is written fast seldom asks.
RESERVE_BYTES: Final = 64 << 10
STEP_BYTES_MAX: Final = 1 << 20


class ReservedBlocks:
    """How far the files of one queue have blocks."""

    def __init__(self) -> None:
        self._reserved: dict[int, int] = {}  # file start -> bytes with blocks

    def has_all(self, file: MappedFile) -> None:
        """It was made with them."""
        self._reserved[file.start_offset] = file.size

    def reserve(self, file: MappedFile, wanted: int) -> int:
        """Bytes of `file`, from its start, that have blocks; at least `wanted`. OSError: no room."""
        before = reserved = self._reserved.get(file.start_offset, 0)
        if reserved < wanted:
            step = min(max(RESERVE_BYTES, before), STEP_BYTES_MAX)
            reserved = min(file.size, -(-wanted // step) * step)
            with descriptor_of(file) as fd:
                try:
                    syscalls.fallocate(fd, before, reserved - before)
                except OSError as error:
                    if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                        raise
                    _touch(file, fd, before, reserved)
            self._reserved[file.start_offset] = reserved
        return reserved


def _touch(file: MappedFile, fd: int, begin: int, end: int) -> None:
    """Gives blocks to a file where nothing can allocate them: its own bytes are written again."""
    for offset in range(begin, end, RESERVE_BYTES):
        count = min(RESERVE_BYTES, end - offset)
        syscalls.pwrite(fd, file.read(offset, count), offset)
