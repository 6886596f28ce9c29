"""Runs: files of entries in the order in which they are due, of which a window is in memory.

An entry is 24 bytes: when the message is due, in ms, its queue offset in the timer topic, and a
key of its unique id. A run is never changed; `next` moves over what is delivered.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rocketstore._native.os import syscalls
from rocketstore.log.layout.atomic_files import open_plain_file, write_state_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rocketstore.log.layout.paths import StoreLayout

    Entries = NDArray[np.void]

__all__ = ["ENTRY", "LISTED", "Entry", "MemoryRun", "Run", "key_of", "sorted_entries", "write_run"]

ENTRY: Final = np.dtype([("due", "<i8"), ("at", "<i8"), ("key", "<u8")])
#: Entries of a run that are in memory.
WINDOW: Final = 1 << 14
#: Entries that a search reads at a time, and a list of them.
CHUNK: Final = 1 << 17
LISTED: Final = 1 << 10


class Entry(NamedTuple):
    """A message that waits."""

    due: int
    at: int
    key: int


def key_of(unique_id: str) -> int:
    """The key of a unique id; others may have the same. 0: it has none."""
    if not unique_id:
        return 0
    return int.from_bytes(hashlib.blake2b(unique_id.encode(), digest_size=8).digest(), "little")


def sorted_entries(entries: Entries) -> Entries:
    return entries[np.lexsort((entries["at"], entries["due"]))]


class Run:
    """One file. Readers of other threads use `chunks` of a run that they hold."""

    def __init__(self, path: Path, number: int, count: int, crc: int, next_entry: int) -> None:
        """ValueError, OSError: it is not the file that it should be."""
        self.number, self.count, self.crc = number, count, crc
        self.next = next_entry
        self._fd = open_plain_file(path)
        self._window, self._begin = np.empty(0, ENTRY), 0
        if os.fstat(self._fd).st_size != count * ENTRY.itemsize or next_entry > count:
            raise ValueError(f"{path.name}: {count} entries are not what it has")

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            syscalls.close(self._fd)

    def check(self, end: int) -> None:
        """ValueError: the file is damaged, or has a queue offset that is not below `end`."""
        crc, known = 0, True
        for chunk in self.chunks(0):
            crc = zlib.crc32(chunk.tobytes(), crc)
            known = known and bool(((chunk["at"] >= 0) & (chunk["at"] < end)).all())
        if crc != self.crc or not known:
            raise ValueError(f"run {self.number} is damaged")

    @property
    def left(self) -> int:
        return self.count - self.next

    def head(self) -> Entry | None:
        """The next entry; None at the end."""
        if self.next >= self.count:
            return None
        place = self.next - self._begin
        if not 0 <= place < len(self._window):
            self._begin, self._window = self.next, self._read(self.next, WINDOW)
            place = 0
        return Entry(*self._window[place].item())

    def chunks(self, begin: int, size: int = CHUNK) -> Iterator[Entries]:
        """All entries from one on, in parts."""
        while begin < self.count:
            chunk = self._read(begin, size)
            yield chunk
            begin += len(chunk)

    def has(self, due: int, at: int) -> bool:
        """Whether an entry is here and not passed."""
        low, high = self.next, self.count
        while low < high:
            middle = (low + high) // 2
            entry = Entry(*self._read(middle, 1)[0].item())
            if (entry.due, entry.at) == (due, at):
                return True
            if (entry.due, entry.at) < (due, at):
                low = middle + 1
            else:
                high = middle
        return False

    def _read(self, begin: int, count: int) -> Entries:
        count = min(count, self.count - begin)
        data = syscalls.pread(self._fd, count * ENTRY.itemsize, begin * ENTRY.itemsize)
        if len(data) != count * ENTRY.itemsize:
            raise OSError(5, f"run {self.number} of timers ends early")
        return np.frombuffer(data, ENTRY)


class MemoryRun(Run):
    """A run of a store that nothing may be written to."""

    def __init__(self, entries: Iterable[Entry] | Entries) -> None:
        self._entries = sorted_entries(_array(entries))
        self.number, self.count, self.crc, self.next = -1, len(self._entries), 0, 0
        self._window, self._begin = np.empty(0, ENTRY), 0

    def _read(self, begin: int, count: int) -> Entries:
        return self._entries[begin : begin + count]


def _array(entries: Iterable[Entry] | Entries) -> Entries:
    return entries if isinstance(entries, np.ndarray) else np.array(list(entries), ENTRY)


def run_path(layout: StoreLayout, number: int) -> Path:
    return layout.timers / f"{number:020d}"


def write_run(layout: StoreLayout, number: int, entries: Iterable[Entry] | Entries) -> Run:
    """A run of these entries, on disk. OSError where it cannot be written."""
    entries = _array(entries)
    data = sorted_entries(entries).tobytes()
    path = run_path(layout, number)
    write_state_file(layout, path, data)
    return Run(path, number, len(entries), zlib.crc32(data), 0)
