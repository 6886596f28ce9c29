"""`Store.transactions`: messages that are prepared now, and committed or rolled back later."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from rocketstore._native.format.codec import encode_properties
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    DurabilityTimeoutError,
    MessageRejectedError,
    MessageTooLargeError,
)
from rocketstore.log.layout.paths import check_group
from rocketstore.services.transactions.checks import Checks, OnCheck
from rocketstore.services.transactions.half_messages import (
    HALF_TOPIC,
    half_properties,
)
from rocketstore.services.transactions.open_table import entry_of
from rocketstore.services.transactions.settling import Settling
from rocketstore.values.arguments import number_of_seconds, text, whole_number
from rocketstore.values.durability import queue_ids_of
from rocketstore.values.public import public
from rocketstore.values.reserved_names import refused_in_transaction
from rocketstore.values.timestamps import timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Buffer

    from rocketstore._native.append.put_result import PutResult
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.errors import CorruptRecordError, ReadFailedError
    from rocketstore.values.arguments import Body
    from rocketstore.values.durability import Durability
    from rocketstore.values.timestamps import Duration, Timestamp

__all__ = ["OpenTransaction", "Transaction", "Transactions"]

logger = logging.getLogger(__name__)

#: The progress is stored after this many ends, and at close.
SAVE_EVERY: Final = 1000
#: Fixed part of a record, with its checksum, long hosts and the blank after it; and what the name
#: of the dead topic is longer than that of half messages.
RECORD_ROOM: Final = 160


@public
@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is neither committed nor rolled back.

    `id` is the physical offset of its half message, `age_s` the time since that was born. `error`
    says why that cannot be read; where it never could, topic, group, unique id and age are not
    known: "" and 0, and -1 is the queue.
    """

    id: int
    topic: str
    queue_id: int
    group: str
    unique_id: str
    age_s: float
    checks: int
    error: CorruptRecordError | ReadFailedError | None = None


@public
class Transaction:
    """A prepared message. Any thread may commit it or roll it back."""

    def __init__(self, owner: Transactions, transaction_id: int, unique_id: str) -> None:
        self._owner = owner
        self.id: Final = transaction_id
        self.unique_id: Final = unique_id

    def commit(self, durability: Durability | None = None) -> int:
        """Puts the message into its topic.

        Raises:
            RocketStoreError: As `Transactions.commit`.
        """
        return self._owner.commit(self.id, durability)

    def rollback(self, durability: Durability | None = None) -> None:
        """Ends it: the message is never delivered.

        Raises:
            RocketStoreError: As `Transactions.rollback`.
        """
        self._owner.rollback(self.id, durability)

    def __repr__(self) -> str:
        return f"Transaction({self.id})"


