"""Commits transactions of several messages and offsets, and finishes those that a crash cut.

A commit appends one batch: the commit record, then the copies of its messages. The log survives as
a prefix, so what has a copy has the record, too. Offsets are stored once the batch is on disk,
together with how far commit records are done. An open begins there: it puts the copies that a loss
of power took, and stores the offsets that nobody has replaced since.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rocketstore._native.append.put_result import as_met, durability_level
from rocketstore._native.put.batch_append import Rows
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.consuming.commit_journal import Moved
from rocketstore.errors import (
    BackpressureError,
    DurabilityTimeoutError,
    ReadFailedError,
    RocketStoreError,
    StoreClosedError,
)
from rocketstore.services.transactions.commit_records import (
    COPY_PROPERTY,
    PROGRESS_GROUP,
    TOPIC,
    commit_record_of,
    head_bytes,
    name_in,
)
from rocketstore.services.transactions.new_copies import (
    changing_of,
    checked_writer,
    records_that_end,
)
from rocketstore.services.transactions.reading import Unreadable, first_above, messages_from

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.format.message import Message
    from rocketstore._native.put.writer import Writer
    from rocketstore.consumer import Consumer
    from rocketstore.consuming.reading import Span
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.log.queues.delayed_puts import Change
    from rocketstore.log.read.unique_ids import Claim
    from rocketstore.services.transactions.commit_records import CommitRecord
    from rocketstore.values.arguments import Row
    from rocketstore.values.durability import Durability

__all__ = ["Appended", "Commits", "add_copy", "append_batch", "commits_of"]

logger = logging.getLogger(__name__)

#: The progress is stored with offsets, after this many commits without any, and at close.
SAVE_EVERY: Final = 1000
ID_MASK: Final = (1 << 64) - 1
PROGRESS_KEY: Final = f"{TOPIC}@{PROGRESS_GROUP}"
#: Commits of guests that are remembered, a count.
REMEMBERED: Final = 1024
#: What `_once` gives where no message of a transaction has a unique id.
NO_CLAIMS: Final[AbstractContextManager[dict[Claim, PutResult]]] = nullcontext({})


@dataclass(slots=True, eq=False)
class Appended:
    """A commit record in the log, with all copies after it."""

    number: int
    end_offset: int
    moves: Sequence[Moved]
    results: Sequence[PutResult] = ()


class Commits:
    """The commits of one store that is open for writing. Any thread may use it."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._turn = SignalSafeLock("the commits of transactions")
        #: Commits whose offsets are not stored yet, in the order of the log.
        self._waiting: deque[Appended] = deque()
        #: The next commit record, and the first that counts as not done after a crash.
        self._next = self._saved = self._progress() or 0
        # An append may have happened without a word: of a signal's handler, say.
        self._unsure = False
        # What is in the log, by the id of a transaction that may not know it yet.
        self._unheard: dict[str, Appended] = {}
        # The same of guests, which may ask a second time.
        self._remembered: dict[str, Appended] = {}
        # Ids of transactions follow each other from a number that no other open has.
        self._ids = itertools.count(int.from_bytes(os.urandom(8)))
        # Of queues that transactions put to.
        self._writers: dict[tuple[str, int], Writer] = {}
        self._finish()

    # ---- a commit ----

    def new_id(self) -> str:
        """16 hexadecimal digits."""
        return f"{next(self._ids) & ID_MASK:016x}"

    def writer(self, topic: str, queue_id: int) -> Writer:
        """Raises MessageRejectedError and its kin for a queue that no transaction puts to."""
        writer = None
        if type(topic) is str and type(queue_id) is int:
            writer = self._writers.get((topic, queue_id))
        if writer is None:
            writer = checked_writer(self._engine, topic, queue_id)
            self._writers[topic, queue_id] = writer
        return writer

    def append(
        self,
        transaction_id: str,
        rows: Rows,
        claims: Mapping[Claim, int],
        offsets: Mapping[tuple[Consumer, str], Mapping[int, Span]],
        changes: Sequence[Change] = (),
        durability: Durability = "memory",
    ) -> Appended | None:
        """The one step that decides: from here on all of the transaction counts. A second call
        appends nothing. None: there is nothing to do, and nothing was stored.

        `rows`: its messages, after the row of the commit record. `claims`: the row of each unique id; a
        message whose id is there already is left out. `offsets`: by the consumer, and the topic and
        group that it has claimed. `changes`: of messages that wait. `durability`: what `wait` promises
        then; here nothing waits for it.

        Raises:
            StoreClosedError: a consumer has given its group back. Nothing was stored.
            OffsetGapError: the group has not come to where the transaction has read from. Nothing
                was stored.
            QueueOffsetMismatchError: a message would not get the queue offset that it has to. Nothing
                was stored.
            MessageNotFoundError: a message waits no more that is to be cancelled, or put again.
                Nothing was stored.
            MessageRejectedError: a message would be left out for one that is to be cancelled. Nothing
                was stored.
            StoreBehindError, ConfigError: a unique id cannot be looked for. Nothing was stored.
            MessageTooLargeError, BackpressureError, DiskFullError, StoreFailedError: nothing was
                stored.
        """
        with self._turn() as nested:
            if nested:
                raise BackpressureError(
                    f"transaction {transaction_id}: this thread is in a commit already, try again "
                    "outside the signal handler"
                )
            known = self._known(transaction_id)
            moves = self._moves(offsets)
            if known is not None or not (len(rows) > 1 or moves or changes):
                return known
            self._hold(moves)
            try:
                for consumer, key in offsets:
                    if not self._engine.offsets.holds(key, consumer):
                        raise StoreClosedError(
                            f"transaction {transaction_id}: the consumer of {key} was closed, and "
                            "the group may have another one by now; nothing was stored"
                        )
                with self._once(claims) as first, changing_of(self._engine, changes) as changing:
                    ended = (
                        []
                        if changing is None
                        else records_that_end(transaction_id, changing, first)
                    )
                    self._unsure = True
                    appended = self._append(transaction_id, rows, claims, moves, first, ended)
                    if changing is not None:
                        changing.done()
                    self._unheard[transaction_id] = appended
                    self._wait_for(appended)
                    self._next = appended.number + 1  # after it is kept, for `_look`
                    self._unsure = False
            except BaseException as error:
                if isinstance(error, RocketStoreError):
                    self._unsure = False
                self._hold()
                raise
            return appended

    def remember(self, transaction_id: str, appended: Appended) -> None:
        """A second `append` of it gives the same without results, though the first was heard of."""
        self._remembered[transaction_id] = replace(appended, results=())
        if len(self._remembered) > REMEMBERED:
            self._remembered.pop(next(iter(self._remembered)), None)

    def stored(self, key: str) -> dict[int, int]:
        """The offsets of a group, once all that is appended is stored."""
        found = dict(self._engine.offsets.row(key))
        for one in list(self._waiting):
            found.update((move.queue_id, move.now) for move in one.moves if move.key == key)
        return found

    def find(self, transaction_id: str) -> Appended | None:
        """Of a transaction whose `append` ended by an exception of a signal's handler: whether it is
        in the log."""
        with self._turn():
            return self._known(transaction_id)

    def wait(self, transaction_id: str, appended: Appended, durability: Durability) -> None:
        """Until the promise is met; then the offsets are stored. With offsets it is "disk".

        Raises:
            DurabilityTimeoutError: call it again.
            StoreFailedError: whether the transaction counts, the next open knows.
            DiskFullError, OSError: the offsets are not stored yet; call it again.
        """
        self._unheard.pop(transaction_id, None)
        asked, limit_ms = durability_level(durability), self._engine.config.sync_flush_timeout_ms
        if appended.moves or durability not in ("memory", "os"):
            self._wait(appended.end_offset)
        if self._next - self._saved >= SAVE_EVERY or any(one.moves for one in [*self._waiting]):
            self._settle()
        log = self._engine.commit_log.log
        log.await_promise(appended.end_offset, asked, limit_ms, False, None)
        as_met(
            list(appended.results),
            max(asked, durability_level("disk" if appended.moves else "memory")),
        )

    def stop(self) -> None:
        """What is not done is finished by the next open."""
        try:
            with self._turn() as nested:
                if self._unsure and not nested:
                    self._look()
            if self._waiting:
                self._wait(self._waiting[-1].end_offset)
            self._settle(save=True)
        except Exception as error:
            logger.warning(
                "%s: commits of transactions: %s: the next open finishes them",
                *(self._engine.path, error),
            )

    # ---- with the turn ----

    def _known(self, transaction_id: str) -> Appended | None:
        if self._unsure:
            self._look()
        return self._unheard.get(transaction_id) or self._remembered.get(transaction_id)

    def _moves(self, offsets: Mapping[tuple[Consumer, str], Mapping[int, Span]]) -> list[Moved]:
        """Offsets with what is stored for them, once those before them are."""
        moves = []
        for (consumer, key), spans in offsets.items():
            stored = self.stored(key)
            consumer._reading.check(consumer._reader, key, spans, stored)
            for queue_id, span in spans.items():
                was = stored.get(queue_id)
                if was != span.end:
                    moves.append(Moved(key, queue_id, was, span.end))
        return moves

    def _hold(self, more: Sequence[Moved] = ()) -> None:
        """No other consumer takes a queue over that has an offset on its way."""
        moving = [*more]
        for one in self._waiting:
            moving += one.moves
        self._engine.offsets.moving = moving

    def _once(self, claims: Collection[Claim]) -> AbstractContextManager[dict[Claim, PutResult]]:
        return self._engine.unique_ids.turns([*claims]) if claims else NO_CLAIMS

    def _append(
        self,
        transaction_id: str,
        rows: Rows,
        claims: Mapping[Claim, int],
        moves: Sequence[Moved],
        first: dict[Claim, PutResult],
        ended: Sequence[Row],
    ) -> Appended:
        """`first`: the results of messages that are there already, which are not put again; gets those
        of the others that have a unique id."""
        there = {row: first[claim] for claim, row in claims.items() if claim in first}
        count = len(rows)
        if there or ended:
            rows = rows.chosen([row for row in range(count) if row not in there])
            for row in ended:
                add_copy(rows, self._engine, row)
        if len(rows) == 1 and not moves:  # it lasts as long as what is there
            results = [there[row] for row in range(1, count)]
            return Appended(self._next - 1, self._engine.positions.wrote, moves, results)
        rows.seal(head_bytes(transaction_id, moves, len(rows) - 1))
        put = append_batch(rows)
        results = rows.results(1)
        if there or ended:
            fresh = iter(results)
            results = [there[row] if row in there else next(fresh) for row in range(1, count)]
        first.update((claim, results[row - 1]) for claim, row in claims.items())
        return Appended(put.queue_offset, put.end_offset, moves, results)

    def _wait_for(self, appended: Appended) -> None:
        """Of several in a row without offsets, whose commits may not wait for the disk, the first
        and the last are enough to show how far all is done."""
        waiting = self._waiting
        if len(waiting) > 1 and not (waiting[-2].moves or waiting[-1].moves or appended.moves):
            waiting.pop()
        waiting.append(appended)

    def _look(self) -> None:
        """Finds what was appended without a word: a batch is there as a whole, or not at all."""
        self._wait(self._engine.positions.wrote)
        for message, record in self._records():
            found = Appended(message.queue_offset, self._engine.positions.wrote, record.moves)
            self._unheard[record.id] = found
            self._waiting.append(found)
        self._unsure = False
        self._hold()

    def _settle(self, *, save: bool = False) -> None:
        """Stores the offsets of all commits that are on disk, and how far that is."""
        with self._turn() as nested:
            if nested:
                return  # the call that the signal's handler interrupted does it
            flushed = self._engine.positions.flushed
            done = [one for one in self._waiting if one.end_offset <= flushed]
            upto = done[-1].number + 1 if done else self._saved
            moves = [move for one in done for move in one.moves]
            if moves or upto - self._saved >= (1 if save else SAVE_EVERY):
                moves.append(Moved(PROGRESS_KEY, 0, self._progress(), upto))
                self._engine.offsets.commit_moves(moves)
                self._saved = upto
            for _ in done:
                self._waiting.popleft()
            self._hold()

    # ---- after a crash ----

    def _finish(self) -> None:
        """Puts the copies that are not there, and stores the offsets, of all that is not done."""
        there = self._copies_there()
        for message, record in self._records():
            missing = [row for row in record.copies if name_in(row) not in there]
            if missing:
                rows = Rows()
                for row in missing:
                    add_copy(rows, self._engine, row)
                rows.put("memory", None)
            end = self._engine.positions.wrote
            self._waiting.append(Appended(message.queue_offset, end, record.moves))
            logger.info(
                "%s: transaction %s was committed: put %d of its %d messages that were missing",
                *(self._engine.path, record.id, len(missing), len(record.copies)),
            )
        if self._waiting:
            self._flush()
            self._settle(save=True)

    def _records(self) -> Iterator[tuple[Message, CommitRecord]]:
        """The commit records from `_next` on, which moves once the caller is done with each."""
        for message in self._messages(TOPIC, 0, self._next):
            record = commit_record_of(message)
            if record is None:
                logger.error(
                    "%s: queue offset %d of %s is no commit record: it is passed over",
                    *(self._engine.path, message.queue_offset, TOPIC),
                )
            else:
                yield message, record
            self._next = message.queue_offset + 1

    def _copies_there(self) -> set[str]:
        """What copies say of themselves. A copy lies above its commit record in the log."""
        begins: dict[tuple[str, int], int] = {}
        first = self._next
        for message, record in self._records():
            for topic, queue_id, *_ in record.copies:
                begins.setdefault((topic, queue_id), message.physical_offset)
        self._next = first
        found: set[str] = set()
        reader = self._engine.reader
        for (topic, queue_id), physical_offset in begins.items():
            begin = first_above(reader, topic, queue_id, physical_offset)
            for message in self._messages(topic, queue_id, begin):
                found.add(message.properties.get(COPY_PROPERTY, ""))
        return found

    def _messages(self, topic: str, queue_id: int, begin: int) -> Iterator[Message]:
        """From a queue offset on; what is damaged is passed over."""
        for message in messages_from(self._engine.reader, topic, queue_id, begin):
            if not isinstance(message, Unreadable):
                yield message
            elif isinstance(message.error, ReadFailedError):
                raise message.error
            else:
                logger.error("%s: %s: it is passed over", self._engine.path, message.error)

    # ---- parts ----

    def _progress(self) -> int | None:
        return self._engine.offsets.row(PROGRESS_KEY).get(0)

    def _flush(self) -> None:
        """In this thread: an open waits for no other. What is on disk is visible in any store."""
        parts = self._engine.write
        if parts.committer is not None:  # a write buffer
            parts.committer.commit()
        parts.flusher.flush()

    def _wait(self, end_offset: int) -> None:
        limit_ms = self._engine.config.sync_flush_timeout_ms
        if not self._engine.commit_log.wait_flushed(end_offset, limit_ms):
            raise DurabilityTimeoutError(
                f"flushed = {self._engine.positions.flushed} after {limit_ms} ms, and a "
                f"transaction ends at {end_offset}: it counts once it is on disk; commit() again "
                "waits for it"
            )


def add_copy(rows: Rows, engine: WritingEngine, row: Row) -> None:
    """One row more, checked as a put checks it."""
    rows.take(engine.plain_writer(row[0], row[1]), row)


def append_batch(rows: Rows) -> PutResult:
    """The commit record and all after it, which come to the log together."""
    return rows.put("memory", None)


def commits_of(engine: WritingEngine) -> Commits:
    """One for each store that is open for writing; the first use finishes what a crash cut."""
    make = engine.kind_of(Commits)
    return engine.guests.made(Commits) or engine.guests.get(Commits, lambda: make(engine))
