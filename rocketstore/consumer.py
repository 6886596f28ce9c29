"""Consumers: iterators over one queue or all queues of a topic, with stored offsets if wanted."""

from __future__ import annotations

import contextlib
import logging
import time
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Literal, NoReturn, Self

from rocketstore._native.format.codec import tags_code
from rocketstore._native.format.queue_reader import BatchIterator
from rocketstore._native.sync.futex import timeout_ms
from rocketstore._native.sync.signal_safe_lock import Passage, SignalSafeLock
from rocketstore.consuming.chosen import (
    EDGES,
    LEVELS,
    Upto,
    chosen_offsets,
    chosen_queues,
    place_of,
)
from rocketstore.consuming.cursors import Edge, Place, QueueCursors
from rocketstore.consuming.group_positions import GroupPositions
from rocketstore.consuming.reading import ConsumerBusyError, Reading
from rocketstore.errors import NoGroupError, StoreBehindError, StoreClosedError
from rocketstore.filters import matching_of
from rocketstore.values.arguments import at_most, one_of, text, whole_number
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.plural import bounded
from rocketstore.values.public import public
from rocketstore.values.record_filter import tag_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    from rocketstore._native.format.message import Message
    from rocketstore.columns import Columns
    from rocketstore.consuming.column_poll import ColumnPoll
    from rocketstore.consuming.consumer_offsets import ConsumerOffsets
    from rocketstore.log.read.reader import Reader
    from rocketstore.values.timestamps import Duration, Timestamp

__all__ = ["Consumer", "ConsumerBusyError"]

logger = logging.getLogger(__name__)

# Messages that each look at a queue takes along: what a queue is ahead of its neighbours at most.
BATCH = 512
# A wait looks at the store again after this long: one that closes without a word holds nobody.
LONGEST_WAIT_MS = 1000
BUSY = "another thread is using this consumer: give each thread its own, or hand it over"


