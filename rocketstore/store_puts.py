"""What `Store` does in a put: the part that a program calls to write."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from rocketstore._native.sync.futex import timeout_ms
from rocketstore.errors import DurabilityTimeoutError
from rocketstore.puts.put_batch import NewMessage, put_batch
from rocketstore.puts.put_message import put_message
from rocketstore.service_access import ServiceAccess
from rocketstore.values.arguments import text, whole_number
from rocketstore.values.durability import Durability, durability_of, queue_ids_of
from rocketstore.values.reserved_names import RESERVED_PROPERTIES
from rocketstore.values.timestamps import Timestamp, timestamp_ms
from rocketstore.writer import Writer

if TYPE_CHECKING:
    from rocketstore._native.append.put_result import PutResult
    from rocketstore.puts.frames import FramesResult
    from rocketstore.puts.put_columns import MessageColumns
    from rocketstore.values.arguments import Body, Column

__all__ = ["StorePuts"]


class StorePuts(ServiceAccess):
    """The part of `Store` that puts."""

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
        deliver_after: datetime.timedelta | None = None,
        durability: Durability | None = None,
        timeout_s: float | None = None,
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
            self._writable("put_message"), topic, body, queue_id, properties, flag=flag,
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
