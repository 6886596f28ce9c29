"""The files of a log or a queue on disk: equal-sized, each named by its start offset.

Together they are one endless file. The commit log (blocks allocated) and the consume queues
(sparse) use it, followers and tools read through it.
"""

from __future__ import annotations

import bisect
import contextlib
import errno
import logging
import os
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Literal

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import StoreReadOnlyError
from rocketstore.log.layout.disk_blocks import allocate_blocks
from rocketstore.log.layout.listing import (
    LOG,
    WrongSize,
    list_segments,
    make_directory,
    usual_size,
)
from rocketstore.log.layout.paths import segment_name
from rocketstore.log.mapped_files.mapped_files import MappedFiles
from rocketstore.log.mapped_files.new_file import NewFile, raise_disk_error
from rocketstore.values.arguments import SegmentFiles

__all__ = ["Access", "MappedFileQueue", "WrongSize"]

logger = logging.getLogger(__name__)

Access = Literal["write", "read", "private", "memory"]

_start = attrgetter("start_offset")


class MappedFileQueue(MappedFiles):
    """The files of one directory; with `more_directories`, which are for reading only, of several.

    `access`: "write"; "read", which changes neither files nor memory; "private", where files are
    made, changed and removed in memory only; "memory", the same without a look at the directory.
    `file_size` None: that of the files which are found. `tmp_directory` holds unfinished files
    (D-06). A second name of a segment (D-05) is not known here: the caller that removes files
    removes it first.
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
        super().__init__(name, file_size)
        self.directory = directory
        self.access: Access = access
        self._tmp = tmp_directory
        self._more = more_directories
        #: Opens new files; None: `NewFile` does.
        self.opens: SegmentFiles | None = None
        #: Start, length and path of files that these directories should have; set before `load`.
        self.elsewhere: Sequence[tuple[int, int, str]] = ()
        # Each replaced as a whole, under the lock.
        self.wrong_sizes: list[WrongSize] = []
        self.aliens: list[str] = []

    # ---- load ----

    def load(self) -> None:
        """Maps every file of the directory, in order; none keeps a descriptor. Names that are not
        20 digits are ignored.

        Never fails on what bytes are found. A file of a wrong length (`wrong_sizes`) is mapped up
        to its end, at most up to the file size. An empty file is not mapped, nor one that begins
        inside the file before it or, in a queue, where no file does.
        """
        if self.access == "memory":
            return
        with self._lock():
            found, self.aliens = list_segments(
                (self.directory, *self._more), self.name, writes=self.access == "write"
            )
            found = sorted([*found, *self.elsewhere])
            if self.file_size is None and found:
                self.file_size = usual_size(found)
            files: list[MappedFile] = []
            self.wrong_sizes = []
            for number, (start, size, path) in enumerate(found):
                low = files[-1].end_offset if files else 0
                last = number == len(found) - 1
                with contextlib.suppress(
                    FileNotFoundError
                ):  # the store that writes here removed it
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
        placed = low <= start and self._may_begin(start, wanted)
        if size != wanted or usable == 0 or not placed:
            wrong = WrongSize(path, size, wanted, last)
            self.wrong_sizes.append(wrong)
            logger.warning("%s: wrong length%s", wrong, "" if placed else ", or a wrong place")
        if usable == 0 or not placed:
            return None
        return self._open(path, start, usable)

    def _may_begin(self, start: int, size: int) -> bool:
        """Whether a file of this size may begin there. Its number says where the units of a queue
        belong; records say that themselves, so a log is read wherever its files begin."""
        return start + size < 1 << 63 and (self.name == LOG or start % size == 0)

    def _open(self, path: str, start: int, size: int) -> MappedFile:
        assert self.access != "memory"
        file = MappedFile.open(path, start, size, self.access)
        file.close_descriptor()
        return file

    def repair_last(self) -> None:
        """Gives each file in `wrong_sizes`, as a rule the last one, its right length on disk.
        Recovery calls it, after it has copied what is cut off here (D-21). With private access
        nothing on disk changes: a file in memory replaces a short one.

        A short file gets zeros, with blocks. A file that is too long is cut. An empty last one is
        removed, so that its name is free, and so is a file of a queue that begins where none does:
        its units are made again from the log. DiskFullError: nothing of that file was changed.
        """
        with self._lock():
            if self.access == "read":
                self._check_write("repair files")
            for wrong in list(self.wrong_sizes):
                done = "repaired" if self.access == "write" else "read as if it were whole"
                placed = self._placed(wrong)
                if (wrong.found_bytes == 0 and wrong.last) or (not placed and self.name != LOG):
                    if self.access != "write":
                        continue  # its name is not needed
                    done = "removed"
                    syscalls.unlink(wrong.path)
                    syscalls.sync_directory(os.fspath(self.directory))
                elif placed and self.access != "write":
                    self._repair_in_memory(wrong)
                elif placed:
                    self._repair(wrong)
                else:
                    continue  # it overlaps another file: neither used nor changed
                self.wrong_sizes = [other for other in self.wrong_sizes if other is not wrong]
                logger.warning("%s: %s", wrong, done)

    def _placed(self, wrong: WrongSize) -> bool:
        """Whether the whole file fits between the others."""
        start, end = wrong.start_offset, wrong.start_offset + wrong.wanted_bytes
        others = [file for file in self.files if file.start_offset != start]
        clear = all(file.end_offset <= start or file.start_offset >= end for file in others)
        return clear and self._may_begin(start, wrong.wanted_bytes)

    def _repair_in_memory(self, wrong: WrongSize) -> None:
        if wrong.missing_bytes:
            whole = MappedFile.anonymous(wrong.start_offset, wrong.wanted_bytes)
            short = self.find(wrong.start_offset)
            if short is not None:
                whole.write(0, short.read(0, short.size))
            self._replace(whole)

    def _repair(self, wrong: WrongSize) -> None:
        fd = syscalls.open(wrong.path, os.O_RDWR)
        try:
            if wrong.missing_bytes:
                allocate_blocks(fd, wrong.found_bytes, wrong.wanted_bytes)
            else:
                syscalls.ftruncate(fd, wrong.wanted_bytes)
            syscalls.fsync(fd)
        except OSError as error:
            raise_disk_error(error, wrong.path, wrong.missing_bytes)
        finally:
            syscalls.close(fd)
        self._replace(self._open(wrong.path, wrong.start_offset, wrong.wanted_bytes))

    def start_for(self, offset: int) -> int:
        """Start of the file that would contain `offset` (semantics 4.1)."""
        return offset - offset % self._size()

    def next_start(self, offset: int) -> int:
        """Start of the file that follows the last one, or would contain `offset` where there is
        none."""
        return self.end_offset if self.files else self.start_for(offset)

    def _size(self) -> int:
        if self.file_size is None:
            raise ValueError(f"{self.directory}: no file size is known for a new {self.name}")
        return self.file_size

    # ---- grow ----

    def make(
        self,
        start_offset: int,
        *,
        sparse: bool,
        reserve: Callable[[int, int], int] | None = None,
    ) -> MappedFile:
        """Makes a file without adding it (D-06); with "private" access in memory. Any thread may.

        Raises: as `NewFile.make` and `NewFile.publish`; StoreReadOnlyError.
        """
        if self.access in ("private", "memory"):
            return MappedFile.anonymous(start_offset, self._checked_size(start_offset))
        return self.prepare(start_offset, sparse=sparse, reserve=reserve).publish()

    def prepare(
        self,
        start_offset: int,
        *,
        sparse: bool,
        reserve: Callable[[int, int], int] | None = None,
    ) -> NewFile:
        """Makes a file that has no name yet. Raises: as `make`."""
        size = self._checked_size(start_offset)
        self._check_write("make a file")
        make_directory(self.directory)
        return NewFile.make(
            self.directory,
            self._tmp,
            start_offset,
            size,
            sparse=sparse,
            reserve=reserve,
            opens=self.opens,
        )

    def _checked_size(self, start_offset: int) -> int:
        size = self._size()
        if start_offset % size:
            raise ValueError(
                f"{self.name}: no file starts at {start_offset}, each has {size} bytes"
            )
        return size

    def open_made(self, start_offset: int) -> MappedFile:
        """A file that has its final name already, but was not added.

        Raises:
            FileExistsError: it has another length.
        """
        path = os.fspath(self.directory / segment_name(start_offset))
        size = os.stat(path).st_size
        if size != self._checked_size(start_offset):
            raise FileExistsError(errno.EEXIST, f"{size} bytes are in the way", path)
        return self._open(path, start_offset, size)

    # ---- shrink ----

    def remove_before(self, offset: int) -> list[str]:
        """Removes whole files below `offset`, oldest first, never the last. Views stay readable."""
        with self._lock():
            count = sum(file.end_offset <= offset for file in self.files[:-1])
            return self._remove(self.files[:count])

    def remove_from(self, offset: int) -> list[str]:
        """Removes the files that start at or beyond `offset`, last to first."""
        with self._lock():
            kept = bisect.bisect_left(self.files, offset, key=_start)
            # One by one: a file that is gone while a later one is there would be a gap.
            return [path for file in self.files[kept:][::-1] for path in self._remove((file,))]

    def _remove(self, files: Sequence[MappedFile]) -> list[str]:
        """Removes files in this order. A file leaves the snapshot after its name, so after a
        failure both agree. The removals so far are durable when this returns or raises."""
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
