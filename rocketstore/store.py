"""Store: the public face of one store directory. It wires parts and decides nothing itself."""

from __future__ import annotations

import datetime
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, cast

from rocketstore._native.append.copies import check_promise
from rocketstore._native.sync.futex import timeout_ms
from rocketstore.config import StoreConfig
from rocketstore.consumer import Consumer
from rocketstore.engine.engine import Engine
from rocketstore.errors import ReplicaStoreError, StoreReadOnlyError, StoreReplacedError
from rocketstore.log.commitlog.running_flags import RunningFlags
from rocketstore.log.read.query import answers_of, key_query
from rocketstore.log.read.time_search import Boundary
from rocketstore.puts.put_batch import NewMessage, put_batch
from rocketstore.puts.put_message import put_message
from rocketstore.values.arguments import Body, Column, Progress, one_of, text, whole_number
from rocketstore.values.clock import ManualClock
from rocketstore.values.durability import Durability, durability_of, queue_ids_of
from rocketstore.values.public import public
from rocketstore.values.reserved_names import RESERVED_PROPERTIES, is_system_group, is_system_topic
from rocketstore.values.timestamps import Duration, Timestamp, timestamp_ms
from rocketstore.writer import Writer

if TYPE_CHECKING:
    from types import TracebackType

    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.format.scanner import Message
    from rocketstore.config.typed_options import LiveOptions
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.errors import CorruptRecordError
    from rocketstore.log.recovery.report import RecoveryReport
    from rocketstore.puts.frames import FramesResult
    from rocketstore.puts.put_columns import MessageColumns
    from rocketstore.replication.status import ReplicationStatus
    from rocketstore.services.compaction.report import CompactionReport
    from rocketstore.services.delay import Delayed
    from rocketstore.services.retention.service import StoreRetention
    from rocketstore.services.transactions.store_transaction import StoreTransaction
    from rocketstore.services.transactions.transactions import Transactions
    from rocketstore.shipping import ShipReport
    from rocketstore.stats.statistics import Statistics

__all__ = ["Mode", "RunningFlags", "Store"]

Mode = Literal["rw", "r+", "r"]


