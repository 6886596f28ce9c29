"""An endless file: equal-sized mapped files in one directory, each named by its start offset.

Used by the commit log (blocks allocated) and by consume queues (sparse). `files` is a snapshot that is
replaced whole, so readers never lock; one writer at a time changes it, under the lock.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rocketstore._native import syscalls
from rocketstore._native.mapped_file import MappedFile
from rocketstore.errors import DiskFullError
from rocketstore.log.layout import parse_segment_name, segment_name
from rocketstore.log.state_files import file_model, inherit_owner

logger = logging.getLogger(__name__)

__all__ = ["Access", "MappedFileQueue", "Shape", "allocate_file", "link_live"]

Access = Literal["write", "read", "private"]

#: Zeros are written in pieces of this size where the file system cannot allocate.
ZERO_STEP_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Shape:
    """A file whose length is not the file size of its queue."""

    path: str
    found_bytes: int
    wanted_bytes: int
    last: bool


class MappedFileQueue:
    """The files of one directory. `file_size` None: taken from the files that are there."""

    def __init__(
        self,
        directory: Path,
        access: Access,
        *,
        file_size: int | None,
        name: str,
        tmp_directory: Path,
    ) -> None:
        self.directory = directory
        self.access: Access = access
        self.file_size = file_size
        self.name = name
        self._tmp = tmp_directory
        self._lock = threading.Lock()
        self.files: tuple[MappedFile, ...] = ()
        self.gaps: list[tuple[int, int]] = []
        self.shapes: list[Shape] = []
        self.aliens: list[str] = []

    # ---- load ----

    def load(self) -> None:
        """Maps every file of the directory, in order. Names that are not 20 digits are left alone.

        A file of another length (`shapes`) is mapped as a copy in memory, padded with zeros or cut: it can
        be read; `repair_last` makes it whole on disk.
        """
        found = self._list()
        if self.file_size is None and found:
            self.file_size = _usual_size([size for _, size in found])
        files = []
        for number, (start, size) in enumerate(found):
            last = number == len(found) - 1
            file = self._load_one(start, size, last)
            if file is not None:
                files.append(file)
        self._set(files)

    def _list(self) -> list[tuple[int, int]]:
        found = []
        try:
            entries = sorted(os.scandir(self.directory), key=lambda entry: entry.name)
        except FileNotFoundError:
            return []
        for entry in entries:
            start = parse_segment_name(entry.name)
            if entry.is_dir(follow_symlinks=False):
                continue
            if start is None or not entry.is_file(follow_symlinks=False):
                self.aliens.append(entry.name)
                logger.warning(
                    "%s: %r is no file of a %s, ignored", self.directory, entry.name, self.name
                )
                continue
            found.append((start, entry.stat(follow_symlinks=False).st_size))
        return found

    def _load_one(self, start: int, size: int, last: bool) -> MappedFile | None:
        path = str(self.directory / segment_name(start))
        wanted = self.file_size or size
        if size == wanted and size > 0:
            return MappedFile.open(path, start, size, self.access)
        self.shapes.append(Shape(path, size, wanted, last))
        logger.warning("%s has %d bytes instead of %d", path, size, wanted)
        if wanted == 0 or start % wanted:
            return None
        copy = MappedFile.anonymous(start, wanted)
        fd = syscalls.open(path, os.O_RDONLY)
        try:
            copy.write(0, syscalls.pread(fd, min(size, wanted), 0))
        finally:
            syscalls.close(fd)
        return copy

    def repair_last(self) -> None:
        """Gives every file of a wrong length its length on disk: zeros behind a short one, while bytes
        beyond the end of a long one are cut off. Recovery calls this once it has kept a copy."""
        for shape in self.shapes:
            fd = syscalls.open(shape.path, os.O_RDWR)
            try:
                if shape.found_bytes < shape.wanted_bytes:
                    _allocate(fd, shape.path, shape.wanted_bytes, sparse=False)
                else:
                    syscalls.ftruncate(fd, shape.wanted_bytes)
                syscalls.fsync(fd)
            finally:
                syscalls.close(fd)
            start = parse_segment_name(Path(shape.path).name)
            assert start is not None
            whole = MappedFile.open(shape.path, start, shape.wanted_bytes, self.access)
            self._set(whole if file.start_offset == start else file for file in self.files)
        self.shapes = []

    def _set(self, files: Iterable[MappedFile]) -> None:
        self.files = tuple(files)
        self.gaps = [
            (before.end_offset, after.start_offset)
            for before, after in zip(self.files, self.files[1:], strict=False)
            if before.end_offset != after.start_offset
        ]

    # ---- find ----

    @property
    def first(self) -> MappedFile | None:
        files = self.files
        return files[0] if files else None

    @property
    def last(self) -> MappedFile | None:
        files = self.files
        return files[-1] if files else None

    @property
    def begin_offset(self) -> int:
        files = self.files
        return files[0].start_offset if files else 0

    @property
    def end_offset(self) -> int:
        """Behind the last byte of the last file; 0 without files."""
        files = self.files
        return files[-1].end_offset if files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds `offset`, or None: there is no fallback to the first file (K-46)."""
        files = self.files
        size = self.file_size
        if not files or not size or offset < files[0].start_offset:
            return None
        index = (offset - files[0].start_offset) // size
        if index < len(files) and files[index].start_offset <= offset < files[index].end_offset:
            return files[index]
        if self.gaps:
            for file in files:
                if file.start_offset <= offset < file.end_offset:
                    return file
        return None

    def start_for(self, offset: int) -> int:
        """Start of the file that would contain `offset` (semantics 4.1)."""
        assert self.file_size
        return offset - offset % self.file_size

    # ---- grow ----

    def create(self, start_offset: int, *, sparse: bool) -> MappedFile:
        """Makes the file that starts at `start_offset` and adds it."""
        file = self.make(start_offset, sparse=sparse)
        self.publish(file)
        return file

    def make(self, start_offset: int, *, sparse: bool) -> MappedFile:
        """Makes a file without adding it; on other access than "write" in memory only."""
        assert self.file_size
        if self.access != "write":
            return MappedFile.anonymous(start_offset, self.file_size)
        return allocate_file(self.directory, self._tmp, start_offset, self.file_size, sparse=sparse)

    def publish(self, file: MappedFile) -> None:
        """Adds a file that follows the last one (or is the first)."""
        with self._lock:
            if self.files and file.start_offset != self.files[-1].end_offset:
                raise ValueError(
                    f"{self.name}: a file at {file.start_offset} does not follow {self.files[-1].end_offset}"
                )
            self._set((*self.files, file))

    # ---- shrink ----

    def remove_before(self, offset: int) -> list[str]:
        """Removes whole files below `offset`, oldest first, never the last. Views stay readable."""
        removed = []
        while len(self.files) > 1 and self.files[0].end_offset <= offset:
            removed.append(self._remove(0))
        return removed

    def remove_from(self, offset: int) -> list[str]:
        """Removes the files that start at or beyond `offset`, last to first."""
        removed = []
        while self.files and self.files[-1].start_offset >= offset:
            removed.append(self._remove(-1))
        return removed

    def _remove(self, index: int) -> str:
        with self._lock:
            file = self.files[index]
            self._set(self.files[1:] if index == 0 else self.files[:-1])
        if self.access == "write" and file.path:
            syscalls.unlink(file.path)
            syscalls.sync_directory(str(self.directory))
        file.close()
        return file.path

    def close(self) -> None:
        """Gives up all files; memory goes when the last view does."""
        with self._lock:
            files, self.files = self.files, ()
        for file in files:
            file.close()


