"""Dispatch: from the log to consume queues and index (RocketMQ's "reput").

The worker serves natively when something has become visible (`_native.dispatch_service`) and comes here
for what needs Python; a reader that is behind runs it itself. One turn, so one at a time.
The position moves only over records whose unit and keys are written: whatever stops it
(a full disk, a damaged record) is met again in the next round (K-55, K-57).
"""

from __future__ import annotations

import errno
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rocketstore._native import dispatcher as native
from rocketstore._native.codec import decode_properties
from rocketstore._native.dispatch_service import DispatchService
from rocketstore.errors import RocketStoreError
from rocketstore.log.dispatch.first_unit import first_stays
from rocketstore.log.layout.paths import is_safe_topic
from rocketstore.log.queues.extension_units import is_address
from rocketstore.log.queues.mapping_cache import POINTED_MAX
from rocketstore.log.queues.multi_dispatch import check_place, is_listed, listed_queues
from rocketstore.log.queues.units import UnitRefusedError
from rocketstore.log.worker import Worker
from rocketstore.values.plural import counted

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile
    from rocketstore._native.positions import Positions
    from rocketstore._native.waiting import Signal
    from rocketstore.log.dispatch.arrival_notifier import ArrivalCaller
    from rocketstore.log.index.store import IndexStore
    from rocketstore.log.layout.positions_page import PositionsPage
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

logger = logging.getLogger(__name__)

__all__ = ["Dispatcher"]

#: Records are taken in runs of at most this much, so that readers see them on the way.
RUN_BYTES = 4 << 20
RETRY_S = 0.5
#: The worker looks around in Python at least so often.
SERVE_MS = 1_000


