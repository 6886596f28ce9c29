"""The log of an untrusted store: read once, by read(2), and kept in memory.

A mapping shows every later change of its file: bytes change after they were checked, and a page
whose file was cut is a signal. A copy does neither: readers get the bytes that the open checked.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import ReadFailedError
from rocketstore.log.mapped_files.mapped_file_queue import Access, MappedFileQueue

__all__ = ["MemoryLog"]

#: One read, bytes. Pieces of zeros are not stored, so unwritten parts take no memory.
PIECE_BYTES: Final = 1 << 20
ZEROS: Final = bytes(PIECE_BYTES)
#: RocketMQ counts positions in a file with an i32.
FILE_BYTES_MAX: Final = 1 << 31
FILES_MAX: Final = 20_000
#: Most zeros in holes beyond what fits into memory, bytes: they take none, but are searched.
HOLES_MAX: Final = 32 * FILE_BYTES_MAX


class MemoryLog(MappedFileQueue):
    """A log in private memory. Together its files take at most `room_bytes`."""

    def __init__(
        self,
        directory: Path,
        access: Access = "private",
        *,
        file_size: int | None = None,
        name: str = "commit log",
        tmp_directory: Path | None = None,
        more_directories: Sequence[Path] = (),
        room_bytes: int = 0,
    ) -> None:
        super().__init__(
            directory, access, file_size=file_size, name=name,
            tmp_directory=tmp_directory, more_directories=more_directories,
        )  # fmt: skip
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._room_bytes = room_bytes or memory // 2

    def load(self) -> None:
        """Names, kinds and sizes first, then the bytes.

        Raises:
            ReadFailedError: too many or too large files, or one that changes while it is read.
        """
        self._check()
        super().load()

    def _check(self) -> None:
        total = lengths = 0
        for count, entry in enumerate(self._entries(), 1):
            found = entry.stat(follow_symlinks=False)
            total += min(found.st_size, found.st_blocks * 512)
            if count > FILES_MAX:
                raise ReadFailedError(f"{self.directory} holds more than {FILES_MAX} names")
            if stat.S_ISREG(found.st_mode) and found.st_size > FILE_BYTES_MAX:
                text = f"{entry.path} has {found.st_size} bytes, which no log file has"
                raise ReadFailedError(text)
            lengths += found.st_size
        if total > self._room_bytes or lengths > self._room_bytes + HOLES_MAX:
            self._refuse()

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        for directory in (self.directory, *self._more):
            with contextlib.suppress(FileNotFoundError), os.scandir(directory) as entries:
                yield from entries

    def _refuse(self) -> None:
        raise ReadFailedError(
            f"{self.directory} does not fit into memory: an untrusted log is read as a whole, "
            "and may take half of what the machine has"
        )

    def _open(self, path: str, start: int, size: int) -> MappedFile:
        fd = syscalls.open(path, os.O_RDONLY)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ReadFailedError(f"{path} is no plain file any more")
            file = MappedFile.anonymous(start, size)
            self._copy(fd, path, file)
        finally:
            syscalls.close(fd)
        return file

    def _copy(self, fd: int, path: str, file: MappedFile) -> None:
        at = 0
        while at < file.size:
            data = syscalls.seek_data(fd, at)
            at = file.size if data is None else min(data, file.size)
            wanted = min(PIECE_BYTES, file.size - at)
            piece = syscalls.pread(fd, wanted, at)
            if len(piece) < wanted or (data is None and os.fstat(fd).st_size < file.size):
                raise ReadFailedError(f"{path} lost its end while it was read")
            if piece != ZEROS[: len(piece)]:
                self._room_bytes -= len(piece)
                if self._room_bytes < 0:
                    self._refuse()
                file.write(at, piece)
            at += len(piece)
