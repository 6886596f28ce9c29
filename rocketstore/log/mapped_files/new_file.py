"""How a file of the log or of a queue comes to be: whole and on disk first, its name after (D-06)."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from rocketstore._native import syscalls
from rocketstore._native.mapped_file import MappedFile
from rocketstore.log.layout.atomic_files import unlink_if_there
from rocketstore.log.layout.ownership import file_model, inherit_owner
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.mapped_files.unfinished_files import (
    open_unfinished,
    raise_explained,
    rename_finished,
)

__all__ = ["NewFile", "fill_blocks"]

logger = logging.getLogger(__name__)

#: Zeros are written in pieces of this size: small, so that a sync beside them does not wait long.
ZERO_STEP_BYTES: Final = 256 * 1024
#: Instead of a descriptor: every call refuses it.
GIVEN_AWAY: Final = -1


class NewFile:
    """A file that waits for its name. `publish` gives it, `drop` takes the file back; one of them, once."""

    def __init__(self, path: Path, start_offset: int, size: int, fd: int, name: str | None) -> None:
        """`name`: what it is called until it is published; None: nothing."""
        self.path = path
        self.start_offset = start_offset
        self.size = size
        self._fd = fd
        self._name = name
        self._mapped: MappedFile | None = None  # owns the descriptor then

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
        prewrite: Callable[[int, int], None] | None = None,
        durable: bool = True,
    ) -> NewFile:
        """`size` bytes of zeros that are synced, or, not `durable`, have to be before they are published.

        RocketMQ refuses to load a directory that holds a temporary name or a file of another length, so
        neither may ever stand there. `tmp_directory` holds what is not finished, where it is on the same
        disk. `sparse`: without blocks. `prewrite`: told the descriptor and the size, writes the blocks once, so
        that a later sync only overwrites (D-11). Owner, group and mode are those of `model_stat`, by default of
        the file before (D-09).

        Raises:
            DiskFullError: no room. Nothing is left behind, the same call works once there is some.
        """
        path = directory / segment_name(start_offset)
        try:
            model = file_model(directory) if model_stat is None else model_stat
            fd, name = open_unfinished(path, tmp_directory)
        except OSError as error:
            raise_explained(error, path, size)
        new = cls(path, start_offset, size, fd, name)
        try:
            inherit_owner(fd, model)
            fill_blocks(fd, 0, size, sparse=sparse)
            if prewrite is not None:
                prewrite(fd, size)
            if durable:
                new.sync()
        except BaseException as error:
            new._give_up(error)
        return new

    @property
    def named(self) -> bool:
        """Whether it has its final name already, the last resort of D-06."""
        return self._name == os.fspath(self.path)

    @property
    def end_offset(self) -> int:
        return self.start_offset + self.size

    def placed(self, directory: Path, start_offset: int) -> NewFile:
        """The same file for another place on its disk. This one, which has not been populated, holds nothing any
        more: its descriptor is the other's, and may be closed and given to a third."""
        path = directory / segment_name(start_offset)
        fd, self._fd = self._fd, GIVEN_AWAY
        return NewFile(path, start_offset, self.size, fd, self._name)

    def populate(self) -> None:
        """Maps it, with every page ready to be written, so that who writes there first waits for none.
        OSError: there is no room for them; the file is as good as before."""
        if self._mapped is None:
            self._mapped = MappedFile.adopt(self._fd, self.path, self.start_offset, self.size)
        self._mapped.advise("hugepage")
        self._mapped.populate(0, self.size)

    def sync(self) -> None:
        syscalls.fsync(self._fd)

    def publish(self, *, durable: bool = True) -> MappedFile:
        """The file, with its name. Not `durable`: the caller syncs the directory before anything else
        relies on the name.

        Raises:
            FileExistsError: the name is taken; nothing is ever replaced.
            DiskFullError: no room for the name. The file is gone.
        """
        final = os.fspath(self.path)
        try:
            if self._name is None:
                syscalls.link_unnamed(self._fd, final)
            elif self._name != final:
                rename_finished(self._name, final)
            self._name = final  # what is to be removed if anything fails from here on
            if durable:
                syscalls.sync_directory(os.fspath(self.path.parent))
            if self._mapped is not None:
                return self._mapped
            return MappedFile.adopt(self._fd, self.path, self.start_offset, self.size)
        except BaseException as error:
            self._give_up(error)

    def drop(self) -> None:
        """It is not needed. OSError: the disk keeps it; the next open removes it."""
        try:
            if self._mapped is not None:
                self._mapped.close()
            else:
                syscalls.close(self._fd)
        finally:
            if self._name is not None:
                unlink_if_there(self._name)

    def discard(self) -> None:
        """Drops it where others have to be dropped, too: an error is told, and stops nobody."""
        try:
            self.drop()
        except OSError as error:
            logger.warning("%s, made ahead and not needed, cannot be removed: %s", self.path, error)

    def _give_up(self, error: BaseException) -> NoReturn:
        self.drop()
        if isinstance(error, OSError):
            raise_explained(error, self.path, self.size)
        raise error


def fill_blocks(fd: int, found: int, size: int, *, sparse: bool) -> None:
    """Zeros from `found`, the length of the file, up to `size`. Unless `sparse` they have blocks: also
    where the file system cannot allocate, for then they are written (K-04)."""
    if sparse:
        syscalls.ftruncate(fd, size)
        return
    try:
        syscalls.fallocate(fd, found, size - found)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        zeros = bytes(min(ZERO_STEP_BYTES, size - found))
        for position in range(found, size, ZERO_STEP_BYTES):
            syscalls.pwrite(fd, zeros[: size - position], position)
