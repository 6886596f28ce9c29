"""How far one consumer has read each queue of its topic, and whose turn is next.

Queues take turns: each look at one takes at most a batch along, so a full queue cannot starve its
neighbours. Within a queue messages keep their order.
"""

from __future__ import annotations

import time
from itertools import islice
from operator import length_hint
from typing import TYPE_CHECKING, Literal

from rocketstore._native.format.queue_reader import UnitRun
from rocketstore.errors import OffsetOutOfRangeError, ReadFailedError
from rocketstore.log.queues.multi_dispatch import offset_in_queue
from rocketstore.log.read import fetch_result as read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rocketstore._native.format.message import Message
    from rocketstore.log.read.reader import Reader

__all__ = ["Cursor", "Edge", "Place", "QueueCursors"]

Edge = Literal["earliest", "latest"]

# Turns after which new queues of the topic are looked for, even while there is work.
TURNS_PER_LISTING = 64
# Messages that a look takes along where a filter over properties chooses among them.
FILTERED = 800
# A call passes over messages that such a filter does not take for so long.
PASSING_S = 0.1

_PASSED_OVER = (read.MESSAGE_WAS_REMOVING, read.NO_MATCHED_MESSAGE)
_OUT_OF_RANGE = (read.OFFSET_TOO_SMALL, read.OFFSET_OVERFLOW_BADLY)
_NO_QUEUE = (read.NO_MATCHED_LOGIC_QUEUE, read.NO_MESSAGE_IN_QUEUE)


class Cursor:
    """How far one queue has been fetched, which may be ahead of what was handed out."""

    __slots__ = ("began", "committed", "floating", "position", "queue_id", "reset_to", "status")

    def __init__(
        self, queue_id: int, position: int, *, floating: bool, committed: int | None
    ) -> None:
        self.queue_id = queue_id
        self.position = position
        # True until the first message of a cursor that began at the minimum: it follows the
        # minimum.
        self.floating = floating
        self.committed = committed
        # Where it began, and where a reset has taken it: what lies before is skipped by wish.
        self.began, self.reset_to = position, 0
        self.status = read.FOUND


class PolledBatch:
    """Messages of one queue that were fetched together, and how far they were handed out.

    `left` iterates over the rest. Handing out is one step of it, without a line of Python: the
    positions follow from its length hint.
    """

    __slots__ = ("cursor", "dropped", "left", "messages", "rest")

    def __init__(
        self, messages: list[Message], cursor: Cursor | None, rest: UnitRun | None = None
    ) -> None:
        self.messages = messages
        self.cursor = cursor
        #: What can be read after a full batch, while one queue alone has turns.
        self.rest = rest
        self.left: Iterator[Message] = iter(messages)
        #: What a trim took from `left`, or the queue offset of the first of it.
        self.dropped: list[Message] | int = []


#: A cursor, and how far it was handed out.
Place = tuple[Cursor, int]


