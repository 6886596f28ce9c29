"""What one consumer has read, as far as no message lies between: what a transaction may commit."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketstore.errors import RocketStoreError
from rocketstore.values.public import public

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketstore.consuming.cursors import Cursor, QueueCursors
    from rocketstore.log.read.reader import Reader

__all__ = ["MOMENTS", "ConsumerBusyError", "OffsetGapError", "Reading", "Span"]


@public
class ConsumerBusyError(RocketStoreError, RuntimeError):
    """Two threads used one consumer at the same time. Give each thread a consumer of its own."""


@public
class OffsetGapError(RocketStoreError, ValueError):
    """A transaction would commit `position` for a group, and step over the messages from the queue
    offset `committed` to `begin` - 1: the group has not committed them, and the transaction has not
    read them. Nothing was stored."""

    status = "OFFSET_OVERFLOW_BADLY"

    def __init__(
        self, topic: str, queue_id: int, group: str, committed: int, begin: int, position: int
    ) -> None:
        super().__init__(topic, queue_id, group, committed, begin, position)
        self.topic, self.queue_id, self.group = topic, queue_id, group
        self.committed, self.begin, self.position = committed, begin, position

    def __str__(self) -> str:
        return (
            f"topic {self.topic!r}, queue {self.queue_id}: offset {self.position} of group "
            f"{self.group!r} steps over the messages {self.committed} to {self.begin - 1}: the "
            f"group has committed up to {self.committed}, and the transaction has read from "
            f"{self.begin} on; nothing was stored. Go back with consumer.rewind() and read with "
            "tx.consume(consumer), or give allow_gap=True"
        )


class Span(NamedTuple):
    """Messages of one queue that a transaction has read, all of them: from `begin` on, and before
    `end`, which it commits."""

    begin: int
    end: int

    def after(self, before: Span | None) -> Span:
        """This one, with the one that was there as far as no message lies between them."""
        joined = before is not None and before.begin <= self.begin <= before.end
        return Span(before.begin, self.end) if before and joined else self


class Call(NamedTuple):
    """A poll, or the begin of a loop: its moment, and queue offsets before it."""

    moment: int
    is_poll: bool
    begins: dict[int, int]


#: Calls of one consumer that are remembered.
CALLS_MAX: Final = 64
#: Orders calls of consumers and begins of transactions.
MOMENTS: Final = itertools.count(1)


class Reading:
    """From where on the calls of one consumer have read without a gap, up to where it is. The
    thread that uses the consumer writes it."""

    def __init__(self, cursors: QueueCursors) -> None:
        self._cursors = cursors
        self._calls: deque[Call] = deque(maxlen=CALLS_MAX)
        #: Whether the last poll gave messages. One that gave none is part of the next one.
        self.gave = True

    def poll(self) -> None:
        """A poll begins."""
        same = not self.gave and self._calls
        begins = self._calls.pop().begins if same else self.positions()
        self._calls.append(Call(next(MOMENTS), True, begins))
        self.gave = False

    def loop(self, *, begins: bool = True) -> None:
        """A loop begins to hand out messages, or goes on."""
        if begins or not self._calls or self._calls[-1].is_poll:
            self._calls.append(Call(next(MOMENTS), False, self.positions()))
        self.gave = True

    def forget(self) -> None:
        """The consumer was moved."""
        self._calls.clear()
        self.gave = True

    def positions(self) -> dict[int, int]:
        """Queue offset of the next message of each queue."""
        return {cursor.queue_id: self._cursors.handed(cursor) for cursor in self._cursors}

    def spans(self, ends: Mapping[int, int] | None, since: int) -> dict[int, Span]:
        """What a commit of these offsets has read, by default of the positions: by calls after the
        moment `since`, or by the last poll before it."""
        calls = [one for one in self._calls if one.moment > since]
        if not calls and self._calls and self._calls[-1].is_poll:
            calls = [self._calls[-1]]
        begins = calls[0].begins if calls else None
        found = {}
        for cursor in self._cursors:
            handed, queue_id = self._cursors.handed(cursor), cursor.queue_id
            end = handed if ends is None else ends.get(queue_id)
            if end is not None:
                begin = handed if begins is None else begins.get(queue_id, cursor.began)
                found[queue_id] = Span(begin if begin <= end <= handed else end, end)
        return found

    def go_back(self, positions: Mapping[int, int]) -> None:
        """Takes the consumer back to these positions, as far as it is beyond them."""
        self.forget()
        cursors = self._cursors
        places = [(one, positions.get(one.queue_id, one.began)) for one in cursors]
        cursors.go_back([(one, at) for one, at in places if at < cursors.handed(one)])

    def rewind(self, cursor: Cursor, committed: int | None) -> None:
        """Takes a cursor, which is at the begin of its queue, to the offset of a group, or to where it
        began where the group has none."""
        at = cursor.began if committed is None else committed
        if committed is not None or at > cursor.position:
            self._cursors.place(cursor, at)

    def follows(self, spans: Mapping[int, Span]) -> bool:
        """Whether all begin where this consumer has committed, or before: no look at what is stored."""
        return all(
            one.queue_id not in spans or spans[one.queue_id].begin <= (one.committed or 0)
            for one in self._cursors
        )

    def check(
        self, reader: Reader, key: str, spans: Mapping[int, Span], stored: Mapping[int, int]
    ) -> None:
        """Raises OffsetGapError where the group of "topic@group" has not come to the begin of what was
        read, and the queue still has messages between the two. `stored`: how far it has come."""
        topic, _, group = key.partition("@")
        for cursor in self._cursors:
            span = spans.get(cursor.queue_id)
            base = max(cursor.reset_to, stored.get(cursor.queue_id, cursor.began))
            if span is not None and span.begin > base:
                first, _ = reader.bounds(topic, cursor.queue_id, catch_up=False)
                if span.begin > first:
                    raise OffsetGapError(topic, cursor.queue_id, group, base, span.begin, span.end)
