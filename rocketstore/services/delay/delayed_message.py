"""One message that waits, as programs see it, and what a cancel found."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterator

from rocketstore._native.format.message import Message
from rocketstore.errors import (
    CorruptRecordError,
    MessageNotFoundError,
    MessageRejectedError,
    ReadFailedError,
)
from rocketstore.log.queues.delayed_puts import TIMER_TOPIC
from rocketstore.services.delay.copies import EVERY, source_of, target_of
from rocketstore.services.delay.timer_table import Entry
from rocketstore.services.delay.timer_topic import due_of
from rocketstore.services.delay.timers import Timers
from rocketstore.values.public import public
from rocketstore.values.timestamps import moment_of

__all__ = [
    "CancelResult",
    "DelayedMessage",
    "delayed",
    "looked_at",
    "message_at",
    "timed",
]


@public
class CancelResult(enum.StrEnum):
    """What `Delayed.cancel` found. Only `CANCELLED` is true, so `if cancel(id):` asks for it."""

    #: It waited, and nobody will see it.
    CANCELLED = "cancelled"
    #: It was delivered before, and lies in its topic.
    DELIVERED = "delivered"
    #: No such message waits or was delivered, as far as the log goes back: it was never there, or it
    #: was cancelled before.
    ABSENT = "absent"

    def __bool__(self) -> bool:
        return self is CancelResult.CANCELLED


@public
class DelayedMessage:
    """A message that waits.

    `topic` is where it goes at `due_time`. `level` is its delay level, 0 for a time of its own.
    """

    __slots__ = ("_at", "_due_ms", "_message", "level", "topic")

    def __init__(
        self, topic: str, due_ms: int, level: int, at: int, message: Message | Timers
    ) -> None:
        self.topic, self.level = topic, level
        self._due_ms, self._at, self._message = due_ms, at, message

    @property
    def due_time(self) -> datetime.datetime:
        """When it is due."""
        return moment_of(self._due_ms)

    @property
    def message(self) -> Message:
        """What waits, in a topic of its own. One with a time of its own is read when it is first
        asked for.

        Raises:
            CorruptRecordError, ReadFailedError: It cannot be read.
            MessageNotFoundError: The log has it no more; ask for `messages` again.
        """
        if isinstance(self._message, Timers):
            self._message = message_at(self._message, self._at)
        return self._message

    @property
    def queue_id(self) -> int:
        """The queue that it goes to. Raises: as `message`."""
        return int(self.message.properties["REAL_QID"])

    @property
    def unique_id(self) -> str | None:
        """The id of the message, by which it is cancelled; None without one. Raises: as
        `message`."""
        return self.message.properties.get("UNIQ_KEY")

    def __repr__(self) -> str:
        return f"DelayedMessage({self.topic!r}, due_time={self.due_time}, level={self.level})"

    @property
    def every(self) -> str | None:
        """How often it comes again, as "ms 60000" or "cron UTC 30 9 * * *"; None where it does not.
        Raises: as `message`."""
        return self.message.properties.get(EVERY)


def delayed(message: Message, due_ms: int) -> DelayedMessage | None:
    try:
        target = target_of(message)
    except MessageRejectedError:
        return None
    if target is None:
        return None
    return DelayedMessage(target.topic, due_ms, source_of(message), message.queue_offset, message)


def looked_at(
    timers: Timers, entry: Entry, topic: str | None, begin: int, end: int
) -> Iterator[DelayedMessage]:
    """The message of an entry that does not say to which topic it goes, if it is chosen."""
    try:
        message = timers.queue.message(entry.at)
    except (CorruptRecordError, ReadFailedError):
        if entry.due:
            raise
        return  # that is why it is left over: `undelivered` has it
    due_ms = 0 if message is None else due_of(message.properties)
    given = None if message is None else delayed(message, due_ms)
    if given is not None and topic in (None, given.topic) and begin <= due_ms < end:
        yield given


def timed(message: DelayedMessage) -> DelayedMessage:
    """A message with a time of its own. MessageRejectedError: it waits for a delay level."""
    if message.level:
        raise MessageRejectedError(
            f"level = {message.level}: a delay level is not cancelled; put with deliver_after"
        )
    return message


def message_at(timers: Timers, at: int) -> Message:
    message = timers.queue.message(at)
    if message is None:
        raise MessageNotFoundError(
            f"{TIMER_TOPIC}: the log has no message {at}; name what waits by its id"
        )
    return message
