"""Puts with a unique id: which message was the first one with it.

An id is looked for in the messages that this process put and that are not indexed yet, then in the
index, up to what is visible. So it reaches as far back as the index: over all messages of the topic
that the store still has.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketstore._native.append.put_result import as_duplicate, restore_put_result
from rocketstore._native.format.codec import encode_properties, pack_host
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    BackpressureError,
    ConfigError,
    MessageRejectedError,
    StoreBehindError,
)
from rocketstore.log.read.query import KeyQuery, query_by_key
from rocketstore.values.arguments import text

if TYPE_CHECKING:
    from rocketstore._native.append.put_result import PutResult
    from rocketstore._native.format.message import Message
    from rocketstore._native.sync.positions import Positions
    from rocketstore.log.index.store import IndexStore
    from rocketstore.log.read.reader import Reader

__all__ = ["UniqueIds"]

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

    def put(self, topic: str, unique_id: str, append: Callable[[], PutResult]) -> PutResult:
        """What `append` gives; a duplicate of the first result where there is a message with this id.

        Raises:
            ConfigError: the store has no index.
            StoreBehindError: queues or index lack messages, so an id may be hidden.
            MessageRejectedError: what cannot be a property.
            BackpressureError: this thread is putting this id already, below a signal's handler; or
                another one is, for longer than `max_wait_ms`.
        """
        index = self._index
        if index is None:
            raise ConfigError("index_enabled", False, "unique_id needs the index")
        if not text("unique_id", unique_id):
            raise MessageRejectedError("unique_id = '': give an id, or None")
        encode_properties({"UNIQ_KEY": unique_id})
        self._reader.source.check()  # before the lock, which a forked child may never get
        claim = topic, unique_id
        began = time.monotonic()
        while (result := self._in_turn(index, claim, append)) is None:
            if time.monotonic() > began + self._max_wait_ms / 1000:
                raise self._waited(unique_id)
        return result

    def _in_turn(
        self, index: IndexStore, claim: Claim, append: Callable[[], PutResult]
    ) -> PutResult | None:
        """None: the turn that was waited for is over, and another thread may have the next one."""
        turn = self._turns.setdefault(claim, SignalSafeLock("a unique id", self._max_wait_ms))
        entered = False
        try:
            with turn() as nested:
                entered = True
                if nested:
                    raise BackpressureError(
                        f"unique_id = {claim[1]!r}: this thread is putting it already, try again "
                        "outside the signal handler"
                    )
                if self._turns.get(claim) is not turn:
                    return None
                try:
                    return self._put(index, claim, append)
                finally:
                    self._turns.pop(claim, None)
        except BackpressureError:
            if entered:
                raise
            raise self._waited(claim[1]) from None

    def _waited(self, unique_id: str) -> BackpressureError:
        return BackpressureError(
            f"unique_id = {unique_id!r}: another thread is putting it for more than max_wait_ms = "
            f"{self._max_wait_ms}; nothing was stored by this put. Put again: if the other one "
            "stored the message, that gives its result"
        )

    def _put(self, index: IndexStore, claim: Claim, append: Callable[[], PutResult]) -> PutResult:
        first = self._of_recent(claim) or self._of_index(index, claim)
        if first is not None:
            return first
        end = self._positions.wrote
        try:
            result = append()
            self._order.append((claim, result.end_offset))
            self._recent[claim] = result
        except BaseException:
            if self._positions.wrote > end:  # a signal's handler may have ended it after the append
                self._unsure.add(claim)
            raise
        return result

    def _of_recent(self, claim: Claim) -> PutResult | None:
        with self._removing() as nested:
            indexed = self._positions.indexed
            while not nested and self._order and self._order[0][1] <= indexed:
                self._recent.pop(self._order.popleft()[0], None)
        found = self._recent.get(claim)
        if found is None:
            return None
        return as_duplicate(found)

    def _of_index(self, index: IndexStore, claim: Claim) -> PutResult | None:
        if claim in self._unsure:
            self._flush()
        topic, unique_id = claim
        query = KeyQuery(topic, unique_id, newest=False)
        found = query_by_key(self._reader, index, query)
        first = next((m for m in found if m.unique_id == unique_id), None)
        if first is None and index.short is not None:
            raise StoreBehindError(self._path, "key index", index.short)
        self._unsure.discard(claim)
        return None if first is None else _result_of(first)


def _result_of(message: Message) -> PutResult:
    """What the put of a message gave that was read back; the promise is still to be waited for."""
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
    )
