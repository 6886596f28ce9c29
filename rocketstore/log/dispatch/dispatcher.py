"""Dispatch: from the log to consume queues and index (RocketMQ's "reput").

The worker waits and dispatches natively (`_native.dispatch.dispatch_service`) and returns to Python for what
the loop cannot do. A reader that needs newer units runs the dispatcher itself; a lock lets one
thread at a time dispatch. The position moves only over records whose unit and keys are written.
What stops dispatch (a full disk, a damaged record) is tried again in the next round (K-55, K-57).
"""

from __future__ import annotations

import errno
import logging
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final

from rocketstore._native.dispatch import dispatch_loop as native
from rocketstore._native.dispatch.dispatch_service import DispatchService
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.positions import Positions
from rocketstore.errors import RocketStoreError
from rocketstore.log.dispatch.arrival_notifier import ArrivalNotifier
from rocketstore.log.dispatch.gap_budget import GapBudget
from rocketstore.log.dispatch.index_filler import IndexFiller
from rocketstore.log.dispatch.loop_help import LoopHelper
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.positions_page import PositionsPage
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.units import UnitRefusedError
from rocketstore.log.worker import Worker

logger = logging.getLogger(__name__)

__all__ = ["QUEUES", "Dispatcher"]

#: The part of a store that lacks units while dispatch is stopped.
QUEUES: Final = "consume queues"
#: Longest run, bytes, so that readers see records on the way.
RUN_BYTES: Final = 4 << 20
#: Length of the second try, bytes: no limit, for a record that is longer than a run.
ANY_BYTES: Final = 1 << 62
#: Wait before dispatch tries again what was in its way, ms and seconds.
RETRY_MS: Final = 500
RETRY_S: Final = RETRY_MS / 1000
#: Longest time that the worker stays in the native loop, ms. What needs Python ends it before.
SERVE_MS: Final = 5_000


def _start_of(part: tuple[int, int]) -> int:
    return part[0]


