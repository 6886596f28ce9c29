"""Consumers for the tasks of one loop: a thread fetches, the loop hands out."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import rocketstore
from rocketstore import ConsumerBusyError, Message, StoreClosedError
from rocketstore.values import at_most, bounded, seconds

if TYPE_CHECKING:
    from types import TracebackType

    from rocketstore import Columns
    from rocketstore.aio.loop_port import LoopPort
    from rocketstore.values import Duration, Timestamp

__all__ = ["Consumer", "Following"]

T = TypeVar("T")

logger = logging.getLogger(__name__)

#: Messages that each look at a queue fetches.
BATCH = 512
#: Longest wait for a consumer of a cancelled task to give its group back, seconds: its commit may
#: wait for the disk.
GIVEN_BACK_S = 10.0
#: A wait looks at the store again after this long, whatever it heard.
LONGEST_WAIT_S = 1.0


class Consumer:
    """Messages of one queue, or of all queues of a topic; made by `store.consumer(topic, …)`.

    It takes its begin when it is first used, or with `async with`, which also gives a group
    back. `async for` ends when the consumer has caught up and can go on later; `follow` waits for
    more. One task at a time may use it.

    Nothing is lost to a cancelled task: what was fetched for it and not handed out comes with the
    next call, and `positions` and `commit` speak of what was handed out only.
    """

    def __init__(
        self,
        port: LoopPort,
        open_consumer: Callable[[], rocketstore.Consumer],
        topic: str,
        group: str | None,
    ) -> None:
        """Made by `store.consumer`."""
        self._port = port
        self._open_consumer = open_consumer
        self._topic = topic
        self._group = group
        self._opening: asyncio.Future[rocketstore.Consumer] | None = None
        self._consumer: rocketstore.Consumer | None = None
        self._busy = False
        self._closed = False

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def group(self) -> str | None:
        return self._group

    @property
    def statuses(self) -> dict[int, str]:
        """RocketMQ's read status of the last look at each queue; empty before the first use."""
        return {} if self._consumer is None else self._consumer.statuses

    @property
    def positions(self) -> dict[int, int]:
        """Queue offset of the next message of each queue; empty before the first use."""
        return {} if self._consumer is None else self._consumer.positions

    @property
    def closed(self) -> bool:
        return self._closed

    def __aiter__(self) -> Following:
        """Hands out messages until the consumer has caught up."""
        return Following(self, 0.0)

    def follow(self, timeout_s: Duration | None = None) -> Following:
        """Waits for more messages; ends when none came for `timeout_s` seconds (None: never)."""
        return Following(self, timeout_s)

    async def poll(
        self, max_messages: int = 500, timeout_s: Duration | None = 0.0
    ) -> list[Message]:
        """Up to `max_messages`, of all queues; waits up to `timeout_s` seconds for the first (None:
        for ever). An empty list: none came."""
        max_messages = at_most("max_messages", max_messages)
        with self._use():
            consumer = await self._ready()
            consumer._reading.poll()
            if not await self._fetch(consumer, min(max_messages, BATCH), timeout_s):
                return []
            before = consumer.positions
            messages = consumer._take(max_messages, polls=True)
            left = max_messages - len(messages)
            if left and (len(before) > 1 or len(messages) >= BATCH):
                messages += await self._more(consumer, before, left)
            consumer._reading.gave = bool(messages)
            # No await from here on: what is handed out reaches the caller.
            return messages

    async def poll_columns(
        self,
        max_messages: int = 8192,
        timeout_s: Duration | None = 0.0,
        *,
        columns: Iterable[str] | None = None,
    ) -> Columns:
        """As `poll`, but NumPy columns of up to `max_messages`; see
        `rocketstore.Consumer.poll_columns`."""
        max_messages = at_most("max_messages", max_messages)
        with self._use():
            consumer = await self._ready()
            consumer._reading.poll()
            await self._fetch(consumer, max_messages, timeout_s)
            before = consumer.positions
            taking = self._port.start(consumer.poll_columns, max_messages, columns=columns)
            try:
                return await self._port.settled(taking, self)
            except asyncio.CancelledError:
                await self._go_back(consumer, before)
                raise

    async def _more(
        self, consumer: rocketstore.Consumer, before: dict[int, int], max_messages: int
    ) -> list[Message]:
        """What other queues have now, and the rest of this one. `before`: where to go back to when
        the task is cancelled. An error waits for the next call: what is in hand goes out first."""
        taking = self._port.start(consumer.poll, max_messages)
        try:
            return await self._port.settled(taking, self)
        except asyncio.CancelledError:
            await self._go_back(consumer, before)
            raise
        except Exception:  # the queue is where it was, so the next call meets it again
            logger.debug("a poll of %s ends early", self._topic, exc_info=True)
            return []

    async def _go_back(self, consumer: rocketstore.Consumer, before: dict[int, int]) -> None:
        """What was handed out has reached nobody: it comes again."""
        with contextlib.suppress(rocketstore.RocketStoreError):
            await self._port.settled(self._port.start(_seek_back, consumer, before), self)

    async def _next_message(self, timeout_s: Duration | None) -> Message | None:
        """One message, or None when none came within `timeout_s` seconds."""
        consumer = self._consumer
        if consumer is not None and not self._busy and not self._closed:
            for message in consumer._take(1):
                return message
        with self._use():
            consumer = await self._ready()
            if await self._fetch(consumer, BATCH, timeout_s, in_time=False):
                for message in consumer._take(1):
                    return message
        return None

    async def seek(
        self,
        offset: Literal["earliest", "latest", "committed"] | int | None = None,
        *,
        when: Timestamp | None = None,
        queue_id: int | None = None,
    ) -> None:
        """Moves the consumer; see `rocketstore.Consumer.seek`."""
        with self._use():
            consumer = await self._ready()
            seek = functools.partial(consumer.seek, offset, when=when, queue_id=queue_id)
            await self._port.settled(self._port.start(seek), self)

    async def rewind(self) -> None:
        """Goes back to what the group has committed; see `rocketstore.Consumer.rewind`."""
        await self.seek("committed")

    async def commit(
        self,
        upto: Message | Mapping[int, int] | None = None,
        *,
        durability: Literal["disk", "os"] = "disk",
    ) -> dict[int, int]:
        """Stores the positions for the group, or those of `upto`, and returns them; see
        `rocketstore.Consumer.commit`. A commit that is cancelled may still be stored."""
        with self._use():
            consumer = await self._ready()
            return await self._port.settled(
                self._port.start(consumer.commit, upto, durability=durability), self
            )

    async def lag(self) -> int:
        """Queue offsets between the positions and the ends of the queues, over all queues."""
        with self._use():
            consumer = await self._ready()
            return await self._port.settled(self._port.start(consumer.lag), self)

    async def close(self) -> None:
        """Gives the group back. Does not commit. Messages handed out stay readable."""
        self._closed = True
        if self._opening is not None:
            await asyncio.wait([self._opening])
            if self._failed(self._opening):
                return  # it was never open: its user has the error
            consumer = self._opening.result()
            self._port.leave(self)
            if self._port.closed:
                consumer.close()
            else:  # on a thread: it waits for a commit of another consumer, which waits for the disk
                closing = self._port.start(consumer.close)
                closing.add_done_callback(lambda _: self._port.stay(self))
                await self._port.settled(closing)

    async def __aenter__(self) -> Self:
        with self._use():
            await self._ready()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _use(self) -> _Turn:
        return _Turn(self)

    async def _ready(self) -> rocketstore.Consumer:
        refused = False
        while self._consumer is None:
            if self._opening is None or (self._opening.done() and self._failed(self._opening)):
                self._opening = self._port.start(self._open_consumer)
            try:
                self._consumer = await asyncio.shield(self._opening)
            except rocketstore.GroupClaimedError:
                key = self._topic, self._group
                others = self._port.leaving.items()
                leaving = [left for one, left in others if (one._topic, one._group) == key]
                # Without any it is tried once more: they may have left meanwhile.
                if leaving:
                    refused = not (await asyncio.wait(leaving, timeout=GIVEN_BACK_S))[0]
                if refused:
                    raise
                refused = not leaving
        return self._consumer

    @staticmethod
    def _failed(future: asyncio.Future[T]) -> bool:
        return future.cancelled() or future.exception() is not None

    async def _fetch(
        self,
        consumer: rocketstore.Consumer,
        limit: int,
        timeout_s: Duration | None,
        *,
        in_time: bool = True,
    ) -> bool:
        """Whether something can be taken, at once or within the time. `in_time`: passing messages
        over takes of the time."""
        port = self._port
        deadline = None
        if timeout_s is not None:
            deadline = port.loop.time() + seconds("timeout_s", timeout_s)
        while True:
            # The count is read first: what arrives after this line ends the wait at once.
            seen = port.native.arrivals
            if await port.settled(port.start(consumer._prefetch, limit), self):
                return True
            passing = consumer._passing
            left_s = LONGEST_WAIT_S
            if passing and not in_time:
                left_s = 0.0
            elif deadline is not None:
                left_s = min(left_s, deadline - port.loop.time())
                if left_s <= 0:
                    return False
            if not passing:
                await port.arrival(seen, left_s)
            if self._closed:
                raise StoreClosedError("the consumer was closed while it waited")

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"positions={bounded(self.positions)}"
        return f"<rocketstore.aio.Consumer topic={self._topic!r}, {state}>"


def _seek_back(consumer: rocketstore.Consumer, before: dict[int, int]) -> None:
    for queue_id, offset in consumer.positions.items():
        back: int | Literal["earliest"] = before.get(queue_id, "earliest")
        if back != offset:
            consumer.seek(back, queue_id=queue_id)


class Following:
    """The iterator of a consumer. A cancelled `__anext__` loses no message: iterate again."""

    __slots__ = ("_consumer", "_timeout_s")

    def __init__(self, consumer: Consumer, timeout_s: Duration | None) -> None:
        self._consumer = consumer
        self._timeout_s = timeout_s

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        message = await self._consumer._next_message(self._timeout_s)
        if message is None:
            raise StopAsyncIteration
        return message


class _Turn:
    """One task at a time, checked and not waited for."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __enter__(self) -> None:
        consumer = self._consumer
        consumer._port.check()
        if consumer._closed:
            raise StoreClosedError("the consumer is closed; make another one")
        if consumer._busy:
            raise ConsumerBusyError("another task uses this consumer: give each one of its own")
        consumer._busy = True
        consumer._port.stay(consumer)

    def __exit__(self, *_: object) -> None:
        self._consumer._busy = False
