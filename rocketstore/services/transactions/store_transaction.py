"""`Store.transaction`: messages of several queues and offsets of groups, all or none of them."""

from __future__ import annotations

import contextlib
import datetime
import logging
from typing import TYPE_CHECKING, Final, Literal, Self

from rocketstore._native.format.message import Message
from rocketstore._native.put.batch_append import Rows
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.consumer import Consumer
from rocketstore.consuming.reading import MOMENTS, ConsumerBusyError, Span
from rocketstore.errors import (
    ConfigError,
    MessageRejectedError,
    OutcomeUnknownError,
    RocketStoreError,
    StoreClosedError,
    TransactionBusyError,
    TransactionSettledError,
)
from rocketstore.log.queues.delayed_puts import Change
from rocketstore.puts.put_batch import NewMessage
from rocketstore.services.transactions.commit_records import TOPIC, record_bytes
from rocketstore.services.transactions.commits import Appended, Commits
from rocketstore.services.transactions.new_copies import FIELDS, check_properties, check_size
from rocketstore.values.arguments import text
from rocketstore.values.public import public

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from rocketstore._native.append.put_result import PutResult
    from rocketstore.consuming.chosen import Upto
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.log.read.unique_ids import Claim
    from rocketstore.values.arguments import Body, Row
    from rocketstore.values.durability import Durability
    from rocketstore.values.timestamps import Duration, Timestamp

__all__ = ["StoreTransaction"]

logger = logging.getLogger(__name__)

