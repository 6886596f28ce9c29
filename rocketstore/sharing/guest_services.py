"""The services of a guest's store: the same faces, whose acts are calls to the host."""

from __future__ import annotations

import datetime
import itertools
import os
from typing import TYPE_CHECKING, Any, Final, cast

from rocketstore._native.format.codec import decode_properties
from rocketstore._native.put.batch_append import Rows, rows_of
from rocketstore.errors import (
    GuestStoreError,
    MessageRejectedError,
    OutcomeUnknownError,
    RocketStoreError,
)
from rocketstore.services.delay import CancelResult, Delayed, DelayedMessage
from rocketstore.services.retention.plan import HeldLog, RetentionPlan, SegmentPlan
from rocketstore.services.retention.service import StoreRetention
from rocketstore.services.transactions.commit_records import (
    TOPIC,
    commit_record_of,
    record_text,
)
from rocketstore.services.transactions.commits import Appended, Commits
from rocketstore.services.transactions.reading import Unreadable, messages_from
from rocketstore.services.transactions.transactions import (
    OpenTransaction,
    Transaction,
    Transactions,
)
from rocketstore.sharing.call_values import moment_of, results_in, rule_fields, rule_of
from rocketstore.sharing.guest_log import deadline_of
from rocketstore.sharing.messages import error_of
from rocketstore.values.timestamps import duration_of, timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Buffer

    from rocketstore._native.append.put_result import PutResult
    from rocketstore.consumer import Consumer
    from rocketstore.consuming.reading import Span
    from rocketstore.engine.engine import Engine
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.log.queues.delayed_puts import Change
    from rocketstore.log.read.unique_ids import Claim
    from rocketstore.services.retention.rule import Retention
    from rocketstore.services.transactions.checks import OnCheck
    from rocketstore.sharing.guest import GuestEngine
    from rocketstore.values.arguments import Body
    from rocketstore.values.durability import Durability
    from rocketstore.values.timestamps import Duration, Timestamp

__all__ = ["KINDS"]


#: Longest wait for a run of retention, which may put messages again and remove many files, ms.
RUN_MS: Final = 60_000


