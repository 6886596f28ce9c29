"""Puts with a unique id: which message was the first one with it.

An id is looked for in the messages that this process put and that are not indexed yet, then in the
index, up to what is visible. So it reaches as far back as the index: over all messages of the topic
that the store still has, and those that wait to be delivered there.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rocketstore._native.append.put_result import as_duplicate, restore_put_result
from rocketstore._native.format.codec import pack_host
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    BackpressureError,
    ConfigError,
    MessageRejectedError,
    StoreBehindError,
)
from rocketstore.log.index.store import hash_of
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketstore.log.read.query import KeyQuery, query_by_key
from rocketstore.values.arguments import text

if TYPE_CHECKING:
    from types import TracebackType

    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.format.message import Message
    from rocketstore._native.sync.positions import Positions
    from rocketstore._native.sync.signal_safe_lock import Passage
    from rocketstore.log.index.store import IndexStore
    from rocketstore.log.read.reader import Reader

__all__ = ["Claim", "UniqueIds"]

#: A topic, and an id in it.
Claim = tuple[str, str]


class UniqueIds:
    """The unique ids of one store that is open for writing. Any thread may put; one thread at a
    time has an id, from the look for it to its place in the log."""

    def __init__(
        self,
        path: str,
        reader: Reader,
        index: IndexStore | None,
        positions: Positions,
        flush: Callable[[], object],
        max_wait_ms: int,
    ) -> None:
        """`flush`: makes all that is in the log visible. `max_wait_ms`: how long a put waits for
        that of another thread with its id."""
        self._path = path
        self._reader = reader
        self._index = index
        self._positions = positions
        self._flush = flush
        self._max_wait_ms = max(max_wait_ms, 1)
        #: Ids whose put is under way, each with the lock that the thread has.
        self._turns: dict[Claim, SignalSafeLock] = {}
        #: The results of messages that the index may lack yet.
        self._recent: dict[Claim, PutResult] = {}
        #: Their ids and ends, about in the order of the log; one thread at a time removes some.
        self._order: deque[tuple[Claim, int]] = deque()
        self._removing = SignalSafeLock("the old unique ids")
        #: Ids whose append was interrupted: nobody knows whether the log has the message.
        self._unsure: set[Claim] = set()
        #: Whether a message of the timer topic waits still; the open of the store sets it.
        self.waits: Callable[[Message], bool] = lambda message: True

    def put(self, topic: str, unique_id: str, append: Callable[[], PutResult]) -> PutResult:
        """What `append` gives; a duplicate of the first result where there is a message with this id,
        delivered or waiting.

        Raises:
            ConfigError: the store has no index.
            StoreBehindError: queues or index lack messages, so an id may be hidden.
            MessageRejectedError: what cannot be a property.
            BackpressureError: this thread is putting this id already, below a signal's handler; or
                another one is, for longer than `max_wait_ms`.
        """
        claim = self.claim(topic, unique_id)
        with Turn(self._turns, claim, self._max_wait_ms):
            first = self._first(claim)
            if first is not None:
                return first
            end = self._positions.wrote
            try:
                result = append()
            except BaseException:
                self._is_unsure(end, [claim])
                raise
            self._note(claim, result)
        return result

    @contextlib.contextmanager
    def turns(self, claims: Sequence[Claim]) -> Iterator[dict[Claim, PutResult]]:
        """For a block that puts messages with these ids: gives the results of those that are there, and
        takes those that the block adds. Errors are those of `put`."""
        with contextlib.ExitStack() as turns:
            for claim in sorted(
                set(claims)
            ):  # in one order for all, so that no two wait for each other
                turns.enter_context(Turn(self._turns, claim, self._max_wait_ms))
            found = {claim: first for claim in claims if (first := self._first(claim)) is not None}
            results = dict(found)
            end = self._positions.wrote
            try:
                yield results
            except BaseException:
                self._is_unsure(end, claims)
                raise
            for claim in results.keys() - found.keys():
                self._note(claim, results[claim])

    def claim(self, topic: str, unique_id: str) -> Claim:
        """Checks an id, before anything waits for it."""
        if self._index is None:
            raise ConfigError("index_enabled", False, "unique_id needs the index")
        if not text("unique_id", unique_id):
            raise MessageRejectedError("unique_id = '': give an id, or None")
        self._reader.source.check()  # before the lock, which a forked child may never get
        return topic, unique_id

    def forget(self, topic: str, unique_id: str) -> None:
        """The message that waited with this id is cancelled: another one may have it."""
        self._recent.pop((topic, unique_id), None)

    def _note(self, claim: Claim, result: PutResult) -> None:
        self._order.append((claim, result.end_offset))
        self._recent[claim] = result

    def _is_unsure(self, end: int, claims: Sequence[Claim]) -> None:
        """An append failed, before which the log ended here."""
        if self._positions.wrote > end:  # a signal's handler may have ended it after the append
            self._unsure.update(claims)

    def _first(self, claim: Claim) -> PutResult | None:
        """The result of the message that is there."""
        with self._removing() as nested:
            indexed = self._positions.indexed
            while not nested and self._order and self._order[0][1] <= indexed:
                self._recent.pop(self._order.popleft()[0], None)
        found = self._recent.get(claim)
        if found is not None:
            return as_duplicate(found)
        if claim in self._unsure:
            self._flush()
        self._reader.source.catch_up()
        first = self._of_index(claim, claim[0])
        if first is None:
            first = self._waiting(claim)
        index = self._index
        if first is None and index is not None and index.short is not None:
            raise StoreBehindError(self._path, "key index", index.short)
        self._unsure.discard(claim)
        return None if first is None else _result_of(first)

    def _waiting(self, claim: Claim) -> Message | None:
        """One that waits for its time. One that was delivered since the first look is in its topic."""
        for topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
            met = False
            for message in self._all_of_index(claim, topic):
                if message.properties.get("REAL_TOPIC") != claim[0]:
                    continue
                if topic == SCHEDULE_TOPIC or self.waits(message):
                    return message
                met = True
            if met:
                self._flush()
                self._reader.source.catch_up()
                return self._of_index(claim, claim[0])
        return None

    def _of_index(self, claim: Claim, topic: str) -> Message | None:
        return next(self._all_of_index(claim, topic), None)

    def _all_of_index(self, claim: Claim, topic: str) -> Iterator[Message]:
        """Messages of a topic with an id, the oldest first."""
        index, unique_id = self._index, claim[1]
        key_hash = hash_of(topic, unique_id)
        if index is None or not any(one.may_have(key_hash) for one in index.files):
            return  # cheaper than a look for records
        query = KeyQuery(topic, unique_id, newest=False)
        for message in query_by_key(self._reader, index, query):
            if message.unique_id == unique_id:
                yield message


class Turn:
    """For `with`: one thread at a time has an id, from the look for it to its place in the log."""

    def __init__(self, turns: dict[Claim, SignalSafeLock], claim: Claim, max_wait_ms: int) -> None:
        self._turns, self._claim, self._max_wait_ms = turns, claim, max_wait_ms
        self._passage: Passage | None = None

    def __enter__(self) -> None:
        began, unique_id = time.monotonic(), self._claim[1]
        while time.monotonic() <= began + self._max_wait_ms / 1000:
            lock = self._turns.get(self._claim)
            if lock is None:
                new = SignalSafeLock("a unique id", self._max_wait_ms)
                lock = self._turns.setdefault(self._claim, new)
            passage = lock()
            try:
                nested = passage.__enter__()
            except BackpressureError:
                break
            if nested:
                passage.__exit__(None, None, None)
                raise BackpressureError(
                    f"unique_id = {unique_id!r}: this thread is putting it already, try again "
                    "outside the signal handler"
                )
            self._passage = passage
            if self._turns.get(self._claim) is lock:
                return
            passage.__exit__(None, None, None)  # the turn that was waited for is over
        raise BackpressureError(
            f"unique_id = {unique_id!r}: another thread is putting it for more than max_wait_ms = "
            f"{self._max_wait_ms}; nothing was stored by this put. Put again: if the other one "
            "stored the message, that gives its result"
        )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._turns.pop(self._claim, None)
        if self._passage is not None:
            self._passage.__exit__(kind, error, trace)


def _result_of(message: Message) -> PutResult:
    """What the put of a message gave that was read back; the promise is still to be waited for."""
    due = message.properties.get("TIMER_OUT_MS", "0") if message.topic == TIMER_TOPIC else "0"
    return restore_put_result(
        message.physical_offset,
        message.physical_offset + message.size,
        message.queue_id,
        message.queue_offset,
        message.store_timestamp_ms,
        1,
        0,
        pack_host(message.store_host),
        None,
        duplicate=True,
        due_ms=int(due) if due.isdecimal() else 0,
        id=message.unique_id,
    )
