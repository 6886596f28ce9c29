"""Places of stores in memory: `rocketstore.open(":memory:")`.

Each store lies in a directory of its own on a memory file system, which its process locks until it
removes it. A process that is killed leaves its files there, without the lock: the next process of
the same user that opens such a store removes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import logging
import os
import stat
from pathlib import Path
from typing import Final

from rocketstore._native.os import syscalls
from rocketstore.errors import ConfigError
from rocketstore.log.layout.destroy import remove_store
from rocketstore.log.layout.file_system import file_system
from rocketstore.log.layout.paths import StoreLayout

__all__ = ["MEMORY", "make_place", "remove_place"]

logger = logging.getLogger(__name__)

#: The path that asks for a store in memory.
MEMORY: Final = ":memory:"
#: Begin of the names of directories, which are this program's to remove.
PREFIX: Final = "rocketstore-memory-"
#: File systems that keep files in memory.
KINDS: Final = ("tmpfs", "ramfs")

#: Descriptors that lock the directories of this process, by the path of the store in each.
_held: dict[str, int] = {}


def make_place(mode: str) -> str:
    """The path of a new store, in a directory that this user alone may enter.

    Raises:
        ConfigError: no memory file system is found, or a mode that opens what is there.
        OSError: the directory cannot be made.
    """
    if mode != "rw":
        raise ConfigError("mode", mode, f"'rw' for {MEMORY!r}, which is a new store at each open")
    place = _swept(os.environ.get("TMPDIR") or "/tmp")
    while True:
        directory = os.path.join(place, PREFIX + os.urandom(8).hex())
        syscalls.mkdir(directory, 0o700)
        if (fd := _locked(directory)) is not None:
            path = os.path.join(directory, "store")
            _held[path] = fd
            return path


def remove_place(path: str) -> None:
    """Removes a store of `make_place`; any other path stays. The directory is kept, and locked, while
    it holds something else, as a copy that takes the place of the store. What cannot be removed is
    logged, and left to the next process."""
    if path not in _held:
        return
    try:
        if _remove(os.path.dirname(path)):
            syscalls.close(_held.pop(path))
    except OSError as error:
        logger.warning("%s, a store in memory, is not removed: %s", path, error)


@functools.cache
def _swept(tmpdir: str) -> str:
    """A directory on a memory file system. The first call of a process removes what killed ones left
    there."""
    for place in (tmpdir, "/dev/shm"):
        with contextlib.suppress(OSError):
            kind = file_system(Path(place)).name
            if kind in KINDS and os.access(place, os.W_OK | os.X_OK):
                place = os.path.realpath(place)
                with contextlib.suppress(OSError):  # as far as it gets
                    _sweep(place)
                return place
    raise ConfigError(
        "path",
        MEMORY,
        "needs a memory file system, and neither TMPDIR nor /dev/shm is one that can be written: "
        "mount a tmpfs, and name it by TMPDIR",
    )


def _locked(directory: str) -> int | None:
    """A descriptor that locks a directory until it is closed or the process ends. None: another
    process has locked or removed it; or it is a link, or has not the owner and mode of ours."""
    with contextlib.suppress(FileNotFoundError):
        found = os.lstat(directory)  # a link is no directory
        if (found.st_mode, found.st_uid) != (stat.S_IFDIR | 0o700, os.geteuid()):
            return None
        fd = syscalls.open_directory(directory)
        with contextlib.suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(found, os.fstat(fd)) and os.path.samestat(
                found, os.lstat(directory)
            ):
                return fd
        syscalls.close(fd)
    return None


def _sweep(place: str) -> None:
    """Removes stores of this user whose processes have ended."""
    for name in os.listdir(place):
        directory = os.path.join(place, name)
        if name.startswith(PREFIX) and (fd := _locked(directory)) is not None:
            try:
                with contextlib.suppress(OSError):  # the others may go still
                    _remove(directory)
            finally:
                syscalls.close(fd)


def _remove(directory: str) -> bool:
    """Removes the store of a directory, as `Store.destroy` does: files with names of a store's, and
    nothing that a link leads to. Then the directory, unless it holds something else."""
    layout = StoreLayout(Path(directory, "store"))
    if layout.root.is_dir() and not any(path.is_symlink() for path in layout.directories):
        remove_store(layout)
    if os.listdir(directory):
        return False
    syscalls.rmdir(directory)
    return True
