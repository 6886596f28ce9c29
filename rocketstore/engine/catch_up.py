"""Brings queues and index up to the end of a recovered log; a kill does not lose the progress."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rocketstore._native.sync.positions import Positions
from rocketstore.errors import StoreBehindError
from rocketstore.log.commitlog.checkpoint import NOT_INDEXED, CheckpointFile, OwnCheckpoint
from rocketstore.log.dispatch.dispatcher import QUEUES, Dispatcher
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore, digest_below
from rocketstore.log.recovery.progress import drop_progress
from rocketstore.values.arguments import Progress

__all__ = ["CatchUp", "dispatch_for_reader"]

#: Log between two stored checkpoints, bytes; a kill repeats no more work than this.
STEP_BYTES: Final = 256 << 20
#: Least log for which queue files are preallocated, bytes; less hardly fills one file.
AHEAD_BYTES: Final = 32 << 20


def dispatch_for_reader(
    dispatcher: Dispatcher, path: str, check_open: Callable[[], None], target: int
) -> None:
    """Dispatches up to `target` for a reader that has seen all before it.

    Raises:
        StoreClosedError: the store closes meanwhile.
        StoreBehindError: dispatch is stopped before it, so what the reader asks for may be hidden.
    """
    before, after = -1, 0
    while before < after < target:
        check_open()
        before, after = after, dispatcher.catch_up(target, once=True)
    if after >= target:
        return
    for part, why in dispatcher.behind:
        if part == QUEUES:
            raise StoreBehindError(path, part, why)


@dataclass(slots=True)
class CatchUp:
    """One catch-up. `file` None: nothing on disk may change."""

    layout: StoreLayout
    positions: Positions
    queues: ConsumeQueueStore
    #: Our checkpoint as it is on disk.
    checkpoint: OwnCheckpoint
    on_progress: Progress | None = None
    file: CheckpointFile | None = None

    def run(self, dispatcher: Dispatcher, index: IndexStore | None, end: int) -> None:
        """Dispatches up to `end`, or up to where dispatching is stuck."""
        if self.file is None or end - self.positions.dispatched < AHEAD_BYTES:
            self._run(dispatcher, index, end)
            return
        with self.queues.preallocating():
            self._run(dispatcher, index, end)

    def _run(self, dispatcher: Dispatcher, index: IndexStore | None, end: int) -> None:
        positions, begin = self.positions, self.positions.dispatched
        while True:
            before = positions.dispatched
            after = dispatcher.catch_up(min(end, before + STEP_BYTES))
            dispatcher.settle()
            if self.on_progress is not None and end > begin:
                self.on_progress("queues and index", after - begin, end - begin)
            if after >= end or after == before:
                break
            self._save(dispatcher, index)
        if self.file is not None and self.layout.recovery.exists():
            self._save(dispatcher, index)
            drop_progress(self.layout)

    def _save(self, dispatcher: Dispatcher, index: IndexStore | None) -> None:
        """Units and entries are synced before our checkpoint speaks of them (D-18)."""
        if self.file is None:
            return
        last, positions = self.checkpoint, self.positions
        dispatched, indexed = last.dispatched, last.indexed
        if dispatcher.sync_queues():
            dispatched = min(positions.dispatched, last.flushed)
        if index is None:
            indexed = NOT_INDEXED
        elif index.sync():
            indexed = min(positions.indexed, last.flushed)
        count, digest = digest_below(self.queues, dispatched)
        self.checkpoint = dataclasses.replace(
            last,
            generation=last.generation + 1,
            dispatched=dispatched,
            indexed=indexed,
            queue_count=count,
            queues_digest=digest,
            index_files=0 if index is None else index.needed_count(0, indexed),
        )
        self.file.store(self.checkpoint)
