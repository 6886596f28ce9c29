"""The small files of a store and the directories they lie in: whose they are, how they are
replaced, how foreign ones are read (D-09, DESIGN 7)."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore._native import syscalls
from rocketstore.log.mapped_files.unfinished_files import unlink_if_there

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout

__all__ = [
    "check_owner",
    "clean_tmp",
    "file_model",
    "inherit_owner",
    "make_directories",
    "make_like",
    "read_json",
    "read_state_file",
    "remove_state_file",
    "sync_file_system",
    "write_state_file",
]

logger = logging.getLogger(__name__)

NEW_DIRECTORY_MODE = 0o700
FILE_MODE_BITS = 0o666

_SEGMENT_NAME = re.compile(r"[0-9]{20}")
_counter = itertools.count()
# A string (perhaps without its end), a key that is a bare integer, or a bracket.
_TOKEN = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'
    r"|(?P<key>(?<=[{,\s])-?[0-9]+(?=\s*:))|(?P<open>[\[{])|[\]}]",
    re.DOTALL,
)


# ---- owner and mode ----


def make_directories(layout: StoreLayout) -> None:
    """Makes what is missing. A new store is its owner's alone; in one that exists, what is added
    belongs to whom the rest belongs (D-09). Raises PermissionError before anything is made."""
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
    """False when it is there, perhaps since now: another process may be opening the same store."""
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
        FileExistsError, OSError: there is something, or it cannot be made.
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
    """PermissionError when files that we make could not be given to the store's owner, or when a
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
    """Whose owner and mode a new file in `directory` takes: its last segment's, else its own."""
    names = [name for name in os.listdir(directory) if _SEGMENT_NAME.fullmatch(name)]
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


# ---- replacing ----


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
    """It is gone, also after a power cut, when this returns; it may have been missing."""
    try:
        syscalls.unlink(os.fspath(path))
    except FileNotFoundError:
        return
    syscalls.sync_directory(os.fspath(path.parent))


def sync_file_system(directory: Path) -> None:
    """Everything below, and all else on its file system, is on the disk when this returns."""
    fd = syscalls.open_directory(os.fspath(directory))
    try:
        syscalls.syncfs(fd)
    finally:
        syscalls.close(fd)


def clean_tmp(layout: StoreLayout) -> None:
    """Removes what a crash left of files that never got their name. Under the store's lock only."""
    for entry in os.scandir(layout.tmp):
        if not entry.is_dir(follow_symlinks=False):
            unlink_if_there(entry.path)


def _model_of(path: Path) -> os.stat_result:
    try:
        found = path.lstat()
    except FileNotFoundError:
        return path.parent.stat()
    return found if stat.S_ISREG(found.st_mode) else path.parent.stat()


# ---- reading ----


def read_json(path: Path, max_bytes: int, max_depth: int) -> object:
    """What a JSON file holds, in the forms that RocketMQ writes (format.md 1.4): integer keys need
    no quotes, `<name>.bak` counts when the file is absent, empty or no JSON. None when neither is
    any use.

    Never raises on what the bytes are; OSError when they cannot be read.
    """
    for candidate in (path, path.with_name(path.name + ".bak")):
        try:
            text = read_state_file(candidate, max_bytes).decode()
            if text.strip():
                return _parse_json(text, max_depth)
        except FileNotFoundError:
            continue
        except ValueError as error:
            logger.warning("%s is no use: %s", candidate, error)
    return None


def read_state_file(path: Path, max_bytes: int) -> bytes:
    """All of a plain file. ValueError for anything else, or one that is larger."""
    fd = syscalls.open(os.fspath(path), os.O_RDONLY)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("not a plain file")
        if found.st_size > max_bytes:
            raise ValueError(f"more than {max_bytes} bytes")
        return syscalls.pread(fd, found.st_size, 0)
    finally:
        syscalls.close(fd)


def _parse_json(text: str, max_depth: int) -> object:
    depth = 0

    def quoted(found: re.Match[str]) -> str:
        nonlocal depth
        kind = found.lastgroup
        if kind == "key":
            return f'"{found[0]}"'
        if kind == "open":
            depth += 1
            if depth > max_depth:
                raise ValueError(f"nested deeper than {max_depth}")
        elif found[0] in "]}":
            depth -= 1
        return found[0]

    document: object = json.loads(_TOKEN.sub(quoted, text), parse_constant=_refuse_constant)
    return document


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