BUSY: Final = TransactionBusyError(
    "another thread is using this transaction: give each thread its own"
)


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
        self._id, self._begun = commits.new_id(), next(MOMENTS)
        # The commit record, and the messages.
        self._rows = Rows()
        self._rows.begin(engine.plain_writer(TOPIC, 0), self._id)
        self._claims: dict[Claim, int] = {}  # unique ids, with the row that has each
        self._changes: list[Change] = []
        self._held: list[int] = []  # bytes of each record that they are
        self._results: Sequence[PutResult] = ()
        self._offsets: dict[tuple[Consumer, str], dict[int, Span]] = {}
        #: Where `consume` found each consumer.
        self._found: dict[Consumer, dict[int, int]] = {}
        self._appended: Appended | None = None
        # An append may have happened without a word.
        self._unsure = False
        self._outcome: Literal["commit", "rollback"] | None = None
        self._entered = False
        self._one_call = SignalSafeLock("a transaction", busy=BUSY)

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
        expected_queue_offset: int | None = None,
        unique_id: str | None = None,
        delay_level: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
    ) -> None:
        """Adds a message, which the commit puts; fields as of `NewMessage`. Nobody sees it before.

        The bodies of all messages, with some 100 bytes more for each, have to fit into one record
        (`max_message_size_bytes`), and that with all messages into one segment and, with the
        durability "disk", into half of `write_buffer_bytes`: some 2 MiB of bodies by default.

        Args:
            expected_queue_offset: The commit raises QueueOffsetMismatchError and stores nothing
                where the message would get another one. Messages of the transaction count.
            unique_id: The commit leaves the message out where one with this id is there, delivered
                or waiting; its entry in `results` says so.
            delay_level, deliver_at, deliver_after: As of `Writer.put`. A span begins now.

        Raises:
            MessageRejectedError and its kin: The message cannot be stored. A half message cannot be
                part of a transaction, nor two messages with one unique id.
            MessageTooLargeError: The transaction would be too large. It stays as it was.
            ConfigError: `unique_id` needs the index.
            TransactionSettledError: It has ended.
            TransactionBusyError: Another thread is using it.
            StoreClosedError: The store was closed.
        """
        with self._one_call():
            self._check("put")
            before = len(self._rows)
            try:
                writer = self._commits.writer(topic, queue_id)
                if properties is not None:
                    check_properties(properties)
                if unique_id is not None:
                    claim = self._engine.unique_ids.claim(topic, unique_id)
                    if self._claims.setdefault(claim, before) != before:
                        raise MessageRejectedError(
                            f"unique_id = {unique_id!r}: it is in the transaction already"
                        )
                self._rows.add(
                    writer,
                    body,
                    tags,
                    keys,
                    properties,
                    flag,
                    born_time,
                    shard_key,
                    delay_level,
                    deliver_at,
                    deliver_after,
                    unique_id,
                    expected_queue_offset,
                )
                self._check_size(len(self._rows) - before)
            except BaseException:
                self._take_back(before)
                raise

    def put_batch(self, messages: Iterable[NewMessage]) -> None:
        """Adds messages of any topics, all or none of them.

        Raises:
            TypeError, MessageRejectedError and its kin, MessageTooLargeError: None was added; a note
                says which one cannot be.
            TransactionSettledError, TransactionBusyError, StoreClosedError: As `put`.
        """
        with self._one_call():
            self._check("put_batch")
            before = len(self._rows)
            try:
                for index, message in enumerate(messages):
                    if not isinstance(message, NewMessage):
                        raise TypeError(
                            f"messages[{index}]: expected NewMessage, not {type(message).__name__}"
                        )
                    try:
                        writer = self._commits.writer(message.topic, message.queue_id)
                        check_properties(message.properties or {})
                        self._rows.add(writer, *[getattr(message, name) for name in FIELDS])
                    except (TypeError, ValueError) as error:
                        error.add_note(f"messages[{index}]; none was added")
                        raise
                self._check_size(len(self._rows) - before)
            except BaseException:
                self._take_back(before)
                raise

    def cancel(self, unique_id: str) -> bool:
        """Cancels the messages that wait with this id, at the commit. False: none waits, and nothing
        is added.

        The commit raises MessageNotFoundError, and stores nothing, where they were delivered
        meanwhile.

        Raises:
            MessageRejectedError: The transaction ends what has this id already.
            RocketStoreError: As `put`.
        """
        return self._change("cancel", Change(text("unique_id", unique_id)))

    def reschedule(self, unique_id: str, when: Timestamp | datetime.timedelta) -> bool:
        """Has the messages that wait with this id delivered at another time, from the commit on. `when`
        is as of `Delayed.reschedule`, a span begins now. It gives what `cancel` gives.

        Raises:
            RocketStoreError: As `cancel`.
            ValueError, TypeError: `when` is no time.
        """
        when_ms = max(0, self._engine.delayed_puts.moment_ms("when", when))
        span = when if isinstance(when, datetime.timedelta) else datetime.timedelta()
        span_ms = span // datetime.timedelta(milliseconds=1)
        change = Change(text("unique_id", unique_id), when_ms, span_ms)
        return self._change("reschedule", change)

    def _change(self, asked: str, change: Change) -> bool:
        with self._one_call():
            self._check(asked)
            changing = self._engine.delayed_puts.changing
            if changing is None:
                return False
            if any(change.unique_id == one.unique_id for one in self._changes):
                raise MessageRejectedError(
                    f"unique_id = {change.unique_id!r}: the transaction ends it already"
                )
            with changing([change]) as now:
                rows = now.rows(f"{self._id}.c")
            if rows:
                self._check_size(len(rows), rows)
                self._changes.append(change)
            return bool(rows)

    @property
    def results(self) -> list[PutResult]:
        """What the put of each message gave, in their order; empty before the commit, and where an
        exception of a signal's handler ended that."""
        return [*self._results]

    def consume(
        self,
        consumer: Consumer,
        max_messages: int = 500,
        timeout_s: Duration | None = 0.0,
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
            self._check_consumer("consume", consumer)
            with consumer._use():
                self._begin_reading(consumer, allow_gap=allow_gap)
                messages = consumer._polled(max_messages, timeout_s)
                self._has_read(consumer)
                return messages

    def commit_offsets(
        self, consumer: Consumer, upto: Upto = None, *, allow_gap: bool = False
    ) -> dict[int, int]:
        """Adds the offsets of a consumer's group, which the commit stores; gives them.

        A transaction has read what `consume` gave, what the consumer handed out since the
        transaction began, what its last `poll` before gave, and the message that `upto` is. It does
        not step over other messages that the group has not committed: they would never be read
        again. A second call for the same consumer replaces the first for the queues that it names.
        An offset that another commit of the group has replaced meanwhile stays as stored there.

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
                spans = consumer._reading.spans(offsets, self._begun)
                if offsets is not None:  # where the consumer is, its queue has come to
                    stored.check(consumer._reader, offsets)
                if isinstance(upto, Message):
                    spans = {n: Span(min(s.begin, s.end - 1), s.end) for n, s in spans.items()}
                self._add_spans(consumer, stored.key, spans, allow_gap=allow_gap)
            return {queue_id: span.end for queue_id, span in spans.items()}

    # Two steps of `consume`, between which an event loop reads by itself.

    def _step(self, consumer: Consumer, step: Callable[..., None], **given: bool) -> None:
        """One of them, by itself."""
        self._check_consumer("consume", consumer)
        with consumer._use():
            step(consumer, **given)

    def _begin_reading(self, consumer: Consumer, *, allow_gap: bool) -> None:
        """This transaction reads each message that the consumer hands out from here on."""
        key = consumer._group_positions().key
        positions = consumer._reading.positions()
        here = {queue_id: Span(at, at) for queue_id, at in positions.items()}
        self._add_spans(consumer, key, here, allow_gap=allow_gap)
        self._found.setdefault(consumer, positions)

    def _has_read(self, consumer: Consumer) -> None:
        spans = self._offsets[consumer, consumer._group_positions().key]
        for cursor in consumer._cursors:
            begin = spans[n].begin if (n := cursor.queue_id) in spans else cursor.began
            spans[n] = Span(begin, consumer._cursors.handed(cursor))

    def _add_spans(
        self, consumer: Consumer, key: str, spans: dict[int, Span], *, allow_gap: bool
    ) -> None:
        held = self._offsets.get((consumer, key), {})
        if held or allow_gap:
            spans = {
                n: Span(0, s.end) if allow_gap else s.after(held.get(n)) for n, s in spans.items()
            }
        if not consumer._reading.follows(spans):
            stored = self._commits.stored(key)
            consumer._reading.check(consumer._reader, key, spans, stored)
        self._offsets[consumer, key] = {**held, **spans}

    def commit(self) -> None:
        """Ends it: all of it counts from here on. `with` does it at its end.

        It returns once the promise of the transaction is met, and with offsets once it is on disk
        in any case. A second call puts nothing; after an error call it again. An empty one writes
        nothing. Where `with` commits and nothing was stored, it rolls back.

        Raises:
            TransactionSettledError: It was rolled back.
            StoreClosedError: The store, or a consumer, was closed. Nothing was stored.
            MessageNotFoundError: What `cancel` or `reschedule` found waits no more. Nothing was stored.
            MessageRejectedError: It puts a message with a `unique_id` that it cancels in this topic.
                Nothing was stored.
            QueueOffsetMismatchError: A message would not get its `expected_queue_offset`. Nothing was
                stored.
            OffsetGapError: Another transaction of the group, which read what lies before, was not
                committed. Nothing was stored.
            BackpressureError, DiskFullError: No room. Where `outcome` is None, nothing was stored.
            DurabilityTimeoutError: It is in the log and counts, but may not be on disk.
            StoreFailedError: A sync failed. The next open finds all of it, or nothing.
            OutcomeUnknownError: Of a guest: its host gave no answer. commit() again settles it.
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
                    stored = self._engine.offsets.row(key)
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
            self._rows = Rows()
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
        state = self._outcome or f"open, {len(self._rows) - 1} messages"
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
            self._appended = self._commits.append(
                *(self._id, self._rows, self._claims, self._offsets, self._changes),
                self._durability,
            )
        except OutcomeUnknownError:
            raise
        except RocketStoreError:
            self._unsure = before  # nothing was stored by this call
            raise
        self._outcome, self._unsure = "commit", False
        self._results = () if self._appended is None else self._appended.results
        self._rows = Rows()

    def _check_size(self, count: int, more: Iterable[Row] = ()) -> None:
        """Raises MessageTooLargeError where it is too large since `count` messages came to it. `more` come
        to its end."""
        held = [*self._held, *map(record_bytes, more)]
        check_size(self._engine, self._id, self._rows.needs(len(held), sum(held)), count)
        self._held = held

    def _take_back(self, before: int) -> None:
        """Only the first `before` rows stay."""
        self._rows = self._rows.chosen([*range(before)])
        self._claims = {claim: row for claim, row in self._claims.items() if row < before}
