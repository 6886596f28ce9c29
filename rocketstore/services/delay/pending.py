"""`store.delayed`: the messages that wait for their time, in a store of any mode."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    CorruptRecordError,
    MessageRejectedError,
    ReadFailedError,
    RocketStoreError,
)
from rocketstore.log.read.reader import Reader
from rocketstore.services.delay import progress
from rocketstore.services.delay.copies import target_of
from rocketstore.services.delay.service import DelayService
from rocketstore.services.delay.waiting import WaitingQueue, waiting_queues
from rocketstore.values.public import public
from rocketstore.values.timestamps import timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rocketstore._native.format.message import Message
    from rocketstore.engine.engine import Engine
    from rocketstore.values.timestamps import Timestamp

__all__ = ["Delayed", "DelayedMessage"]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@public
@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that waits.

    `topic` and `queue_id` are where it goes at `due_time`; `message` is what waits, in the schedule
    topic.
    """

    topic: str
    queue_id: int
    due_time: datetime.datetime
    level: int
    message: Message


@public
class Delayed:
    """The messages of one store that wait for their time: `store.delayed`. Iterate it, or ask
    for `messages` by topic and time.

    In mode "r" they are those that the writer has not delivered, by the offsets that it stored last.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reader = Reader(engine.reader.source, None, engine.path)

    def __len__(self) -> int:
        """How many wait, those included that could not be delivered yet."""
        offsets, left = self._offsets()
        return sum(map(len, left.values())) + sum(
            max(0, maximum - max(minimum, offsets.get(queue.queue_id, 0)))
            for queue in self._queues()
            for minimum, maximum in (queue.bounds(),)
        )

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[DelayedMessage]:
        return self.messages()

    def messages(
        self, topic: str | None = None, *, before: Timestamp | None = None
    ) -> Iterator[DelayedMessage]:
        """Gives those that wait, level by level, each in the order of delivery.

        Args:
            topic: Only those that go to this topic.
            before: Only those that are due before this time: milliseconds since 1970 or an aware
                datetime.

        Raises:
            CorruptRecordError, ReadFailedError: One of them cannot be read.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
        """
        limit_ms = None if before is None else timestamp_ms("before", before)
        offsets, left = self._offsets()
        for queue in self._queues():
            for message in self._waiting(queue, offsets, left):
                due_ms = queue.due_ms(message.queue_offset)
                if due_ms is None:
                    continue
                if limit_ms is not None and due_ms >= limit_ms:
                    break
                found = _delayed(message, due_ms)
                if found is not None and topic in (None, found.topic):
                    yield found

    def count(self, topic: str | None = None, *, before: Timestamp | None = None) -> int:
        """Counts what `messages` gives; `len` counts all without reading them."""
        return sum(1 for _ in self.messages(topic, before=before))

    @property
    def next_due_time(self) -> datetime.datetime | None:
        """When the next message is due; None while none waits."""
        offsets, _ = self._offsets()
        due = []
        for queue in self._queues():
            minimum, maximum = queue.bounds()
            at = max(minimum, offsets.get(queue.queue_id, 0))
            due_ms = queue.due_ms(at) if at < maximum else None
            if due_ms is not None:
                due.append(due_ms)
        return _time(min(due)) if due else None

    @property
    def undelivered(self) -> list[tuple[int, int, Exception | None]]:
        """Level, queue offset and error of messages that could not be delivered. They are tried
        again."""
        service = self._service()
        if service is None or not service.delivery.levels:
            left = self._offsets()[1]
            return [(n + 1, at, None) for n, found in sorted(left.items()) for at in sorted(found)]
        levels = service.delivery.levels
        return [
            (n + 1, at, error)
            for n in sorted(levels)
            for at, error in sorted(levels[n].undelivered.items(), key=lambda item: item[0])
        ]

    @property
    def error(self) -> BaseException | None:
        """What keeps messages from being delivered at the moment; None when nothing does."""
        service = self._service()
        if service is None:
            return None
        if service.error is not None:
            return service.error
        return next((e for one in service.delivery.levels.values() if (e := one.error)), None)

    def __repr__(self) -> str:
        if self._engine.closed:
            return "Delayed(closed)"
        try:
            return f"Delayed({len(self)} messages, next_due_time={self.next_due_time})"
        except (RocketStoreError, OSError) as error:
            return f"Delayed({error})"

    # ---- pieces ----

    def _service(self) -> DelayService | None:
        engine = self._engine
        service = engine.guests.made(DelayService) if isinstance(engine, WritingEngine) else None
        if service is not None:
            service.start()  # where the system had no thread for it
        return service

    def _queues(self) -> list[WaitingQueue]:
        self._engine.check_open()
        return waiting_queues(self._reader)

    def _offsets(self) -> tuple[Mapping[int, int], Mapping[int, list[int]]]:
        """Next queue offsets, and those left over, by queue id."""
        service = self._service()
        if service is None or not service.delivery.levels:
            found = progress.load(self._engine.layout)
            return found.offsets, found.undelivered
        levels = service.delivery.levels
        return (
            {n: level.next for n, level in levels.items()},
            {n: [*level.undelivered] for n, level in levels.items()},
        )

    def _waiting(
        self, queue: WaitingQueue, offsets: Mapping[int, int], left: Mapping[int, list[int]]
    ) -> Iterator[Message]:
        minimum, _ = queue.bounds()
        for at in sorted(left.get(queue.queue_id, ())):
            try:
                yield from queue.fetch(at, 1).messages
            except (CorruptRecordError, ReadFailedError):
                continue  # that is why it is left over: `undelivered` has it
        yield from queue.messages(max(minimum, offsets.get(queue.queue_id, 0)))


def _delayed(message: Message, due_ms: int) -> DelayedMessage | None:
    try:
        target = target_of(message)
    except MessageRejectedError:
        return None
    if target is None:
        return None
    return DelayedMessage(
        target.topic, target.queue_id, _time(due_ms), message.queue_id + 1, message
    )


def _time(due_ms: int) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(milliseconds=due_ms)
