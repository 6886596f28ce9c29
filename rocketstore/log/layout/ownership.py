"""Owner, group and mode of new files and directories: those of the store's other files (D-09)."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from pathlib import Path

from rocketstore._native.os import syscalls
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name

__all__ = ["check_owner", "file_model", "inherit_owner", "make_directories", "make_like"]

NEW_DIRECTORY_MODE = 0o700
FILE_MODE_BITS = 0o666


def make_directories(layout: StoreLayout) -> None:
    """Makes missing directories. A new store is readable by its owner only. In a store that exists,
    new directories get the owner of the rest (D-09). Raises PermissionError before anything is
    made."""
    if layout.root.exists():
        check_owner(layout)
    else:
        _make_root(layout.root)
    model = layout.root.stat()
    for directory in layout.directories[1:]:
        if _make(directory, NEW_DIRECTORY_MODE):
            _give(directory, model)
            syscalls.sync_directory(os.fspath(directory.parent))


def _make_root(root: Path) -> None:
    missing = [root, *itertools.takewhile(lambda parent: not parent.exists(), root.parents)]
    for directory in reversed(missing):
        mode = NEW_DIRECTORY_MODE if directory == root else 0o777  # parents: as the umask says
        _make(directory, mode)
        syscalls.sync_directory(os.fspath(directory.parent))


def _make(directory: Path, mode: int) -> bool:
    """False if it exists, perhaps since now: another process may be opening the same store."""
    if directory.exists():
        return False
    try:
        syscalls.mkdir(os.fspath(directory), mode)
    except FileExistsError:
        if not directory.is_dir():
            raise
        return False
    return True


def make_like(directory: Path, model: os.stat_result) -> None:
    """A new directory with the owner, group and mode of another; its name is not synced.

    Raises:
        FileExistsError, OSError: the name is taken, or the directory cannot be made.
    """
    syscalls.mkdir(os.fspath(directory), NEW_DIRECTORY_MODE)
    _give(directory, model)


def _give(directory: Path, model: os.stat_result) -> None:
    fd = syscalls.open_directory(os.fspath(directory))
    try:
        inherit_owner(fd, model)
    finally:
        syscalls.close(fd)


def check_owner(layout: StoreLayout) -> None:
    """Raises PermissionError if this user could not give new files to the store's owner, or if a
    directory is a link that neither root nor the owner made."""
    root = layout.root.stat()
    if not stat.S_ISDIR(root.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "a store is a directory", os.fspath(layout.root))
    for directory in layout.directories:
        if directory.is_symlink() and directory.lstat().st_uid not in (0, root.st_uid):
            raise PermissionError(
                errno.EPERM, "a link that neither root nor the store's owner made", str(directory)
            )
    user = os.geteuid()
    if user == 0:
        return
    if root.st_uid != user:
        text = f"the store belongs to user {root.st_uid}, not to {user} who opens it for writing"
        raise PermissionError(errno.EPERM, text, os.fspath(layout.root))
    groups = {os.getegid(), *os.getgroups()}
    if root.st_gid not in groups and not root.st_mode & stat.S_ISGID:
        text = f"the store belongs to group {root.st_gid}, of which user {user} is no member"
        raise PermissionError(errno.EPERM, text, os.fspath(layout.root))


def file_model(directory: Path) -> os.stat_result:
    """The file whose owner and mode a new file in `directory` takes: the last segment, or the
    directory."""
    names = [name for name in os.listdir(directory) if parse_segment_name(name) is not None]
    if names:
        found = (directory / max(names)).lstat()
        if stat.S_ISREG(found.st_mode):
            return found
    return directory.stat()


def inherit_owner(fd: int, model: os.stat_result) -> None:
    """Gives an open file or directory the owner, group and mode of `model`, whatever the umask."""
    found = os.fstat(fd)
    if (found.st_uid, found.st_gid) != (model.st_uid, model.st_gid):
        syscalls.chown(fd, model.st_uid, model.st_gid)
    directory = stat.S_ISDIR(found.st_mode)
    mode = stat.S_IMODE(model.st_mode) if directory else model.st_mode & FILE_MODE_BITS
    if stat.S_IMODE(found.st_mode) != mode:
        syscalls.chmod(fd, mode)
