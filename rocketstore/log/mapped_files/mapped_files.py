"""The mapped files of a log or a queue, in order: which file holds which byte.

`files` is a snapshot that is replaced whole, so readers never lock; a writer holds the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import struct
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from rocketstore._native.os import syscalls
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.layout.listing import file_at

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile

__all__ = ["MappedFiles", "descriptor_of", "in_memory_since_marked", "mark_in_memory"]

#: F_GET_RW_HINT and F_SET_RW_HINT of linux/fcntl.h, which Python does not name, and the hint
#: RWH_WRITE_LIFE_NONE, a u64. It changes nothing, and no file has it by default.
GET_HINT: Final = 1024 + 11
SET_HINT: Final = 1024 + 12
MARK: Final = struct.pack("=Q", 1)

_start = attrgetter("start_offset")


class MappedFiles:
    """Files of one size, sorted by start offset. It knows no directory: `MappedFileQueue` does."""

    def __init__(self, name: str, file_size: int | None) -> None:
        self.name = name
        self.file_size = file_size
        self._lock = SignalSafeLock("the list of files")
        # Each replaced as a whole, under the lock.
        self.files: tuple[MappedFile, ...] = ()
        self.gaps: list[tuple[int, int]] = []
        self._released = 0  # files that end here or below have no descriptor

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
        """End of the last file; 0 without files."""
        files = self.files
        return files[-1].end_offset if files else 0

    def find(self, offset: int) -> MappedFile | None:
        """The file that holds `offset`, or None: there is no fallback to the first file (K-46)."""
        return file_at(self.files, self.file_size, offset)

    # ---- change ----

    def _set(self, files: Iterable[MappedFile]) -> None:
        self.files = tuple(files)
        # A short file is reported as a shape: its missing end is no missing file.
        size = self.file_size or 0
        ends = [max(file.end_offset, file.start_offset + size) for file in self.files]
        starts = [file.start_offset for file in self.files[1:]]
        self.gaps = [(a, b) for a, b in zip(ends, starts, strict=False) if a < b]

    def _replace(self, whole: MappedFile) -> None:
        start = whole.start_offset
        old = [file for file in self.files if file.start_offset == start]
        kept = [file for file in self.files if file.start_offset != start]
        self._set(sorted([*kept, whole], key=_start))
        for file in old:  # views of it stay valid: its bytes do not change
            file.close()

    def publish(self, file: MappedFile) -> None:
        """Adds a file that follows the last one, or is the first. Adding it again does nothing."""
        with self._lock():
            if self.files and self.files[-1] is file:
                return
            start, end = file.start_offset, self.end_offset
            if self.files and start != end:
                raise ValueError(f"{self.name}: a file at {start} does not follow {end}")
            self._set((*self.files, file))

    def restore(self, file: MappedFile) -> None:
        """Adds a file in one of the `gaps`."""
        with self._lock():
            self._set(sorted((*self.files, file), key=_start))

    # ---- descriptors ----

    def keep_descriptors(self, offset: int) -> None:
        """Opens a descriptor of its own for each file that ends above `offset`."""
        self._released = offset
        for file in self.files:
            if file.end_offset > offset:
                file.keep_descriptor()

    def release_descriptors(self, offset: int) -> None:
        """Closes the descriptors of files wholly below `offset`: no worker syncs them again."""
        while (file := self.find(self._released)) is not None and file.end_offset <= offset:
            file.close_descriptor()
            self._released = file.end_offset

    @property
    def released(self) -> int:
        """Files that end here or below are durable; no worker syncs or links them any more."""
        return self._released

    # ---- end ----

    def forget(self) -> None:
        """Forgets files that `load` would find again. A caller that holds one can still use it."""
        with self._lock():
            self._set(())

    def close(self) -> None:
        """Gives up all files; memory goes when the last view does. Idempotent."""
        with self._lock():
            files = self.files
            self._set(())
        for file in files:
            file.close()


@contextlib.contextmanager
def descriptor_of(file: MappedFile) -> Iterator[int]:
    """A descriptor of `file` inside the block. OSError: another file has its name now.

    A store may have more files than a process may have descriptors. Files written by calls, or
    synced as part of the log, keep one (D-12); all others open one when they need it.
    """
    descriptor = file.open_descriptor()
    try:
        yield descriptor
    finally:
        syscalls.close(descriptor)


def mark_in_memory(file: MappedFile) -> None:
    """Marks a file for as long as it stays in the machine's memory. Where that cannot be, recovery
    does without.

    The kernel keeps a hint of how long what is written to a file will live: with the inode that it
    has in memory, and nowhere else. A loss of power, an unmount and a copy lose the hint, and the
    death of a process does not (decision 0045).
    """
    with contextlib.suppress(OSError), descriptor_of(file) as descriptor:
        fcntl.fcntl(descriptor, SET_HINT, MARK)


def in_memory_since_marked(file: MappedFile) -> bool:
    """Whether the file is marked: all that was written to it since is there, synced or not."""
    with contextlib.suppress(OSError), descriptor_of(file) as descriptor:
        return fcntl.fcntl(descriptor, GET_HINT, bytes(len(MARK))) == MARK
    return False
