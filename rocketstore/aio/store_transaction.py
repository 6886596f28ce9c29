"""Transactions for the tasks of one loop: each call runs on a thread of the store."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import rocketstore
from rocketstore.aio.awaited import PutFuture
from rocketstore.aio.consumer import Consumer

if TYPE_CHECKING:
    from types import TracebackType

    from rocketstore import Message, NewMessage, PutResult
    from rocketstore.aio.loop_port import LoopPort
    from rocketstore.values import Body, Duration, Timestamp

__all__ = ["StoreTransaction"]

T = TypeVar("T")


class StoreTransaction:
    """Messages and offsets that become visible together, or not at all; made by
    `store.transaction()`. See `rocketstore.StoreTransaction`. One task at a time may use it.

    Inside `async with` `put` and `put_batch` add at once, and need no await. A cancelled call ends
    once its thread has: it may have happened, and `outcome` says how the transaction ended.
    """

    def __init__(self, port: LoopPort, begin: Callable[[], rocketstore.StoreTransaction]) -> None:
        """Made by `store.transaction`."""
        self._port = port
        self._begin = begin
        self._transaction: rocketstore.StoreTransaction | None = None
        self._entered = False
        self._consumers: list[Consumer] = []

    @property
    def id(self) -> str:
        """What the property RS_TRANSACTION of its messages begins with; empty before the first
        use."""
        return "" if self._transaction is None else self._transaction.id

    @property
    def outcome(self) -> Literal["commit", "rollback"] | None:
        """How it ended; None while it is open."""
        return None if self._transaction is None else self._transaction.outcome

    def put(
        self,
        topic: str,
        body: Body,
        *,
        queue_id: int = 0,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
        expected_queue_offset: int | None = None,
        unique_id: str | None = None,
        delay_level: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
    ) -> Awaitable[None]:
        """Adds a message, which the commit puts; see `rocketstore.StoreTransaction.put`. Before the
        `async with` it needs an await."""
        named: dict[str, Any] = {
            "queue_id": queue_id,
            "tags": tags,
            "keys": keys,
            "properties": properties,
            "flag": flag,
            "born_time": born_time,
            "shard_key": shard_key,
            "expected_queue_offset": expected_queue_offset,
            "unique_id": unique_id,
            "delay_level": delay_level,
            "deliver_at": deliver_at,
            "deliver_after": deliver_after,
        }
        return self._add(lambda tx: tx.put(topic, body, **named))

    def put_batch(self, messages: Iterable[NewMessage]) -> Awaitable[None]:
        """Adds messages of any topics, as `put`; see `rocketstore.StoreTransaction.put_batch`."""
        return self._add(lambda tx: tx.put_batch(messages))

    async def cancel(self, unique_id: str) -> bool:
        """Cancels what waits with this id; see `rocketstore.StoreTransaction.cancel`."""
        return await self._run(lambda tx: tx.cancel(unique_id))

    async def reschedule(self, unique_id: str, when: Timestamp | datetime.timedelta) -> bool:
        """Has what waits with this id delivered at another time; see
        `rocketstore.StoreTransaction.reschedule`."""
        return await self._run(lambda tx: tx.reschedule(unique_id, when))

    @property
    def results(self) -> list[PutResult]:
        """What the put of each message gave; empty before the commit."""
        return [] if self._transaction is None else self._transaction.results

    async def consume(
        self,
        consumer: Consumer,
        max_messages: int = 500,
        timeout_s: Duration | None = 0.0,
        *,
        allow_gap: bool = False,
    ) -> list[Message]:
        """Reads messages that come again after a rollback; see
        `rocketstore.StoreTransaction.consume`."""
        with _of_a_loop(consumer)._use():
            blocking = await consumer._ready()
            await self._run(lambda tx: tx._step(blocking, tx._begin_reading, allow_gap=allow_gap))
            self._consumers.append(consumer)
        messages = await consumer.poll(max_messages, timeout_s)
        await self._run(lambda tx: tx._step(blocking, tx._has_read))
        return messages

    async def commit_offsets(
        self,
        consumer: Consumer,
        upto: Message | Mapping[int, int] | None = None,
        *,
        allow_gap: bool = False,
    ) -> dict[int, int]:
        """Adds the offsets of a consumer's group, which the commit stores; see
        `rocketstore.StoreTransaction.commit_offsets`."""
        with _of_a_loop(consumer)._use():
            blocking = await consumer._ready()
            return await self._run(
                lambda tx: tx.commit_offsets(blocking, upto, allow_gap=allow_gap)
            )

    async def commit(self) -> None:
        """Ends it: all of it counts from here on; see `rocketstore.StoreTransaction.commit`."""
        await self._run(lambda tx: tx.commit())

    async def rollback(self) -> None:
        """Ends it without a trace."""
        await self._run(lambda tx: tx.rollback())

    async def __aenter__(self) -> Self:
        await self._run(lambda tx: tx.__enter__())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is asyncio.CancelledError:
            self._port.leave(*self._consumers)
        await self._run(lambda tx: tx.__exit__(kind, error, trace))

    def _add(self, act: Callable[[rocketstore.StoreTransaction], None]) -> Awaitable[None]:
        """At once: nothing waits. A transaction that has not begun does, and reads files."""
        if self._transaction is None:
            return self._run(act)
        self._port.check()
        act(self._transaction)
        added: PutFuture[None] = PutFuture(loop=self._port.loop)
        added.set_result(None)
        return added

    async def _run(self, act: Callable[[rocketstore.StoreTransaction], T]) -> T:
        port = self._port
        port.check()
        if self._transaction is None:
            self._transaction = await port.settled(port.start(self._begin))
        return await port.settled(port.start(act, self._transaction), *self._consumers)


def _of_a_loop(consumer: object) -> Consumer:
    if not isinstance(consumer, Consumer):
        raise TypeError(f"consumer: expected one of rocketstore.aio, not {type(consumer).__name__}")
    return consumer