class Dispatcher(Worker):
    """The only writer of `positions.dispatched` and `positions.indexed`."""

    def __init__(
        self,
        positions: Positions,
        find: Callable[[int], MappedFile | None],
        queues: ConsumeQueueStore,
        index: IndexStore | None,
        arrival: EventCount,
        *,
        delay_level_ms: Sequence[int],
        multi_dispatch: bool,
        damage: Sequence[tuple[int, int]] = (),
        ignored_topics: Sequence[str] = (),
        listener: ArrivalNotifier | None = None,
        helper_type: Callable[..., LoopHelper] = LoopHelper,
    ) -> None:
        super().__init__("rocketstore-dispatcher", _not_running)
        self._positions = positions
        self._find = find
        self._queues = queues
        self._index = index
        self._arrival = arrival
        self._damage = sorted(damage)
        self._listener = listener
        self._shared: PositionsPage | None = None
        self._stuck: tuple[int, str] | None = None
        self._loop = native.DispatchLoop(
            tuple(delay_level_ms),
            multi_dispatch=multi_dispatch,
            report_arrivals=listener is not None,
        )
        self.service = DispatchService(self._loop, positions, arrival)
        self._helper = helper_type(
            self._loop, positions, find, queues, index, listener, ignored_topics
        )
        self._index_off = False  # keys go nowhere: the index is degraded, or filled again
        self._index_retry_at = 0.0
        if index is not None:
            index.when_degraded(self._stop_indexing)

    # ---- running ----

    def step(self) -> float | None:
        """Dispatches what is visible; tries again after `RETRY_S` if something is in the way."""
        natively = self._listener is None and not self.service.paused
        self.catch_up(self._positions.visible, short=natively)
        if self._index_off:
            self._fill_index()
        if self._stuck is not None:
            return RETRY_S
        segment = self._find(self._positions.dispatched)
        if segment is None or not natively:
            return RETRY_S if self._index_off else None
        page = None if (shared := self._shared) is None or shared.lost else shared.positions
        indexing = not self._index_off
        limit_ms = SERVE_MS if indexing else RETRY_MS
        self.service.serve(self.signal, segment, page, limit_ms, indexing)
        if shared is not None:
            shared.publish(self._positions)
        return 0

    def stop(self, timeout_s: float | None = None) -> bool:
        self.service.paused = True
        return super().stop(timeout_s)

    def finish(self) -> None:
        self.catch_up(self._positions.visible)

    def attach(
        self, signal: EventCount, shared: PositionsPage, on_failure: Callable[[BaseException], None]
    ) -> None:
        """Called once for a writing store, before start(): the event that wakes the worker, the
        positions page of other processes, and what to call when the worker fails."""
        self.service.help_at(signal)
        self.signal, self._shared = signal, shared
        self._on_failure = on_failure

    def start_at(self, dispatched: int, indexed: int) -> None:
        """Sets both positions; called once, before the first round."""
        self._positions.dispatched = dispatched
        self._positions.indexed = indexed
        self._helper.point_index(indexed)

    def begin_at(self, offset: int, begin_log: Callable[[], None]) -> None:
        """`begin_log` has an empty log begin at `offset`, while nothing is dispatched."""
        with self.service.turn():
            begin_log()
            self.start_at(offset, offset)

    def bound_gaps(self, gaps: GapBudget | None, begin: int = 0) -> None:
        """Queue offsets that jump fill no more units than `gaps` has left, and none before a record
        below the physical offset `begin`, up to which an earlier dispatch has decided. None: what
        the log gets now is our own."""
        self._helper.bound_gaps(gaps, begin)

    @property
    def stuck(self) -> tuple[int, str] | None:
        """(physical offset, why) while dispatching cannot go on, else None."""
        return self._stuck

    @property
    def behind(self) -> tuple[tuple[str, str], ...]:
        """What lacks messages of the log and why, (part, reason): queues, the key index."""
        found = []
        if self._stuck is not None and self._positions.dispatched < self._positions.visible:
            offset, why = self._stuck
            found.append((QUEUES, f"dispatch stands at physical offset {offset}: {why}"))
        found += self._queues.blocked.behind
        if self._index is not None and self._index.short is not None:
            found.append(("key index", self._index.short))
        return tuple(found)

    def catch_up(self, target_offset: int, *, once: bool = False, short: bool = False) -> int:
        """Dispatches up to `target_offset`, at most to `visible`; returns how far it got.

        `once`: one run only. `short`: one so small that it keeps the GIL. Inside a signal's handler that
        interrupted its own thread's dispatching it does nothing; the interrupted call goes on.
        """
        sizes = [RUN_BYTES, ANY_BYTES]
        if short:
            sizes.insert(0, native.SHORT_RUN_BYTES)
        with self.service.turn() as nested:
            if nested:
                return self._positions.dispatched
            target = min(target_offset, self._positions.visible)
            while self._positions.dispatched < target:
                before = after = self._positions.dispatched
                for size in sizes:
                    if after == before:
                        after = self._walk(before, min(target, before + size))
                self._publish(after)
                if after == before or once or short:
                    break
            return self._positions.dispatched

    def settle(self) -> None:
        """Called where a recovered log is dispatched: decides what its end decides."""
        with self.service.turn():
            self._helper.settle()
            self._loop.publish_moved()

    def _publish(self, offset: int) -> None:
        self._loop.publish_moved()
        moved = offset > self._positions.dispatched
        self._positions.dispatched = offset
        if not self._index_off:
            self._positions.indexed = max(self._positions.indexed, offset)
        if self._shared is not None:
            self._shared.publish(self._positions)
        if moved:
            self._arrival.notify()
        self._helper.hand_over_arrivals()

    def _walk(self, offset: int, target: int) -> int:
        """One pass from `offset`; returns how far it got: past `target` if the last record is
        longer, or a blank follows."""
        goes_on = True
        while goes_on and offset < target:
            segment = self._find(offset)
            if segment is None:
                goes_on, offset = self.skip_damage(offset)
                continue
            reason, offset = self._loop.run(segment, offset, target)
            if reason == native.DONE:
                self._stuck = None
                goes_on = offset >= min(target, segment.end_offset)
            elif reason == native.END and self._damage_at(offset) == offset:
                goes_on, offset = self._leave_segment(segment, offset)
            elif reason == native.FAULT:
                goes_on = self._faulted(offset)
            elif reason in (native.END, native.BAD_RECORD):  # zeros before records are damage
                goes_on, offset = self.skip_damage(offset)
            else:
                goes_on, offset = self._help(reason, offset)
        return offset

    def _leave_segment(self, segment: MappedFile, offset: int) -> tuple[bool, int]:
        """Whether there is a next segment to go to, and where it begins."""
        end, visible = segment.end_offset, self._positions.visible
        if self._find(end) is None and end > visible:
            return False, offset
        return True, min(end, visible)

    def skip_damage(self, offset: int) -> tuple[bool, int]:
        """Whether recovery noted damage at `offset`, and where the damage ends."""
        end = self._damage_at(offset)
        if end > offset:
            return True, end
        self._stop_at(offset, f"no record that can be believed ({self._loop.status})")
        return False, offset

    def _damage_at(self, offset: int) -> int:
        """The end of the damage that recovery noted at `offset`; `offset` where it noted none."""
        before = bisect_right(self._damage, offset, key=_start_of)
        return max(offset, self._damage[before - 1][1]) if before else offset

    def _help(self, reason: int, offset: int) -> tuple[bool, int]:
        """Does what the loop cannot do itself. Returns whether dispatching goes on, and where."""
        try:
            self._helper.help(reason)
        except UnitRefusedError as error:
            return True, self._helper.pass_over(offset, error)
        except (OSError, RocketStoreError, ValueError) as error:
            self._stop_at(offset, str(error))
            return False, offset
        return True, offset

    def _stop_at(self, offset: int, why: str) -> None:
        if self._stuck != (offset, why):
            logger.error("dispatch stops at physical offset %d: %s", offset, why)
        self._stuck = (offset, why)

    def _faulted(self, offset: int) -> bool:
        """A page of a mapped file cannot be read: the disk failed, or the file was cut. Returns
        whether dispatching goes on, which it does without an index; the log's own failure is for
        the appender to report."""
        where = self._loop.faulted
        cause = OSError(errno.EIO, f"a page of the {where} could not be had (SIGBUS)")
        if where == "index" and self._index is not None:
            self._index.degrade(cause)
            self._helper.point_index(self._positions.indexed)
            return True
        if where == "queue":
            self._queues.degrade(cause)
        self._stop_at(offset, str(cause))
        return False

    # ---- an index that stood ----

    def _stop_indexing(self) -> None:
        self._index_off, self._index_retry_at = True, time.monotonic() + RETRY_S
        self.service.stop_indexing()
        self.wake()  # a sync may have failed: this thread tries again

    def _fill_index(self) -> None:
        """Brings an index that stood up to what is dispatched, where there is room again."""
        index, positions = self._index, self._positions
        if index is None or time.monotonic() < self._index_retry_at:
            return
        self._index_retry_at = time.monotonic() + RETRY_S
        if index.degraded is not None and not index.try_again(positions.indexed):
            return
        filler = IndexFiller(self._find, self._damage_at, index)
        while index.degraded is None and not self.service.paused:
            with self.service.turn():
                begin = max(positions.indexed, positions.minimum)  # trimmed away meanwhile
                end = positions.dispatched
                if begin >= end:
                    self._go_on_indexing(index)
                    return
                reached = filler.step(begin, end)
                if index.degraded is None:
                    positions.indexed = reached
                self._publish(end)
            if reached <= begin:
                return

    def _go_on_indexing(self, index: IndexStore) -> None:
        self._helper.point_index(self._positions.indexed)
        self._index_off = False
        self.service.go_on_indexing()
        index.filled()

    # ---- syncing ----

    def sync_queues(self) -> bool:
        """Forces every unit written so far; True when all of them are on disk. False where a queue
        takes none: then the next open looks for the units that it lacks."""
        if self._queues.blocked.places:
            return False
        with self.service.turn():
            dirty = self._loop.take_dirty()
        return self._queues.sync([(os.fsdecode(raw), i, low, end) for raw, i, low, end in dirty])

    def close(self) -> None:
        """Ends the notifier's thread, after the waiting calls."""
        if self._listener is not None:
            self._listener.close()


def _not_running(error: BaseException) -> None:
    """Raises: before `attach` no thread runs the worker."""
    raise error
