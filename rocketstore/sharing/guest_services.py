"""The services of a guest's store: the same faces, whose acts are calls to the host."""

from __future__ import annotations

import inspect
import itertools
import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from rocketstore._native.append.put_result import restore_put_result
from rocketstore._native.format.codec import decode_properties
from rocketstore._native.put.batch_append import Rows, rows_of
from rocketstore.errors import (
    GuestStoreError,
    OutcomeUnknownError,
    RocketStoreError,
)
from rocketstore.services.delay import CancelResult, Delayed, DelayedMessage
from rocketstore.services.delay.delayed_message import timed
from rocketstore.services.retention.service import StoreRetention
from rocketstore.services.transactions.commit_records import (
    TOPIC,
    commit_record_of,
    record_text,
)
from rocketstore.services.transactions.commits import Appended, Commits
from rocketstore.services.transactions.reading import Unreadable, messages_from
from rocketstore.services.transactions.transactions import Transaction, Transactions
from rocketstore.sharing.call_values import results_in
from rocketstore.sharing.guest_log import deadline_of

if TYPE_CHECKING:
    import datetime
    from collections.abc import Mapping, Sequence

    from rocketstore._native.append.put_result import PutResult
    from rocketstore.consumer import Consumer
    from rocketstore.consuming.reading import Span
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.log.queues.delayed_puts import Change
    from rocketstore.log.read.unique_ids import Claim
    from rocketstore.services.retention.rule import Retention
    from rocketstore.services.transactions.checks import OnCheck
    from rocketstore.sharing.guest import GuestEngine
    from rocketstore.sharing.guest_offsets import Kept
    from rocketstore.values.durability import Durability
    from rocketstore.values.timestamps import Duration, Timestamp

__all__ = ["KINDS"]


#: Longest wait for a run of retention, which may put messages again and remove many files, ms.
RUN_MS: Final = 60_000
Method = TypeVar("Method", bound=Callable[..., Any])


def asked(
    method: Method,
    *,
    again: bool = False,
    limit_ms: int | None = None,
    as_ours: Callable[[Any, Any], object] = lambda service, found: found,
) -> Method:
    """The same method, which the host does. `again`, `limit_ms`: as `GuestEngine.call` has them. `as_ours` makes
    the result of the service here and of what the host has given."""
    signature, name = inspect.signature(method), method.__qualname__

    @wraps(method)
    def ask(self: Any, *args: Any, **named: Any) -> object:
        given = signature.bind(self, *args, **named).arguments
        del given["self"]
        blob = bytes(memoryview(given.pop("body", b"")))
        found, _ = self._engine.call(name, given, blob, again=again, limit_ms=limit_ms)
        return as_ours(self, found)

    return cast("Method", ask)


def said(engine: Any, name: str) -> Any:
    """What a property says at the host."""
    return engine.call(name, {}, again=True)[0]


class Asked(NamedTuple):
    """A host that was asked to commit a transaction, and has not answered yet."""

    life: str
    session: int
    #: The number from which the commit record of the transaction is looked for. Those of other threads come between.
    first: int


class LookAgainError(Exception):
    """A transaction that an earlier host was asked for is to be looked for in the log of this one."""


def read_by(consumer: Consumer, kept: Kept, spans: Mapping[int, Span]) -> list[Any]:
    """What the host has to know of a consumer, to check that its group steps over nothing. The claim believes from
    here on that the group may be as far as the transaction moves it."""
    cursors, believed = consumer._cursors, kept.stored
    ends = {n: span.end for n, span in spans.items()}
    if believed is not None:
        kept.stored = {**believed, **ends}
    return [
        kept.fields,
        believed,
        {n: span.begin for n, span in spans.items()},
        ends,
        {one.queue_id: one.began for one in cursors},
        {one.queue_id: one.reset_to for one in cursors},
    ]


