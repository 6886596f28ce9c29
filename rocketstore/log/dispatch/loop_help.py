"""What the native dispatch loop cannot do itself: new queues and files, gaps, conflicts, further
queues.

The loop stops with a reason at a record; `LoopHelper.help` does what that reason asks for, and the
loop goes on at the same record. Only the thread that has the dispatcher's turn comes here.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from rocketstore._native.dispatch import dispatch_loop as native
from rocketstore._native.format.codec import decode_properties
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.positions import Positions
from rocketstore.log.dispatch.arrival_notifier import ArrivalNotifier
from rocketstore.log.dispatch.gap_budget import GapBudget
from rocketstore.log.dispatch.generations import Restarts, first_stays, is_of_older_numbering
from rocketstore.log.dispatch.unit_records import Unit
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.paths import is_safe_topic
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.extension_units import is_address
from rocketstore.log.queues.mapping_cache import POINTED_MAX
from rocketstore.log.queues.multi_dispatch import (
    LIGHT_PREFIX,
    check_unit,
    is_multi_dispatched,
    record_queues,
)
from rocketstore.log.queues.units import UnitRefusedError
from rocketstore.values.plural import counted

logger = logging.getLogger(__name__)

__all__ = ["LoopHelper"]

#: Errors of the files and directories of one queue: they hold up no other queue.
BLOCKING: Final = (NotADirectoryError, IsADirectoryError, FileExistsError, PermissionError)


class _Record(NamedTuple):
    """A record as `DispatchLoop.current` returns it."""

    topic: bytes
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp_ms: int
    properties: bytes


class LoopHelper:
    """Gives the loop queues, files and an index file; writes the units that need a decision.

    A rebuild of a part of the log overrides the decisions: `new_queue`, `overwrite`, `put_unit`,
    `pass_over`.
    """

    def __init__(
        self,
        loop: native.DispatchLoop,
        positions: Positions,
        find: Callable[[int], MappedFile | None],
        queues: ConsumeQueueStore,
        index: IndexStore | None,
        listener: ArrivalNotifier | None,
        ignored_topics: Sequence[str],
    ) -> None:
        self._loop = loop
        self._positions = positions
        self._find = find
        self._queues = queues
        self._index = index
        self._listener = listener
        self._ignored = frozenset(map(os.fsencode, ignored_topics))
        self._pointed: OrderedDict[tuple[bytes, int], None] = OrderedDict()  # the oldest first
        self._known: set[tuple[bytes, int]] = set()
        self._unsafe: set[bytes] = set()
        self._refused: set[tuple[bytes, int]] = set()
        self._filled: set[tuple[bytes, int]] = set()
        self._restarts = Restarts()
        self._gaps: GapBudget | None = None
        self._gaps_from = 0

    def bound_gaps(self, gaps: GapBudget | None, begin: int = 0) -> None:
        """From now on gaps are taken from `gaps`, None: without a bound; and none before a record
        below the physical offset `begin`: an earlier dispatch did not believe it."""
        self._gaps, self._gaps_from = gaps, begin

    def help(self, reason: int) -> None:
        """Makes the loop able to go on at the record where it stopped.

        Raises:
            UnitRefusedError: the record's queue offset cannot be; `pass_over` goes to the next one.
            OSError, RocketStoreError, ValueError: dispatch stops here; the next round tries again.
        """
        try:
            HELPERS[reason](self)
        except BLOCKING as error:
            if reason not in OF_A_QUEUE:
                raise
            _pass_by(self, *self._record()[:2], error)

    def pass_over(self, offset: int, error: UnitRefusedError) -> int:
        """Where dispatch goes on after a record whose queue offset cannot be. The record gets no
        unit, and holds no queue up; its keys, and its units in further queues, are its own."""
        record = self._record()
        if (record.topic, record.queue_id) not in self._refused:
            self._refused.add((record.topic, record.queue_id))
            logger.warning("the record at %d, and perhaps more, gets no unit: %s", offset, error)
        if self._loop.unit_kept == record.physical_offset:
            return offset + record.size
        self._loop.unit_kept = record.physical_offset
        return offset

    def _record(self) -> _Record:
        """The record at which the loop stopped."""
        return _Record(*self._loop.current())

    def _queue(self, raw: bytes, queue_id: int) -> ConsumeQueue:
        return self._queues.add(os.fsdecode(raw), queue_id)

    def hand_over_arrivals(self) -> None:
        if self._listener is not None:
            self._listener.hand_over(self._loop.take_arrivals())

    def new_queue(self) -> None:
        """Adds the record's queue to the loop; one that has no directory is passed over from now
        on."""
        raw, queue_id = self._record()[:2]
        self.hand_over_arrivals()
        if not is_safe_topic(raw) or queue_id < 0:
            # No directory for such a name; the record stays readable by its physical offset.
            if raw not in self._unsafe:
                self._unsafe.add(raw)
                logger.warning("topic %r of a stored record cannot be a directory: no queue", raw)
            self._loop.ignore_queue(raw, queue_id)
            return
        if raw in self._ignored or (os.fsdecode(raw), queue_id) in self._queues.blocked.places:
            self._loop.ignore_queue(raw, queue_id)
            return
        queue = self._queue(raw, queue_id)
        self._loop.add_queue(raw, queue_id, queue.written_end, queue.end)
        self._known.add((raw, queue_id))

    def _next_queue_file(self) -> None:
        record = self._record()
        queue = self._queue(record.topic, record.queue_id)
        if not self._passes(queue, record):
            self._point(queue, record)

    def _fill_gap(self) -> None:
        """Pre-blanks for queue offsets that no record in the log has."""
        record = self._record()
        raw, queue_offset = record.topic, record.queue_offset
        queue = self._queue(raw, record.queue_id)
        if self._passes(queue, record):
            return
        if queue.files:
            queue.publish(self._loop.next_offset(raw, queue.queue_id))
            if self._gaps is not None:
                believed = record.physical_offset >= self._gaps_from
                self._gaps.take(queue.name, queue.written_end, queue_offset, believed=believed)
            filled = queue.fill_gap(queue_offset)
            if filled:  # else the open has filled it (`note_rebuilt`)
                # A compacted store has gaps without end: one line a queue.
                again = (raw, queue.queue_id) in self._filled
                self._filled.add((raw, queue.queue_id))
                logger.log(
                    logging.DEBUG if again else logging.WARNING,
                    "%s/%d: no record for %s before %d, filled with pre-blanks",
                    queue.topic, queue.queue_id, counted(filled, 'queue offset'), queue_offset,
                )  # fmt: skip
        else:
            queue.room_for(queue_offset)  # pre-blanks up to the queue's first message (format 6.3)
        self._loop.set_next(raw, queue.queue_id, queue_offset)
        self._point(queue, record)

    def _resolve_conflict(self) -> None:
        """Decides between the record and a unit that was written at its queue offset before."""
        record = self._record()
        queue = self._queue(record.topic, record.queue_id)
        # Else what the loop has written since would be a gap before this unit.
        queue.publish(self._loop.next_offset(record.topic, record.queue_id))
        if self._passes(queue, record):
            return
        unit = record.physical_offset, record.size, record.tags_code
        self.overwrite(queue, record.queue_offset, *unit)
        self._point(queue, record)

    def _passes(self, queue: ConsumeQueue, record: _Record) -> bool:
        """Whether the record is of an older numbering of its queue, and gets no unit."""
        older = is_of_older_numbering(
            queue, record.queue_offset, record.physical_offset, self._find
        )
        if older:
            self._loop.unit_kept = record.physical_offset
        return older

    def overwrite(
        self, queue: ConsumeQueue, queue_offset: int, physical_offset: int, size: int, tags: int
    ) -> None:
        """Writes the record's unit over another one: the log is the truth. The tags code replaces
        the address of an extension unit without a warning: a queue may be full of them."""
        if first_stays(queue, queue_offset, physical_offset, self._find):
            self._loop.unit_kept = physical_offset
            unit = physical_offset, size, tags
            self._begin_again(queue, self._restarts.units(queue, queue_offset, unit))
            return
        there = queue.unit(queue_offset)
        if there is None or there[:2] != (physical_offset, size) or not is_address(there[2]):
            logger.warning(
                "%s/%d: unit %d pointed to %s, the log says %d: rewritten",
                queue.topic, queue.queue_id, queue_offset, there and there[0], physical_offset,
            )  # fmt: skip
        queue.put(queue_offset, physical_offset, size, tags)

    def settle(self) -> None:
        """Called where dispatching has come to the end of the log: what counted up from 0 there is
        the numbering of its queue."""
        for topic, queue_id, end, units in self._restarts.left():
            queue = self._queues.add(topic, queue_id)
            if queue.written_end == end:
                self._begin_again(queue, units)

    def _begin_again(self, queue: ConsumeQueue, units: Sequence[Unit]) -> bool:
        """Gives a queue whose numbering began again the units of the new one, if there are any."""
        if not units:
            return False
        logger.warning(
            "%s: the numbering begins again at 0 with the record at %d; the messages before it are "
            "in the log, and in no queue",
            queue.name, units[0][0],
        )  # fmt: skip
        raw, queue_id = os.fsencode(queue.topic), queue.queue_id
        if (raw, queue_id) in self._known:
            self._loop.point(raw, queue_id, None, 0, 0)
        else:
            self._loop.add_queue(raw, queue_id, 0, queue.end)
            self._known.add((raw, queue_id))
        queue.restart()
        for number, each in enumerate(units):
            queue.put(number, *each)
        self._loop.set_next(raw, queue_id, 0)
        self._loop.advance(raw, queue_id, 0)
        self._loop.set_next(raw, queue_id, len(units))
        return True

    def _point(self, queue: ConsumeQueue, record: _Record) -> None:
        raw = record.topic
        file, first, limit = queue.room_for(record.queue_offset)
        end = queue.written_end
        if is_of_older_numbering(queue, end, record.physical_offset, self._find):
            limit = min(limit, end - first)  # the loop asks before it appends
        self._loop.point(raw, queue.queue_id, file, first, limit)
        self._pointed[raw, queue.queue_id] = None
        self._pointed.move_to_end((raw, queue.queue_id))
        if len(self._pointed) > POINTED_MAX:
            oldest, _ = self._pointed.popitem(last=False)
            self._loop.point(*oldest, None, 0, 0)  # the loop no longer keeps its file mapped

    def _put_lights(self) -> None:
        record = self._record()
        if is_multi_dispatched(os.fsdecode(record.topic)):
            self._put_listed(record)
        self._loop.lights_written()

    def _put_listed(self, record: _Record) -> None:
        """Units in the further queues that a record names (format 6.7); one without a readable
        offset gets none (Q-34)."""
        unit = record.physical_offset, record.size, record.tags_code
        self.hand_over_arrivals()  # they know queues by their places
        properties = decode_properties(record.properties)
        for name, target, offset in record_queues(properties, record.queue_id, unit[0]):
            if (name, target) in self._queues.blocked.places:
                continue
            try:
                self.put_unit(name, target, offset, unit)
            except UnitRefusedError as error:
                logger.warning("the record at %d gets no unit there: %s", unit[0], error)
            except BLOCKING as error:
                _pass_by(self, os.fsencode(name), target, error)
            else:
                if self._listener is not None:
                    arrival = (name, target, offset + 1, unit[2], record.store_timestamp_ms)
                    self._listener.hand_over([arrival])

    def put_unit(
        self, name: str, queue_id: int, queue_offset: int, unit: tuple[int, int, int]
    ) -> None:
        raw = os.fsencode(name)
        queue = self._queue(raw, queue_id)
        if (raw, queue_id) in self._known:
            queue.publish(self._loop.next_offset(raw, queue_id))  # the loop has written some
        if is_of_older_numbering(queue, queue_offset, unit[0], self._find):
            return
        try:
            there = check_unit(queue, queue_offset, unit[0])
        except UnitRefusedError:
            # A message names other topics as it likes; the offset in a light queue is RocketMQ's.
            light = name.startswith(LIGHT_PREFIX)
            units = self._restarts.units(queue, queue_offset, unit) if light else []
            if not self._begin_again(queue, units):
                raise
            return
        if there != unit:
            if not queue.files:
                queue.room_for(queue_offset)
            queue.put(queue_offset, *unit)
        if (raw, queue_id) not in self._known:
            self._loop.add_queue(raw, queue_id, queue.written_end, queue.end)
            self._known.add((raw, queue_id))
        self._loop.advance(raw, queue_id, queue_offset)

    def point_index(self, indexed: int) -> None:
        if self._index is None or self._index.degraded is not None:
            self._loop.no_index()
            return
        target, tags = self._index.target, self._index.tags
        if target is None:
            self._loop.set_index(None, 0, 0, indexed, tags=tags)  # the first key asks for a file
        else:
            self._loop.set_index(*target[:3], indexed, tags=tags, slots_ready=target.slots_ready)

    def _roll_index(self) -> None:
        """Room for more keys, or none when the index is degraded: queues go on without it
        (K-58)."""
        assert self._index is not None
        self._index.make_room(self._loop.wanted_hash)
        self.point_index(self._positions.indexed)


def _pass_by(helper: LoopHelper, raw: bytes, queue_id: int, error: OSError) -> None:
    """From now on the loop passes by the records of a queue whose files cannot be made."""
    helper._queues.blocked.add(os.fsdecode(raw), queue_id, str(error))
    helper._loop.ignore_queue(raw, queue_id)
    helper._loop.point(raw, queue_id, None, 0, 0)
    helper._pointed.pop((raw, queue_id), None)


#: What makes the loop able to go on, by the reason for which it stopped.
HELPERS: Final[dict[int, Callable[[LoopHelper], None]]] = {
    native.NEW_QUEUE: lambda helper: helper.new_queue(),
    native.QUEUE_FILE: LoopHelper._next_queue_file,
    native.GAP: LoopHelper._fill_gap,
    native.CONFLICT: LoopHelper._resolve_conflict,
    native.INDEX_FILE: LoopHelper._roll_index,
    native.LIGHT: LoopHelper._put_lights,
    native.ARRIVALS: LoopHelper.hand_over_arrivals,
}
#: Reasons that ask for files of the record's own queue.
OF_A_QUEUE: Final = (native.NEW_QUEUE, native.QUEUE_FILE, native.GAP, native.CONFLICT)
