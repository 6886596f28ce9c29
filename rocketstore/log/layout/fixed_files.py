"""State files of a fixed length that are written in place: their blocks and their name are on disk
before the first record, so no later write needs room."""

from __future__ import annotations

import errno
import os

from rocketstore._native.os import syscalls
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.ownership import inherit_owner

__all__ = ["open_fixed_file"]


def open_fixed_file(path: str, size: int, holds: str) -> int:
    """A descriptor of a file of at least `size` bytes that have blocks; what it holds stays. `holds`
    says in an error what there is no room for.

    Raises:
        DiskFullError: no room. The next call tries again.
    """
    parent = os.path.dirname(path)
    try:
        fd = syscalls.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        new = True
    except FileExistsError:
        fd, new = syscalls.open(path, os.O_RDWR), False
    try:
        if new:
            inherit_owner(fd, os.stat(parent))
        if os.fstat(fd).st_size < size:
            _extend(fd, path, size, holds)
            syscalls.fsync(fd)
        # Also of a whole file: the process that made it may have been killed before this.
        syscalls.sync_directory(parent)
    except BaseException:
        syscalls.close(fd)
        raise
    return fd


def _extend(fd: int, path: str, size: int, holds: str) -> None:
    found = os.fstat(fd).st_size
    try:
        syscalls.pwrite(fd, bytes(size - found), found)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(error.errno, f"no room for {holds}", path) from error
        raise