def _usual_size(sizes: list[int]) -> int:
    """File size of a queue whose configuration is not known: the most common length, the first one wins."""
    return max(sizes, key=lambda size: (size > 0, sizes.count(size), -sizes.index(size)))


def allocate_file(
    directory: Path, tmp_directory: Path, start_offset: int, size: int, *, sparse: bool
) -> MappedFile:
    """A new file that has its name only once it is whole and synced (D-06).

    Raises:
        DiskFullError: no room; nothing is left behind. FileExistsError: the name is taken.
    """
    path = str(directory / segment_name(start_offset))
    return publish_file(path, tmp_directory, start_offset, size, sparse=sparse)


def publish_file(
    path: str, tmp_directory: Path, start_offset: int, size: int, *, sparse: bool
) -> MappedFile:
    """allocate_file for a name that is not a start offset (index files)."""
    directory = os.path.dirname(path)
    model = file_model(Path(directory))
    try:
        fd = syscalls.open_unnamed(str(tmp_directory))
        named = None
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT, errno.EINVAL):
            raise
        named = str(tmp_directory / f"{os.getpid()}-{start_offset}-{os.path.basename(path)}")
        fd = syscalls.open(named, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        inherit_owner(fd, model)
        _allocate(fd, path, size, sparse=sparse)
        syscalls.fsync(fd)
        if named is None:
            syscalls.link_unnamed(fd, path)
        else:
            syscalls.rename_noreplace(named, path)
        syscalls.sync_directory(directory)
        return MappedFile.adopt(fd, path, start_offset, size)
    except BaseException:
        syscalls.close(fd)
        if named is not None and os.path.exists(named):
            syscalls.unlink(named)
        raise


def _allocate(fd: int, path: str, size: int, *, sparse: bool) -> None:
    try:
        if sparse:
            syscalls.ftruncate(fd, size)
        else:
            try:
                syscalls.fallocate(fd, 0, size)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
                    raise
                for offset in range(0, size, ZERO_STEP_BYTES):  # never sparse: K-04
                    syscalls.pwrite(fd, bytes(min(ZERO_STEP_BYTES, size - offset)), offset)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise DiskFullError(
                error.errno, f"no room for a file of {size} bytes; free some and try again", path
            ) from error
        raise


def link_live(file: MappedFile, live: Path) -> None:
    """A second name of a segment being written, in our own directory (D-05)."""
    name = live / os.path.basename(file.path)
    if name.exists():
        syscalls.unlink(str(name))
    syscalls.link(file.path, str(name))
    syscalls.sync_directory(str(live))
