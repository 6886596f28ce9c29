"""Where a new file stands until it is whole, and how it gets its name or goes again (D-06)."""

from __future__ import annotations

import errno
import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from rocketstore._native import syscalls
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.atomic_files import unlink_if_there

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile

__all__ = [
    "open_unfinished",
    "raise_explained",
    "rename_finished",
    "withdraw_file",
]

#: The file system has no files without a name (O_TMPFILE): some say so, some do not know the flag.
NOT_UNNAMED: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
#: It has no rename that refuses to replace.
NOT_RENAMED: Final = (errno.EINVAL, errno.ENOSYS)
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_counter = itertools.count()


def open_unfinished(path: Path, tmp_directory: Path | None) -> tuple[int, str | None]:
    """A new file on the disk that `path` will be on, and the name it has until it is whole: none, one
    in `tmp_directory`, or, as the last resort of D-06, its own. What a crash leaves there is short or
    all zeros; the next open removes or completes it."""
    place = path.parent
    apart = tmp_directory is not None and _same_disk(tmp_directory, place)
    if tmp_directory is not None and apart:
        place = tmp_directory
    try:
        return syscalls.open_unnamed(os.fspath(place), 0o600), None
    except OSError as error:
        if error.errno not in NOT_UNNAMED or not place.is_dir():
            raise
    name = path
    if apart:
        name = place / f"{path.name}.{os.getpid()}.{next(_counter)}"
    return syscalls.open(os.fspath(name), os.O_RDWR | os.O_CREAT | os.O_EXCL), os.fspath(name)


def _same_disk(tmp_directory: Path, directory: Path) -> bool:
    try:
        return tmp_directory.stat().st_dev == directory.stat().st_dev
    except FileNotFoundError:
        return False


def rename_finished(name: str, final: str) -> None:
    """FileExistsError when there is a `final`, also where the file system cannot rename that way."""
    try:
        syscalls.rename_noreplace(name, final)
    except OSError as error:
        if error.errno not in NOT_RENAMED:
            raise
        syscalls.link(name, final)
        syscalls.unlink(name)


def raise_explained(error: OSError, path: str | Path, size: int) -> NoReturn:
    """Raises DiskFullError for an error that means "no room for `size` bytes", else the error itself."""
    if error.errno not in NO_ROOM or isinstance(error, DiskFullError):
        raise error  # not from itself: who follows the causes would go round for ever
    text = f"no room for a file of {size} bytes; nothing was changed, try again when there is some"
    raise DiskFullError(error.errno, text, os.fspath(path)) from error


def withdraw_file(file: MappedFile) -> None:
    """Takes back a file that was published and never used."""
    try:
        if file.path:
            unlink_if_there(file.path)
            syscalls.sync_directory(os.path.dirname(file.path))
    finally:
        file.close()