class GuestCommits(Commits):
    """Commits transactions at the host: one call for each. What a host leaves without an answer is looked for in
    the log of the next one, and committed there if it is not in it."""

    def __init__(self, engine: WritingEngine) -> None:
        self._guest = cast("GuestEngine", engine)
        self._engine = engine
        self._ids = itertools.count(int.from_bytes(os.urandom(8)))
        self._writers = {}
        # The commit records before it are none of this process.
        self._next = engine.reader.bounds(TOPIC, 0)[1]
        #: By the id of a transaction: the life of the host that has not answered, and the number from which the
        #: commit record of the transaction is looked for. Those of other threads come between.
        self._asked: dict[str, tuple[str, int]] = {}
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
        fields = {
            "id": transaction_id,
            "durability": durability,
            "claims": [*claims.values()],
            "offsets": [self._read(*one, spans) for one, spans in offsets.items()],
            "changes": [*changes],
            "wanted": rows.wanted,
        }
        found = self._asked_of_hosts(transaction_id, fields, record_text(transaction_id, copies))
        if not isinstance(found, tuple):
            return found
        answer, data = found
        if answer["error"] is not None:
            self._late[transaction_id] = error_of(answer["error"])
        self._next = max(self._next, answer["number"] + 1)
        ids = [decode_properties(row[5]).get("UNIQ_KEY") for row in copies]
        results = results_in(data, ids) if data else ()
        return Appended(answer["number"], answer["end"], (), results)

    def _asked_of_hosts(
        self, transaction_id: str, fields: Mapping[str, Any], blob: bytes
    ) -> tuple[Any, bytes] | Appended | None:
        """The answer of one; or what an earlier one has committed that gave none; None: nothing was to do."""
        guest = self._guest
        deadline = deadline_of(guest.limit_ms)
        while True:
            if (appended := self._in_log(transaction_id)) is not None:
                return appended
            before, first = self._asked.get(transaction_id, ("", self._next))
            self._asked[transaction_id] = guest.life, first
            try:
                found = guest.call("transaction", fields, blob)
            except OutcomeUnknownError as error:
                # Another host than the one before, perhaps, which may have gone before it was asked.
                self._asked[transaction_id] = error.asked[0], first
                guest.await_next(deadline, error)
                continue
            except RocketStoreError as error:
                if before == guest.life:  # which may do yet what it was asked before
                    raise self._unknown(transaction_id) from error
                del self._asked[transaction_id]
                raise
            del self._asked[transaction_id]
            return None if found[0] is None else found

    def _unknown(self, transaction_id: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"transaction {transaction_id}: its host has not answered: it may be committed; "
            "commit() again settles it"
        )

    def _read(self, consumer: Consumer, key: str, spans: Mapping[int, Span]) -> dict[str, Any]:
        """What the host has to know of a consumer, to check that its group steps over nothing."""
        cursors, kept = [*consumer._cursors], self._guest.offsets.kept(consumer, key)
        kept.stored = None  # not known, until the group is asked for again
        return {
            **kept.fields,
            "begins": {n: span.begin for n, span in spans.items()},
            "ends": {n: span.end for n, span in spans.items()},
            "began": {one.queue_id: one.began for one in cursors},
            "reset": {one.queue_id: one.reset_to for one in cursors},
        }

    def stored(self, key: str) -> dict[int, int]:
        found, _ = self._guest.call("stored", {"key": key}, again=True)
        return {int(queue_id): at for queue_id, at in found.items()}

    def find(self, transaction_id: str) -> Appended | None:
        """Of a transaction whose host gave no answer. OutcomeUnknownError: it may be committed yet."""
        found = self._in_log(transaction_id)
        if found is None and self._asked.get(transaction_id, ("", 0))[0] == self._guest.life:
            raise self._unknown(transaction_id)
        self._asked.pop(transaction_id, None)
        return found

    def _in_log(self, transaction_id: str) -> Appended | None:
        """What an earlier host has committed before it went. OutcomeUnknownError: it cannot be read."""
        life, first = self._asked.get(transaction_id, (self._guest.life, 0))
        if life == self._guest.life:
            return None
        try:
            for message in messages_from(self._engine.reader, TOPIC, 0, first):
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
        self._call = cast("GuestEngine", engine).call

    def _prepare(
        self,
        topic: str,
        body: Body,
        group: str,
        queue_id: int,
        given: Mapping[str, str],
        flag: int,
        born_time: Timestamp | None,
        durability: Durability | None,
    ) -> Transaction:
        fields = {
            "topic": topic,
            "group": group,
            "queue_id": queue_id,
            "properties": dict(given),
            "flag": flag,
            "born_ms": None if born_time is None else timestamp_ms("born_time", born_time),
            "durability": durability,
        }
        blob = bytes(memoryview(cast("Buffer", body)))
        (name, unique_id), _ = self._call("prepare", fields, blob)
        return Transaction(self, name, unique_id)

    def commit(self, transaction_id: int, durability: Durability | None = None) -> int:
        found = self._settle(transaction_id, "commit", durability)
        assert isinstance(found, int)
        return found

    def rollback(self, transaction_id: int, durability: Durability | None = None) -> None:
        self._settle(transaction_id, "rollback", durability)

    def _settle(self, which: int, want: str, durability: Durability | None) -> object:
        fields = {"id": which, "want": want, "durability": durability}
        return self._call("settle", fields, again=True)[0]

    def open(self) -> list[OpenTransaction]:
        return [
            OpenTransaction(**one, error=None if error is None else cast("Any", error_of(error)))
            for one, error in self._listed()["open"]
        ]

    @property
    def errors(self) -> list[Any]:
        return [error_of(one) for one in self._listed()["errors"]]

    def _listed(self) -> Any:
        return self._call("open_transactions", {}, again=True)[0]

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

    @property
    def check_error(self) -> None:
        return None

    def stop(self) -> None:
        """Nothing was begun here."""

    def __repr__(self) -> str:
        return f"Transactions(of the host of {self._engine.path!r})"