class Dispatcher(Worker):
    """Moves `positions.dispatched` and `positions.indexed`. Nothing else does."""

    def __init__(
        self,
        positions: Positions,
        find: Callable[[int], MappedFile | None],
        queues: ConsumeQueueStore,
        index: IndexStore | None,
        arrival: Signal,
        *,
        delay_level_ms: Sequence[int],
        multi_dispatch: bool,
        damage: Sequence[tuple[int, int]] = (),
        ignored_topics: Sequence[str] = (),
        listener: ArrivalCaller | None = None,
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
        self._pointed: OrderedDict[tuple[bytes, int], None] = OrderedDict()  # the oldest first
        self._known: set[tuple[bytes, int]] = set()
        self._unsafe: set[bytes] = set()
        self._refused: set[tuple[bytes, int]] = set()
        self._ignored = frozenset(map(os.fsencode, ignored_topics))
        self._stuck: tuple[int, str] | None = None
        self._loop = native.DispatchLoop(
            tuple(delay_level_ms),
            multi_dispatch=multi_dispatch,
            report_arrivals=listener is not None,
        )
        self._service = DispatchService(self._loop, positions, arrival)
        if index is not None:
            index.when_degraded(self._service.stop_indexing)

    # ---- running ----

    def step(self) -> float | None:
        """Dispatches what is visible; tries again in a while when something is in the way."""
        natively = self._listener is None and not self._service.paused
        self.catch_up(self._positions.visible, short=natively)
        if self._stuck is not None:
            return RETRY_S
        segment = self._find(self._positions.dispatched)
        if segment is None or not natively:
            return None
        shared = self._shared
        page = None if shared is None or shared.lost else shared.positions
        self._service.serve(self.signal, segment, page, SERVE_MS)
        if shared is not None:
            shared.publish(self._positions)
        return 0

    def stop(self, timeout_s: float | None = None) -> bool:
        self._service.paused = True
        return super().stop(timeout_s)

    def finish(self) -> None:
        self.catch_up(self._positions.visible)

    def attach(
        self, signal: Signal, shared: PositionsPage, on_failure: Callable[[BaseException], None]
    ) -> None:
        """What a running store adds, before start(): its waker, the page for others, whom to fail."""
        self.signal = signal
        self._shared = shared
        self._on_failure = on_failure

    def start_at(self, dispatched: int, indexed: int) -> None:
        """Where dispatching goes on: set once, before the first round."""
        self._positions.dispatched = dispatched
        self._positions.indexed = indexed
        self._point_index(indexed)

    @property
    def stuck(self) -> tuple[int, str] | None:
        """(physical offset, why) while dispatching cannot go on, else None."""
        return self._stuck

    def catch_up(self, target_offset: int, *, short: bool = False) -> int:
        """Dispatches up to `target_offset`, at most the visible end; returns how far it got.
        `short`: only what stands there first, in a run that keeps the GIL. Inside a signal's handler that came
        while its own thread dispatches: nothing; that one goes on behind it."""
        with self._service.turn as nested:
            if nested:
                return self._positions.dispatched
            target = min(target_offset, self._positions.visible)
            sizes = [RUN_BYTES, 1 << 62]  # a record may be longer
            while self._positions.dispatched < target:
                before = after = self._positions.dispatched
                for size in [native.SHORT_RUN_BYTES, *sizes] if short else sizes:
                    if after == before:
                        after = self._walk(before, min(target, before + size))
                self._publish(after)
                if after == before or short:
                    break
            return self._positions.dispatched

    def _publish(self, offset: int) -> None:
        self._loop.publish_moved()
        moved = offset > self._positions.dispatched
        self._positions.dispatched = offset
        if self._index is None or self._index.degraded is None:
            self._positions.indexed = max(self._positions.indexed, offset)
        if self._shared is not None:
            self._shared.publish(self._positions)
        if moved:
            self._arrival.notify()
        if self._listener is not None:
            self._listener.hand_over(self._loop.take_arrivals())

    def _walk(self, offset: int, target: int) -> int:
        """One pass from `offset`; how far it got: beyond `target` where a record stands there, or a blank."""
        limit = self._positions.visible
        while offset < target:
            segment = self._find(offset)
            if segment is None:
                following = self._skip_damage(offset)
                if following == offset:
                    return offset
                offset = following
                continue
            reason, offset = self._loop.run(segment, offset, target)
            if reason == native.DONE:
                self._stuck = None
                if offset < min(target, segment.end_offset):
                    return offset
                continue
            if reason == native.FAULT:
                if not self._faulted(offset):
                    return offset
                continue
            if reason == native.END:
                if self._find(segment.end_offset) is None and segment.end_offset > limit:
                    return offset
                offset = min(segment.end_offset, limit)
                continue
            try:
                if not self._mend(reason, offset):
                    skipped = self._skip_damage(offset)
                    if skipped == offset:
                        return offset
                    offset = skipped
            except UnitRefusedError as error:
                offset = self._pass_over(offset, error)
            except (OSError, RocketStoreError, ValueError) as error:
                self._stop_at(offset, str(error))
                return offset
        return offset

    def _skip_damage(self, offset: int) -> int:
        for start, end in self._damage:
            if start <= offset < end:
                return end
        self._stop_at(offset, f"no record that can be believed ({self._loop.status})")
        return offset

    def _stop_at(self, offset: int, why: str) -> None:
        if self._stuck != (offset, why):
            logger.error("dispatch stops at physical offset %d: %s", offset, why)
        self._stuck = (offset, why)

    def _pass_over(self, offset: int, error: UnitRefusedError) -> int:
        """Behind a record whose queue offset cannot be: it gets no unit, and holds no other queue up."""
        raw, queue_id, _, _, size, *_ = self._loop.current()
        if (raw, queue_id) not in self._refused:
            self._refused.add((raw, queue_id))
            logger.warning("the record at %d, and perhaps more, gets no unit: %s", offset, error)
        return offset + size

    def _faulted(self, offset: int) -> bool:
        """A page of a mapped file could not be had: the disk failed, or the file was cut. Whether
        dispatching goes on, which it does without an index; the log's own failure is for its writer."""
        where = self._loop.faulted
        cause = OSError(errno.EIO, f"a page of the {where} could not be had (SIGBUS)")
        if where == "index" and self._index is not None:
            self._index.degrade(cause)
            self._point_index(self._positions.indexed)
            return True
        if where == "queue":
            self._queues.degrade(cause)
        self._stop_at(offset, str(cause))
        return False

    # ---- what the loop cannot do itself ----

    def _mend(self, reason: int, offset: int) -> bool:
        """Makes the loop able to go on at `offset`; False for a record that cannot be believed."""
        if reason == native.ARRIVALS:
            if self._listener is not None:
                self._listener.hand_over(self._loop.take_arrivals())
            return True
        if reason == native.INDEX_FILE:
            return self._roll_index()
        if reason == native.BAD_RECORD:
            return False
        current = self._loop.current()
        raw, queue_id, queue_offset, physical_offset, size, tags, stored_ms, properties = current
        if reason == native.NEW_QUEUE:
            self._new_queue(raw, queue_id, queue_offset)
        elif reason == native.LIGHT:
            if is_listed(os.fsdecode(raw)):
                self._put_lights(queue_id, (physical_offset, size, tags), stored_ms, properties)
            self._loop.lights_written()
        else:
            queue = self._queue(raw, queue_id)
            if reason == native.GAP:
                self._fill_gap(queue, raw, queue_offset)
            elif reason == native.CONFLICT:
                # Else what the loop has written since would be a gap in front of this unit.
                queue.publish(self._loop.next_offset(raw, queue_id))
                self._overwrite(queue, queue_offset, physical_offset, size, tags)
            self._point(queue, raw, queue_offset)
        return True

    def _queue(self, raw: bytes, queue_id: int) -> ConsumeQueue:
        topic = raw.decode("utf-8", "surrogateescape")
        return self._queues.add(topic, queue_id)

    def _new_queue(self, raw: bytes, queue_id: int, queue_offset: int) -> None:
        if self._listener is not None:
            self._listener.hand_over(self._loop.take_arrivals())
        if not is_safe_topic(raw) or queue_id < 0:
            # No directory for such a name; the record stays readable by its physical offset.
            if raw not in self._unsafe:
                self._unsafe.add(raw)
                logger.warning("topic %r of a stored record cannot be a directory: no queue", raw)
            self._loop.ignore_queue(raw, queue_id)
            return
        if raw in self._ignored:
            self._loop.ignore_queue(raw, queue_id)
            return
        queue = self._queue(raw, queue_id)
        self._loop.add_queue(raw, queue_id, queue.written_end, queue.end)
        self._known.add((raw, queue_id))

    def _fill_gap(self, queue: ConsumeQueue, raw: bytes, queue_offset: int) -> None:
        if queue.files:
            queue.publish(self._loop.next_offset(raw, queue.queue_id))
            filled = queue.fill_gap(queue_offset)
            if filled:  # else the open has filled it (`made_anew`)
                logger.warning(
                    "%s/%d: no record for %s in front of %d, filled with pre-blanks",
                    queue.topic, queue.queue_id, counted(filled, 'queue offset'), queue_offset,
                )  # fmt: skip
        else:
            queue.room_for(queue_offset)  # pre-blanks up to the queue's first message (format 6.3)
        self._loop.set_next(raw, queue.queue_id, queue_offset)

    def _overwrite(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size: int, tags: int
    ) -> None:
        """The log is the truth: a unit that says otherwise is a leftover. The address of an extension unit
        gives way to the tags code itself, without a word: a queue may be full of them."""
        if first_stays(queue, queue_offset, physical_offset, self._find):
            self._loop.unit_kept = physical_offset
            return
        there = queue.unit(queue_offset)
        if there is None or there[:2] != (physical_offset, size) or not is_address(there[2]):
            logger.warning(
                "%s/%d: unit %d pointed to %s, the log says %d: rewritten",
                queue.topic, queue.queue_id, queue_offset, there and there[0], physical_offset,
            )  # fmt: skip
        queue.put(queue_offset, physical_offset, size, tags)

    def _point(self, queue: ConsumeQueue, raw: bytes, queue_offset: int) -> None:
        file, first, limit = queue.room_for(queue_offset)
        self._loop.point(raw, queue.queue_id, file, first, limit)
        self._pointed[raw, queue.queue_id] = None
        self._pointed.move_to_end((raw, queue.queue_id))
        if len(self._pointed) > POINTED_MAX:
            oldest, _ = self._pointed.popitem(last=False)
            self._loop.point(*oldest, None, 0, 0)  # its file stays mapped no longer for the loop

    def _put_lights(
        self, queue_id: int, unit: tuple[int, int, int], stored_ms: int, properties: bytes
    ) -> None:
        """Units in the further queues that a record names (format 6.7); one without a readable offset
        gets none (Q-34)."""
        if self._listener is not None:
            self._listener.hand_over(self._loop.take_arrivals())  # they know queues by their places
        listed = listed_queues(decode_properties(properties), queue_id, unit[0])
        for name, target, offset in listed:
            try:
                self._put_light(name, target, offset, unit)
            except UnitRefusedError as error:
                logger.warning("the record at %d gets no unit there: %s", unit[0], error)
                continue
            if self._listener is not None:
                self._listener.hand_over([(name, target, offset + 1, unit[2], stored_ms)])

    def _put_light(
        self, name: str, queue_id: int, queue_offset: int, unit: tuple[int, int, int]
    ) -> None:
        raw = os.fsencode(name)
        queue = self._queue(raw, queue_id)
        if (raw, queue_id) in self._known:  # the loop writes units ahead of what the queue tells of
            queue.publish(self._loop.next_offset(raw, queue_id))
        if check_place(queue, queue_offset, unit[0]) != unit:
            if not queue.files:
                queue.room_for(queue_offset)
            queue.put(queue_offset, *unit)
        if (raw, queue_id) not in self._known:
            self._loop.add_queue(raw, queue_id, queue.written_end, queue.end)
            self._known.add((raw, queue_id))
        self._loop.advance(raw, queue_id, queue_offset)

    # ---- index ----

    def _point_index(self, indexed: int) -> None:
        if self._index is None or self._index.degraded is not None:
            self._loop.no_index()
            return
        target = self._index.target
        if target is None:
            self._loop.set_index(None, 0, 0, indexed)  # the first key asks for a file
        else:
            self._loop.set_index(target.file, target.slots, target.limit, indexed)

    def _roll_index(self) -> bool:
        """Room for more keys, or none when the index is degraded: queues go on without it (K-58)."""
        assert self._index is not None
        self._index.make_room()
        self._point_index(self._positions.indexed)
        return True

    # ---- syncing ----

    def sync_queues(self) -> bool:
        """Forces every unit written so far; True when all of them are on disk."""
        with self._service.turn:
            dirty = self._loop.take_dirty()
        return self._queues.sync([(os.fsdecode(raw), i, low, end) for raw, i, low, end in dirty])

    def close(self) -> None:
        """Ends the thread of the listener, which hears what is left first."""
        if self._listener is not None:
            self._listener.close()


def _not_running(error: BaseException) -> None:
    """Before attach() nobody runs the worker."""
    raise error
