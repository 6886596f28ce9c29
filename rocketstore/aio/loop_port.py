"""One event loop and one store: completions, threads for what blocks, and the bounds on what is in
flight."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import weakref
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import rocketstore
from rocketstore import Placed, StoreClosedError
from rocketstore.aio.awaited import PutFuture, Query
from rocketstore.aio.fairness import Fairness
from rocketstore.aio.host_promises import HostPromises
from rocketstore.aio.put_line import Line, Work
from rocketstore.values import Durability, without_frames

__all__ = [
    "IN_FLIGHT_BYTES",
    "IN_FLIGHT_MESSAGES",
    "IN_LINE",
    "NOT_PUT",
    "LoopPort",
    "awaited",
    "looked_up",
]

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)

#: Puts of one loop that may wait for the disk at the same time; beyond that, a put waits before it
#: is put.
IN_FLIGHT_MESSAGES = 16_384
#: Bytes of records likewise. Half of the default `write_buffer_bytes`.
IN_FLIGHT_BYTES = 4 << 20
#: As plain numbers: a put looks at them.
NOT_PUT, IN_LINE = int(Placed.NOT_PUT), int(Placed.IN_LINE)
ATTEND, MET = int(Placed.ATTEND), int(Placed.MET)
#: Threads for what blocks: opening, reading, batches, a put that meets a full log.
THREADS = 4


class LoopPort:
    """Made by the loop that uses it, and used by no other."""

    def __init__(
        self,
        store: rocketstore.Store,
        threads: ThreadPoolExecutor,
        *,
        max_in_flight: int,
        max_in_flight_bytes: int,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.native = rocketstore.CompletionPort(store)
        self.native.max_pending = max_in_flight
        self.native.max_pending_bytes = max_in_flight_bytes
        #: Waits for the disk where another process holds the store; None: this one does.
        self._host = HostPromises(store, threads) if self.native.elsewhere else None
        self.closed = False
        #: Consumers that close, or whose task was cancelled: done once the group is given back.
        self.leaving = weakref.WeakKeyDictionary[Any, asyncio.Future[None]]()
        self._store = store
        self._threads = threads
        self.line = Line(self.loop)
        self._room: asyncio.Future[None] | None = None  # what the first of the line waits for
        self._flush_asked = False
        self._timer: asyncio.TimerHandle | None = None
        self._fairness = Fairness(self.loop)
        self._descriptor = self.native.fileno()
        self.loop.add_reader(self._descriptor, self._readable)

    # ---- guards ----

    def check(self) -> None:
        """Raises on another loop, in another thread, and after close."""
        if asyncio.get_running_loop() is not self.loop:
            raise RuntimeError(
                "this store belongs to another event loop; in each loop, make its own with "
                "rocketstore.aio.attach(store.blocking)"
            )
        if self.closed:
            raise StoreClosedError("the store is closed; open it again with rocketstore.aio.open")

    # ---- what is in flight ----

    def in_line(self, work: Work) -> PutFuture[Any]:
        """Does `work` once all puts that were begun before are made."""
        future: PutFuture[Any] = PutFuture(loop=self.loop)
        self.line.join(future, work)
        return future

    @property
    def pending(self) -> int:
        """Puts that wait for the disk."""
        return self.native.pending + (0 if self._host is None else self._host.pending)

    async def room(self) -> None:
        """Returns once the bounds leave room. In line, as `idle`."""
        while self.native.full:
            await self._settled()
        if self._host is not None:
            await self._host.room(self.native.max_pending)
        self.check()

    async def idle(self) -> None:
        """Returns once nothing is in flight."""
        while self.native.pending:
            await self._settled()
        if self._host is not None:
            await self._host.room(1)

    async def _settled(self) -> None:
        self._room = self.loop.create_future()
        await self._room

    def level(self, durability: Durability | None) -> Durability:
        """The promise that is asked for, by default the store's. Raises ValueError."""
        level = self._store.config.durability if durability is None else durability
        self.native.check_durability(level)
        return level

    def promise_flushed(self, end_offset: int) -> PutFuture[None]:
        """What is done once everything below `end_offset` is on disk. No promise for what lies
        below counts as in flight then."""
        if self._host is not None:
            return self._host.flushed(end_offset)
        future: PutFuture[None] = PutFuture(loop=self.loop)
        placed = self.native.promise_flushed(end_offset, future)
        if placed == MET:  # the bell may have rung for the others, and not have been heard yet
            self.native.settle()
            self._give_room()
        return self.placed(placed, future)

    def placed(self, placed: int, future: PutFuture[T]) -> PutFuture[T]:
        """Does what the loop has to do for a future that is in line, or is done."""
        if placed == ATTEND:
            self.attend()
        elif placed != IN_LINE:
            fairness = self._fairness
            fairness.puts += 1
            if fairness.puts >= fairness.look_at:
                return fairness.look(future)
        return future

    def attend(self) -> None:
        """Sees to the sync and to the time of what is in line for the disk."""
        # After the tasks that are about to run: all of their puts share the sync.
        if not self._flush_asked:
            self._flush_asked = True
            self.loop.call_soon(self._request_flush)
        if self._timer is None:
            self._expire()

    def _request_flush(self) -> None:
        self._flush_asked = False
        if not self.native.closed:
            self.native.request_flush()

    def _expire(self) -> None:
        """Runs when the oldest waiter may have waited long enough."""
        self._timer = None
        if self.native.closed:
            return
        self.native.settle()
        left_s = self.native.expire()
        if left_s is not None:
            self._timer = self.loop.call_later(left_s, self._expire)
        self._give_room()

    def _readable(self) -> None:
        self.native.drain()
        self.native.settle()
        self._give_room()

    def _give_room(self) -> None:
        if self._room is not None:
            _set_result(self._room, None)
            self._room = None

    async def arrival(self, seen: int, timeout_s: float | None) -> None:
        """Returns once `arrivals` is no longer `seen`, or after the time."""
        waiter = self.loop.create_future()
        self.native.watch_arrivals(seen, waiter)
        timer = None
        if timeout_s is not None:
            timer = self.loop.call_later(timeout_s, _set_result, waiter, None)
        try:
            await waiter
        finally:
            if timer is not None:
                timer.cancel()

    # ---- threads ----

    async def put(
        self, future: asyncio.Future[Any], function: Callable[..., T], *args: Any, **kwargs: Any
    ) -> T | None:
        """In line, for the place of `future`: a put that may block, on a thread. None: it was given
        up before a thread had begun. Else the thread goes on with it, and no later put overtakes
        it."""

        def put() -> T | None:
            return None if future.done() else function(*args, **kwargs)

        work = self.loop.run_in_executor(self._threads, put)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:  # the loop ends
            await asyncio.wait([work])
            raise

    def put_kept(
        self,
        durability: Durability | None,
        function: Callable[..., rocketstore.PutResult],
        *args: Any,
        **kwargs: Any,
    ) -> PutFuture[rocketstore.PutResult]:
        """Such a put, when its turn comes; done once it is as durable as was asked for."""
        level = self.level(durability)

        async def work(future: asyncio.Future[Any]) -> None:
            await self.room()
            result = await self.put(future, function, *args, durability="memory", **kwargs)
            self.keep(result, level, future)

        return self.in_line(work)

    def fail_visible(self, future: asyncio.Future[Any], error: Exception) -> None:
        """Fails `future` once consumers may read all that is in the log now, or as late as a put."""
        end = self._store.end_offset

        def fail(flushed: asyncio.Future[None] | None) -> None:
            if flushed is not None and not flushed.cancelled():
                flushed.exception()  # it is as late as may be, and that is all
            if not future.done():
                future.set_exception(without_frames(error))

        if self._store.visible_offset >= end:
            fail(None)
        else:
            self.promise_flushed(end).add_done_callback(fail)

    def keep(
        self,
        result: rocketstore.PutResult | None,
        level: Durability,
        future: asyncio.Future[Any],
    ) -> None:
        """Completes `future` once `result`, if any, is as durable as was asked for."""
        if result is None:
            return
        if self._host is not None and level not in (result.durability, "memory"):
            met = functools.partial(self.native.promise, result, level, future)
            self._host.add(result.end_offset, future, met, result)
        elif self.native.promise(result, level, future) == ATTEND:
            self.attend()

    async def call(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs what blocks on a thread. When the task is cancelled, what has begun goes on."""
        return await self.start(function, *args, **kwargs)

    def start(
        self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> asyncio.Future[T]:
        """The same as a future."""
        self.check()
        call: Any = functools.partial(function, *args, **kwargs)
        return self.loop.run_in_executor(self._threads, call)

    def leave(self, *consumers: object) -> None:
        """The next consumers of their groups wait until they have closed, or go on."""
        for consumer in consumers:
            self.leaving.setdefault(consumer, self.loop.create_future())

    def stay(self, consumer: object) -> None:
        """Ends that."""
        if consumer in self.leaving:
            self.leaving.pop(consumer).set_result(None)

    async def settled(self, future: asyncio.Future[T], *consumers: object) -> T:
        """What a thread works on. A cancelled task waits for its thread, however often it is
        cancelled meanwhile: what the thread uses serves one at a time. Then `consumers` leave."""
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self.leave(*consumers)
            while not future.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([future])
            if not future.cancelled():
                future.exception()  # taken note of
            raise

    # ---- end ----

    def close(self) -> None:
        """Wakes tasks that wait for arrivals, which find the store closed. Idempotent."""
        self.closed = True
        if self.native.closed:
            return
        self.native.settle()
        self._give_room()
        if self._timer is not None:
            self._timer.cancel()
        self.loop.remove_reader(self._descriptor)
        self.native.close()


class OfThreads(Protocol[S_co]):
    """What a loop has for an object whose calls block."""

    @property
    def _port(self) -> LoopPort: ...

    @property
    def blocking(self) -> S_co: ...


def awaited(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[OfThreads[S], P], Awaitable[T]]:
    """The same method for a loop: a thread of the store runs it, with the same arguments."""

    @functools.wraps(method)
    async def call(self: OfThreads[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        found = getattr(self.blocking, method.__name__)  # of a guest it is another one
        return await self._port.call(lambda: found(*args, **kwargs))

    return call


def looked_up(
    method: Callable[Concatenate[S, P], Iterable[T]],
) -> Callable[Concatenate[OfThreads[S], P], Query[T]]:
    """The same method for a loop, where what it gives is awaited, or iterated with `async for`."""

    @functools.wraps(method)
    def call(self: OfThreads[S], /, *args: P.args, **kwargs: P.kwargs) -> Query[T]:
        self._port.check()
        return Query(self._port.call, lambda: method(self.blocking, *args, **kwargs))

    return call


def _set_result(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)