class GuestCommits(Commits):
    """Commits transactions at the host: one call for each. What a host leaves without an answer is looked for in
    the log of the next one, and committed there if it is not in it."""

    def __init__(self, engine: WritingEngine) -> None:
        self._guest = cast("GuestEngine", engine)
        self._engine = engine
        self._ids = itertools.count(int.from_bytes(os.urandom(8)))
        self._writers = {}
        #: By the life of a host: the number of commit records in its log, as far as it is known.
        self._counts: dict[str, int] = {}
        #: Transactions without an answer, by their ids.
        self._asked: dict[str, Asked] = {}
        #: Their consumers' claims, with what the host has to know of each, as it was when they were asked for first.
        self._read: dict[str, list[tuple[Kept, list[Any]]]] = {}
        #: Of transactions that count: what their wait for the disk raised.
        self._late: dict[str, BaseException] = {}

    def append(
        self,
        transaction_id: str,
        rows: Rows,
        claims: Mapping[Claim, int],
        offsets: Mapping[tuple[Consumer, str], Mapping[int, Span]],
        changes: Sequence[Change] = (),
        durability: Durability = "memory",
    ) -> Appended | None:
        copies = rows_of(rows)[1:]
        kept = [self._guest.offsets.kept(*one) for one in offsets]
        if transaction_id not in self._read:
            found_in = zip(kept, offsets.items(), strict=True)
            self._read[transaction_id] = [
                (claim, read_by(consumer, claim, spans))
                for claim, ((consumer, _), spans) in found_in
            ]
        fields = {
            "transaction_id": transaction_id,
            "durability": durability,
            "claims": claims.values(),
            "offsets": [read for _, read in self._read[transaction_id]],
            "changes": changes,
            "wanted": rows.wanted,
        }
        try:
            found = self._asked_of_hosts(
                transaction_id, fields, record_text(transaction_id, copies)
            )
        except BaseException:
            if transaction_id not in self._asked:  # it is certain that it does not count
                self._forget(transaction_id, counts=False)
            raise
        self._forget(transaction_id, counts=True)
        if not isinstance(found, tuple):
            return found
        (number, end, error), data = found
        if error is not None:
            self._late[transaction_id] = error
        ids = [decode_properties(row[5]).get("UNIQ_KEY") for row in copies]
        return Appended(number, end, (), results_in(data, ids) if data else ())

    def _asked_of_hosts(
        self, transaction_id: str, fields: Mapping[str, Any], blob: bytes
    ) -> tuple[Any, bytes] | Appended | None:
        """The answer of one; or what an earlier one has committed that gave none; None: nothing was to do."""
        guest = self._guest
        deadline = deadline_of(guest.limit_ms)
        before: Asked | None = None
        looked = ""

        def asks(life: str, session: int) -> bool:
            if life != guest.life:  # readers do not know yet how far it goes
                return False
            if before is not None and life != looked:
                raise LookAgainError
            if life not in self._counts:  # its log may be shorter than that of the one before
                self._counts = {life: self._engine.reader.bounds(TOPIC, 0)[1]}
            first = self._counts.get(life, 0)
            first = first if before is None else min(before.first, first)
            self._asked[transaction_id] = Asked(life, session, first)
            return True

        while True:
            looked = guest.life  # before the look
            if (appended := self._in_log(transaction_id)) is not None:
                return appended
            before = self._asked.get(transaction_id)
            try:
                found = guest.call("transaction", fields, blob, asks=asks)
            except LookAgainError:
                continue
            except OutcomeUnknownError as error:
                guest.await_next(deadline, self._asked[transaction_id].session, error)
                continue
            except (RocketStoreError, TypeError, ValueError) as error:
                # It may do yet what it was asked before.
                if before is not None and before.life == looked:
                    raise self._unknown(transaction_id) from error
                self._asked.pop(transaction_id, None)
                raise
            else:
                life = self._asked.pop(transaction_id).life
                if found[0] is None:
                    return None
                if life in self._counts:
                    self._counts[life] = max(self._counts[life], found[0][0] + 1)
                return found

    def _unknown(self, transaction_id: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"transaction {transaction_id}: its host has not answered: it may be committed; "
            "commit() again settles it"
        )

    def _forget(self, transaction_id: str, *, counts: bool) -> None:
        """The transaction is settled: its groups are where it moved them, or where they were."""
        self._asked.pop(transaction_id, None)
        for kept, (_, believed, *_rest) in self._read.pop(transaction_id, ()):
            if not counts:
                kept.stored = believed

    def stored(self, key: str) -> dict[int, int]:
        found: dict[int, int] = self._guest.call("stored", {"key": key}, again=True)[0]
        return found

    def find(self, transaction_id: str) -> Appended | None:
        """Of a transaction whose host gave no answer. OutcomeUnknownError: it may be committed yet."""
        found = self._in_log(transaction_id)
        asked = self._asked.get(transaction_id)
        if found is None and asked is not None and asked.life == self._guest.life:
            raise self._unknown(transaction_id)
        self._forget(transaction_id, counts=found is not None)
        return found

    def _in_log(self, transaction_id: str) -> Appended | None:
        """What an earlier host has committed before it went. OutcomeUnknownError: it cannot be read."""
        asked = self._asked.get(transaction_id)
        if asked is None:
            return None
        try:
            for message in messages_from(self._engine.reader, TOPIC, 0, asked.first):
                record = None if isinstance(message, Unreadable) else commit_record_of(message)
                if record is not None and record.id == transaction_id:
                    del self._asked[transaction_id]
                    end = self._engine.positions.visible
                    return Appended(message.queue_offset, end, record.moves)
        except RocketStoreError as error:
            raise self._unknown(transaction_id) from error
        return None

    def wait(self, transaction_id: str, appended: Appended, durability: Durability) -> None:
        if (error := self._late.pop(transaction_id, None)) is not None:
            raise error
        if not appended.results and durability not in ("memory", "os"):
            self._engine.wait_flushed(appended.end_offset, None)

    def stop(self) -> None:
        """The host stores what is not stored yet."""


