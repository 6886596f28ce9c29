"""Ends transactions: puts the copy, then the op message, and finds what a stop left half-done.

A stop between the two puts leaves the transaction open. It is settled when the service begins
again, by the prepared offset of the copy (K-66). So nothing is delivered twice, and a rollback
cannot follow a commit. A copy that cannot be read is none: nobody can be given it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    BackpressureError,
    CorruptRecordError,
    DurabilityTimeoutError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    ReadFailedError,
    StoreBehindError,
    TransactionSettledError,
    UnknownTransactionError,
)
from rocketstore.puts.put_message import put_message
from rocketstore.services.transactions.half_messages import (
    DEAD_TOPIC,
    HALF_TOPIC,
    OP_TOPIC,
    checks_of,
    copy_fields,
    op_body,
    real_place,
)
from rocketstore.services.transactions.open_table import Entry, OpenTable, Outcome
from rocketstore.services.transactions.reading import find_copies, has_end
from rocketstore.values.arguments import whole_number
from rocketstore.values.kept_errors import without_frames

if TYPE_CHECKING:
    from typing import Unpack

    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.format.message import Message
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.puts.put_message import MessageFields
    from rocketstore.values.arguments import Body
    from rocketstore.values.durability import Durability

__all__ = ["Settling"]

logger = logging.getLogger(__name__)

#: The progress is stored after this many ends, and at close.
SAVE_EVERY: Final = 1000


class Settling:
    """Ends the transactions of one store, each once, from any thread."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self.table = OpenTable(engine.reader, engine.offsets)
        self._ends = 0
        self._end_lock = SignalSafeLock("the end of half messages", reentrant=False)

    def refresh(self) -> None:
        """Reads half and op messages that others put, and ends what a crash left half-done."""
        self._wait_visible(self._engine.positions.wrote)
        new = self.table.read_on()
        places: dict[tuple[str, int], list[Entry]] = defaultdict(list)
        for entry in new:
            places[entry.topic, entry.queue_id].append(entry)
            places[DEAD_TOPIC, 0].append(entry)
        unsure: set[Entry] = set()
        for (topic, queue_id), entries in places.items():
            halves = {at: entry for entry in entries for at in entry.physical_offsets}
            found, errors = find_copies(self._engine.reader, topic, queue_id, halves)
            for half, copy in found.items():
                self._finish(halves[half], copy, "dead" if topic == DEAD_TOPIC else "commit")
            if not all(isinstance(error, CorruptRecordError) for error in errors):
                unsure.update(entries)
        for entry in new:
            with entry.lock():
                if not (entry.tried or entry in unsure):
                    entry.unsure = False

    def settle(
        self,
        transaction_id: int,
        want: Outcome,
        durability: Durability | None,
    ) -> int | None:
        whole_number("transaction_id", transaction_id, 0)
        entry = self.table.find(transaction_id)
        if entry is None:
            self.refresh()
            entry = self.table.find(transaction_id)
        if entry is None:
            return self._settled_before(transaction_id, want)
        return self.end(entry, want, durability)

    def end(self, entry: Entry, want: Outcome, durability: Durability | None) -> int | None:
        with entry.lock():
            if entry.settling:
                raise BackpressureError(
                    f"transaction {entry.physical_offset}: this thread is settling it already, "
                    "try again outside the signal handler"
                )
            if entry.outcome == "settled":
                return self._settled_before(entry.physical_offset, want)
            entry.settling = True
            try:
                return self._end_here(entry, want, durability)
            finally:
                entry.settling = False

    def _end_here(self, entry: Entry, want: Outcome, durability: Durability | None) -> int | None:
        if entry.outcome is None:
            if want != "rollback" and not entry.topic:
                self.half(entry)
            if entry.unsure and entry.topic:
                self._look_for_copy(entry)
            if entry.copy is not None and want == "rollback":
                raise TransactionSettledError(entry.physical_offset, "commit", want)
            if want != "rollback" and entry.copy is None:
                self._put_copy(entry, want)
            self._put_op(entry, want, durability)
        if entry.outcome != want:
            raise TransactionSettledError(entry.physical_offset, str(entry.outcome), want)
        return entry.copy

    def half(self, entry: Entry) -> Message:
        """The half message; an entry whose half could not be read before gets what it lacks.

        Raises:
            CorruptRecordError, ReadFailedError: it cannot be read; the entry says so from now on.
        """
        self._wait_visible(entry.half_end)
        try:
            half = self._engine.reader.get(entry.physical_offset)
        except StoreBehindError:
            raise
        except (MessageNotFoundError, CorruptRecordError, ReadFailedError) as error:
            met = error.__cause__ if isinstance(error, MessageNotFoundError) else error
            if not isinstance(met, (CorruptRecordError, ReadFailedError)):
                raise
            entry.error = without_frames(met)
            raise met from None
        entry.read(half)
        return half

    def _put_copy(self, entry: Entry, want: Outcome) -> None:
        half = self.half(entry)
        place = (DEAD_TOPIC, 0) if want == "dead" else (entry.topic, entry.queue_id)
        entry.unsure = entry.tried = (
            True  # an exception of a signal's handler may hide what was put
        )
        fields = copy_fields(half, committed=want == "commit")
        fields["queue_id"] = place[1]
        # The op message comes after it, and waits for both.
        result = self.put(place[0], half.body, "memory", **fields)
        entry.copy = result.physical_offset
        entry.unsure = False

    def _put_op(self, entry: Entry, want: Outcome, durability: Durability | None) -> None:
        body = op_body(entry.queue_offsets)
        try:
            self.put(
                OP_TOPIC, body, durability, queue_id=entry.half_queue, properties={"TAGS": "d"}
            )
        except DurabilityTimeoutError:
            self._ended(entry, want)
            raise
        self._ended(entry, want)

    def _ended(self, entry: Entry, outcome: Outcome) -> None:
        entry.outcome = outcome
        self.table.remove(entry)
        with self._end_lock():
            self._ends += 1
            due = self._ends % SAVE_EVERY == 0
        if due:
            try:
                self.save()
            except Exception as error:  # the transaction is settled all the same
                logger.warning("%s: progress of transactions: %s", self._engine.path, error)

    def _look_for_copy(self, entry: Entry) -> None:
        self._wait_visible(self._engine.positions.wrote)
        for topic, queue_id in ((entry.topic, entry.queue_id), (DEAD_TOPIC, 0)):
            found, errors = find_copies(
                self._engine.reader, topic, queue_id, entry.physical_offsets
            )
            for copy in found.values():
                entry.copy = copy
            for error in errors:
                if not found and not isinstance(error, CorruptRecordError):
                    raise error
        entry.unsure = False

    def _finish(self, entry: Entry, copy: int, outcome: Outcome) -> None:
        """The copy is there, its op message is not."""
        with entry.lock():
            if entry.outcome is None:
                entry.copy = copy
                self._put_op(entry, outcome, None)

    def _settled_before(self, transaction_id: int, want: Outcome) -> int | None:
        """The answer for a transaction that is not open any more: what the log says."""
        self._wait_visible(self._engine.positions.wrote)
        try:
            half = self._engine.reader.get(transaction_id)
        except (MessageNotFoundError, OffsetOutOfRangeError):
            raise UnknownTransactionError(transaction_id) from None
        place = real_place(half.properties) if half.topic == HALF_TOPIC else None
        if place is None:
            raise UnknownTransactionError(transaction_id)
        reader = self._engine.reader
        # RocketMQ may have put the half message again, and committed one of the others.
        again = half.unique_id if checks_of(half.properties) else None
        found, errors = find_copies(reader, *place, [transaction_id], again)
        copy = next(iter(found.values()), None)
        outcome: Outcome = "rollback" if copy is None else "commit"
        if copy is None:
            dead, more = find_copies(reader, DEAD_TOPIC, 0, [transaction_id])
            if dead:
                outcome = "dead"
            elif errors or more:
                raise (errors + more)[0]
            elif not has_end(reader, half):
                outcome = "unknown"
        if outcome != want:
            raise TransactionSettledError(transaction_id, outcome, want)
        return copy

    def put(
        self, topic: str, body: Body, durability: Durability | None, **fields: Unpack[MessageFields]
    ) -> PutResult:
        return put_message(
            self._engine,
            topic,
            body,
            fields.get("queue_id", 0),
            fields.get("properties"),
            flag=fields.get("flag", 0),
            sys_flag=fields.get("sys_flag", 0),
            born_time=fields.get("born_time"),
            born_host=fields.get("born_host"),
            store_host=None,
            reconsume_times=fields.get("reconsume_times", 0),
            prepared_transaction_offset=fields.get("prepared_transaction_offset", 0),
            delay_level=0,  # halves and their copies are put at once, whatever a property says
            expected=None,
            durability=durability or self._engine.config.durability,
            timeout_s=None,
        )

    def save(self) -> None:
        self._wait_visible(self._engine.positions.wrote)
        self.table.read_on()
        self.table.save_progress(lambda end: self._engine.wait_flushed(end, None))

    def _wait_visible(self, end_offset: int) -> None:
        """Readers of a store with durability "disk" see what is flushed."""
        if self._engine.positions.visible < end_offset:
            self._engine.wait_flushed(end_offset, None)
