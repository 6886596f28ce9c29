"""What an open store says of itself: its topics, queues, positions, options and counters."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Literal

from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ReplicaStoreError, StoreReadOnlyError
from rocketstore.log.commitlog.running_flags import RunningFlags
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.store_json import is_foreign
from rocketstore.log.read.batch_queue import BatchQueue
from rocketstore.log.read.named_topics import check_listed
from rocketstore.stats.histogram import Latency
from rocketstore.stats.statistics import Statistics
from rocketstore.values.arguments import text, whole_number
from rocketstore.values.clock import ManualClock

if TYPE_CHECKING:
    from rocketstore.config import StoreConfig
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.recovery.recovery import RecoveryReport

__all__ = [
    "Latency",
    "Mode",
    "RunningFlags",
    "Statistics",
    "StoreFacts",
    "check_topics",
    "index_fault",
    "log_bounds",
]

Mode = Literal["rw", "r+", "r"]
#: What a copy of another store may do besides reads.
OF_COPIES = ("configure", "destroy", "flush", "replication", "retention", "wait_flushed")


class StoreFacts:
    """The part of `Store` that changes nothing, and the guards that every call passes."""

    def __init__(self, engine: Engine, mode: Mode = "rw") -> None:
        if not isinstance(engine, Engine):
            raise TypeError("a Store is opened by rocketstore.open(path)")
        self._engine = engine
        self._mode = mode
        engine.handles += 1

    def __del__(self) -> None:
        """Warns where nobody can close the store any more."""
        engine = getattr(self, "_engine", None)
        if engine is None:
            return
        engine.handles -= 1
        if engine.handles or self._mode == "r" or engine.closed:
            return
        warnings.warn(
            f"{engine.path}: this store was not closed and no variable holds it: it stays open, "
            "and locked, until the process ends; close it, or open it in a with statement",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )

    def topics(self) -> list[str]:
        """Gives the names of all topics with a consume queue, sorted, system topics included.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
            StoreRecoveringError: a process recovers or rebuilds the store that this one reads.
        """
        return sorted(set(self._open().reader.source.topics()))

    def queues(self, topic: str) -> list[int]:
        """Gives the queue ids of `topic`, sorted; none for a topic that does not exist.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
            StoreRecoveringError: a process recovers or rebuilds the store that this one reads.
        """
        return sorted(self._open().reader.source.queues(text("topic", topic)))

    def groups(self, topic: str | None = None) -> list[str]:
        """Gives the names of the consumer groups with stored offsets, sorted; of `topic`, or of
        any.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
        """
        topic = None if topic is None else text("topic", topic)
        return list(self._open().offsets.groups(topic))

    def committed(self, topic: str, group: str) -> dict[int, int]:
        """Gives the queue offsets that a consumer group has stored, by queue id: it goes on there.

        A group that never committed has none. In mode "r" they are what the writer stored
        meanwhile.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
        """
        topic, group = text("topic", topic), text("group", group)
        return self._open().offsets.get(topic, group)

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        """Gives the queue offset of the oldest message kept; 0 for a queue that does not exist.

        Raises:
            InvalidTopicError: No topic can have this name, and the store has none such.
            ValueError, TypeError: `queue_id` is no number from 0 on.
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
            StoreRecoveringError: a process recovers or rebuilds the store that this one reads.
        """
        return self._bounds(topic, queue_id)[0]

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        """Gives the queue offset after the newest visible message; 0 for a queue that does not
        exist.

        Raises:
            InvalidTopicError: No topic can have this name, and the store has none such.
            ValueError, TypeError: `queue_id` is no number from 0 on.
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
            StoreRecoveringError: a process recovers or rebuilds the store that this one reads.
        """
        return self._bounds(topic, queue_id)[1]

    @property
    def begin_offset(self) -> int:
        """Smallest physical offset kept."""
        engine = self._open()
        if self._mode == "r":
            _ = engine.positions.visible  # a look at the writer, which may have trimmed
        return engine.begin_offset

    @property
    def end_offset(self) -> int:
        """Physical offset of the first byte after the last record."""
        return self._open().positions.wrote

    @property
    def flushed_offset(self) -> int:
        """Everything below is on the disk. Within a record, perhaps, between two steps of a long
        flush."""
        return self._open().positions.flushed

    @property
    def visible_offset(self) -> int:
        """Everything below may be read."""
        return self._open().positions.visible

    @property
    def dispatched_offset(self) -> int:
        """Everything below is in its consume queue."""
        return self._open().positions.dispatched

    @property
    def recovery(self) -> RecoveryReport:
        """What the last open found and did."""
        return self._engine.recovery

    @property
    def config(self) -> StoreConfig:
        """The options in force; sizes are those of the files."""
        return self._engine.config

    @property
    def path(self) -> str:
        """The directory of the store, as the open was given it."""
        return self._engine.path

    @property
    def clock(self) -> ManualClock | None:
        """The clock that the open was given; None: that of the system, or a store open to read."""
        engine = self._engine
        clock = engine.write.clock if isinstance(engine, WritingEngine) else None
        return clock if isinstance(clock, ManualClock) else None

    @property
    def flags(self) -> RunningFlags:
        """Why the store does not read or write at present, if so; RocketMQ's running flags."""
        return self._engine.flags

    def stats(self) -> Statistics:
        """Gives counters and latencies since the store was opened, at this moment.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
        """
        return self._open().snapshot()

    @property
    def closed(self) -> bool:
        """Whether `close` has begun, or this process is a forked child of the opener."""
        return self._engine.closed

    # ---- guards ----

    def _bounds(self, topic: str, queue_id: int, *, catch_up: bool = True) -> tuple[int, int]:
        topic, queue_id = text("topic", topic), whole_number("queue_id", queue_id, 0)
        reader = self._open().reader
        reader.look_for(topic, must_exist=False)
        return reader.bounds(topic, queue_id, catch_up=catch_up)

    def _first_without_unit(self, topic: str, queue_id: int) -> int | None:
        """The first queue offset within the bounds of a queue that has no unit, since a file is
        missing: a consumer raises there. None of a queue of batches."""
        queue = self._open().reader.source.queue(topic, queue_id)
        if queue is None or isinstance(queue, BatchQueue):
            return None
        offset = queue.min_offset
        while offset < queue.max_offset and (located := queue.locate(offset)) is not None:
            offset += located[2]
        return offset if queue.min_offset <= offset < queue.max_offset else None

    def _open(self) -> Engine:
        self._engine.check_open()
        return self._engine

    def _writable(self, what: str) -> WritingEngine:
        engine = self._open()
        if not isinstance(engine, WritingEngine):
            raise StoreReadOnlyError(
                f"{what}: the store was opened with mode='r'; open it with 'rw' or 'r+'"
            )
        if engine.copy_of and what not in OF_COPIES:
            other = "open it with retention=Retention(…)" if what == "trim" else "put there"
            raise ReplicaStoreError(
                f"{what}: this store is a copy of {engine.copy_of}: {other}, or stop it and make "
                "it the master with 'rocketstore promote'"
            )
        return engine


def index_fault(store: StoreFacts) -> str | None:
    """Why keys of an open store are not being indexed, or None."""
    index = store._open().index
    return index.degraded if isinstance(index, IndexStore) else None


def check_topics(store: StoreFacts, topics: Collection[str], *, must_exist: bool) -> None:
    """Looks at topics that records are wanted of: as `check_listed`."""
    engine = store._open()
    source = engine.reader.source
    there = {topic for topic in topics if source.queues(topic)}
    any_name = bool(there.symmetric_difference(topics)) and is_foreign(engine.layout)
    if must_exist and not there.issuperset(topics):
        there.update(source.topics())
    check_listed(engine.path, topics, there, must_exist=must_exist, any_name=any_name)


def log_bounds(store: StoreFacts) -> tuple[StoreLayout, int, int]:
    """Where the files of an open store are, the begin of its log and the visible end, as physical
    offsets.

    Raises:
        ConfigError: the store was opened with untrusted=True; its files are not to be read.
        StoreClosedError, ReadFailedError.
    """
    engine = store._open()
    engine.check_files()
    return engine.layout, engine.begin_offset, engine.positions.visible