@public
class Consumer:
    """Messages of one queue, or of all queues of a topic: in order within a queue, queues taking
    turns.

    Iterating ends when the consumer has caught up and can go on later; `follow` waits for more.
    Nothing is stored before `commit`. One thread at a time may use a consumer: this is checked,
    not waited for.
    """

    def __init__(
        self,
        reader: Reader,
        topic: str,
        *,
        queue_id: int | None = None,
        queue_ids: Iterable[int] | None = None,
        offset: Edge | int = "earliest",
        when: Timestamp | None = None,
        group: str | None = None,
        tags: str | Iterable[str] | None = None,
        where: str | None = None,
        reset: Edge | None = None,
        must_exist: bool = False,
        offsets: ConsumerOffsets | None = None,
        wait_flushed: Callable[[int], object] | None = None,
    ) -> None:
        """Made by `store.consumer`, which explains the arguments.

        Args:
            offsets: The offset table of the store, for `group`.
            wait_flushed: Waits until the log is durable up to an offset. None: a store that reads.
        """
        one_of("reset", reset, (*EDGES, None))
        if group is not None and offsets is None:
            raise ValueError("a group needs the store's offset table")
        topic = text("topic", topic)
        group = None if group is None else text("group", group)
        chosen = chosen_queues(queue_id, queue_ids)
        self._one_queue = chosen[0] if chosen is not None and len(chosen) == 1 else None
        wanted, matching = tag_set(tags), matching_of(where)
        edge, time_ms = place_of(offset, when, self._one_queue)
        one_of("must_exist", must_exist, (True, False))
        reader.source.check()
        for each in chosen or (None,):
            reader.look_for(topic, each, must_exist=must_exist)
        self._reader = reader
        self._topic = topic
        self._queue_ids = chosen
        self._group = group
        self._one_call = SignalSafeLock("a consumer", busy=ConsumerBusyError(BUSY))
        self._closed = False
        self._met: Exception | None = None  # error of the last poll, after what it gave
        self._columns: ColumnPoll | None = None
        self._stored: GroupPositions | None = None
        if group is not None and offsets is not None:
            self._stored = GroupPositions(offsets, topic, group, self, wait_flushed, chosen)
        try:
            with contextlib.suppress(StoreBehindError):  # the poll that may miss something says so
                reader.source.catch_up()
            self._cursors = QueueCursors(
                reader,
                topic,
                chosen,
                tags=wanted,
                matching=matching,
                tags_codes=None if wanted is None else frozenset(map(tags_code, wanted)),
                reset=reset,
                stored={} if self._stored is None else self._stored.stored,
            )
            self._reading = Reading(self._cursors)
            self._cursors.join(edge, time_ms=time_ms)
        except BaseException:
            self._release()
            raise

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._topic

    @property
    def group(self) -> str | None:
        """Name of the consumer group, or None."""
        return self._group

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def positions(self) -> dict[int, int]:
        """Queue offset of the next message of each queue: what `commit` would store now."""
        return self._reading.positions()

    @property
    def statuses(self) -> dict[int, str]:
        """RocketMQ's read status of the last look at each queue: FOUND, OFFSET_OVERFLOW_ONE, …"""
        return {cursor.queue_id: cursor.status for cursor in self._cursors}

    def lag(self) -> int:
        """Counts the queue offsets between the positions and the ends of the queues, over all
        queues. What a trim removed is not counted: it cannot be read.

        Raises:
            StoreReplacedError, StoreRecoveringError, StoreClosedError, ConsumerBusyError: As `poll`.
        """
        with self._use():
            self._cursors.join("earliest")
            lag = 0
            for cursor in self._cursors:
                minimum, maximum = self._reader.bounds(self._topic, cursor.queue_id)
                lag += max(0, maximum - max(minimum, self._cursors.handed(cursor)))
            return lag

    def __iter__(self) -> Iterator[Message]:
        """Hands out messages until the consumer has caught up."""
        return self._batches(lambda: self._fill(BATCH))

    def __next__(self) -> Message:
        with self._use():
            self._reading.loop(begins=False)
            while length_hint(self._cursors.left) or self._fill(BATCH):
                message = next(self._cursors.left, None)
                if message is not None:  # else a trim took the batch
                    return message
        raise StopIteration

    def follow(self, timeout_s: Duration | None = None) -> Iterator[Message]:
        """Iterates as the consumer does, and waits for more messages.

        It ends when no message came for `timeout_s` seconds. None: it never ends.

        Raises:
            OffsetOutOfRangeError, CorruptRecordError, ReadFailedError, StoreReplacedError,
            StoreRecoveringError, StoreClosedError, ConsumerBusyError: As `poll`.
        """
        return self._batches(lambda: self._wait(BATCH, timeout_s))

    def _batches(self, fetch: Callable[[], bool]) -> Iterator[Message]:
        """What is left to hand out, again and again, until `fetch` finds no more. No line of
        Python runs between two messages."""
        self._reading.loop()

        def next_batch() -> Iterator[Message] | None:
            with self._use():
                if length_hint(self._cursors.left) or fetch():
                    return self._cursors.left
            return None

        return BatchIterator(next_batch)

    def poll(self, max_messages: int = 500, timeout_s: Duration | None = 0.0) -> list[Message]:
        """Gives up to `max_messages` messages; waits up to `timeout_s` seconds for the first.

        With `where` it gives none, too, where none matched for 0.1 s and for `timeout_s`: then
        `lag` says how far it is from the end.

        Args:
            max_messages: 1 or more.
            timeout_s: Longest wait, in seconds. 0 does not wait; None waits for ever.

        Raises:
            OffsetOutOfRangeError: The position is no longer kept, and the consumer has no `reset`.
            CorruptRecordError, ReadFailedError: The next record cannot be read; a note says how to
                go on. Messages found before it come first, by a call of their own.
            StoreReplacedError: Another store has the place of this one.
            StoreRecoveringError: A process recovers or rebuilds the store, and this reader has not
                looked at the queue before.
            StoreClosedError, ConsumerBusyError: The consumer cannot be used now.
        """
        with self._use():
            return self._polled(max_messages, timeout_s)

    def _polled(self, max_messages: int, timeout_s: Duration | None) -> list[Message]:
        messages: list[Message] = []
        places: list[Place] = []
        try:
            self._reading.poll()
            self._poll(messages, places, at_most("max_messages", max_messages), timeout_s)
            self._reading.gave = bool(messages)
            return messages
        except BaseException:
            if places:  # by Ctrl-C, say: what is in hand has reached nobody
                self._cursors.go_back(places)
            raise

    def _poll(
        self, messages: list[Message], places: list[Place], most: int, timeout_s: Duration | None
    ) -> None:
        cursors = self._cursors
        cursors.unpacked = 0
        cursors.hand_out(messages, places, most)
        met, self._met = self._met, self._met if messages else None
        if met is not None and not messages:
            raise met
        # Each queue gives an even share when its turn comes, until the list is full.
        share = max(1, most // max(1, len(cursors)))
        if not messages and self._wait(share, timeout_s, in_time=True):
            cursors.hand_out(messages, places, most)
        try:
            while 0 < len(messages) < most and not cursors.is_heavy:
                if not cursors.fill(min(share, most - len(messages))):
                    break
                cursors.hand_out(messages, places, most - len(messages))
        except Exception as error:
            # What is in hand goes out first; the next call raises it, or other queues would hide it.
            self._met = without_frames(error)
            logger.debug("a poll of %s ends early", self._topic, exc_info=True)

    def poll_columns(
        self,
        max_messages: int = 8192,
        timeout_s: Duration | None = 0.0,
        *,
        columns: Iterable[str] | None = None,
    ) -> Columns:
        """Gives messages as NumPy columns, as `rocketstore.scan` does, without an object for each.

        The rows of one call are of one queue; queues take turns. No rows: there was no message.

        Args:
            max_messages: 1 … 65536. Fewer rows come when their records have more than a GiB.
            timeout_s: Longest wait for the first message, in seconds. None waits for ever.
            columns: Names of `rocketstore.columns.COLUMNS` but "body_view". None: all.

        Raises:
            ValueError, TypeError: A column that there is not, or a wrong number.
            The errors of `poll`.
        """
        from rocketstore.consuming.column_poll import column_poll  # with NumPy

        with self._use():
            self._columns = column_poll(self._columns, columns, max_messages)
            self._reading.poll()
            if not length_hint(self._cursors.left):
                self._wait(max_messages, timeout_s, in_time=True)
            found = self._columns.hand_out(self._cursors)
            self._reading.gave = bool(len(found))
            return found

    def _prefetch(self, max_messages: int = BATCH) -> bool:
        """Fetches without handing out, and without waiting: whether `_take` has something now.

        With `_take` for event loops: one thread fetches, another hands out.
        """
        max_messages = at_most("max_messages", max_messages)
        with self._use():
            return bool(length_hint(self._cursors.left)) or self._cursors.fill(max_messages)

    @property
    def _passing(self) -> bool:
        """Whether the last fetch ended amid messages that the filter does not take."""
        return self._cursors.passing

    def _take(self, max_messages: int = BATCH, *, polls: bool = False) -> list[Message]:
        """Hands out up to `max_messages` of what was fetched; never fetches, so it never blocks.
        `polls`: for a poll, of which the caller has said that it begins."""
        with self._use():
            if not polls:
                self._reading.loop(begins=False)
            return list(islice(self._cursors.left, max_messages))

    def seek(
        self,
        offset: Edge | Literal["committed"] | int | None = None,
        *,
        when: Timestamp | None = None,
        queue_id: int | None = None,
    ) -> None:
        """Moves the consumer: the next message comes from there. What was fetched before is
        dropped.

        Args:
            offset: "earliest", "latest", "committed" (as `rewind`), or a queue offset of the one
                queue.
            when: Instead of `offset`: the first message stored at this time or later.
            queue_id: Moves this queue only. None: the consumer's one queue, or all of them.

        Raises:
            ValueError: an offset without a queue, an unknown queue, or a time without a zone.
            TypeError: neither or both of `offset` and `when`, or a value of another type.
            NoGroupError: "committed", and the consumer has no group.
            StoreClosedError, ConsumerBusyError: the consumer cannot be used now.
        """
        if (offset is None) == (when is None):
            raise TypeError("seek() takes one of offset and when=")
        with self._use():
            self._cursors.join("earliest")
            back = self._group_positions().now if offset == "committed" else None
            chosen = self._one_queue if queue_id is None else whole_number("queue_id", queue_id)
            to: Edge | int = "earliest" if offset is None or offset == "committed" else offset
            edge, time_ms = place_of(to, when, chosen)
            if chosen is not None and chosen not in self._cursors:
                what = f"queue_id = {chosen}: the consumer of {self._topic!r} has no queue {chosen}"
                raise ValueError(what)
            self._cursors.forget_batch()
            self._met = None
            self._reading.forget()
            for cursor in self._cursors:
                if chosen in (None, cursor.queue_id):
                    self._cursors.place(cursor, edge, time_ms)
                    if back is not None:
                        self._reading.rewind(cursor, back.get(cursor.queue_id))

    def rewind(self) -> None:
        """Goes back to what the group has committed, in a queue without an offset to where the
        consumer began: what nobody has committed comes again.

        Raises:
            RocketStoreError: as `seek`.
        """
        self.seek("committed")

    def commit(
        self,
        upto: Message | Mapping[int, int] | None = None,
        *,
        durability: Literal["disk", "os"] = "disk",
    ) -> dict[int, int]:
        """Stores offsets for the group, and gives what the group has now for these queues.

        With "disk" it waits first until the log is flushed as far as the offsets imply, so that a
        power cut cannot make the group skip messages.

        Args:
            upto: None: the positions of all queues. A message: it and all before it in its queue
                are done. A mapping: the next queue offset by queue id. Other queues stay, and so
                does where the consumer reads.
            durability: "disk": it survives a power cut. "os": it survives the end of this process;
                after a power cut the group may read messages again.

        Raises:
            OffsetOutOfRangeError: an offset is beyond the end of its queue.
            QueueNotFoundError: the consumer has no such queue.
            ValueError, TypeError: `upto` or `durability` is nothing of the above.
            NoGroupError: the consumer has no group.
            StoreReadOnlyError, DurabilityTimeoutError: nothing is stored.
            ReplicaStoreError: the store is a copy, and its master has this group.
            StoreClosedError, ConsumerBusyError: the consumer cannot be used now. Nothing is stored.
        """
        one_of("durability", durability, LEVELS)
        with self._use():
            stored, offsets = self._to_commit(upto)
            stored.commit(self._cursors, self._reader, offsets, sync=durability == "disk")
            return self.positions if offsets is None else offsets

    def _group_positions(self) -> GroupPositions:
        if self._stored is not None:
            return self._stored
        raise NoGroupError("this consumer has no group: pass group= to store.consumer")

    def _to_commit(self, upto: Upto) -> tuple[GroupPositions, dict[int, int] | None]:
        stored = self._group_positions()
        if upto is not None:
            self._cursors.join("earliest")
        return stored, chosen_offsets(upto, self._topic, self._cursors)

    def close(self) -> None:
        """Gives the group back and does not commit. Messages that were handed out stay readable.

        Raises nothing.
        """
        if not self._closed:
            self._closed = True
            self._release()
            with contextlib.suppress(ConsumerBusyError), self._one_call():
                # Another thread in a call of this consumer keeps the batch that it works on.
                self._cursors.forget_batch()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "all queues"
        if self._queue_ids is not None:
            one, some = self._one_queue, bounded([*self._queue_ids])
            where = f"queue_ids={some}" if one is None else f"queue_id={one}"
        group = "" if self._group is None else f", group={self._group!r}"
        state = "closed" if self._closed else f"positions={bounded(self.positions)}"
        return f"<rocketstore.Consumer topic={self._topic!r}, {where}{group}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Consumer belongs to its open store and cannot be pickled: send path, topic and "
            "`positions`, and reopen with "
            "rocketstore.open(path, mode='r').consumer(topic, queue_id=…, offset=…)"
        )

    def _check(self) -> None:
        if self._closed:
            raise StoreClosedError("the consumer is closed")
        self._reader.source.check()

    def _use(self) -> Passage:
        """For one call; a second thread meanwhile is an error, not a wait."""
        self._check()
        return self._one_call()

    def _release(self) -> None:
        if self._stored is not None:
            self._stored.release()

    def _fill(self, limit: int) -> bool:
        """Fills the batch, however many messages the filter passes over."""
        while not self._cursors.fill(limit):
            if not self._cursors.passing:
                return False
            self._check()
        return True

    def _wait(self, limit: int, timeout_s: Duration | None, *, in_time: bool = False) -> bool:
        """Fills the batch, or waits for it. `in_time`: passing messages over takes of the time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_ms(timeout_s) / 1000
        arrival = self._reader.source.arrival
        while True:
            # The count is read first: what arrives after this line ends the wait at once.
            seen = arrival.count
            if self._cursors.fill(limit):
                return True
            passing = self._cursors.passing
            left_ms = LONGEST_WAIT_MS
            if passing and not in_time:
                left_ms = 0
            elif deadline is not None:
                left_ms = min(left_ms, int((deadline - time.monotonic()) * 1000 + 0.999))
                if left_ms <= 0:
                    return False
            if not passing:
                arrival.wait(seen, left_ms)
            if self._closed:
                raise StoreClosedError("the consumer was closed while it waited")
