"""Puts with a unique id: which message was the first one with it.

An id is looked for in the messages that this process put and that are not indexed yet, then in the
index, up to what is visible. So it reaches as far back as the index: over all messages of the topic
that the store still has, and those that wait to be delivered there.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from rocketstore._native.append.put_result import as_duplicate, restore_put_result
from rocketstore._native.dispatch import unique_claims as native
from rocketstore._native.format.codec import pack_host
from rocketstore.errors import BackpressureError, StoreBehindError
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketstore.log.read.query import KeyQuery, query_by_key

if TYPE_CHECKING:
    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.dispatch.dispatch_service import DispatchService
    from rocketstore._native.format.message import Message
    from rocketstore.log.index.store import IndexStore
    from rocketstore.log.read.reader import Reader

__all__ = ["Claim", "UniqueIds"]

#: A topic, and an id in it.
Claim = tuple[str, str]


class UniqueIds(native.UniqueClaims):
    """The unique ids of one store that is open for writing. Any thread may put; one thread at a
    time has an id, from the look for it to its place in the log.

    Native code says of most ids that no message has them. Of the others this looks for it."""

    def __init__(
        self,
        path: str,
        reader: Reader,
        index: IndexStore | None,
        service: DispatchService,
        flush: Callable[[], object],
        max_wait_ms: int,
    ) -> None:
        """`flush`: makes all that is in the log visible. `max_wait_ms`: how long a put waits for
        that of another thread with its id."""
        topics = SCHEDULE_TOPIC.encode(), TIMER_TOPIC.encode()
        super().__init__(service, index, topics, max_wait_ms)
        self._path, self._reader, self._index, self._flush = path, reader, index, flush
        self._positions = service.positions
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
        with native.Turn(self, claim):
            first: PutResult | None = self.first(claim)
            if first is not None:
                return first
            end = self._positions.wrote
            try:
                result = append()
            except BaseException:
                self._is_unsure(end, [claim])
                raise
            self.note(claim, result)
        return result

    @contextlib.contextmanager
    def turns(self, claims: Sequence[Claim]) -> Iterator[dict[Claim, PutResult]]:
        """For a block that puts messages with these ids: gives the results of those that are there, and
        takes those that the block adds. Errors are those of `put`."""
        with contextlib.ExitStack() as turns:
            for claim in sorted(set(claims)):  # in one order for all: no two wait for each other
                turns.enter_context(native.Turn(self, claim))
            found = {claim: first for claim in claims if (first := self.first(claim)) is not None}
            results = dict(found)
            end = self._positions.wrote
            try:
                yield results
                for claim in results.keys() - found.keys():
                    self.note(claim, results[claim])
            except BaseException:
                self._is_unsure(end, claims)
                raise

    def forget(self, topic: str, unique_id: str) -> None:
        """The message that waited with this id is cancelled: another one may have it."""
        self.recent.pop((topic, unique_id), None)

    def _await_turn(self, claim: Claim, until_ns: int) -> None:
        """Returns once the thread that has the id gives it back, at the end of the time or before."""
        lock, nested = self.turns_taken.get(claim), False
        try:
            if lock is not None:
                with lock() as nested:
                    pass
        except BackpressureError:
            until_ns = 0
        if nested:
            raise BackpressureError(
                f"unique_id = {claim[1]!r}: this thread is putting it already, try again "
                "outside the signal handler"
            )
        if time.monotonic_ns() > until_ns:
            raise BackpressureError(
                f"unique_id = {claim[1]!r}: another thread is putting it for more than "
                f"max_wait_ms = {self.max_wait_ms}; nothing was stored by this put. Put again: if "
                "the other one stored the message, that gives its result"
            )

    def _is_unsure(self, end: int, claims: Sequence[Claim]) -> None:
        """An append failed, before which the log ended here."""
        if self._positions.wrote > end:  # a signal's handler may have ended it after the append
            self.unsure.update(claims)

    def _look(self, claim: Claim) -> PutResult | None:
        """The result of the message that is there, which native code could not deny."""
        self._reader.source.check()
        found = self.recent.get(claim)
        if found is not None:
            return as_duplicate(found)
        if claim in self.unsure:
            self._flush()
        self._reader.source.catch_up()
        first = self._of_index(claim, claim[0]) if self.may_have(claim) else None
        if first is None and self.may_have(claim):
            first = self._waiting(claim)
        index = self._index
        if first is None and index is not None and index.short is not None:
            raise StoreBehindError(self._path, "key index", index.short)
        self.unsure.discard(claim)
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
        assert self._index is not None
        query = KeyQuery(topic, claim[1], newest=False)
        for message in query_by_key(self._reader, self._index, query):
            if message.unique_id == claim[1]:
                yield message


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