@public
class Transactions:
    """The transactions of a store that is open for writing. Any thread may use it."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._settling = Settling(engine)
        self._checks: Checks | None = None
        self._checks_lock = SignalSafeLock("the start of checks", reentrant=False)
        self._settling.refresh()

    def __repr__(self) -> str:
        errors = f", {len(self.errors)} that cannot be read" if self.errors else ""
        return f"Transactions({len(self._settling.table.entries())} open{errors})"

    # ---- what programs call ----

    def prepare(
        self,
        topic: str,
        body: Body,
        *,
        group: str,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        durability: Durability | None = None,
    ) -> Transaction:
        """Stores a message that nobody reads until its transaction is committed.

        Args:
            group: The producer group that settles it.
            queue_id: The queue of `topic` that the message goes to.

        Raises:
            MessageRejectedError and its kin: The message cannot be stored, now or at the commit. A
                delay is a property of RocketMQ that a half message cannot have.
            InvalidGroupError: A name of a group that RocketMQ does not allow.
            BackpressureError, DiskFullError, StoreFailedError: No room. Nothing was stored.
            DurabilityTimeoutError: The half message is stored and its transaction open
                (`error.result.physical_offset` is its id), but it may not be on disk.
        """
        topic = text("topic", topic)
        self._engine.check_topic(topic)
        check_group(text("group", group))
        (queue_id,) = queue_ids_of(queue_id, None)
        given = _properties(properties, tags, keys)
        engine, unique_id = self._engine, uuid.uuid4().hex.upper()
        fields = half_properties(given, topic, queue_id, group, unique_id)
        size = memoryview(cast("Buffer", body)).nbytes
        needs = size + len(encode_properties(fields)) + len(topic) + RECORD_ROOM
        if needs > engine.config.commit_log_file_size_bytes:
            raise MessageTooLargeError(
                f"a message of {size} bytes: with its properties it needs {needs}, and a "
                f"segment has {engine.config.commit_log_file_size_bytes}"
            )
        try:
            result = self._settling.put(
                HALF_TOPIC, body, durability, properties=fields, flag=flag, born_time=born_time
            )
        except DurabilityTimeoutError as error:
            if error.result is not None:
                self._opened(error.result, fields, born_time)
            raise
        self._opened(result, fields, born_time)
        return Transaction(self, result.physical_offset, unique_id)

    def commit(self, transaction_id: int, durability: Durability | None = None) -> int:
        """Puts the message of a transaction into its topic; gives its physical offset there.

        A second commit puts nothing and gives the same. After an error, or a crash, commit again:
        the message is put once.

        Raises:
            UnknownTransactionError: No half message begins at this physical offset.
            TransactionSettledError: The transaction was rolled back, or given up.
            CorruptRecordError, ReadFailedError: Its half message cannot be read. It stays open.
            BackpressureError, DiskFullError, StoreFailedError: No room. It stays open.
            DurabilityTimeoutError: It is committed, but may not be on disk.
        """
        copy = self._settling.settle(transaction_id, "commit", durability)
        assert copy is not None
        return copy

    def rollback(self, transaction_id: int, durability: Durability | None = None) -> None:
        """Settles a transaction so that its message is never delivered. Idempotent.

        Raises:
            UnknownTransactionError: No half message begins at this physical offset.
            TransactionSettledError: The transaction was committed.
            CorruptRecordError, ReadFailedError: It is settled, and a message cannot be read that
                may be its copy.
            BackpressureError, DiskFullError, StoreFailedError: No room. It stays open.
            DurabilityTimeoutError: It is rolled back, but may not be on disk.
        """
        self._settling.settle(transaction_id, "rollback", durability)

    def open(self) -> list[OpenTransaction]:
        """Lists the open transactions, oldest first.

        One with a damaged half message is listed, too: `rollback` takes it from the list.

        Raises:
            StoreClosedError: The store was closed.
        """
        self._settling.refresh()
        now_ms = self._engine.write.clock.now_ms()
        return [
            OpenTransaction(
                *(entry.physical_offset, entry.topic, entry.queue_id, entry.group),
                entry.unique_id,
                max(0, now_ms - entry.born_ms) / 1000 if entry.topic else 0.0,
                entry.checks,
                entry.error,
            )
            for entry in self._settling.table.entries()
        ]

    @property
    def errors(self) -> list[CorruptRecordError | ReadFailedError]:
        """Why half messages of open transactions, and op messages, cannot be read; one for each.

        What an op message settled that cannot be read is open again, unless its copy is found.
        """
        return self._settling.table.errors()

    def check_back(
        self,
        on_check: OnCheck,
        *,
        immunity_s: Duration = 6.0,
        interval_s: Duration = 30.0,
        max_checks: int = 15,
    ) -> None:
        """Asks `on_check` about open transactions, from now until the store closes.

        It is called with the half message, in a thread of its own, and gives "commit", "rollback"
        or None: ask again later. An error is logged, kept in `check_error`, and counts as None. A
        second call replaces the first callback.

        Args:
            immunity_s: Age below which a transaction is left alone (`transactionTimeOut`), unless
                its message has CHECK_IMMUNITY_TIME_IN_SECONDS.
            interval_s: Time between two questions about one (`transactionCheckInterval`).
            max_checks: Questions without an answer, after which the message goes to the topic
                TRANS_CHECK_MAX_TIME_TOPIC (`transactionCheckMax`). They are counted from 0 after
                an open, apart from those that RocketMQ has noted.

        Raises:
            TypeError, ValueError: An argument that has no meaning.
        """
        if not callable(on_check):
            raise TypeError(f"on_check = {on_check!r}: expected a function")
        for name, given in (("immunity_s", immunity_s), ("interval_s", interval_s)):
            if number_of_seconds(name, given) < 0:
                raise ValueError(f"{name} = {given}: 0 or more")
        checks = Checks(
            self._settling,
            self._engine.write.clock,
            on_check,
            immunity_ms=int(number_of_seconds("immunity_s", immunity_s) * 1000),
            interval_ms=int(number_of_seconds("interval_s", interval_s) * 1000),
            max_checks=whole_number("max_checks", max_checks, 1),
        )
        with self._checks_lock():
            if self._checks is not None:
                self._checks.end()
            self._checks = checks
            checks.start()

    @property
    def check_error(self) -> BaseException | None:
        """The last error of `on_check`, or of what came of its answer."""
        return None if self._checks is None else self._checks.error

    def stop(self) -> None:
        """Ends checks; open transactions stay open, and the next service reads them. Raises nothing."""
        if self._checks is not None:
            self._checks.end()
        try:
            self._settling.save()
        except Exception as error:
            logger.warning(
                "%s: progress of transactions: %s: it is found by reading more", self._engine.path,
                error,
            )  # fmt: skip

    def _opened(
        self, put: PutResult, fields: Mapping[str, str], born_time: Timestamp | None
    ) -> None:
        born_ms = put.store_timestamp_ms
        if born_time is not None:
            born_ms = timestamp_ms("born_time", born_time)
        entry = entry_of(put, fields, born_ms)
        assert entry is not None
        entry.half_end, entry.unsure = put.end_offset, False  # nobody has its id yet
        self._settling.table.add(entry)


def _properties(
    properties: Mapping[str, str] | None, tags: str | None, keys: str | Sequence[str] | None
) -> dict[str, str]:
    """As a put has them: names of RocketMQ's are refused, a delay too."""
    for name in properties or {}:
        reason = refused_in_transaction(name)
        if reason is not None:
            raise MessageRejectedError(f"property {name!r} of a half message: {reason}")
    given = dict(properties or {})
    if tags is not None:
        given["TAGS"] = text("tags", tags)
    if keys is not None:
        given["KEYS"] = keys if isinstance(keys, str) else " ".join(keys)
    return given
