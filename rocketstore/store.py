"""Store: the public face of one store directory. It wires parts and decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Never, Unpack

from rocketstore._native.sync.futex import timeout_ms
from rocketstore.config import StoreConfig
from rocketstore.consumer import Consumer
from rocketstore.errors import DurabilityTimeoutError, StoreReplacedError
from rocketstore.log.read.query import answers_of, key_query
from rocketstore.log.read.time_search import Boundary
from rocketstore.puts.put_batch import NewMessage, put_batch
from rocketstore.puts.put_message import put_message
from rocketstore.service_access import ServiceAccess
from rocketstore.store_info import Mode
from rocketstore.values.arguments import one_of, text, whole_number
from rocketstore.values.durability import Durability, durability_of, queue_ids_of
from rocketstore.values.public import public
from rocketstore.values.renamed import refuse_arguments
from rocketstore.values.reserved_properties import RESERVED_PROPERTIES
from rocketstore.values.timestamps import Timestamp, timestamp_ms
from rocketstore.writer import Writer

if TYPE_CHECKING:
    from types import TracebackType

    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.format.scanner import Message
    from rocketstore.config.typed_options import LiveOptions
    from rocketstore.errors import CorruptRecordError
    from rocketstore.puts.frames import FramesResult
    from rocketstore.puts.put_columns import MessageColumns
    from rocketstore.shipping import ShipReport
    from rocketstore.values.arguments import Body, Column
    from rocketstore.values.callbacks import Progress

__all__ = ["Mode", "Store"]


@public
class Store(ServiceAccess):
    """An open store. Made by `rocketstore.open`; use it as a context manager, from any thread."""

    # ---- writing ----

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
            durability: The promise of this writer's puts. None: that of the store.

        Raises:
            InvalidTopicError: RocketMQ does not allow such a topic.
            ConfigError: A queue number or a promise that there is not.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        engine = self._writable("writer")
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
        )
        return writer._bind(engine.completions, engine.path, engine.unique_ids)

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
        durability: Durability | None = None,
        timeout_s: float | None = None,
        expected_queue_offset: int | None = None,
    ) -> PutResult:
        """Appends one message with every field as given: RocketMQ's putMessage, for interop and
        imports.

        The store drops `__CRC32#` and INNER_MULTI_QUEUE_OFFSET from the properties, since it writes
        these itself. `WAIT` = "false" asks for durability "memory". With light queues on,
        INNER_MULTI_DISPATCH lists further queues.

        Raises:
            MessageRejectedError and its kin: The message cannot be stored as it is.
            QueueOffsetMismatchError: It would not get `expected_queue_offset`. Nothing was stored.
            BackpressureError, DiskFullError, StoreFailedError: No room. Nothing was stored.
            DurabilityTimeoutError: The message is stored (`error.result`), but not known to be on
                disk.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        return put_message(
            self._writable("put_message"), topic, body, queue_id, properties, flag=flag,
            sys_flag=sys_flag, born_time=born_time, born_host=born_host, store_host=store_host,
            reconsume_times=reconsume_times, durability=durability, timeout_s=timeout_s,
            prepared_transaction_offset=prepared_transaction_offset, expected=expected_queue_offset,
        )  # fmt: skip

    def put_batch(
        self,
        messages: Iterable[NewMessage],
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
    ) -> PutResult:
        """Appends messages of any topics and queues, back to back in one segment, and waits once.

        The store checks all messages first; an error notes the message that it means. After the
        death of the process all of them are there or none, as with `Writer.put_batch`.

        Raises:
            MessageRejectedError and its kin: A message cannot be stored.
            TypeError: An item is no NewMessage.
            BackpressureError, DiskFullError, StoreFailedError: No room. Nothing was stored.
            DurabilityTimeoutError: The batch is stored (`error.result`), but not known to be on
                disk.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
        """
        default = self._writable("put_batch").config.durability
        writer = lambda topic, n: self.writer(topic, queue_id=n)  # noqa: E731
        return put_batch(messages, writer, durability, timeout_s, default)

    def put_frames(
        self, frames: Body, *, durability: Durability | None = None, timeout_s: float | None = None
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

        return put_frames(self._writable("put_frames"), frames, durability, timeout_s)

    def put_columns(
        self,
        bodies: Column,
        *,
        durability: Durability | None = None,
        timeout_s: float | None = None,
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

        engine = self._writable("put_columns")
        most = engine.config.max_message_size_bytes
        made = message_columns(self.put_columns, bodies, columns, most, engine.write.clock)
        return put_columns(engine, bodies, made, durability, timeout_s)

    def wait_flushed(self, end_offset: int, timeout_s: float | None = None) -> None:
        """Returns once everything below physical offset `end_offset` survives a power cut.

        Raises:
            DurabilityTimeoutError: Not within the timeout (default `sync_flush_timeout_ms`).
            ValueError: The log ends before `end_offset`.
            StoreFailedError: A sync of the log failed.
            StoreReadOnlyError, StoreClosedError: The store does not flush.
        """
        engine = self._writable("wait_flushed")
        left_ms = (
            engine.config.sync_flush_timeout_ms if timeout_s is None else timeout_ms(timeout_s)
        )
        end_offset = whole_number("end_offset", end_offset, 0)
        if end_offset > engine.positions.wrote:
            raise ValueError(f"end_offset = {end_offset}: the log ends at {engine.positions.wrote}")
        if not engine.commit_log.log.wait(end_offset, 2, left_ms):
            raise DurabilityTimeoutError(
                f"flushed = {engine.positions.flushed} after {left_ms} ms, asked for {end_offset}"
            )

    def flush(self, timeout_s: float | None = None) -> int:
        """Returns once all that was put before survives a power cut; gives `flushed_offset`.

        Raises:
            DurabilityTimeoutError, StoreFailedError: As `wait_flushed`.
            StoreReadOnlyError, StoreClosedError: The store does not flush.
        """
        engine = self._writable("flush")
        self.wait_flushed(engine.positions.wrote, timeout_s)
        return engine.positions.flushed

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
                mode "r" the consumer owns nothing, and `commit` raises StoreReadOnlyError.
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
            FilterSyntaxError, ModuleNotFoundError: `where` is none, or lacks `rocketstore[sql]`.
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
                does not hold. The record is left out, with a warning in the log.

        Raises:
            InvalidTopicError: No topic can have this name, and the store has none such.
            QueueNotFoundError: `must_exist`, and there is no such topic.
            ConfigError: The store has no index (`index_enabled`).
            ValueError, TypeError: An argument that has no meaning.
            ReadFailedError: The disk does not give back a record that the index names.
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

    # ---- care ----

    def configure(self, **changes: Unpack[LiveOptions]) -> StoreConfig:
        """Changes options while the store is open; gives the new config.

        Only options that docs/options.md marks can change; the others need a new open.

        Raises:
            ConfigError: An option that cannot change, or a wrong value. Nothing was changed.
            StoreReadOnlyError, StoreClosedError: The store cannot be configured.
        """
        return self._writable("configure").configure(changes)

    def trim(
        self,
        *unnamed: Never,
        before_offset: int | None = None,
        before_time: Timestamp | None = None,
        **unknown: Never,
    ) -> int:
        """Removes whole segments from the front of the log; gives the new begin offset.

        The last segment stays, and so does what the dispatcher has not reached.

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
            StoreReadOnlyError, StoreClosedError: the store cannot be trimmed.
            OSError: a file cannot be removed; the next trim tries again.
        """
        if unknown:
            refuse_arguments(self.trim, unknown)
        engine = self._writable("trim")
        if unnamed or (before_offset is None) == (before_time is None):
            raise TypeError("trim() takes one of before_offset= and before_time=, by its name")
        if before_time is not None:
            return engine.trim(before_ms=timestamp_ms("before_time", before_time))
        before_offset = whole_number("before_offset", before_offset, 0)
        if before_offset > engine.positions.wrote:
            raise ValueError(
                f"before_offset = {before_offset}: the log ends at {engine.positions.wrote}; "
                "for a time use before_time="
            )
        return engine.trim(before_offset=before_offset)

    def destroy(self) -> None:
        """Closes the store and deletes every file that belongs to it. There is no way back.

        Raises:
            OSError: A file cannot be deleted; the error names it. The next `open(path)` deletes the
                rest and makes a new store.
            StoreReadOnlyError, StoreClosedError: The store is not open for writing.
        """
        self._writable("destroy").destroy()

    def ship(self, uri: str, *, tail: bool = False, progress: Progress | None = None) -> ShipReport:
        """Copies the sealed segments of this store to an archive, as `rocketstore.ship` does.

        Raises:
            ConfigError, CorruptRecordError, ReadFailedError, OSError, ImportError: As
                `rocketstore.ship`.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        from rocketstore.shipping import ship_store

        return ship_store(self, uri, progress, tail=tail)

    def close(self) -> None:
        """Flushes, dispatches, marks the stop as clean and unlocks the store.

        A second call does nothing. Messages that were handed out stay readable.

        Raises:
            StoreFailedError: The last flush failed. The store is closed all the same.
            OSError: A file cannot be written. The store is closed all the same.
        """
        self._engine.close()

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
