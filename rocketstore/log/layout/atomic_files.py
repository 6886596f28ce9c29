"""Small files that are replaced as a whole: a reader sees the old or the new one, also after a
power cut (D-09).
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from pathlib import Path

from rocketstore._native.os import syscalls
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.ownership import inherit_owner
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.values.bounded_json import TooLargeError

__all__ = [
    "clean_tmp",
    "open_fixed_file",
    "open_plain_file",
    "read_state_file",
    "remove_state_file",
    "sync_file_system",
    "unlink_if_there",
    "write_state_file",
]


_counter = itertools.count()


def write_state_file(layout: StoreLayout, path: Path, content: str | bytes) -> None:
    """Replaces a small file: readers, now or after a power cut, see the old or the new one."""
    data = content.encode() if isinstance(content, str) else content
    model = _model_of(path)
    name = f"{path.name}.{os.getpid()}.{next(_counter)}"
    temporary = os.fspath(layout.tmp / name)
    if layout.tmp.stat().st_dev != path.parent.stat().st_dev:  # a directory may lie on another disk
        temporary = os.fspath(path.parent / f"{name}.rocketstore-tmp")
    fd = syscalls.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            inherit_owner(fd, model)
            syscalls.pwrite(fd, data, 0)
            syscalls.fsync(fd)
        finally:
            syscalls.close(fd)
        syscalls.rename(temporary, os.fspath(path))
    except BaseException:
        unlink_if_there(temporary)
        raise
    syscalls.sync_directory(os.fspath(path.parent))


def remove_state_file(path: Path) -> None:
    """Removes a file, durably. A missing one is no error."""
    try:
        syscalls.unlink(os.fspath(path))
    except FileNotFoundError:
        return
    syscalls.sync_directory(os.fspath(path.parent))


def sync_file_system(directory: Path) -> None:
    """Syncs the whole file system that `directory` is on."""
    fd = syscalls.open_directory(os.fspath(directory))
    try:
        syscalls.syncfs(fd)
    finally:
        syscalls.close(fd)


def clean_tmp(layout: StoreLayout) -> None:
    """Removes unfinished files that a crash left. The caller holds the store's lock."""
    with os.scandir(layout.tmp) as entries:
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                unlink_if_there(entry.path)


def _model_of(path: Path) -> os.stat_result:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return path.parent.stat()
    return found if stat.S_ISREG(found.st_mode) else path.parent.stat()


def open_plain_file(path: Path) -> int:
    """A descriptor to read a plain file. ValueError for anything else; never waits for the
    writer of a pipe."""
    fd = syscalls.open(os.fspath(path), os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        syscalls.close(fd)
        raise ValueError("not a plain file")
    return fd


def read_state_file(path: Path, max_bytes: int) -> bytes:
    """All of a plain file. ValueError for anything else; TooLargeError for a larger one."""
    fd = open_plain_file(path)
    try:
        size = os.fstat(fd).st_size
        if size > max_bytes:
            raise TooLargeError(f"more than {max_bytes:,} bytes")
        return syscalls.pread(fd, size, 0)
    finally:
        syscalls.close(fd)


def unlink_if_there(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        syscalls.unlink(path)


# State files of a fixed length that are written in place: their blocks and their name are on disk
# before the first record, so no later write needs room.


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
