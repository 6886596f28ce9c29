"""Which transactions are open: a table in memory, derived from half and op messages (K-67).

It reads both topics on from where it was, beginning at the offsets of group CID_RMQ_SYS_TRANS.
Below these everything is settled. Nothing is put a second time to move them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.services.transactions.half_messages import (
    HALF_TOPIC,
    OP_TOPIC,
    PROGRESS_GROUP,
    checks_of,
    first_copy_of,
    immunity_ms_of,
    real_place,
    settled_by,
)
from rocketstore.services.transactions.reading import ReadError, Unreadable, messages_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.format.message import Message
    from rocketstore.consuming.consumer_offsets import ConsumerOffsets
    from rocketstore.log.read.reader import Reader

__all__ = ["Entry", "OpenTable", "Outcome", "entry_of"]

logger = logging.getLogger(__name__)

Outcome = Literal["commit", "rollback", "dead", "settled", "unknown"]
#: Fields of an entry that its half message says.
SAID_BY_HALF: Final = (
    *("topic", "queue_id", "group", "unique_id", "born_ms"),
    *("checks", "immunity_ms"),
)


@dataclass(slots=True, eq=False)
class Entry:
    """One open transaction. `lock` guards what is below it, and is held while it is settled."""

    physical_offset: int
    half_queue: int
    #: Of its half message, and of the copies that RocketMQ put of it while it asked.
    queue_offsets: list[int]
    physical_offsets: list[int]
    topic: str
    queue_id: int
    group: str
    unique_id: str
    born_ms: int
    checks: int = 0
    immunity_ms: int | None = None
    #: Physical end of its half message, of one that this process put.
    half_end: int = 0
    #: Its end, once its op message is put; "settled": an op message says so, not which it was.
    outcome: Outcome | None = None
    lock: SignalSafeLock = field(default_factory=lambda: SignalSafeLock("an open transaction"))
    #: Physical offset of the copy that was put; None: none is known.
    copy: int | None = None
    #: A put of the copy may have happened without a word: look for it first.
    unsure: bool = True
    #: A put of the copy has begun in this process.
    tried: bool = False
    settling: bool = False
    #: Why its half message cannot be read. Where `topic` is empty, it never could.
    error: ReadError | None = None
    asked_ms: int | None = None
    asking: bool = False

    def read(self, half: Message) -> None:
        """Its half message can be read, for the first time or again."""
        self.error = None
        known = None if self.topic else entry_of(half, half.properties, half.born_timestamp_ms)
        for name in SAID_BY_HALF if known is not None else ():
            setattr(self, name, getattr(known, name))


def entry_of(
    half: Message | PutResult, properties: Mapping[str, str], born_ms: int
) -> Entry | None:
    """Of a half message that was read, or just put. None: a message of the half topic without a
    place for its copy."""
    place = real_place(properties)
    if place is None:
        return None
    return Entry(
        half.physical_offset,
        half.queue_id,
        [half.queue_offset],
        [half.physical_offset],
        *place,
        properties.get("PGROUP", ""),
        properties.get("UNIQ_KEY", ""),
        born_ms,
        checks_of(properties),
        immunity_ms_of(properties),
    )


def _entry_of_unreadable(half: Unreadable, half_queue: int) -> Entry:
    """Of a half message that cannot be read: nobody knows where its copy goes."""
    at = half.physical_offset
    place = ("", -1)
    return Entry(*(at, half_queue, [half.queue_offset], [at], *place, "", "", 0), error=half.error)


class _Queue:
    """One queue of half messages, and the queue of their op messages."""

    def __init__(self, queue_id: int, half_seen: int, op_seen: int) -> None:
        self.queue_id = queue_id
        self.half_seen = half_seen
        self.op_seen = op_seen
        self.open: dict[int, Entry] = {}
        # Offsets at or above the progress that op messages name.
        self.settled: set[int] = set()
        # Op messages that may still be needed: queue offset, and the largest offset named.
        self.ops: list[tuple[int, int]] = []

    @property
    def half_progress(self) -> int:
        """Below it, every half message is settled."""
        return min((*self.open, self.half_seen))

    @property
    def op_progress(self) -> int:
        """Below it, no op message names a half message that would be read again."""
        low = self.half_progress
        self.settled = {offset for offset in self.settled if offset >= low}
        while self.ops and self.ops[0][1] < low:
            self.ops.pop(0)
        return self.ops[0][0] if self.ops else self.op_seen


class OpenTable:
    """The open transactions of one store. Any thread may use it."""

    def __init__(self, reader: Reader, offsets: ConsumerOffsets) -> None:
        self._reader = reader
        self._offsets = offsets
        self._lock = SignalSafeLock("the open transactions")
        self._queues: dict[int, _Queue] = {}
        self._by_offset: dict[int, Entry] = {}
        self._lost_ops: list[ReadError] = []

    def read_on(self) -> list[Entry]:
        """Reads what half and op topics have got meanwhile; gives the entries that are new."""
        with self._lock():
            for queue_id in self._reader.source.queues(HALF_TOPIC):
                self._queue(queue_id)
            new: list[Entry] = []
            met: list[ReadError] = []
            for queue in self._queues.values():
                self._read_ops(queue, met)
                new += self._read_halves(queue, met)
            if met:
                logger.warning(
                    "half and op messages that cannot be read, see transactions.errors: %d, the "
                    "last one: %s", *(len(met), met[-1]),
                )  # fmt: skip
            return [entry for entry in new if entry.outcome is None]

    def add(self, entry: Entry) -> Entry:
        """Takes over a half message that this process has put; gives the entry that it has."""
        with self._lock():
            queue = self._queue(entry.half_queue)
            return self._register(queue, entry)

    def remove(self, entry: Entry) -> None:
        """Its op message is put."""
        with self._lock():
            queue = self._queue(entry.half_queue)
            for offset in entry.queue_offsets:
                queue.open.pop(offset, None)
                queue.settled.add(offset)
            for physical_offset in entry.physical_offsets:
                self._by_offset.pop(physical_offset, None)

    def find(self, physical_offset: int) -> Entry | None:
        with self._lock():
            return self._by_offset.get(physical_offset)

    def entries(self) -> list[Entry]:
        """The open ones, oldest first."""
        with self._lock():
            return sorted(set(self._by_offset.values()), key=lambda entry: entry.physical_offset)

    def errors(self) -> list[ReadError]:
        """Of half messages that are open and cannot be read, then of such op messages."""
        halves = [entry.error for entry in self.entries() if entry.error is not None]
        with self._lock():
            return halves + self._lost_ops

    def save_progress(self, wait_flushed: Callable[[int], object]) -> None:
        """Stores how far all is settled: that of half messages first, since a stop in between must
        not lose op messages that are still needed."""
        with self._lock():
            halves = {n: queue.half_progress for n, queue in self._queues.items()}
            ops = {n: queue.op_progress for n, queue in self._queues.items()}
        for topic, progress in ((HALF_TOPIC, halves), (OP_TOPIC, ops)):
            stored = self._offsets.get(topic, PROGRESS_GROUP)
            moved = {n: offset for n, offset in progress.items() if offset > stored.get(n, 0)}
            if moved:
                ends = [self._reader.unit_end(topic, n, at - 1) or 0 for n, at in moved.items()]
                self._offsets.commit(topic, PROGRESS_GROUP, moved, max(ends), wait_flushed)

    def _queue(self, queue_id: int) -> _Queue:
        queue = self._queues.get(queue_id)
        if queue is None:
            halves = self._offsets.get(HALF_TOPIC, PROGRESS_GROUP).get(queue_id, 0)
            ops = self._offsets.get(OP_TOPIC, PROGRESS_GROUP).get(queue_id, 0)
            queue = self._queues[queue_id] = _Queue(queue_id, halves, ops)
        return queue

    def _read_ops(self, queue: _Queue, met: list[ReadError]) -> None:
        for op in messages_from(self._reader, OP_TOPIC, queue.queue_id, queue.op_seen):
            queue.op_seen = op.queue_offset + 1
            if isinstance(op, Unreadable):
                self._lost_ops.append(op.error)
                met.append(op.error)
                continue
            named = settled_by(op)
            if named:
                queue.ops.append((op.queue_offset, max(named)))
            for offset in named:
                queue.settled.add(offset)
                entry = queue.open.get(offset)
                if entry is not None:  # of another thread or, of RocketMQ's form, of a program
                    entry.outcome = entry.outcome or "settled"
                    self.remove(entry)

    def _read_halves(self, queue: _Queue, met: list[ReadError]) -> Iterator[Entry]:
        for half in messages_from(self._reader, HALF_TOPIC, queue.queue_id, queue.half_seen):
            queue.half_seen = half.queue_offset + 1
            known = self._by_offset.get(half.physical_offset)
            if isinstance(half, Unreadable):
                if half.queue_offset in queue.settled:
                    continue
                met.append(half.error)
                if known is not None:
                    known.error = half.error
                else:
                    self._register(queue, _entry_of_unreadable(half, queue.queue_id))
                continue
            if known is not None:
                continue
            entry = entry_of(half, half.properties, half.born_timestamp_ms)
            if entry is None:
                logger.warning(
                    "%s, queue %d, offset %d: no half message, it names no topic and queue",
                    *(HALF_TOPIC, queue.queue_id, half.queue_offset),
                )
                continue
            first = first_copy_of(half)
            if {half.queue_offset, first} & queue.settled:
                continue
            original = self._original(queue, entry, first)
            if original is None:
                yield self._register(queue, entry)
            elif original.topic:
                self._join(queue, original, entry)
            else:  # it can only be read here
                self._join(queue, entry, original)
                yield self._register(queue, entry)

    def _original(self, queue: _Queue, copy: Entry, first: int | None) -> Entry | None:
        """The open transaction that RocketMQ put this half message for once more, while it
        asked."""
        if first is not None and first in queue.open:
            return queue.open[first]
        if not copy.checks or not copy.unique_id:
            return None
        for entry in set(queue.open.values()):
            if (entry.unique_id, entry.group) == (copy.unique_id, copy.group):
                return entry
        return None

    def _join(self, queue: _Queue, original: Entry, copy: Entry) -> None:
        original.queue_offsets += copy.queue_offsets
        original.physical_offsets += copy.physical_offsets
        original.checks = max(original.checks, copy.checks)
        for offset in copy.queue_offsets:
            queue.open[offset] = original
        for physical_offset in copy.physical_offsets:
            self._by_offset[physical_offset] = original

    def _register(self, queue: _Queue, entry: Entry) -> Entry:
        known = self._by_offset.setdefault(entry.physical_offset, entry)
        queue.open.setdefault(entry.queue_offsets[0], known)
        return known
