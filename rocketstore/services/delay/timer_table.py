"""Which messages of the timer topic wait, in the order in which they are due.

New entries are in memory; when there are many, they become a run (`timer_runs`). Runs of like size
are merged, up to a size that fits memory. So of any number of messages that wait, no more than the
new ones and a window of each run are in memory.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from rocketstore.services.delay.timer_runs import LISTED, Entry, MemoryRun, Run, write_run

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.services.delay.timer_runs import Entries

__all__ = ["TimerTable"]

#: New entries that become a run.
RECENT: Final = 1 << 12
#: Runs of like size that are merged.
LIKE: Final = 8
#: Entries of the largest run that is merged with others.
LARGEST: Final = 1 << 20
#: Entries that wait no more and are still in runs; with more of them the runs are written again.
GONE: Final = 1 << 16


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
        found = [entry for entry in self.recent if entry.key in keys and entry.at not in self.gone]
        wanted = np.fromiter(keys, np.uint64, len(keys))
        for run in self.runs:
            for chunk in run.chunks(run.next):
                for row in chunk[np.isin(chunk["key"], wanted)]:
                    entry = Entry(*row.item())
                    if entry.at not in self.gone:
                        found.append(entry)
        return found

    def with_offsets(self, offsets: Collection[int]) -> list[Entry]:
        """Entries that have one of these queue offsets, in no order."""
        found = [entry for entry in self.recent if entry.at in offsets]
        wanted = np.fromiter(offsets, np.int64, len(offsets))
        for run in self.runs:
            for chunk in run.chunks(run.next):
                found += [Entry(*row.item()) for row in chunk[np.isin(chunk["at"], wanted)]]
        return [entry for entry in found if entry.at not in self.gone]

    def lowest(self) -> int:
        """Queue offset below which no message waits."""
        offsets = (entry.at for entry in self.recent if entry.at not in self.gone)
        lowest = min([self.next, *offsets, *self.undelivered])
        gone = np.fromiter(self.gone, np.int64, len(self.gone))
        for run in self.runs:
            for chunk in run.chunks(run.next):
                at = chunk["at"][chunk["at"] < lowest]
                at = at[~np.isin(at, gone)] if len(gone) else at
                lowest = min(lowest, int(at.min())) if len(at) else lowest
        return lowest

    def snapshot(self) -> Iterator[Entry]:
        """The entries in their order, as of now, also while the table changes."""
        parts: list[Iterable[Entry]] = [sorted(self.recent)]
        parts += [_entries(run, run.next) for run in self.runs]
        gone = frozenset(self.gone)
        return (entry for entry in heapq.merge(*parts) if entry.at not in gone)

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


def _entries(run: Run, begin: int) -> Iterator[Entry]:
    for chunk in run.chunks(begin, LISTED):
        for row in chunk.tolist():
            yield Entry(*row)
