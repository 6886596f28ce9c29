"""What puts of delayed messages need: the queue of a level, and the service that delivers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from rocketstore.errors import MessageRejectedError
from rocketstore.values.arguments import whole_number

if TYPE_CHECKING:
    from rocketstore._native.sync.queue_positions import QueueState

__all__ = ["SCHEDULE_TOPIC", "DelayedPuts"]

#: RocketMQ's topic of messages that wait for their time; queue n has those of level n + 1.
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"


class DelayedPuts:
    """The door of one open store for delayed messages. Threads share it."""

    def __init__(
        self, levels_ms: Sequence[int], queue_state: Callable[[str, int], QueueState]
    ) -> None:
        self._levels_ms = tuple(levels_ms)
        self._queue_state = queue_state
        #: Called with a queue id and its delay in ms after each put of a delayed message. None: no
        #: service delivers in this store.
        self.deliver: Callable[[int, int], None] | None = None

    def level(self, delay_level: int) -> int:
        """The level that a put asks for, no higher than the highest there is; 0 is no delay.

        Raises:
            ValueError, TypeError: it is no number from 0 on.
        """
        return min(whole_number("delay_level", delay_level, 0), len(self._levels_ms))

    def check(self, delay_level: int, expected: int | None, unique_id: str | None) -> None:
        """Raises MessageRejectedError for a delay together with a condition: the message has no
        place in its own topic before it is due, and nobody finds its id there."""
        level = self.level(delay_level)
        for name, value in (("expected_queue_offset", expected), ("unique_id", unique_id)):
            if level and value is not None:
                raise MessageRejectedError(
                    f"{name} = {value!r} with delay_level = {delay_level}: a message has no place "
                    "in its own topic before it is due; give one of them"
                )

    def queue(self, delay_level: int) -> QueueState | None:
        """Where a message of this level waits; None without a delay."""
        level = self.level(delay_level)
        return self._queue_state(SCHEDULE_TOPIC, level - 1) if level else None

    def note(self, delay_level: int) -> None:
        """A message of this level is in the log."""
        level = self.level(delay_level)
        if level and self.deliver is not None:
            self.deliver(level - 1, self._levels_ms[level - 1])
