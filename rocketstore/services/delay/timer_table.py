"""Which messages of the timer topic wait, in the order in which they are due.

New entries are in memory; when there are many, they become a run. Runs of like size
are merged, up to a size that fits memory. So of any number of messages that wait, no more than the
new ones and a window of each run are in memory.

A run is a file of entries in the order in which they are due. An entry is 24 bytes: when the
message is due, in ms, its queue offset in the timer topic, a key of its unique id, and a number for
its topic. A run is never changed; `next` moves over what is delivered.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import os
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rocketstore._native.os import syscalls
from rocketstore.log.layout.state_files import open_plain_file, write_state_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rocketstore.log.layout.paths import StoreLayout

    Entries = NDArray[np.void]

__all__ = [
    "ENTRY",
    "LISTED",
    "Entry",
    "MemoryRun",
    "Run",
    "TimerTable",
    "key_of",
    "sorted_entries",
    "write_run",
]

#: New entries that become a run.
RECENT: Final = 1 << 12
#: Runs of like size that are merged.
LIKE: Final = 8
#: Entries of the largest run that is merged with others.
LARGEST: Final = 1 << 20
#: Entries that wait no more and are still in runs; with more of them the runs are written again.
GONE: Final = 1 << 16

#: Topics that have a number; those of messages beyond them have 0.
TOPICS: Final = 1 << 12

ENTRY: Final = np.dtype([("due", "<i8"), ("at", "<i8"), ("key", "<u4"), ("topic", "<u4")])
#: Entries of a run that are in memory.
WINDOW: Final = 1 << 14
#: Entries that a search reads at a time, and a list of them.
CHUNK: Final = 1 << 17
LISTED: Final = 1 << 10
#: The latest time that there is, ms.
LATEST: Final = (1 << 63) - 1


class Entry(NamedTuple):
    """A message that waits."""

    due: int
    at: int
    key: int
    topic: int


def key_of(unique_id: str) -> int:
    """The key of a unique id; others may have the same. 0: it has none."""
    if not unique_id:
        return 0
    return int.from_bytes(hashlib.blake2b(unique_id.encode(), digest_size=4).digest(), "little")


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


class TimerTable:
    """The entries of one store. One thread at a time."""

    def __init__(self) -> None:
        #: Queue offset of the first message of the timer topic that is not looked at.
        self.next = 0
        self.runs: list[Run] = []
        #: A heap.
        self.recent: list[Entry] = []
        #: Queue offsets of entries that wait no more.
        self.gone: set[int] = set()
        #: Queue offsets of those that could not be delivered.
        self.undelivered: Collection[int] = ()
        #: Of those that wait and come again: queue offsets of those whose copy is there already.
        self.copied: set[int] = set()
        #: The numbers of topics, from 1 on.
        self.topics: dict[str, int] = {}
        self._old: list[int] = []  # runs to be removed once no file names them
        self._last = 0

    def fill(
        self,
        next_offset: int,
        runs: list[Run],
        recent: list[Entry],
        gone: Iterable[int],
        undelivered: Collection[int],
    ) -> None:
        heapq.heapify(recent)
        self.next, self.runs, self.recent = next_offset, runs, recent
        self.gone, self.undelivered = set(gone), undelivered

    def __len__(self) -> int:
        return len(self.recent) + sum(run.left for run in self.runs) - len(self.gone)

    # ---- in order ----

    def add(self, entry: Entry) -> None:
        heapq.heappush(self.recent, entry)

    def number_of(self, topic: str) -> int:
        """The number of a topic, which has one from now on; 0: there are too many of them."""
        if topic not in self.topics and len(self.topics) < TOPICS:
            self.topics[topic] = len(self.topics) + 1
        return self.topics.get(topic, 0)

    def first(self) -> Entry | None:
        """The entry that is due first."""
        while True:
            found, run = self._head()
            if found is None or found.at not in self.gone:
                return found
            self.gone.remove(found.at)
            self._pass(run)

    def pop(self) -> None:
        """Passes over what `first` gave."""
        self._pass(self._head()[1])

    def _head(self) -> tuple[Entry | None, Run | None]:
        found, of = (self.recent[0] if self.recent else None), None
        for run in self.runs:
            head = run.head()
            if head is not None and (found is None or head < found):
                found, of = head, run
        return found, of

    def _pass(self, run: Run | None) -> None:
        if run is None:
            heapq.heappop(self.recent)
            return
        run.next += 1
        if not run.left:
            self.runs = [other for other in self.runs if other is not run]
            self._old.append(run.number)

    # ---- out of order ----

    def has(self, due: int, at: int) -> bool:
        """Whether an entry waits."""
        if at in self.gone:
            return False
        return any(entry.at == at for entry in self.recent) or any(
            run.has(due, at) for run in self.runs
        )

    def drop(self, at: int) -> None:
        """An entry, which waits, does so no more."""
        self.gone.add(at)
        self.copied.discard(at)

    def with_keys(self, keys: Collection[int]) -> list[Entry]:
        """Entries that have one of these keys, in no order."""
        return self._with("key", keys)

    def with_offsets(self, offsets: Collection[int]) -> list[Entry]:
        """Entries that have one of these queue offsets, in no order."""
        return self._with("at", offsets)

    def _with(self, field: str, values: Collection[int]) -> list[Entry]:
        wanted = np.fromiter(values, ENTRY[field], len(values))
        chunks = (chunk for run in self.runs for chunk in run.chunks(run.next))
        rows = (row for chunk in chunks for row in chunk[np.isin(chunk[field], wanted)].tolist())
        found = [entry for entry in self.recent if getattr(entry, field) in values]
        found += map(Entry._make, rows)
        return [entry for entry in found if entry.at not in self.gone]

    def offsets(self, end: int) -> Iterator[NDArray[np.int64]]:
        """Queue offsets, below one, of messages that wait, in parts and in no order."""
        parts = itertools.chain(*self.chosen(None, 0, LATEST + 1))
        return (at[at < end] for at in (part["at"] for part in parts))

    def lowest(self) -> int:
        """Queue offset below which no message waits."""
        parts = (int(at.min()) for at in self.offsets(self.next) if len(at))
        return min([self.next, *self.undelivered, *parts])

    def chosen(
        self, topic: str | None, begin: int, end: int, size: int = CHUNK
    ) -> list[Iterator[Entries]]:
        """The entries that are due from `begin` to `end`, as of now, also while the table changes: of
        each run in its order and in parts. Of a topic also those whose topic has no number."""
        number = None if topic is None else self.topics.get(topic, 0)
        gone = np.fromiter(self.gone, np.int64, len(self.gone))

        def parts(run: Run, first: int) -> Iterator[Entries]:
            for chunk in run.chunks(first, size):
                due, topics = chunk["due"], chunk["topic"]
                if due[0] >= end:
                    return
                keep = (due >= begin) & (due < end)
                if number is not None:
                    keep &= (topics == number) | (topics == 0)
                if len(gone):
                    keep &= ~np.isin(chunk["at"], gone)
                yield chunk[keep]

        return [parts(run, run.next) for run in (MemoryRun(self.recent), *self.runs)]

    def snapshot(
        self, topic: str | None = None, begin: int = 0, end: int = LATEST + 1
    ) -> Iterator[Entry]:
        """As `chosen`, one by one, in their order."""
        runs = self.chosen(topic, begin, end, LISTED)
        rows = (itertools.chain.from_iterable(part.tolist() for part in run) for run in runs)
        return heapq.merge(*(map(Entry._make, of_run) for of_run in rows))

    # ---- runs ----

    def settle(self, layout: StoreLayout | None) -> None:
        """Makes and merges runs, where there is enough for it; in memory without a layout. OSError:
        nothing is lost."""
        if len(self.recent) >= RECENT:
            run = self._run(layout, self.recent)
            self.runs, self.recent = [*self.runs, run], []
        if len(self.gone) >= GONE:
            for run in self.runs:
                self._merge(layout, [run])
            return
        while like := self._like():
            self._merge(layout, like)

    def take_old(self) -> list[int]:
        """Numbers of runs that are needed no more."""
        old, self._old = self._old, []
        return old

    def _like(self) -> list[Run]:
        """Runs of like size, if there are enough of them to be merged."""
        tiers: dict[int, list[Run]] = {}
        for run in self.runs:
            if run.left < LARGEST:
                tiers.setdefault((run.left // RECENT).bit_length() // 3, []).append(run)
        for like in tiers.values():
            if len(like) >= LIKE:
                return like[:LIKE]
        return []

    def _run(self, layout: StoreLayout | None, entries: Iterable[Entry] | Entries) -> Run:
        if layout is None:
            return MemoryRun(entries)
        return write_run(layout, self._number(), entries)

    def _merge(self, layout: StoreLayout | None, runs: list[Run]) -> None:
        entries = np.concatenate([chunk for run in runs for chunk in run.chunks(run.next)])
        if self.gone:
            gone = np.isin(entries["at"], np.fromiter(self.gone, np.int64, len(self.gone)))
            dropped, entries = entries["at"][gone].tolist(), entries[~gone]
        else:
            dropped = []
        merged = [self._run(layout, entries)] if len(entries) else []
        self.gone.difference_update(dropped)
        self.runs = [*(run for run in self.runs if run not in runs), *merged]
        self._old += [run.number for run in runs]

    def _number(self) -> int:
        """No run has this number, nor has a file that is to be removed."""
        self._last = max([self._last, *self._old, *(run.number for run in self.runs)]) + 1
        return self._last
