"""`Store.transaction`: messages of several queues and offsets of groups, all or none of them."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from typing import TYPE_CHECKING, Final, Literal, Self

from rocketstore._native.format.codec import encode_properties
from rocketstore._native.format.message import Message
from rocketstore._native.put.batch_append import Rows
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.consumer import Consumer
from rocketstore.consuming.reading import ConsumerBusyError, Span
from rocketstore.errors import (
    ConfigError,
    MessageRejectedError,
    MessageTooLargeError,
    RocketStoreError,
    StoreClosedError,
    TransactionBusyError,
    TransactionSettledError,
)
from rocketstore.services.transactions.commit_records import NewCopy, described
from rocketstore.services.transactions.commits import Appended, Commits, add_copy
from rocketstore.values.arguments import text
from rocketstore.values.durability import queue_ids_of
from rocketstore.values.public import public
from rocketstore.values.reserved_names import is_system_topic, refused_in_transaction
from rocketstore.values.timestamps import timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from rocketstore.consuming.chosen import Upto
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.values.arguments import Body
    from rocketstore.values.durability import Durability
    from rocketstore.values.timestamps import Timestamp

__all__ = ["StoreTransaction"]

logger = logging.getLogger(__name__)

#: Bytes of a record without its body and what describes it: fixed fields, checksum, blank, our
#: property.
RECORD_ROOM: Final = 256
#: The same of the commit record.
HEAD_ROOM: Final = 512


@public
class StoreTransaction:
    """Messages and offsets that become visible together, or not at all: `Store.transaction`.

    Nothing is in the log before the commit: a transaction that is rolled back, or forgotten,
    leaves no trace. It is kept in memory, so it has a limit (`put`). One thread at a time may use
    it, and it has one end.
    """

    def __init__(self, engine: WritingEngine, commits: Commits, durability: Durability) -> None:
        if not isinstance(commits, Commits):
            raise TypeError("a StoreTransaction is what Store.transaction gives")
        self._engine = engine
        self._commits = commits
        self._durability: Durability = durability
        self._copies: list[NewCopy] = []
        self._offsets: dict[tuple[Consumer, str], dict[int, Span]] = {}
        #: Where `consume` found each consumer.
        self._found: dict[Consumer, dict[int, int]] = {}
        self._record_bytes = HEAD_ROOM
        self._batch_bytes = HEAD_ROOM
        self._appended: Appended | None = None
        # An append may have happened without a word.
        self._unsure = False
        self._outcome: Literal["commit", "rollback"] | None = None
        self._entered = False
        self._id = os.urandom(8).hex()
        self._one_call = SignalSafeLock(
            "a transaction",
            busy=TransactionBusyError(
                f"transaction {self._id}: another thread is using it: give each thread its own"
            ),
        )

    @property
    def id(self) -> str:
        """What the property RS_TRANSACTION of its messages begins with."""
        return self._id

    @property
    def outcome(self) -> Literal["commit", "rollback"] | None:
        """How it ended; None while it is open. After an error of a commit, "commit" says that it is
        in the log all the same."""
        return self._outcome

    def put(
        self,
        topic: str,
        body: Body,
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
    ) -> None:
        """Adds a message, which the commit puts; fields as of `NewMessage`. Nobody sees it before.

        The bodies of all messages, with some 100 bytes more for each, have to fit into one record
        (`max_message_size_bytes`), and that with all messages into one segment and, with the
        durability "disk", into half of `write_buffer_bytes`: some 2 MiB of bodies by default.

        Raises:
            MessageRejectedError and its kin: The message cannot be stored. A delayed message or a
                half message cannot be part of a transaction.
            MessageTooLargeError: The transaction would be too large. It stays as it was.
            TransactionSettledError: It has ended.
            TransactionBusyError: Another thread is using it.
            StoreClosedError: The store was closed.
        """
        with self._one_call():
            self._check("put")
            topic = text("topic", topic)
            if is_system_topic(topic):
                raise MessageRejectedError(
                    f"topic = {topic!r}: the store writes it itself; put to the topic that is "
                    "meant, outside a transaction if delayed or prepared"
                )
            self._engine.check_topic(topic)
            (queue_id,) = queue_ids_of(queue_id, None)
            for name in properties or {}:
                reason = refused_in_transaction(name)
                if reason is not None:
                    raise MessageRejectedError(f"property {name!r} in a transaction: {reason}")
            born_ms = self._engine.write.clock.now_ms()
            if born_time is not None:
                born_ms = timestamp_ms("born_time", born_time)
            kept = keys if keys is None or isinstance(keys, str) else tuple(keys)
            fields = (topic, queue_id, tags, kept, dict(properties or {}), flag, born_ms, shard_key)
            checked = Rows()
            add_copy(checked, self._engine, NewCopy(*fields, body), f"{self._id}.0")  # type: ignore[arg-type]
            self._add(NewCopy(*fields, bytes(body)))

    def consume(
        self,
        consumer: Consumer,
        max_messages: int = 500,
        timeout_s: float | None = 0.0,
        *,
        allow_gap: bool = False,
    ) -> list[Message]:
        """Gives what `Consumer.poll` gives, which belongs to the transaction from here on: the
        commit stores the offsets after these messages, and after a rollback they come again.

        A rollback takes the consumer back to where the first call found it, an exception in the
        `with` as well.

        Args:
            consumer: A consumer of this store, with a group; it must be open at the commit.
            max_messages, timeout_s: As of `Consumer.poll`.
            allow_gap: As of `commit_offsets`.

        Raises:
            OffsetGapError: The consumer is beyond the offset of its group, and the transaction has
                not read what lies between: `consumer.rewind()` goes back. Nothing was read.
            The errors of `Consumer.poll` and `commit_offsets`: No message was given.
        """
        with self._one_call():
            self._begin_reading(consumer, allow_gap=allow_gap)
            messages = consumer.poll(max_messages, timeout_s)
            self._has_read(consumer)
            return messages

    def commit_offsets(
        self, consumer: Consumer, upto: Upto = None, *, allow_gap: bool = False
    ) -> dict[int, int]:
        """Adds the offsets of a consumer's group, which the commit stores; gives them.

        A transaction has read what `consume` gave, what the last `poll` of the consumer gave, and
        the message that `upto` is. It does not step over other messages that the group has not
        committed: they would never be read again. A second call for the same consumer replaces the
        first for the queues that it names. An offset that another commit of the group has replaced
        meanwhile stays as stored there.

        Args:
            consumer: A consumer of this store, with a group; it must be open at the commit.
            upto: As of `Consumer.commit`: None: its positions at this moment. A message: it and all
                before it in its queue. A mapping: the next queue offset by queue id.
            allow_gap: Whether to step over messages that nobody has committed and the transaction
                has not read.

        Raises:
            OffsetGapError: It would step over such messages. The transaction stays as it was.
            NoGroupError: The consumer has no group.
            ConfigError: It is a consumer of another store.
            OffsetOutOfRangeError: An offset is beyond the end of its queue.
            QueueNotFoundError: The consumer has no such queue.
            ValueError, TypeError: `upto` is nothing of the above, or `consumer` is none.
            TransactionSettledError: It has ended.
            TransactionBusyError, ConsumerBusyError: Another thread is using it, or the consumer.
            StoreClosedError: The store, or the consumer, was closed.
        """
        with self._one_call():
            self._check_consumer("commit_offsets", consumer)
            with consumer._use():
                stored, offsets = consumer._to_commit(upto)
                spans = consumer._reading.spans(offsets)
                stored.check(consumer._reader, {n: span.end for n, span in spans.items()})
                if isinstance(upto, Message):
                    spans = {n: Span(min(s.begin, s.end - 1), s.end) for n, s in spans.items()}
                self._add_spans(consumer, spans, allow_gap=allow_gap)
            return {queue_id: span.end for queue_id, span in spans.items()}

    # Two steps of `consume`, between which an event loop reads by itself.

    def _begin_reading(self, consumer: Consumer, *, allow_gap: bool) -> None:
        """Whatever the consumer hands out from here on is read by this transaction."""
        self._check_consumer("consume", consumer)
        with consumer._use():
            consumer._group_positions()
            positions = consumer.positions
            here = {queue_id: Span(at, at) for queue_id, at in positions.items()}
            self._add_spans(consumer, here, allow_gap=allow_gap)
        self._found.setdefault(consumer, positions)

    def _has_read(self, consumer: Consumer) -> None:
        with consumer._use():
            spans = self._offsets[consumer, f"{consumer.topic}@{consumer.group}"]
            for cursor in consumer._cursors:
                begin = spans[n].begin if (n := cursor.queue_id) in spans else cursor.began
                spans[n] = Span(begin, consumer._cursors.handed(cursor))

    def _add_spans(self, consumer: Consumer, spans: dict[int, Span], *, allow_gap: bool) -> None:
        place = (consumer, f"{consumer.topic}@{consumer.group}")
        held = self._offsets.get(place, {})
        added = {n: Span(0, s.end) if allow_gap else s.after(held.get(n)) for n, s in spans.items()}
        self._commits.check_gaps(consumer, place[1], added)
        self._offsets[place] = {**held, **added}

    def commit(self) -> None:
        """Ends it: all of it counts from here on. `with` does it at its end.

        It returns once the promise of the transaction is met, and with offsets once it is on disk
        in any case. A second call puts nothing; after an error call it again. An empty one writes
        nothing. Where `with` commits and nothing was stored, it rolls back.

        Raises:
            TransactionSettledError: It was rolled back.
            StoreClosedError: The store, or a consumer, was closed. Nothing was stored.
            OffsetGapError: Another transaction of the group, which read what lies before, was not
                committed. Nothing was stored.
            BackpressureError, DiskFullError: No room. Where `outcome` is None, nothing was stored.
            DurabilityTimeoutError: It is in the log and counts, but may not be on disk.
            StoreFailedError: A sync failed. The next open finds all of it, or nothing.
            TransactionBusyError: Another thread is using it.
        """
        with self._one_call():
            if self._outcome == "rollback":
                raise TransactionSettledError(self._id, "rollback", "commit")
            if self._outcome is None:
                self._engine.check_open()
                self._append()
            if self._appended is not None:
                self._commits.wait(self._id, self._appended, self._durability)
                self._appended = None
                for consumer, key in self._offsets:
                    stored = self._engine.offsets.get(*key.split("@"))
                    for cursor in consumer._cursors:
                        cursor.committed = stored.get(cursor.queue_id)

    def rollback(self) -> None:
        """Ends it without a trace. `with` does it for an exception. A second call does nothing.

        Raises:
            TransactionSettledError: It was committed.
            TransactionBusyError: Another thread is using it.
        """
        with self._one_call():
            if self._unsure:
                self._appended = self._commits.find(self._id)
                self._unsure = False
                self._outcome = None if self._appended is None else "commit"
            if self._outcome == "commit":
                raise TransactionSettledError(self._id, "commit", "rollback")
            self._outcome = "rollback"
            self._copies.clear()
            while self._found:
                consumer, positions = self._found.popitem()
                try:
                    with consumer._use():
                        consumer._met = None
                        consumer._reading.go_back(positions)
                except (ConsumerBusyError, StoreClosedError) as error:  # then none steps over them
                    logger.debug("transaction %s: a consumer stays: %s", self._id, error)

    def __enter__(self) -> Self:
        self._check("with")
        if self._entered:
            raise TransactionBusyError(
                f"transaction {self._id}: it is in a `with` already: begin another one with "
                "store.transaction()"
            )
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commits it, or rolls it back for an exception, unless it has ended."""
        if self._outcome is None:
            try:
                if kind is None:
                    self.commit()
            finally:
                if self._outcome is None:
                    # It is settled where a signal came amid a commit.
                    with contextlib.suppress(TransactionSettledError):
                        self.rollback()

    def __repr__(self) -> str:
        state = self._outcome or f"open, {len(self._copies)} messages"
        return f"<rocketstore.StoreTransaction {self._id}, {state}>"

    def _check(self, asked: str) -> None:
        if self._outcome is not None:
            raise TransactionSettledError(self._id, self._outcome, asked)
        self._engine.check_open()

    def _check_consumer(self, asked: str, consumer: Consumer) -> None:
        self._check(asked)
        if not isinstance(consumer, Consumer):
            raise TypeError(f"consumer: expected a Consumer, not {type(consumer).__name__}")
        if consumer._reader is not self._engine.reader:
            raise ConfigError(
                "consumer", consumer, "of another store: use store.consumer of the transaction's"
            )

    def _append(self) -> None:
        before, self._unsure = self._unsure, True
        try:
            copies = tuple(self._copies)
            self._appended = self._commits.append(self._id, copies, self._offsets)
        except RocketStoreError:
            self._unsure = before  # nothing was stored by this call
            raise
        self._outcome, self._unsure = "commit", False
        self._copies.clear()

    def _add(self, copy: NewCopy) -> None:
        about = len(json.dumps(described(copy))) + 2
        record = self._record_bytes + about + len(copy.body)
        own = about + len(encode_properties(copy.properties)) + len(copy.topic.encode())
        batch = self._batch_bytes + about + own + 2 * len(copy.body) + RECORD_ROOM
        config, ring = self._engine.config, self._engine.write.ring
        segment = config.commit_log_file_size_bytes
        limits = [
            (record, "max_message_size_bytes", config.max_message_size_bytes, "open the store"),
            (batch, "commit_log_file_size_bytes", segment, "make a store"),
        ]
        if ring is not None:  # a batch takes half of it
            limits.append((2 * batch, "write_buffer_bytes", ring.size, "open the store"))
        for needs, name, most, remedy in limits:
            if needs > most:
                raise MessageTooLargeError(
                    f"transaction {self._id}: with this message of {len(copy.body)} bytes it needs "
                    f"{name} = {needs}, and there are {most}: commit it in several "
                    f"transactions, or {remedy} with {name}={needs} or more"
                )
        self._record_bytes, self._batch_bytes = record, batch
        self._copies.append(copy)
