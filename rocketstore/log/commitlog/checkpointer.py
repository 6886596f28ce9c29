"""Stores how far the store is durable: our checkpoint each second, and RocketMQ's with it.

The order matters (D-17, D-18): capture offsets, sync the files they speak of, then store them.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.commitlog.checkpoint import (
    NOT_INDEXED,
    CheckpointFile,
    OwnCheckpoint,
    RocketmqCheckpoint,
    RocketmqTimes,
    fingerprint,
)
from rocketstore.log.commitlog.commit_log import CommitLog
from rocketstore.log.worker import Worker

logger = logging.getLogger(__name__)

#: Interval of saves, seconds and bytes of log (D-14): the most that recovery checks again.
INTERVAL_S = 1.0
EVERY_BYTES = 64 << 20
SLOW_SYNC_MS = 500


class SyncedIndex(Protocol):
    """The index files, as far as a checkpoint asks for them."""

    def sync(self) -> bool:
        """Syncs the files. False: one of them could not be synced."""

    def needed_count(self, minimum: int, indexed: int) -> int:
        """Count of files with entries of records in [minimum, indexed)."""


class Checkpointer(Worker):
    """Keeper of both checkpoint files of one store."""

    def __init__(
        self,
        commit_log: CommitLog,
        own: CheckpointFile,
        rocketmq: RocketmqCheckpoint,
        template: OwnCheckpoint,
        on_failure: Callable[[BaseException], None],
        *,
        sync_queues: Callable[[], bool],
        queues_digest: Callable[[], tuple[int, int]],
        index: SyncedIndex | None,
        queue_flush_interval_ms: int,
        every_second: Sequence[Callable[[], None]],
    ) -> None:
        super().__init__("rocketstore-checkpointer", on_failure)
        self._commit_log = commit_log
        self._sync_queues = sync_queues
        self._queues_digest = queues_digest
        self._index = index
        self._own = own
        self._rocketmq = rocketmq
        self._last = template
        self.queue_flush_interval_ms = queue_flush_interval_ms
        self._every_second = every_second
        self._save_lock = SignalSafeLock("the progress that is saved", reentrant=False)
        self._next_queue_flush = time.monotonic()
        self._marks: list[tuple[int, int, int]] = []  # (end, start of the last record, store time)
        #: Bounds of the log at the last save that synced what is derived: none is due before they move.
        self._settled: tuple[int, ...] = ()

    def step(self) -> float | None:
        """One round, each second."""
        for call in self._every_second:
            call()
        derived = time.monotonic() >= self._next_queue_flush
        if derived:
            self._next_queue_flush = time.monotonic() + self.queue_flush_interval_ms / 1000
        if self._bounds() != self._settled:
            self.save(derived=derived)
        return INTERVAL_S

    def _bounds(self) -> tuple[int, ...]:
        positions = self._commit_log.positions
        ends = positions.wrote, positions.flushed, positions.dispatched, positions.indexed
        return self._commit_log.begin_offset, *ends

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        """Logs a slow sync. No caller waits for it, but the log grows meanwhile."""
        began = time.monotonic()
        yield
        elapsed = (time.monotonic() - began) * 1000
        if elapsed > SLOW_SYNC_MS:
            directory = self._commit_log.queue.directory
            logger.warning("%s: a sync of %s took %.0f ms", directory, what, elapsed)

    def _note_end(self) -> None:
        end, last_record_start, store_time = self._commit_log.log.snapshot()
        if not self._marks or self._marks[-1][0] < end:
            self._marks.append((end, last_record_start, store_time))
        flushed = self._commit_log.positions.flushed
        while len(self._marks) > 1 and self._marks[1][0] <= flushed:
            self._marks.pop(0)

    def save(
        self, *, derived: bool, clean: bool = False, minimum: int | None = None
    ) -> OwnCheckpoint:
        """Remembers where a record ends, and stores the newest remembered end that has become
        durable; with `derived` queue and index files are synced first."""
        with self._save_lock():
            self._note_end()
            try:
                bounds = self._bounds()
                saved = self._save(derived, clean, minimum)
                synced = saved.dispatched, saved.indexed
                if derived and synced == (
                    min(bounds[3], saved.flushed),
                    NOT_INDEXED if self._index is None else min(bounds[4], saved.flushed),
                ):
                    self._settled = bounds
                return saved
            except OSError as error:
                self._on_failure(error)  # D-13: no later save, from any thread
                raise

    def _save(self, derived: bool, clean: bool, minimum: int | None) -> OwnCheckpoint:
        positions = self._commit_log.positions
        last = self._last
        dispatched, indexed = last.dispatched, last.indexed
        queue_names = last.queue_count, last.queues_digest
        if derived:
            # Captured before the sync, which does not cover what is dispatched meanwhile.
            dispatched_now, indexed_now = positions.dispatched, positions.indexed
            names_now = self._queues_digest()
            with self._timed("queue files"):
                queues = self._sync_queues()
            with self._timed("index files"):
                index = self._index is None or self._index.sync()
            # The flushed position itself may lie within a record, between two steps of a long
            # flush.
            end = self._durable_mark()[0]
            if queues:
                dispatched = min(dispatched_now, end)
                queue_names = names_now
            else:
                clean = False
            if self._index is None:
                indexed = NOT_INDEXED
            elif index:
                indexed = min(indexed_now, end)
            else:
                clean = False  # only an unclean open rebuilds degraded files
        end, last_record_start, store_time = self._durable_mark()
        changes: dict[str, Any] = {
            "dispatched": dispatched,
            "indexed": indexed,
            "queue_count": queue_names[0],
            "queues_digest": queue_names[1],
        }
        if derived:
            needed = 0 if self._index is None else self._index.needed_count(minimum or 0, indexed)
            changes["index_files"] = needed
        if end >= last.flushed:
            changes |= fingerprint(self._commit_log.queue, end, last_record_start)
            changes |= {"flushed": end, "last_store_timestamp_ms": store_time}
        new = dataclasses.replace(
            last,
            **changes,
            minimum=max(last.minimum, minimum or self._commit_log.begin_offset),
            clean=clean,
        )
        if dataclasses.replace(new, generation=last.generation) != last:
            new = dataclasses.replace(new, generation=last.generation + 1)
            with self._timed("the checkpoint"):
                self._own.store(new)
            self._last = new  # also if the next line fails: this generation is taken
            units = last_record_start if derived and new.dispatched >= end else None
            self._store_rocketmq(store_time if end >= last.flushed else 0, units, derived=derived)
        return self._last

    def _durable_mark(self) -> tuple[int, int, int]:
        """The newest remembered record end that is flushed."""
        flushed = self._commit_log.positions.flushed
        best = (
            self._last.flushed,
            self._last.last_record_start,
            self._last.last_store_timestamp_ms,
        )
        for mark in self._marks:
            if best[0] < mark[0] <= flushed:
                best = mark
        return best

    def _store_rocketmq(self, store_time: int, units: int | None, *, derived: bool) -> None:
        """Times that are truly forced, as RocketMQ expects them (format.md 8, 17). `units`: start
        of the last record if its queue units, and those before it, are forced; -1: not known."""
        physic, logics, index, master, confirm, offset = self._rocketmq.load()
        offset = offset if units is None else max(0, units)
        if 0 < store_time < physic:
            # Store times fell (D-28). The older, greater time would vouch for queue units of later
            # records, and RocketMQ's recovery would begin too late. The index time stays: RocketMQ
            # deletes index files that end after it.
            logics = 0
        physic = store_time or physic
        positions = self._commit_log.positions
        if derived and positions.dispatched >= positions.flushed:
            logics = store_time or logics
            index = max(index, store_time)
        self._rocketmq.store(RocketmqTimes(physic, logics, index, master, confirm, offset))

    def begin(self) -> None:
        """The first save of a run: removes the clean mark of the last run. Both files have their
        blocks then: no later save needs room."""
        with self._save_lock():
            self._rocketmq.reserve()
            self._last = dataclasses.replace(
                self._last, clean=False, generation=self._last.generation + 1
            )
            self._own.store(self._last)
            self._bound_rocketmq()

    def _bound_rocketmq(self) -> None:
        """RocketMQ's recovery begins at the file of the last record whose units are forced. After a
        cut that record is gone, and the units of others in its place are not forced."""
        times = self._rocketmq.load()
        if not 0 <= times.logics_offset <= max(0, self._last.last_record_start):
            self._rocketmq.store(times._replace(logics_offset=0))

    @property
    def last(self) -> OwnCheckpoint:
        """Our checkpoint as it is on disk now."""
        return self._last

    def close_clean(self) -> bool:
        """The last save of a clean stop: everything is flushed and dispatched by now. False when a
        derived file is degraded, perhaps by this very save: then it is no clean stop (D-13)."""
        return self.save(derived=True, clean=True).clean

    def close(self) -> None:
        try:
            self._own.close()
        finally:
            self._rocketmq.close()