class GuestTransactions(Transactions):
    """Half messages are the host's."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._checks = None

    prepare = asked(
        Transactions.prepare, as_ours=lambda service, found: Transaction(service, *found)
    )
    commit = asked(Transactions.commit, again=True)
    rollback = asked(Transactions.rollback, again=True)
    open = asked(Transactions.open, again=True)

    @property
    def errors(self) -> list[Any]:
        found: list[Any] = said(self._engine, "Transactions.errors")
        return found

    def check_back(
        self,
        on_check: OnCheck,
        *,
        immunity_s: Duration = 6.0,
        interval_s: Duration = 30.0,
        max_checks: int = 15,
    ) -> None:
        raise GuestStoreError(
            "check_back: the process that has the store asks; call it there, as with "
            "'rocketstore serve' or shared='host'"
        )

    def stop(self) -> None:
        """Nothing was begun here."""

    def __repr__(self) -> str:
        return f"Transactions(of the host of {self._engine.path!r})"


class GuestDelayed(Delayed):
    """What waits is read from the files, as the host has stored it, and changed by the host."""

    _cancel, _reschedule = asked(Delayed.cancel), asked(Delayed.reschedule)
    repeat = asked(Delayed.repeat)

    def _service(self) -> None:
        """The host delivers. What was put before is in the files then."""
        self._reader.source.catch_up()

    def cancel(self, message: str | PutResult | DelayedMessage) -> CancelResult:
        return self._cancel(placed(message))

    def reschedule(
        self, message: str | PutResult | DelayedMessage, when: Timestamp | datetime.timedelta
    ) -> bool:
        return self._reschedule(placed(message), when)


def placed(message: str | PutResult | DelayedMessage) -> str | PutResult:
    """What names a message at the host: an id, or a result that has its place and nothing else."""
    if isinstance(message, str):
        return message
    one = timed(message).message if isinstance(message, DelayedMessage) else message
    if not hasattr(one, "physical_offset"):
        raise TypeError(f"message = {one!r}: expected its id, a PutResult or a DelayedMessage")
    at = one.physical_offset
    return restore_put_result(at, at, 0, one.queue_offset, 0, 1, 0, b"", None)


class GuestRetention(StoreRetention):
    """Holds and events are read from the files. The host plans, and removes."""

    plan = asked(StoreRetention.plan)
    run = asked(StoreRetention.run, limit_ms=RUN_MS)
    hold = asked(StoreRetention.hold)
    release = asked(StoreRetention.release)

    @property
    def rule(self) -> Retention | None:
        found: Retention | None = said(self._engine, "StoreRetention.rule")
        return found

    @property
    def last_error(self) -> Exception | None:
        found: Exception | None = said(self._engine, "StoreRetention.last_error")
        return found


#: The class of a guest in the place of each other.
KINDS: Final[dict[type, type]] = {
    Commits: GuestCommits,
    Transactions: GuestTransactions,
    Delayed: GuestDelayed,
    StoreRetention: GuestRetention,
}
