"""What works upon a store, for the tasks of one loop: each call runs on a thread of the store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

import rocketstore
from rocketstore.aio.loop_port import awaited, looked_up

if TYPE_CHECKING:
    import datetime

    from rocketstore import CorruptRecordError, ReadFailedError, Retention, RetentionEvent
    from rocketstore.aio.loop_port import LoopPort

__all__ = ["Delayed", "StoreRetention", "Transactions"]

S = TypeVar("S")


class Service(Generic[S]):
    """A service of a store, made by a property of `rocketstore.aio.Store`."""

    def __init__(self, port: LoopPort, of_store: Callable[[], S]) -> None:
        """`of_store`: gives the service; the first call of one may read files."""
        self._port = port
        self._of_store = of_store

    @property
    def blocking(self) -> S:
        """The service itself, for threads."""
        return self._of_store()


class Delayed(Service[rocketstore.Delayed]):
    """The messages of one store that wait for their time: `store.delayed`. See
    `rocketstore.Delayed`, whose properties that read files are calls here."""

    cancel = awaited(rocketstore.Delayed.cancel)
    reschedule = awaited(rocketstore.Delayed.reschedule)
    repeat = awaited(rocketstore.Delayed.repeat)
    count = awaited(rocketstore.Delayed.count)
    get = awaited(rocketstore.Delayed.get)

    async def next_due_time(self) -> datetime.datetime | None:
        """When the next message is due; None while none waits."""
        return await self._port.call(lambda: self.blocking.next_due_time)

    async def undelivered(self) -> list[tuple[int, int, Exception | None]]:
        """What could not be delivered; see `undelivered` of threads."""
        return await self._port.call(lambda: self.blocking.undelivered)

    async def error(self) -> BaseException | None:
        """Why nothing is delivered at present; see `error` of threads."""
        return await self._port.call(lambda: self.blocking.error)

    messages = looked_up(rocketstore.Delayed.messages)


class StoreRetention(Service[rocketstore.StoreRetention]):
    """What retention does with one open store: `store.retention`; see `rocketstore.StoreRetention`."""

    plan = awaited(rocketstore.StoreRetention.plan)
    run = awaited(rocketstore.StoreRetention.run)
    hold = awaited(rocketstore.StoreRetention.hold)
    release = awaited(rocketstore.StoreRetention.release)

    async def holds(self) -> dict[str, int]:
        """Physical offset of each hold, by its name; see `rocketstore.StoreRetention.holds`."""
        return await self._port.call(lambda: self.blocking.holds)

    @property
    def rule(self) -> Retention | None:
        """The rule that the store was opened with."""
        return self.blocking.rule

    @property
    def events(self) -> tuple[RetentionEvent, ...]:
        """Emergencies; see `rocketstore.StoreRetention.events`."""
        return self.blocking.events

    @property
    def last_error(self) -> Exception | None:
        """Why the last round did not end; see `rocketstore.StoreRetention.last_error`."""
        return self.blocking.last_error


class Transactions(Service[rocketstore.Transactions]):
    """The transactions of a store in RocketMQ's form: `store.transactions`. What `prepare` gives
    has the `id` that `commit` and `rollback` take; its own methods block."""

    prepare = awaited(rocketstore.Transactions.prepare)
    commit = awaited(rocketstore.Transactions.commit)
    rollback = awaited(rocketstore.Transactions.rollback)
    open = awaited(rocketstore.Transactions.open)
    check_back = awaited(rocketstore.Transactions.check_back)
    stop = awaited(rocketstore.Transactions.stop)

    async def errors(self) -> list[CorruptRecordError | ReadFailedError]:
        """What cannot be read; see `rocketstore.Store.transactions`."""
        return await self._port.call(lambda: self.blocking.errors)

    async def check_error(self) -> BaseException | None:
        """The last error of the callback of `check_back`; None where it raised none."""
        return await self._port.call(lambda: self.blocking.check_error)
