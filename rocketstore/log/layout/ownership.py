"""Owner, group and mode of new files and directories: those of the store's other files (D-09)."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from rocketstore._native.os import syscalls
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name

__all__ = [
    "FILE_QUEUE",
    "IN_THE_WAY",
    "LINKED_QUEUE",
    "check_owner",
    "file_model",
    "inherit_owner",
    "make_directories",
    "make_like",
    "make_root",
]

NEW_DIRECTORY_MODE = 0o700
FILE_MODE_BITS = 0o666
FILE_QUEUE = "a file in place of a topic's or a queue's directory: move it out of the store"
IN_THE_WAY = "no file, but it lies in place of one of the queue: move it out of the store"
LINKED_QUEUE = "a link in place of a topic's or a queue's directory: put the directory there"


def make_directories(layout: StoreLayout) -> None:
    """Makes missing directories. A new store is readable by its owner only. In a store that exists,
    new directories get the owner of the rest (D-09). Raises PermissionError before anything is
    made."""
    if layout.root.exists():
        check_owner(layout)
    else:
        make_root(layout.root)
    model = layout.root.stat()
    for directory in layout.directories[1:]:
        if _make(directory, NEW_DIRECTORY_MODE):
            _give(directory, model)
            syscalls.sync_directory(os.fspath(directory.parent))


def make_root(root: Path) -> None:
    """A new directory of this user alone, if there is none, and its missing parents."""
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
    """Raises PermissionError if this user could not give new files to the store's owner, if a
    directory is a link that neither root nor this user made, or if one in which the store removes
    files, or one of a topic or a queue, is a link at all."""
    root = layout.root.stat()
    if not stat.S_ISDIR(root.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "a store is a directory", os.fspath(layout.root))
    user = os.geteuid()
    for directory in (layout.live, layout.quarantine, layout.tmp):
        if directory.is_symlink():
            text = "a link, and rocketstore removes files there: put a directory in its place"
            raise PermissionError(errno.EPERM, text, str(directory))
    for directory in layout.directories:
        if directory.is_symlink() and (owner := directory.lstat().st_uid) not in (0, user):
            text = f"a link of user {owner}, and user {user}, who opens the store, follows only "
            text += f"its own and root's: open it as user {owner}, or give it to root (chown -h)"
            raise PermissionError(errno.EPERM, text, str(directory))
    for link in _linked_queues(os.fspath(layout.consume_queue)):
        raise PermissionError(errno.EPERM, LINKED_QUEUE, link)
    if user == 0:
        return
    if root.st_uid != user:
        text = f"the store belongs to user {root.st_uid}, not to {user} who opens it for writing"
        raise PermissionError(errno.EPERM, text, os.fspath(layout.root))
    groups = {os.getegid(), *os.getgroups()}
    if root.st_gid not in groups and not root.st_mode & stat.S_ISGID:
        text = f"the store belongs to group {root.st_gid}, of which user {user} is no member"
        raise PermissionError(errno.EPERM, text, os.fspath(layout.root))


def _linked_queues(root: str) -> Iterator[str]:
    """Links in place of directories of topics and of queues. No reader follows them; a writer would
    make, change and remove files through them."""
    topics = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(root) as entries:
        topics = list(entries)
    for topic in topics:
        if topic.is_symlink():
            yield topic.path
        elif topic.is_dir(follow_symlinks=False):
            with os.scandir(topic.path) as entries:
                yield from (queue.path for queue in entries if queue.is_symlink())


def check_second_names(path: str, found: os.stat_result) -> None:
    """Raises PermissionError for a file that is about to be written, if it has a second name and
    another owner than its directory: the write would change a file that is not the store's."""
    directory = os.path.dirname(path)
    if found.st_nlink > 1 and found.st_uid != os.stat(directory).st_uid:
        text = (
            f"has {found.st_nlink} names (hard links) and another owner than its directory: "
            "put a copy in its place"
        )
        raise PermissionError(errno.EPERM, text, path)


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