class QueueCursors:
    """The cursors of one consumer, and the batch that it hands out. Not safe for threads: the
    consumer sees to that."""

    def __init__(
        self,
        reader: Reader,
        topic: str,
        queue_ids: tuple[int, ...] | None,
        *,
        tags: frozenset[str] | None,
        tags_codes: frozenset[int] | None,
        matching: Callable[[list[Message]], list[Message]] | None = None,
        reset: Edge | None,
        stored: Mapping[int, int],
    ) -> None:
        self._reader = reader
        self._topic = topic
        self._queue_ids = queue_ids
        self._tags = tags
        self._tags_codes = tags_codes
        self._matching = matching
        #: Whether the last `fill` ended because it had passed over messages for long.
        self.passing = False
        self._reset = reset
        # Stored offsets; those of queues that are not there yet are kept for the day they come.
        self._stored = dict(stored)
        self._by_id: dict[int, Cursor] = {}
        self._order: list[Cursor] = []
        self._told = False  # whether a topic that is not there was logged
        self._turn = 0
        self._turns = 0
        self._batch = PolledBatch([], None)
        #: Bytes of messages taken out of inner batches; a poll begins to count at 0.
        self.unpacked = 0
        reader.source.holders.add(self)

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Cursor]:
        return iter(self._order)

    def __contains__(self, queue_id: object) -> bool:
        return queue_id in self._by_id

    @property
    def is_heavy(self) -> bool:
        """Whether a poll has unpacked so much that it ends."""
        return self.unpacked >= read.UNPACKED_BYTES

    @property
    def left(self) -> Iterator[Message]:
        """What was fetched and not handed out yet."""
        return self._batch.left

    def join(self, offset: Edge | int, *, time_ms: int | None = None) -> bool:
        """Takes up queues without a cursor: at the stored offset, else where it is said here."""
        queue_ids = self._queue_ids
        if queue_ids is None:
            queue_ids = tuple(sorted(self._reader.source.queues(self._topic)))
        new = [queue_id for queue_id in queue_ids if queue_id not in self._by_id]
        for queue_id in new:
            stored = self._stored.pop(queue_id, None)
            cursor = Cursor(queue_id, 0, floating=False, committed=stored)
            self.place(
                cursor, offset if stored is None else stored, time_ms if stored is None else None
            )
            cursor.began = cursor.position
            self._by_id[queue_id] = cursor
            self._order.append(cursor)
        return bool(new)

    def place(self, cursor: Cursor, to: Edge | int, time_ms: int | None = None) -> None:
        """Moves a cursor to an end, an offset, or the first message stored at a time or later."""
        if time_ms is not None:
            cursor.position = self._reader.offset_at(self._topic, cursor.queue_id, time_ms)
        elif isinstance(to, int):
            cursor.position = to
        else:
            minimum, maximum = self._reader.bounds(
                self._topic, cursor.queue_id, catch_up=to != "earliest"
            )
            cursor.position = minimum if to == "earliest" else maximum
        cursor.floating = time_ms is None and to == "earliest"

    def handed(self, cursor: Cursor) -> int:
        """Queue offset after the last message of a queue that was handed out."""
        batch = self._batch
        if cursor is not batch.cursor:
            return cursor.position
        first = _next_of(batch)
        if first is not None:
            return offset_in_queue(first, self._topic, cursor.queue_id)
        return self._dropped_at(batch, cursor)

    def _dropped_at(self, batch: PolledBatch, cursor: Cursor) -> int:
        """Where a cursor is whose batch has nothing left."""
        dropped = batch.dropped
        if isinstance(dropped, int):
            return dropped
        if dropped:
            return offset_in_queue(dropped[0], self._topic, cursor.queue_id)
        return cursor.position

    def release(self, begin_offset: int) -> None:
        """The log begins at this physical offset now: a batch that waits keeps no file below it.

        Any thread may call this at any moment, also while another one uses the consumer: what was
        not handed out goes at once, and the cursor is before it from then on.
        """
        batch = self._batch
        cursor, first = batch.cursor, _next_of(batch)
        if cursor is not None and first is not None and first.physical_offset < begin_offset:
            dropped: list[Message] = []
            batch.dropped = dropped
            dropped.extend(batch.left)  # one step: the other thread finds all of it, or none
            batch.dropped = self._dropped_at(batch, cursor)
            batch.messages = []
        else:
            self.let_go(batch)

    def let_go(self, batch: PolledBatch | None = None) -> None:
        """A batch that was handed out to the last message keeps no file of the log."""
        batch = self._batch if batch is None else batch
        if not length_hint(batch.left):
            next(batch.left, None)  # an iterator drops what it iterates over once it says the end
            batch.messages = []

    def fetched(self) -> list[Message]:
        """What was fetched and not handed out yet: messages of one queue."""
        batch = self._batch
        if isinstance(batch.left, UnitRun):
            return batch.left.waiting()
        left = length_hint(batch.left)
        return batch.messages[-left:] if left else []

    def hand_out(self, messages: list[Message], places: list[Place], most: int) -> None:
        """Adds up to `most` of what was fetched, and where their queue stood, for `go_back`."""
        cursor, left = self._batch.cursor, self._batch.left
        if cursor is not None and length_hint(left):
            places.append((cursor, self.handed(cursor)))
            messages += islice(left, most)
            self.let_go()

    def go_back(self, places: list[Place]) -> None:
        """What was handed out from these places on has reached nobody: it comes again."""
        self.forget_batch()
        for cursor, position in reversed(places):
            cursor.position = position

    def forget_batch(self) -> None:
        """Drops what was fetched and not handed out; the cursor goes back to it."""
        batch = self._batch
        if batch.cursor is not None:
            batch.cursor.position = self.handed(batch.cursor)
        # A loop may use this very iterator: it has to find it exhausted.
        for _ in batch.left:
            pass
        self._batch = PolledBatch([], None)

    def fill(self, limit: int) -> bool:
        """Fetches up to `limit` messages, with a filter some more, from the next queue that has
        some; False when all are caught up, or `passing`.

        To be called with an empty batch. A fault of one queue is raised when its turn comes and
        leaves its cursor where it is.
        """
        self._reader.source.check()
        batch = self._batch
        if batch.cursor is not None and batch.dropped != []:
            batch.cursor.position = self._dropped_at(batch, batch.cursor)
            self._batch = PolledBatch([], None)
        if self._turns >= TURNS_PER_LISTING:
            self._turns = 0
            self.join("earliest")
        rest = self._batch.rest
        if rest is not None and self._go_on(rest, limit):
            return True
        self._batch = PolledBatch([], None)
        until = None if self._matching is None else time.monotonic() + PASSING_S
        self.passing = False
        while True:
            moved = False
            for _ in range(len(self._order)):
                cursor = self._order[self._turn]
                self._turn = (self._turn + 1) % len(self._order)
                self._turns += 1
                before = cursor.position
                if self._fetch(cursor, limit):
                    return True
                moved = moved or cursor.position != before or cursor.status in _OUT_OF_RANGE
                if until is not None and moved and time.monotonic() >= until:
                    self.passing = True
                    return False
            # New queues began after this consumer: all of their messages are new to it.
            if not moved and not self.join("earliest"):
                if not self._told and all(cursor.status in _NO_QUEUE for cursor in self._order):
                    self._told = True
                    self._reader.tell_missing(self._topic)
                return False

    def _go_on(self, run: UnitRun, limit: int) -> bool:
        """The next batch where the last one ended, without another look at the queue."""
        batch, cursor = self._batch, self._batch.cursor
        if cursor is None or len(self._order) != 1 or cursor.position != run.next_offset:
            return False
        self._turns += 1
        if not self._reader.go_on(run, limit):
            return False
        cursor.position, batch.left = run.next_offset, run
        return True

    def _fetch(self, cursor: Cursor, limit: int) -> bool:
        """One look at one queue. True with a new batch, False when there was nothing for us."""
        most = limit if self._matching is None else max(limit, FILTERED)
        found = self._reader.fetch(
            self._topic, cursor.queue_id, cursor.position, most, self._tags_codes
        )
        messages, next_offset, cursor.status = found
        if type(found) is read.BatchFetch:
            self.unpacked += found.unpacked
        if cursor.status == read.FOUND:
            rest = None
            if self._tags is not None or self._matching is not None:
                messages = self._chosen(messages)
            elif len(messages) == limit and len(self._order) == 1:
                rest = self._reader.run_from(self._topic, cursor.queue_id, next_offset)
            batch = PolledBatch(messages, cursor, rest)
            # In one line, after all that may fail: between two lines a signal's handler may raise,
            # and the position would be after a batch that nobody has.
            self._batch, cursor.position = batch, next_offset
            cursor.floating = False
            return bool(messages)
        if cursor.status in _PASSED_OVER:
            cursor.position = next_offset
        elif cursor.status == read.OFFSET_FOUND_NULL:
            self._no_file(cursor, next_offset)
        elif cursor.status in _OUT_OF_RANGE or (cursor.status in _NO_QUEUE and cursor.position > 0):
            self._out_of_range(cursor)
        return False

    def _chosen(self, messages: list[Message]) -> list[Message]:
        """The messages that the filters take: two tags may have one code."""
        tags = self._tags
        if tags is not None:
            messages = [message for message in messages if message.tags in tags]
        return messages if self._matching is None else self._matching(messages)

    def _no_file(self, cursor: Cursor, next_offset: int) -> None:
        """A file of the queue is missing, or its end: the messages are not passed over in
        silence."""
        minimum, _ = self._reader.bounds(self._topic, cursor.queue_id)
        if cursor.position < minimum:  # it was trimmed away since the look
            cursor.status = read.OFFSET_TOO_SMALL
            self._out_of_range(cursor)
            return
        error = ReadFailedError(
            f"{self._topic}/{cursor.queue_id}: the queue has no units of the offsets "
            f"{cursor.position} to {next_offset - 1}; the log has what was not trimmed"
        )
        error.add_note("'rocketstore rebuild' makes them anew")
        error.add_note(f"seek({next_offset}, queue_id={cursor.queue_id}) steps over them")
        raise error

    def _out_of_range(self, cursor: Cursor) -> None:
        """The position is below the minimum or beyond the end: moves it if allowed, else raises."""
        minimum, maximum = self._reader.bounds(self._topic, cursor.queue_id)
        if cursor.floating or self._reset == "earliest":
            cursor.position = minimum
        elif self._reset == "latest":
            cursor.position = cursor.reset_to = maximum
        elif not minimum <= cursor.position <= maximum:
            error = OffsetOutOfRangeError(cursor.position, minimum, maximum, cursor.status)
            error.topic, error.queue_id = self._topic, cursor.queue_id
            error.add_note(
                "seek() to an offset that exists, or open the consumer with reset='earliest' or "
                "reset='latest'"
            )
            raise error


def _next_of(batch: PolledBatch) -> Message | None:
    """The message that a batch hands out next."""
    if isinstance(batch.left, UnitRun):
        return batch.left.peek()
    left = length_hint(batch.left)
    return batch.messages[-left] if left else None
