"""One new file of the log or of a queue: whole and on disk first, named after that (D-06).

RocketMQ refuses to load a directory that holds a temporary name or a file of another length. So a
new file has no name at all, or one in the store's own `tmp`, until `publish` gives it its final
one.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.disk_blocks import allocate_blocks
from rocketstore.log.layout.ownership import file_model, inherit_owner
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.layout.state_files import unlink_if_there
from rocketstore.values.arguments import SegmentFiles

__all__ = ["NewFile", "raise_disk_error", "withdraw_file"]

logger = logging.getLogger(__name__)

#: Descriptor of a file that was handed over; every system call refuses it.
GIVEN_AWAY: Final = -1
#: Errors of a file system without unnamed files (O_TMPFILE); some do not know the flag.
NOT_UNNAMED: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)
#: Errors of a file system without a rename that refuses to replace.
NOT_RENAMED: Final = (errno.EINVAL, errno.ENOSYS)
#: Errors that mean "no room".
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_counter = itertools.count()


class NewFile:
    """A file without its final name. The caller ends it once: `publish` names it, `drop` removes
    it."""

    def __init__(self, path: Path, start_offset: int, size: int, fd: int, name: str | None) -> None:
        """`name`: the temporary name; None for an unnamed file."""
        self.path = path
        self.start_offset = start_offset
        self.size = size
        self._fd = fd
        self._name = name
        self._reserved = size  # what its writer may store to
        self._mapped: MappedFile | None = None  # owns the descriptor once it is set

    @classmethod
    def make(
        cls,
        directory: Path,
        tmp_directory: Path | None,
        start_offset: int,
        size: int,
        *,
        sparse: bool,
        model_stat: os.stat_result | None = None,
        durable: bool = True,
        reserve: Callable[[int, int], int] | None = None,
        opens: SegmentFiles | None = None,
    ) -> NewFile:
        """A file of `size` zero bytes. It is synced; without `durable` the caller syncs it before
        `publish`.

        `tmp_directory` takes the temporary name if it is on the same disk. `sparse`: no blocks are
        allocated. `reserve(descriptor, size)` allocates the first blocks of a sparse file and returns
        where they end. `opens` gives the descriptor of an unnamed file in place of one of ours.
        Owner, group and mode are those of `model_stat`, by default of the directory's last file
        (D-09).

        Raises:
            DiskFullError: no room. Nothing is left on disk; the same call works once there is room.
        """
        path = directory / segment_name(start_offset)
        try:
            model = file_model(directory) if model_stat is None else model_stat
            if opens is None:
                fd, name = _open_unpublished(path, tmp_directory)
            else:
                fd, name = _given(opens, directory, size), None
        except OSError as error:
            raise_disk_error(error, path, size)
        new = cls(path, start_offset, size, fd, name)
        try:
            inherit_owner(fd, model)
            if sparse:
                syscalls.ftruncate(fd, size)
            else:
                allocate_blocks(fd, 0, size)  # written, where none can be allocated (K-04)
            if reserve is not None:
                new._reserved = reserve(fd, size)
            if durable:
                new.sync()
        except BaseException as error:
            new._give_up(error)
        return new

    @property
    def named(self) -> bool:
        """Whether it has its final name already: the last resort of D-06."""
        return self._name == os.fspath(self.path)

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size

    def moved_to(self, directory: Path, start_offset: int) -> NewFile:
        """The same file for another name on its disk. Only before `populate`. This object is used
        up: its descriptor belongs to the result."""
        path = directory / segment_name(start_offset)
        fd, self._fd = self._fd, GIVEN_AWAY
        return NewFile(path, start_offset, self.size, fd, self._name)

    def populate(self) -> None:
        """Maps the file and prepares every page, so that its writer meets no page fault. OSError:
        no room for the pages; the file itself stays as good as before."""
        if self._mapped is None:
            self._mapped = MappedFile.adopt(self._fd, self.path, self.start_offset, self.size)
        self._mapped.advise("hugepage")
        self._mapped.populate(0, self.size)

    def sync(self) -> None:
        syscalls.fsync(self._fd)

    def publish(self, *, durable: bool = True) -> MappedFile:
        """The mapped file, with its final name. Without `durable` the caller syncs the directory
        before anything relies on the name.

        Raises:
            FileExistsError: the name is taken; nothing is ever replaced.
            DiskFullError: no room for the name. The file is removed.
        """
        final = os.fspath(self.path)
        try:
            if self._name is None:
                syscalls.link_unnamed(self._fd, final)
            elif self._name != final:
                _rename(self._name, final)
            self._name = final  # what `_give_up` removes from here on
            if durable:
                syscalls.sync_directory(os.fspath(self.path.parent))
            if self._mapped is not None:
                return self._mapped
            mapped = MappedFile.adopt(self._fd, self.path, self.start_offset, self.size)
            mapped.reserved = self._reserved
            return mapped
        except BaseException as error:
            self._give_up(error)

    def drop(self) -> None:
        """Removes a file that is not needed. OSError: the disk keeps it; the next open removes
        it."""
        try:
            if self._mapped is not None:
                self._mapped.close()
            else:
                syscalls.close(self._fd)
        finally:
            if self._name is not None:
                unlink_if_there(self._name)

    def discard(self) -> None:
        """`drop` that logs an error, for a caller that drops several files."""
        try:
            self.drop()
        except OSError as error:
            logger.warning(
                "%s, preallocated and not needed, cannot be removed: %s", self.path, error
            )

    def _give_up(self, error: BaseException) -> NoReturn:
        self.drop()
        if isinstance(error, OSError):
            raise_disk_error(error, self.path, self.size)
        raise error


def withdraw_file(file: MappedFile) -> None:
    """Removes a file that was published and never used."""
    try:
        if file.path:
            unlink_if_there(file.path)
            syscalls.sync_directory(os.path.dirname(file.path))
    finally:
        file.close()


def raise_disk_error(error: OSError, path: str | Path, size: int) -> NoReturn:
    """Raises DiskFullError for an error that means "no room for `size` bytes", else the error
    itself."""
    if error.errno not in NO_ROOM or isinstance(error, DiskFullError):
        raise error  # not from itself: a walk over the causes would not end
    text = (
        f"{'RLIMIT_FSIZE (ulimit -f) leaves ' if error.errno == errno.EFBIG else ''}no room for a "
        f"file of {size} bytes; nothing was changed, try again when there is some"
    )
    raise DiskFullError(error.errno, text, os.fspath(path)) from error


def _open_unpublished(path: Path, tmp_directory: Path | None) -> tuple[int, str | None]:
    """A new file on the disk of `path`, and its temporary name: none, one in `tmp_directory`, or,
    the last resort of D-06, its final one. A crash leaves such a file short or all zeros; the next
    open removes or completes it."""
    directory = path.parent
    apart = tmp_directory is not None and _same_disk(tmp_directory, directory)
    if tmp_directory is not None and apart:
        directory = tmp_directory
    try:
        return syscalls.open_unnamed(os.fspath(directory), 0o600), None
    except OSError as error:
        if error.errno not in NOT_UNNAMED or not directory.is_dir():
            raise
    name = path
    if apart:
        name = directory / f"{path.name}.{os.getpid()}.{next(_counter)}"
    return syscalls.open(os.fspath(name), os.O_RDWR | os.O_CREAT | os.O_EXCL), os.fspath(name)


def _given(opens: SegmentFiles, directory: Path, size: int) -> int:
    """The descriptor that a user's function gives. OSError: it gives none that can become a file of
    the store."""
    try:
        fd = opens(os.fspath(directory), size)
    except OSError:
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"segment_files raised {error!r}", os.fspath(directory)) from error
    try:
        found, access = os.fstat(fd), fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    except (OSError, TypeError, ValueError, OverflowError) as error:
        raise OSError(
            errno.EBADF, f"segment_files gave {fd!r}: no descriptor", os.fspath(directory)
        ) from error
    kind = (stat.S_ISREG(found.st_mode), found.st_nlink, found.st_size, access, found.st_dev)
    if kind != (True, 0, 0, os.O_RDWR, directory.stat().st_dev):
        syscalls.close(fd)
        raise OSError(
            errno.EINVAL,
            "segment_files gave no empty regular file without a name (O_TMPFILE), open for reading "
            "and writing, on the file system of",
            os.fspath(directory),
        )
    return fd


def _same_disk(tmp_directory: Path, directory: Path) -> bool:
    try:
        return tmp_directory.stat().st_dev == directory.stat().st_dev
    except FileNotFoundError:
        return False


def _rename(name: str, final: str) -> None:
    """FileExistsError if `final` exists, also where the file system cannot rename that way."""
    try:
        syscalls.rename_noreplace(name, final)
    except OSError as error:
        if error.errno not in NOT_RENAMED:
            raise
        syscalls.link(name, final)
        syscalls.unlink(name)
