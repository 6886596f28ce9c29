"""An endless file: equal-sized mapped files in one directory, each named by its start offset.

Used by the commit log (blocks allocated) and by consume queues (sparse). `files` is a snapshot that is
replaced whole, so readers never lock; whoever changes it holds the lock.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Literal

from rocketstore._native import syscalls
from rocketstore._native.mapped_file import MappedFile
from rocketstore.errors import StoreReadOnlyError
from rocketstore.log.layout.listing import (
    Shape,
    file_at,
    list_segments,
    make_directory,
    usual_size,
)
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.mapped_files.new_file import NewFile, fill_blocks, raise_disk_error

__all__ = ["Access", "MappedFileQueue", "Shape"]

logger = logging.getLogger(__name__)

Access = Literal["write", "read", "private", "memory"]

_start = attrgetter("start_offset")


class MappedFileQueue:
    """The files of one directory; of several with `more_directories`, which are for reading only.

    `access`: "write"; "read", which changes neither files nor memory; "private", where files are made,
    changed and removed in memory only; "memory", the same beside a directory that is not looked at.
    `file_size` None: taken from the files that are there.
    `tmp_directory` holds what is not finished (D-06). A second name of a segment (D-05) is not known here:
    whoever removes files takes it away before.
    """

    def __init__(
        self,
        directory: Path,
        access: Access,
        *,
        file_size: int | None,
        name: str,
        tmp_directory: Path | None = None,
        more_directories: Sequence[Path] = (),
    ) -> None:
        if file_size is not None and file_size <= 0:
            raise ValueError(f"file_size = {file_size}: above 0")
        self.directory = directory
        self.access: Access = access
        self.file_size = file_size
        self.name = name
        self._tmp = tmp_directory
        self._more = more_directories
        self._lock = threading.RLock()
        # Each replaced as a whole, under the lock.
        self.files: tuple[MappedFile, ...] = ()
        self.gaps: list[tuple[int, int]] = []
        self.shapes: list[Shape] = []
        self.aliens: list[str] = []
        self._released = 0  # files that end here or below have no descriptor

    # ---- load ----

    def load(self) -> None:
        """Maps every file of the directory, in order; none keeps a descriptor. Names that are not 20
        digits are left alone.

        Bytes never make it fail. A file of a wrong length (`shapes`) is mapped as far as it goes and
        not beyond the file size; an empty one, or one that begins inside the file before it, is not.
        """
        if self.access == "memory":
            return
        with self._lock:
            found, self.aliens = list_segments((self.directory, *self._more), self.name)
            if self.file_size is None and found:
                self.file_size = usual_size(found)
            files: list[MappedFile] = []
            self.shapes = []
            for number, (start, size, path) in enumerate(found):
                low = files[-1].end_offset if files else 0
                last = number == len(found) - 1
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile by who writes here
                    file = self._load_one(start, size, path, low, last=last)
                    files += [file] if file is not None else []
            self._set(files)
        for begin, end in self.gaps:
            logger.warning("%s: no file for the bytes %d to %d", self.directory, begin, end)

    def _load_one(
        self, start: int, size: int, path: str, low: int, *, last: bool
    ) -> MappedFile | None:
        wanted = self.file_size or size
        usable = min(size, wanted)
        placed = low <= start and start + wanted < 1 << 63
        if size != wanted or usable == 0 or not placed:
            shape = Shape(path, size, wanted, last)
            self.shapes.append(shape)
            logger.warning("%s: wrong length%s", shape, "" if placed else ", or in another's place")
        if usable == 0 or not placed:
            return None
        return self._open(path, start, usable)

    def _open(self, path: str, start: int, size: int) -> MappedFile:
        assert self.access != "memory"
        file = MappedFile.open(path, start, size, self.access)
        file.close_descriptor()
        return file

    def repair_last(self, *, sparse: bool = False) -> None:
        """Gives each file in `shapes`, as a rule the last one, its length on disk. For recovery, which
        has kept a copy (D-21) of what is cut off here. Over private mappings nothing on disk changes: a
        file in memory takes the place of one that is short.

        A short file gets zeros, with blocks unless `sparse`; one that is too long is cut; an empty last
        one is removed, so that its name is free. DiskFullError changes nothing of that file.
        """
        with self._lock:
            if self.access == "read":
                self._check_write("repair files")
            for shape in list(self.shapes):
                if shape.found_bytes == 0 and shape.last:
                    if self.access != "write":
                        continue  # its name is not needed
                    syscalls.unlink(shape.path)
                    syscalls.sync_directory(os.fspath(self.directory))
                elif self._placed(shape) and self.access != "write":
                    self._repair_in_memory(shape)
                elif self._placed(shape):
                    self._repair(shape, sparse=sparse)
                else:
                    continue  # in another file's place: neither used nor changed
                self.shapes = [other for other in self.shapes if other is not shape]
                logger.warning("%s: repaired", shape)

    def _placed(self, shape: Shape) -> bool:
        """Whether there is a place for the whole file among the others."""
        start, end = shape.start_offset, shape.start_offset + shape.wanted_bytes
        others = [file for file in self.files if file.start_offset != start]
        clear = all(file.end_offset <= start or file.start_offset >= end for file in others)
        return clear and end < 1 << 63

    def _repair_in_memory(self, shape: Shape) -> None:
        if shape.missing_bytes:
            whole = MappedFile.anonymous(shape.start_offset, shape.wanted_bytes)
            short = self.find(shape.start_offset)
            if short is not None:
                whole.write(0, short.read(0, short.size))
            self._replace(whole)

    def _repair(self, shape: Shape, *, sparse: bool) -> None:
        fd = syscalls.open(shape.path, os.O_RDWR)
        try:
            if shape.missing_bytes:
                fill_blocks(fd, shape.found_bytes, shape.wanted_bytes, sparse=sparse)
            else:
                syscalls.ftruncate(fd, shape.wanted_bytes)
            syscalls.fsync(fd)
        except OSError as error:
            raise_disk_error(error, shape.path, shape.missing_bytes)
        finally:
            syscalls.close(fd)
        self._replace(self._open(shape.path, shape.start_offset, shape.wanted_bytes))

    def _replace(self, whole: MappedFile) -> None:
        start = whole.start_offset
        old = [file for file in self.files if file.start_offset == start]
        kept = [file for file in self.files if file.start_offset != start]
        self._set(sorted([*kept, whole], key=_start))
        for file in old:  # views of it stay good: what was there is not changed
            file.close()

    def _set(self, files: Iterable[MappedFile]) -> None:
        self.files = tuple(files)
        # A short file is told as a shape: its missing end is no missing file.
        size = self.file_size or 0
        ends = [max(file.end_offset, file.start_offset + size) for file in self.files]
        starts = [file.start_offset for file in self.files[1:]]
        self.gaps = [(a, b) for a, b in zip(ends, starts, strict=False) if a < b]

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
        return file_at(self.files, self.file_size, offset)

    def start_for(self, offset: int) -> int:
        """Start of the file that would contain `offset` (semantics 4.1)."""
        return offset - offset % self._size()

    def _size(self) -> int:
        if self.file_size is None:
            raise ValueError(f"{self.directory}: no file size is known for a new {self.name}")
        return self.file_size

    # ---- grow ----

    def create(self, start_offset: int, *, sparse: bool) -> MappedFile:
        """Makes the file that starts at `start_offset` and adds it."""
        with self._lock:
            self._check_follows(start_offset)
            file = self.make(start_offset, sparse=sparse)
            self.publish(file)
        return file

    def make(
        self, start_offset: int, *, sparse: bool, prewrite: Callable[[int, int], None] | None = None
    ) -> MappedFile:
        """Makes a file without adding it (D-06); with "private" access in memory. Any thread may.

        Raises: as `NewFile.make` and `NewFile.publish`; StoreReadOnlyError.
        """
        if self.access in ("private", "memory"):
            return MappedFile.anonymous(start_offset, self._checked_size(start_offset))
        return self.prepare(start_offset, sparse=sparse, prewrite=prewrite).publish()

    def prepare(
        self, start_offset: int, *, sparse: bool, prewrite: Callable[[int, int], None] | None = None
    ) -> NewFile:
        """Makes a file that has no name yet. Raises: as `make`."""
        size = self._checked_size(start_offset)
        self._check_write("make a file")
        make_directory(self.directory)
        return NewFile.make(
            self.directory, self._tmp, start_offset, size, sparse=sparse, prewrite=prewrite
        )

    def _checked_size(self, start_offset: int) -> int:
        size = self._size()
        if start_offset % size:
            raise ValueError(
                f"{self.name}: no file starts at {start_offset}, each has {size} bytes"
            )
        return size

    def open_made(self, start_offset: int) -> MappedFile:
        """The file of the right length that has its name already, although nobody added it.

        Raises:
            FileExistsError: it has another length.
        """
        path = os.fspath(self.directory / segment_name(start_offset))
        size = os.stat(path).st_size
        if size != self._checked_size(start_offset):
            raise FileExistsError(errno.EEXIST, f"{size} bytes are in the way", path)
        return self._open(path, start_offset, size)

    def publish(self, file: MappedFile) -> None:
        """Adds a file that follows the last one, or is the first; again is no harm."""
        with self._lock:
            if self.files and self.files[-1] is file:
                return
            self._check_follows(file.start_offset)
            self._set((*self.files, file))

    def restore(self, file: MappedFile) -> None:
        """Adds a file in one of the `gaps`."""
        with self._lock:
            self._set(sorted((*self.files, file), key=_start))

    def _check_follows(self, start_offset: int) -> None:
        if self.files and start_offset != self.files[-1].end_offset:
            raise ValueError(
                f"{self.name}: a file at {start_offset} does not follow {self.files[-1].end_offset}"
            )

    # ---- descriptors ----

    def keep_descriptors(self, offset: int) -> None:
        """Files that end beyond `offset` have a descriptor of their own from here on."""
        self._released = offset
        for file in self.files:
            if file.end_offset > offset:
                file.keep_descriptor()

    def release_descriptors(self, offset: int) -> None:
        """Files wholly below `offset` give theirs back; nobody will sync them again."""
        while (file := self.find(self._released)) is not None and file.end_offset <= offset:
            file.close_descriptor()
            self._released = file.end_offset

    @property
    def released(self) -> int:
        """Files that end here or below are durable, and nobody syncs or links them any more."""
        return self._released

    # ---- shrink ----

    def remove_before(self, offset: int) -> list[str]:
        """Removes whole files below `offset`, oldest first, never the last. Views stay readable."""
        with self._lock:
            count = sum(file.end_offset <= offset for file in self.files[:-1])
            return self._remove(self.files[:count])

    def remove_from(self, offset: int) -> list[str]:
        """Removes the files that start at or beyond `offset`, last to first."""
        with self._lock:
            kept = bisect.bisect_left(self.files, offset, key=_start)
            # One by one: a file that is gone while a later one is there would be a gap.
            return [path for file in self.files[kept:][::-1] for path in self._remove((file,))]

    def _remove(self, files: Sequence[MappedFile]) -> list[str]:
        """In this order. A file leaves the snapshot when its name has gone, so a failure in between
        leaves both as they are; what has gone is durable when this returns or raises."""
        if not files:
            return []
        if self.access == "read":
            self._check_write("remove files")
        removed = []
        try:
            for file in files:
                if self.access == "write":
                    with contextlib.suppress(FileNotFoundError):
                        syscalls.unlink(file.path)
                self._set(other for other in self.files if other is not file)
                removed.append(file.path)
                file.close()
        finally:
            if self.access == "write" and removed:
                syscalls.sync_directory(os.fspath(self.directory))
        return removed

    def _check_write(self, act: str) -> None:
        if self.access != "write":
            raise StoreReadOnlyError(f"cannot {act}: {self.directory} is open for reading")

    def forget(self) -> None:
        """Lets go of files that `load` would find again; who holds one may go on with it."""
        with self._lock:
            self._set(())

    def close(self) -> None:
        """Gives up all files; memory goes when the last view does. Idempotent."""
        with self._lock:
            files = self.files
            self._set(())
        for file in files:
            file.close()