@public
class Store:
    """An open store. Made by `rocketstore.open`; use it as a context manager, from any thread.

    A service (`delayed`, `retention`, `replication`, `transactions`) belongs to the open store, not
    to one `Store` object: the first question loads and begins it, each later one finds it, and it
    ends when the store closes.
    """

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

    # ---- puts ----

    def writer(
        self,
        topic: str,
        *,
        queue_id: int | None = None,
        queues: int | None = None,
        properties: Mapping[str, str] | None = None,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        durability: Durability | None = None,
    ) -> Writer:
        """Makes a writer, which puts messages into `topic`.

        The store starts creating, in the background, the log and queue files that the first put
        needs. It removes unused files at close.

        Args:
            queue_id: Every message goes to this queue. The default is queue 0.
            queues: Instead of queue_id: messages go to queues 0 … queues - 1, by shard_key or in
                turns.
            properties: Added to every message.
            tags, keys: Of every message that is put without tags, or keys, of its own.
            durability: The promise of this writer's puts. None: that of the store. "replicas(n)"
                needs a store that was opened with `replication=Master(…)`.

        Raises:
            InvalidTopicError: RocketMQ does not allow such a topic.
            ConfigError: A queue number or a promise that there is not.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        engine = self._owning("writer")
        topic = text("topic", topic)
        topic_bytes = engine.check_topic(topic)
        states = tuple(engine.queue_state(topic, n) for n in queue_ids_of(queue_id, queues))
        engine.write.expect_put(states)
        writer = Writer(
            engine.commit_log.log,
            topic,
            topic_bytes,
            states,
            properties=properties,
            tags=tags,
            keys=keys,
            durability=durability_of(durability or engine.config.durability),
            timeout_ms=engine.config.sync_flush_timeout_ms,
            record_crc=engine.record_crc,
            born_host=engine.config.store_host,
            reserved=RESERVED_PROPERTIES,
            to_ms=timestamp_ms,
            delays=engine.delayed_puts,
            unique_ids=engine.unique_ids,
        )
        return writer._bind(engine)

    def put_message(
        self,
        topic: str,
        body: Body,
        *,
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        sys_flag: int = 0,
        born_time: Timestamp | None = None,
        born_host: str | None = None,
        store_host: str | None = None,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        delay_level: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
        expected_queue_offset: int | None = None,
    ) -> PutResult:
        """Appends one message with every field as given: RocketMQ's putMessage, for interop and
        imports.

        The store drops `__CRC32#` and INNER_MULTI_QUEUE_OFFSET from the properties, since it writes
        these itself. `WAIT` = "false" asks for durability "memory". `DELAY` is a delay level, as
        in RocketMQ; TIMER_DELIVER_MS, TIMER_DELAY_MS and TIMER_DELAY_SEC say when it is delivered.
        With light queues on, INNER_MULTI_DISPATCH lists further queues.

        Raises:
            MessageRejectedError and its kin: The message cannot be stored as it is.
            QueueOffsetMismatchError: It would not get `expected_queue_offset`. Nothing was stored.
            BackpressureError, DiskFullError, StoreFailedError: No room. Nothing was stored.
            DurabilityTimeoutError: The message is stored (`error.result`), but not known to be on
                disk.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        return put_message(
            self._owning("put_message"), topic, body, queue_id, properties, flag=flag,
            sys_flag=sys_flag, born_time=born_time, born_host=born_host, store_host=store_host,
            reconsume_times=reconsume_times, durability=durability, timeout_s=timeout_s,
            prepared_transaction_offset=prepared_transaction_offset, delay_level=delay_level,
            deliver_at=deliver_at, deliver_after=deliver_after, expected=expected_queue_offset,
        )  # fmt: skip

    def put_batch(
        self,
        messages: Iterable[NewMessage],
        *,
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
        chunk: bool = False,
    ) -> PutResult:
        """Appends messages of any topics and queues, back to back in one segment, and waits once.

        The store checks all messages first; an error notes the message that it means. After the
        death of the process all of them are there or none, as with `Writer.put_batch`. With `chunk`
        they are put in parts where they do not fit into what is left of a segment, each all or
        none, and an error notes how many were stored.

        Raises:
            MessageRejectedError and its kin: A message cannot be stored.
            TypeError: An item is no NewMessage.
            BackpressureError, DiskFullError, StoreFailedError: No room. Nothing was stored.
            DurabilityTimeoutError: The batch is stored (`error.result`), but not known to be on
                disk.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        default = self._owning("put_batch").config.durability
        writer = lambda topic, n: self.writer(topic, queue_id=n)  # noqa: E731
        return put_batch(messages, writer, durability, timeout_s, default, chunk=chunk)

    def put_frames(
        self,
        frames: Body,
        *,
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
    ) -> FramesResult:
        """Appends messages that `encode_frames` has encoded, perhaps in another process.

        The frames lie back to back and are of any topics and queues. The store checks all of them
        first. It copies frames that are no `bytes`, so another thread cannot change what was
        checked. No frames put nothing.

        Raises:
            MessageRejectedError and its kin: Bytes that are no frames. Nothing was stored.
            BackpressureError, DiskFullError, StoreFailedError: No room. A note says how many
                messages were stored before.
            DurabilityTimeoutError: The messages are stored, but not known to be on disk.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        from rocketstore.puts.frames import put_frames  # with NumPy

        return put_frames(self._owning("put_frames"), frames, durability, timeout_s)

    def put_columns(
        self,
        bodies: Column,
        *,
        durability: Durability | None = None,
        timeout_s: Duration | None = None,
        **columns: Unpack[MessageColumns],
    ) -> PutResult:
        """Appends messages of any topics and queues out of columns, without an object for each.

        It does what `encode_frames` and `put_frames` do, without the frames. All rows are checked
        before the first is stored; they are split where a segment ends. No rows put nothing.

        Args:
            bodies, columns: As of `rocketstore.encode_frames`; `topics` must be given. A shard key
                is the property `__SHARDINGKEY`, and its queue that of `shard_queue_id`.
            durability: The promise to wait for. None: that of the store.
            timeout_s: Longest wait for the promise. None: `sync_flush_timeout_ms`.

        Raises:
            MessageRejectedError and its kin: A row that cannot be a message, with its number; a
                topic or property name that no row may have; columns of different lengths. Nothing
                was stored.
            TypeError: A column that is no pair, or no buffer; `topics` that is one text; a keyword
                that is no column.
            BackpressureError, DiskFullError, StoreFailedError: No room. A note says how many rows
                were stored before.
            DurabilityTimeoutError: The rows are stored (`error.result`), but not known to be on
                disk.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        from rocketstore.puts.put_columns import message_columns, put_columns  # with NumPy

        engine = self._owning("put_columns")
        most = engine.config.max_message_size_bytes
        made = message_columns(self.put_columns, bodies, columns, most, engine.write.clock)
        return put_columns(engine, bodies, made, durability, timeout_s)

    # ---- reading ----

    def consumer(
        self,
        topic: str,
        *,
        queue_id: int | None = None,
        queue_ids: Iterable[int] | None = None,
        group: str | None = None,
        offset: Literal["earliest", "latest"] | int = "earliest",
        when: Timestamp | None = None,
        tags: str | Sequence[str] | None = None,
        where: str | None = None,
        reset: Literal["earliest", "latest"] | None = None,
        must_exist: bool = False,
    ) -> Consumer:
        """Makes a consumer, which reads one queue of `topic`, some, or all of them in turns.

        Iterate it, `poll` it or `follow` it. A topic that does not exist gives nothing, which the
        first read logs; the consumer takes up its queues once they are there.

        Args:
            queue_id, queue_ids: One queue, or some. None: all of the topic, those to come included.
            group: Start at the offsets that this group committed, and own them while open. In
                mode "r" the consumer owns nothing: each gets all messages, a warning of the
                logger says so, and `commit` raises StoreReadOnlyError.
            offset: Where to start without them: "earliest", "latest", or an offset of one queue.
            when: Instead of `offset`: start at the first message stored at this time or later.
            tags: Only messages with this tag, one of these, or RocketMQ's "a || b".
            where: Only messages whose properties match this SQL92 (docs/filters.md).
            reset: Where to go on when the offset is no longer kept. None: OffsetOutOfRangeError.
            must_exist: Whether a topic, or a queue of these, that is not there is an error.

        Raises:
            InvalidTopicError: No topic can have this name, and the store has none such.
            QueueNotFoundError: `must_exist`, and there is no such topic or queue.
            GroupClaimedError: Another consumer of this process owns the group.
            FilterSyntaxError: `where` is no expression, with the position and a hint.
            ValueError, TypeError: An argument that has no meaning.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        engine = self._open()
        return Consumer(
            engine.reader,
            topic,
            queue_id=queue_id,
            queue_ids=queue_ids,
            group=group,
            offset=offset,
            when=when,
            tags=tags,
            where=where,
            reset=reset,
            must_exist=must_exist,
            offsets=engine.offsets if group is not None else None,
            wait_flushed=None if self._mode == "r" else self.wait_flushed,
        )

    def get(self, physical_offset: int) -> Message:
        """Gives the message whose record begins at `physical_offset`.

        Raises:
            MessageNotFoundError: No record begins there.
            OffsetOutOfRangeError: The offset is outside the log.
            CorruptRecordError: The checksum of the record does not hold.
            ReadFailedError: The disk does not give the bytes back.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        return self._open().reader.get(whole_number("physical_offset", physical_offset))

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin: Timestamp | None = None,
        end: Timestamp | None = None,
        order: Literal["newest", "oldest"] = "newest",
        below: int | None = None,
        above: int | None = None,
        limit: int | None = None,
        must_exist: bool = False,
        on_damage: Callable[[CorruptRecordError], object] | None = None,
    ) -> Sequence[Message]:
        """Finds messages of `topic` by a key or a unique id, each once, by what records say.

        Args:
            begin, end: Only messages stored at `begin` or later, at `end` or earlier.
            order: "newest" first or "oldest" first, by their place in the log.
            below: Only messages below this physical offset: where a page ended, newest first.
            above: Only messages above this physical offset: where a page ended, oldest first.
            limit: Most messages, as a list. None: all, as a sequence that looks them up by and by.
            must_exist: Whether a topic that is not there is an error, not just logged once.
            on_damage: Is called with the error of each record that the index proposes and that
                does not hold. The record is left out, with a warning in the log. Without it an
                entry that points beyond the log is an error, after the messages that are there.

        Raises:
            InvalidTopicError: No topic can have this name, and the store has none such.
            QueueNotFoundError: `must_exist`, and there is no such topic.
            ConfigError: The store has no index (`index_enabled`).
            ValueError, TypeError: An argument that has no meaning.
            ReadFailedError: The disk does not give back a record that the index names, or, without
                `on_damage`, an entry points beyond the log.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
            StoreRecoveringError: A process recovers or rebuilds the store that this one reads.
        """
        engine = self._open()
        query = key_query(topic, key, begin, end, order, below, above)
        return answers_of(engine.reader, engine.index, query, limit, must_exist, on_damage)

    def offset_at(
        self, topic: str, queue_id: int, when: Timestamp, boundary: Boundary = "lower"
    ) -> int:
        """Finds a queue offset by the time at which messages were stored.

        Args:
            when: A time: milliseconds since 1970 or an aware datetime.
            boundary: "lower": the first message stored at `when` or later; the maximum offset when
                there is none. "upper": the last one stored at `when` or earlier; the minimum - 1
                when there is none.

        Raises:
            InvalidTopicError, QueueNotFoundError: No such topic, or it has no such queue.
            ValueError, TypeError: An argument that has no meaning.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        reader = self._open().reader
        topic, queue_id = text("topic", topic), whole_number("queue_id", queue_id, 0)
        one_of("boundary", boundary, ("lower", "upper"))
        reader.source.catch_up()
        if reader.source.queue(topic, queue_id) is None:
            reader.look_for(topic, queue_id, must_exist=True)
        return reader.offset_at(topic, queue_id, timestamp_ms("when", when), boundary=boundary)

    # ---- facts ----

    def topics(self, *, system: bool = False) -> list[str]:
        """Gives the names of the topics with a consume queue, sorted.

        Args:
            system: Whether topics that services use themselves are among them.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
            StoreRecoveringError: a process recovers or rebuilds the store that this one reads.
        """
        found = self._open().reader.source.topics()
        return sorted({topic for topic in found if system or not is_system_topic(topic)})

    def queues(self, topic: str) -> list[int]:
        """Gives the queue ids of `topic`, sorted; none for a topic that does not exist.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
            StoreRecoveringError: a process recovers or rebuilds the store that this one reads.
        """
        return sorted(self._open().reader.source.queues(text("topic", topic)))

    def groups(self, topic: str | None = None, *, system: bool = False) -> list[str]:
        """Gives the names of the consumer groups with stored offsets, sorted; of `topic`, or of
        any.

        Args:
            system: Whether groups that services use themselves are among them.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
        """
        found = self._open().offsets.groups(None if topic is None else text("topic", topic))
        return [group for group in found if system or not is_system_group(group)]

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
        _ = engine.positions.visible  # of a reader: a look at the writer, which may have trimmed
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
        return self._engine.clock

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

    # ---- services ----

    @property
    def delayed(self) -> Delayed:
        """The messages that wait for their time: `put(..., delay_level=3)`, `put(..., deliver_at=…)`.

        It says how many there are and when the next is due, lists them by topic and time, and names
        what could not be delivered. `cancel` and `reschedule` take one with a time of its own:

            print(len(store.delayed), store.delayed.next_due_time)
            for waiting in store.delayed.messages("orders"):
                print(waiting.due_time, waiting.message.body)

        With mode "r" it shows what the writer has not delivered, by the offsets it stored last.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
        """
        from rocketstore.services.delay import Delayed

        engine = self._open()
        return engine.kind_of(Delayed)(engine)

    @property
    def retention(self) -> StoreRetention:
        """What leaves the front of the log by itself, and what would.

            rule = Retention(max_age=timedelta(days=7), keep_unshipped=True)
            print(store.retention.plan(rule))  # a dry run: each segment, and why it goes or stays
            store.retention.run(rule)

        A store that was opened with `retention=rule` applies it from a thread: whenever a new
        segment begins, and by a timer. Without an argument `plan()` and `run()` use that
        rule.
        `last_error` says why its last round did not end; the next one tries again.
        `events` says what an emergency gave up.

        Raises:
            StoreClosedError, StoreReplacedError: the store was closed, or another has its place.
        """
        from rocketstore.services.retention.service import StoreRetention

        engine = self._open()
        return engine.kind_of(StoreRetention)(engine)

    @property
    def replication(self) -> ReplicationStatus:
        """The role of this store in replication, its peers, and how far each of them is.

            for replica in store.replication.peers:
                print(replica.address, replica.lag_bytes, replica.lag_s)

        Each question looks again: what it gave does not change. A store becomes a master or a
        replica by `open(replication=…)`.

        Raises:
            ReplicationError: The role of the store cannot be read.
            GuestStoreError: This is a guest of the process that has the store: ask there.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        from rocketstore.replication.status import status_of

        self._open().check_owner("replication")
        return status_of(self._engine)

    def transaction(self, *, durability: Durability | None = None) -> StoreTransaction:
        """Begins a transaction: messages of any topics and queues, and offsets of groups, all or
        none of them.

            with store.transaction() as tx:
                for order in tx.consume(consumer):
                    tx.put("invoices", order.body)

        The end of the `with` commits it, an exception rolls it back and takes the consumer back.
        After a crash at any moment the next open for writing has all of it or nothing.

        Args:
            durability: The promise that the commit waits for. None: that of the store. With offsets
                it is "disk".

        Raises:
            ConfigError: A promise that there is not.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        from rocketstore.services.transactions.commits import commits_of
        from rocketstore.services.transactions.store_transaction import StoreTransaction

        engine = self._owning("transaction")
        promise = durability_of(durability) if durability else engine.config.durability
        check_promise(engine.commit_log.log.group.copies, promise)
        return StoreTransaction(engine, commits_of(engine), promise)

    @property
    def transactions(self) -> Transactions:
        """The transactions of this store, in RocketMQ's form: prepare, commit, roll back, list.

            prepared = store.transactions.prepare("orders", b"paid", group="billing")
            prepared.commit()

        The first use reads the half and op messages that are not settled yet, and puts the op
        message of a commit that a crash left without one.

        Raises:
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
            DurabilityTimeoutError: What was put before is not readable yet.
            ReadFailedError: The queues of half or op messages lack units; 'rocketstore rebuild'
                makes them again. A damaged message alone is named by `transactions.errors`.
        """
        from rocketstore.services.transactions.transactions import Transactions

        engine = self._owning("transactions")
        return engine.guests.get(Transactions, lambda: engine.kind_of(Transactions)(engine))

    def compact(
        self,
        topics: str | Iterable[str],
        *,
        into: str | os.PathLike[str],
        base: str | os.PathLike[str] | None = None,
        tombstones: bool = True,
        grace: Duration = datetime.timedelta(days=1),
        without_key: Literal["keep", "drop"] = "keep",
        keep_offsets: bool = True,
        on_damage: Literal["raise", "skip"] = "raise",
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> CompactionReport:
        """Writes the latest message of each key into a new store at `into`.

            report = store.compact("profiles", into="data/profiles-latest")

        Messages keep their topic, queue, queue offset, times, properties and order. A key is the
        text of `KEYS` as a whole, one for all queues of its topic; the latest message is the last
        one in the log. The log is read up to where it is visible now; this store does not change.
        The new store gets its name when it is whole: a call that fails or is killed leaves none.

        Args:
            topics: A topic, or several, each with keys of its own.
            into: A directory that is not there yet, or is empty.
            base: What `compact` made of the same topics of this store before: the new store has
                what it has, but for what the log has superseded since. So the log may be trimmed up
                to the report's `end`. Tombstones that the base knows need no log.
            tombstones: Whether an empty body deletes its key. False: it is a body like any other.
            grace: How long a tombstone is kept after it was stored, for readers that know the
                message before it.
            without_key: What becomes of messages whose `KEYS` is missing or blank.
            keep_offsets: False: messages are numbered from 0 in each queue, without gaps. RocketMQ
                5 hides the first messages of a queue with gaps.
            on_damage: "raise", or "skip": go on after it, and name it in the report. The latest
                sound message of a key stays then.
            dry_run: Only count; write nothing.
            progress: Called with ("look" or "copy", bytes of the log, bytes in all).

        Raises:
            ConfigError: A system topic; `into` is not empty, or lies in this store; a `base` of
                another store, of other topics, that was changed, or with a gap before this log.
            QueueNotFoundError, InvalidTopicError: There is no such topic.
            MessageRejectedError: Inner batches, or messages that are in light queues as well.
            MissingSegmentsError: Segments of the log are missing, and the open was forced.
            CorruptRecordError: Damage; or the numbers of a queue began again, and they are to be
                kept.
            OffsetOutOfRangeError, ReadFailedError: The log was trimmed meanwhile.
            StoreLockedError: Another process makes a store at `into`.
            ValueError, TypeError: An argument that has no meaning.
            OSError, DiskFullError: As the disk says.
            StoreFailedError: The disk did not take queues and index of the new store.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        from rocketstore.services.compaction.compaction import compact

        return compact(
            self._open(),
            topics,
            into,
            tombstones=tombstones,
            grace=grace,
            without_key=without_key,
            keep_offsets=keep_offsets,
            on_damage=on_damage,
            dry_run=dry_run,
            progress=progress,
            base=base,
        )

    def compacted(self, topic: str, queue_id: int | None = None) -> Iterator[Message]:
        """Reads a compacted topic of RocketMQ 5 (`cleanup.policy=COMPACTION`): what its broker has
        left of it, as far as it compacted. By queue, then by queue offset, which may jump.

        The files belong to the broker, and nothing is locked: it may replace them meanwhile. The
        physical offset of such a message is its place in them, not in the log.

        Args:
            queue_id: One queue. None: all of them, one after the other.

        Raises:
            InvalidTopicError, QueueNotFoundError: There is no such compacted topic, or no such
                queue of it.
            CorruptRecordError: A record is not what the queue says.
            FileNotFoundError, OSError: The files went meanwhile, or cannot be read.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        from rocketstore.services.compaction.compacted_topics import compacted_messages

        root = Path(self._open().layout.root)
        queue = None if queue_id is None else whole_number("queue_id", queue_id, 0)
        return compacted_messages(root, text("topic", topic), queue)

    # ---- care ----
    def configure(self, **changes: Unpack[LiveOptions]) -> StoreConfig:
        """Changes options while the store is open; gives the new config.

        Only options that docs/options.md marks can change; the others need a new open.

        Raises:
            ConfigError: An option that cannot change, or a wrong value. Nothing was changed.
            StoreReadOnlyError, StoreClosedError: The store cannot be configured.
        """
        return self._writing("configure").configure(changes)

    def trim(
        self,
        *,
        before_offset: int | None = None,
        before_time: Timestamp | None = None,
    ) -> int:
        """Removes whole segments from the front of the log; gives the new begin offset.

        The last segment stays, and so does what the dispatcher has not reached, and what
        `retention.hold` keeps.

        Args:
            before_offset: Segments that end at this physical offset or below it go.
            before_time: Segments whose messages were all stored before this time go, as far as the
                first message of the next segment shows. Milliseconds since 1970 or an aware
                datetime. Give this or `before_offset`.

        Raises:
            ValueError: `before_offset` is above the end of the log, or a time has no time zone.
            TypeError: not exactly one of the two, or it is no number and no time.
            BackpressureError: the disk took longer than `sync_flush_timeout_ms`; nothing was
                trimmed.
            ReadFailedError: the file of holds is damaged; nothing was trimmed.
            StoreReadOnlyError, StoreClosedError: the store cannot be trimmed.
            OSError: a file cannot be removed; the next trim tries again.
        """
        engine = self._owning("trim", "open it with retention=Retention(…)")
        if (before_offset is None) == (before_time is None):
            raise TypeError("trim() takes one of before_offset= and before_time=, by its name")
        if before_time is not None:
            return engine.trim(None, timestamp_ms("before_time", before_time))
        return engine.trim(whole_number("before_offset", before_offset, 0))

    def destroy(self) -> None:
        """Closes the store and deletes every file that belongs to it. There is no way back.

        Raises:
            OSError: A file cannot be deleted; the error names it. The next `open(path)` deletes the
                rest and makes a new store.
            StoreReadOnlyError, StoreClosedError: The store is not open for writing.
            GuestStoreError: This is a guest of the process that has the store: destroy it there.
        """
        self._writing("destroy").destroy()

    def ship(
        self,
        uri: str,
        *,
        tail: bool = False,
        force: bool = False,
        progress: Progress | None = None,
    ) -> ShipReport:
        """Copies the sealed segments of this store to an archive, as `rocketstore.ship` does.

        Raises:
            ConfigError, CorruptRecordError, ReadFailedError, OSError, ImportError: As
                `rocketstore.ship`.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        from rocketstore.shipping import ship_store

        return ship_store(self._open(), uri, progress, tail=tail, force=force)

    def wait_flushed(self, end_offset: int, timeout_s: Duration | None = None) -> None:
        """Returns once everything below physical offset `end_offset` survives a power cut.

        Raises:
            DurabilityTimeoutError: Not within the timeout (default `sync_flush_timeout_ms`).
            ValueError: The log ends before `end_offset`.
            StoreFailedError: A sync of the log failed.
            OutcomeUnknownError: Of a guest whose host has died since: the end lies where the log was lost.
            StoreReadOnlyError, StoreClosedError: The store does not flush.
        """
        limit_ms = None if timeout_s is None else timeout_ms(timeout_s)
        end_offset = whole_number("end_offset", end_offset, 0)
        self._writing("wait_flushed").wait_flushed(end_offset, limit_ms)

    def flush(self, timeout_s: Duration | None = None) -> int:
        """Returns once all that was put before survives a power cut; gives `flushed_offset`.

        Raises:
            DurabilityTimeoutError, StoreFailedError, OutcomeUnknownError: As `wait_flushed`.
            StoreReadOnlyError, StoreClosedError: The store does not flush.
        """
        engine = self._writing("flush")
        return engine.flush(None if timeout_s is None else timeout_ms(timeout_s))

    def close(self) -> None:
        """Flushes, dispatches, marks the stop as clean and unlocks the store.

        A second call does nothing. Messages that were handed out stay readable.

        Raises:
            StoreFailedError: The last flush failed. The store is closed all the same.
            OSError: A file cannot be written. The store is closed all the same.
        """
        self._engine.close()

    # ---- guards ----

    def _bounds(self, topic: str, queue_id: int, *, catch_up: bool = True) -> tuple[int, int]:
        topic, queue_id = text("topic", topic), whole_number("queue_id", queue_id, 0)
        reader = self._open().reader
        reader.look_for(topic, must_exist=False)
        return reader.bounds(topic, queue_id, catch_up=catch_up)

    def _open(self) -> Engine:
        self._engine.check_open()
        return self._engine

    def _writing(self, call: str) -> WritingEngine:
        """For what needs a store that takes puts; an error names the call. The engine of a guest has
        what its host's has, for all that is asked of it here."""
        engine = self._open()
        if not engine.takes_puts:
            raise StoreReadOnlyError(
                f"{call}: the store was opened with mode='r'; open it with 'rw' or 'r+'"
            )
        return cast("WritingEngine", engine)

    def _owning(self, call: str, instead: str = "put there") -> WritingEngine:
        """For what changes the log, which in a copy only its master does."""
        engine = self._writing(call)
        if engine.copy_of:
            raise ReplicaStoreError(
                f"{call}: this store is a copy of {engine.copy_of}: {instead}, or stop it and make "
                "it the master with 'rocketstore promote'"
            )
        return engine

    def __enter__(self) -> Store:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"Store({self._engine.path!r}, closed)"
        try:
            self._engine.check_open()
        except StoreReplacedError as error:
            return f"Store({self._engine.path!r}, replaced: {error.reason})"
        positions = self._engine.positions
        return (
            f"Store({self._engine.path!r}, mode={self._mode!r}, "
            f"durability={str(self._engine.config.durability)!r}, begin={self.begin_offset}, "
            f"end={positions.wrote}, flushed={positions.flushed})"
        )

    def __reduce__(self) -> str:
        raise TypeError(
            "a Store cannot be pickled; open it again with "
            f"rocketstore.open({self._engine.path!r}, 'r')"
        )
