"""What puts of delayed messages need: the queue where one waits, and the service that delivers."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from rocketstore.errors import MessageRejectedError
from rocketstore.values.arguments import whole_number
from rocketstore.values.reserved_names import SCHEDULE_TOPIC
from rocketstore.values.timestamps import timestamp_ms

if TYPE_CHECKING:
    from rocketstore._native.sync.queue_positions import QueueState
    from rocketstore.values.timestamps import Timestamp

__all__ = ["LATEST_MS", "SCHEDULE_TOPIC", "TIMER_TOPIC", "Delay", "DelayedPuts", "Due"]

#: RocketMQ's topic of messages that wait for a time of their own, in queue 0.
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
#: The id of a message, by which a message that waits is cancelled.
_UNIQUE_ID: Final = b"UNIQ_KEY\x01"
#: The end of the year 9999, the last that a datetime has.
LATEST_MS: Final = 253_402_300_799_999
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)


class Due(NamedTuple):
    """A time of its own, still to come, at which a message is delivered; and the span that it is
    the end of, 0 where the time was named."""

    ms: int
    span_ms: int = 0


#: A level, or a time of its own; 0 is no delay.
Delay = int | Due


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

    def delay(
        self,
        delay_level: int | None,
        deliver_at: Timestamp | None,
        deliver_after: datetime.timedelta | None,
    ) -> Delay | None:
        """What a put asks for; None where it says nothing, 0 for a time that is not to come.

        Raises:
            MessageRejectedError: it says more than one of them. ValueError, TypeError: no time.
        """
        if deliver_at is None and deliver_after is None:
            return delay_level
        given = {
            "delay_level": delay_level,
            "deliver_at": deliver_at,
            "deliver_after": deliver_after,
        }
        names = [name for name, value in given.items() if value is not None]
        if len(names) > 1:
            raise MessageRejectedError(f"{' and '.join(names)}: give one of them")
        if deliver_at is not None:
            return self.due(timestamp_ms("deliver_at", deliver_at))
        if not isinstance(deliver_after, datetime.timedelta):
            raise TypeError(f"deliver_after = {deliver_after!r}: expected a datetime.timedelta")
        return self.after(-(deliver_after // -_MILLISECOND))

    def moment_ms(self, name: str, when: Timestamp | datetime.timedelta) -> int:
        """Milliseconds since 1970 of a time, or of so long from now. ValueError, TypeError: no time."""
        if isinstance(when, datetime.timedelta):
            return self._now_ms() + self._part_ms - when // -_MILLISECOND
        return timestamp_ms(name, when)

    def after(self, delay_ms: int) -> Delay:
        """The delay of `delay_ms` milliseconds from now."""
        delay = self.due(self._now_ms() + delay_ms + (delay_ms > 0) * self._part_ms)
        return delay._replace(span_ms=delay_ms) if isinstance(delay, Due) else delay

    def due(self, due_ms: int) -> Delay:
        """The delay up to a time; 0 for one that is not to come."""
        if due_ms > LATEST_MS:
            raise MessageRejectedError(f"{due_ms} ms since 1970: the year 9999 is the last")
        return Due(due_ms) if due_ms > self._now_ms() else 0

    def level(self, delay_level: int) -> int:
        """The level that a put asks for, no higher than the highest there is; 0 is no delay.

        Raises:
            ValueError, TypeError: it is no number from 0 on.
        """
        return min(whole_number("delay_level", delay_level, 0), len(self._levels_ms))

    def check(self, delay: Delay, expected: int | None, unique_id: str | None) -> None:
        """Raises MessageRejectedError for a delay together with a condition: the message has no
        place in its own topic before it is due, and nobody finds its id there."""
        waits = isinstance(delay, Due) or self.level(delay)
        asked = f"deliver_at = {delay.ms}" if isinstance(delay, Due) else f"delay_level = {delay}"
        for name, value in (("expected_queue_offset", expected), ("unique_id", unique_id)):
            if waits and value is not None:
                raise MessageRejectedError(
                    f"{name} = {value!r} with {asked}: a message has no place "
                    "in its own topic before it is due; give one of them"
                )

    def place(
        self, delay: Delay, properties: bytes
    ) -> tuple[QueueState, list[tuple[str, str]]] | None:
        """Where a message waits, and which properties it has meanwhile, apart from those that name
        its own place; None without a delay. `properties`: those that it has already."""
        if isinstance(delay, Due):
            own = [("TIMER_DELIVER_MS", f"{delay.ms}"), ("TIMER_OUT_MS", f"{delay.ms}")]
            if delay.span_ms and b"TIMER_DELAY_MS\x01" not in properties:
                own.append(("TIMER_DELAY_MS", f"{delay.span_ms}"))
            if not properties.startswith(_UNIQUE_ID) and b"\x02" + _UNIQUE_ID not in properties:
                own.append(("UNIQ_KEY", uuid.uuid4().hex.upper()))
            return self._queue_state(TIMER_TOPIC, 0), own
        level = self.level(delay)
        if not level:
            return None
        return self._queue_state(SCHEDULE_TOPIC, level - 1), [("DELAY", f"{level}")]

    def note(self, delay: Delay) -> None:
        """A message with this delay is in the log."""
        if self.deliver is None:
            return
        if isinstance(delay, Due):
            self.deliver(None, max(0, delay.ms - self._now_ms()))
        elif level := self.level(delay):
            self.deliver(level - 1, self._levels_ms[level - 1])
