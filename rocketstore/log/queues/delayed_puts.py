"""What puts of delayed messages need: the queue where one waits, and the service that delivers."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from rocketstore.errors import MessageRejectedError
from rocketstore.values.arguments import Row, whole_number
from rocketstore.values.reserved_names import SCHEDULE_TOPIC
from rocketstore.values.timestamps import Duration, Timestamp, duration_of, timestamp_ms

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rocketstore._native.sync.queue_positions import QueueState

__all__ = ["LATEST_MS", "SCHEDULE_TOPIC", "TIMER_TOPIC", "Change", "Delay", "DelayedPuts"]

#: RocketMQ's topic of messages that wait for a time of their own, in queue 0.
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
#: The end of the year 9999, the last that a datetime has.
LATEST_MS: Final = 253_402_300_799_999
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


class Changing(Protocol):
    """Records that end what waits, while nothing of it is delivered."""

    @property
    def gone(self) -> Sequence[str]: ...
    @property
    def cancelled(self) -> Sequence[tuple[str, str]]: ...
    def rows(self, name: str, /) -> list[Row]: ...
    def done(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Delay:
    """What a put adds to a message that has to wait; made once, from the arguments of the put."""

    #: Where it waits.
    queue: QueueState
    #: Properties that it has meanwhile, apart from those that name its own place.
    own: tuple[tuple[str, str], ...]
    #: And those that it has unless the put gave them.
    defaults: tuple[tuple[str, str], ...]
    #: What the put asked for, as errors name it.
    asked: str
    #: When it is due, ms; 0 where that is `span_ms` after it was stored.
    due_ms: int
    span_ms: int
    #: Called once the message is in the log, for the service that delivers.
    note: Callable[[], None]

    def check(self, expected: int | None) -> None:
        """Raises MessageRejectedError for a delay together with a place: the message has none in its
        own topic before it is due."""
        if expected is not None:
            raise MessageRejectedError(
                f"expected_queue_offset = {expected!r} with {self.asked}: a message has no place "
                "in its own topic before it is due; give one of them"
            )


class Change(NamedTuple):
    """What a transaction does to a message that waits with an id: until when it waits then, the end of
    a span where that is not 0. None: it is cancelled."""

    unique_id: str
    when_ms: int | None = None
    span_ms: int = 0


class DelayedPuts:
    """The door of one open store for delayed messages. Threads share it."""

    def __init__(
        self,
        levels_ms: Sequence[int],
        queue_state: Callable[[str, int], QueueState],
        now_ms: Callable[[], int],
        part_ms: int = 0,
    ) -> None:
        """`part_ms`: by how much less than the time `now_ms` may say: no span ends before it is
        over."""
        self._levels_ms = tuple(levels_ms)
        self._queue_state = queue_state
        self._now_ms, self._part_ms = now_ms, part_ms
        #: Called with a queue id and its delay in ms after each put of a delayed message; the queue
        #: id is None for a time of its own. None: no service delivers in this store.
        self.deliver: Callable[[int | None, int], None] | None = None
        #: Ends what waits, for transactions; the open of the store sets it.
        self.changing: Callable[[Sequence[Change]], AbstractContextManager[Changing]] | None = None

    def delay(
        self,
        delay_level: int | None,
        deliver_at: Timestamp | None,
        deliver_after: Duration | None,
    ) -> Delay | None:
        """What a put asks for; None where it does not wait.

        Raises:
            MessageRejectedError: it says more than one of them. ValueError, TypeError: no time.
        """
        given = {
            "delay_level": delay_level,
            "deliver_at": deliver_at,
            "deliver_after": deliver_after,
        }
        names = [name for name, value in given.items() if value is not None]
        if len(names) > 1:
            raise MessageRejectedError(f"{' and '.join(names)}: give one of them")
        if delay_level is not None:
            return self.level(delay_level)
        if deliver_at is not None:
            return self.due(timestamp_ms("deliver_at", deliver_at))
        if deliver_after is None:
            return None
        return self.after(-(duration_of("deliver_after", deliver_after) // -_MILLISECOND))

    def moment_ms(self, name: str, when: Timestamp | datetime.timedelta) -> int:
        """Milliseconds since 1970 of a time, or of so long from now. ValueError, TypeError: no time."""
        if isinstance(when, datetime.timedelta):
            return self._now_ms() + self._part_ms - when // -_MILLISECOND
        return timestamp_ms(name, when)

    def after(self, delay_ms: int) -> Delay | None:
        """The delay of `delay_ms` milliseconds from now."""
        return self.due(self._now_ms() + delay_ms + (delay_ms > 0) * self._part_ms, delay_ms)

    def due(self, due_ms: int, span_ms: int = 0) -> Delay | None:
        """The delay up to a time; None for one that is not to come. `span_ms`: the span that the
        time is the end of, 0 where the time was named."""
        asked = f"deliver_after = {span_ms} ms" if span_ms else f"deliver_at = {due_ms}"
        if due_ms > LATEST_MS:
            raise MessageRejectedError(f"{asked}: the last time is the end of the year 9999")
        if due_ms <= self._now_ms():
            return None
        own = (("TIMER_DELIVER_MS", f"{due_ms}"), ("TIMER_OUT_MS", f"{due_ms}"))
        # By its id a message that waits is cancelled.
        defaults = (("TIMER_DELAY_MS", f"{span_ms}"), ("UNIQ_KEY", uuid.uuid4().hex.upper()))
        return Delay(
            self._queue_state(TIMER_TOPIC, 0),
            own,
            defaults[not span_ms :],
            asked,
            due_ms,
            span_ms,
            partial(self.note_due, due_ms),
        )

    def level(self, delay_level: int) -> Delay | None:
        """The delay of a level, no higher than the highest there is; None for 0.

        Raises:
            ValueError, TypeError: it is no number from 0 on.
        """
        level = min(whole_number("delay_level", delay_level, 0), len(self._levels_ms))
        if not level:
            return None
        return Delay(
            self._queue_state(SCHEDULE_TOPIC, level - 1),
            (("DELAY", f"{level}"),),
            (),
            f"delay_level = {delay_level}",
            0,
            self._levels_ms[level - 1],
            partial(self.note_level, level - 1),
        )

    def note_due(self, due_ms: int) -> None:
        """A message that is due at a time of its own is in the log."""
        self._note(None, max(0, due_ms - self._now_ms()))

    def note_level(self, queue_id: int) -> None:
        """A message that waits in this queue of the levels is in the log."""
        if queue_id < len(self._levels_ms):
            self._note(queue_id, self._levels_ms[queue_id])

    def _note(self, queue_id: int | None, delay_ms: int) -> None:
        if self.deliver is not None:
            self.deliver(queue_id, delay_ms)