class GuestDelayed(Delayed):
    """What waits is read from the files, as the host has stored it, and changed by the host."""

    def _service(self) -> None:
        """The host delivers. What was put before is in the files then."""
        self._reader.source.catch_up()

    def cancel(self, message: str | PutResult | DelayedMessage) -> CancelResult:
        return CancelResult(self._ask("cancel", self._named(message)))

    def reschedule(
        self, message: str | PutResult | DelayedMessage, when: Timestamp | datetime.timedelta
    ) -> bool:
        moment = (
            moment_of(when) if isinstance(when, datetime.timedelta) else timestamp_ms("when", when)
        )
        return bool(self._ask("reschedule", {**self._named(message), "when": moment}))

    def repeat(
        self,
        topic: str,
        body: Body,
        every: Duration | str,
        *,
        unique_id: str | None = None,
        start: Timestamp | None = None,
        timezone: str = "UTC",
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        fields = {
            "topic": topic,
            "every": every if isinstance(every, str) else moment_of(duration_of("every", every)),
            "unique_id": unique_id,
            "start": None if start is None else timestamp_ms("start", start),
            "timezone": timezone,
            "queue_id": queue_id,
            "properties": dict(properties or {}),
        }
        return str(self._ask("repeat", fields, bytes(memoryview(cast("Buffer", body)))))

    def _ask(self, name: str, fields: Mapping[str, Any], blob: bytes = b"") -> Any:
        return cast("GuestEngine", self._engine).call(name, fields, blob)[0]

    @staticmethod
    def _named(message: object) -> dict[str, object]:
        if isinstance(message, str) and message:
            return {"unique_id": message}
        if isinstance(message, DelayedMessage):
            if message.level:
                raise MessageRejectedError(
                    f"level = {message.level}: a delay level is not cancelled; put with "
                    "deliver_after"
                )
            message = message.message
        elif not hasattr(message, "physical_offset"):
            raise TypeError(
                f"message = {message!r}: expected its id, a PutResult or a DelayedMessage"
            )
        place = cast("PutResult", message)
        return {"at": place.queue_offset, "place": place.physical_offset}


class GuestRetention(StoreRetention):
    """Holds and events are read from the files. The host plans, and removes."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._call = cast("GuestEngine", engine).call

    @property
    def rule(self) -> Retention | None:
        own = self._ask("rule")[0]
        return None if own is None else rule_of(own)

    @property
    def last_error(self) -> Exception | None:
        error = self._ask("rule")[1]
        return None if error is None else cast("Exception", error_of(error))

    def plan(self, rule: Retention | None = None) -> RetentionPlan:
        return self._planned("plan", rule)

    def run(self, rule: Retention | None = None) -> RetentionPlan:
        return self._planned("run", rule)

    def _planned(self, asked: str, rule: Retention | None) -> RetentionPlan:
        self._engine.check_open()
        given = None if rule is None else rule_fields(self._checked(rule))
        found = self._ask(asked, rule=given)
        found["segments"] = tuple(
            SegmentPlan(**{**one, "reasons": tuple(one["reasons"])}) for one in found["segments"]
        )
        found["held_by"] = tuple(HeldLog(**one) for one in found["held_by"])
        return RetentionPlan(**{**found, "given_up": tuple(found["given_up"])})

    def _change(self, name: str, at: int | None) -> bool:
        asked = "release" if at is None else "hold"
        return bool(self._ask(asked, name=name, offset=at))

    def _ask(self, asked: str, **fields: object) -> Any:
        again, limit_ms = asked == "rule", RUN_MS if asked == "run" else None
        return self._call("retention", {"asked": asked, **fields}, again=again, limit_ms=limit_ms)[
            0
        ]


#: The class of a guest in the place of each other.
KINDS: Final[dict[type, type]] = {
    Commits: GuestCommits,
    Transactions: GuestTransactions,
    Delayed: GuestDelayed,
    StoreRetention: GuestRetention,
}
