"""An open store, for the tasks of one event loop."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal, NoReturn, Self, Unpack

import rocketstore
from rocketstore import DurabilityTimeoutError, FramesResult, NewMessage, PutResult
from rocketstore.aio.consumer import Consumer
from rocketstore.aio.loop_port import LoopPort, awaited, looked_up
from rocketstore.aio.store_transaction import StoreTransaction
from rocketstore.aio.writer import Writer
from rocketstore.values import durability_of, seconds, whole_number

if TYPE_CHECKING:
    from types import TracebackType

    from rocketstore.aio.services import Delayed, StoreRetention, Transactions
    from rocketstore.puts import MessageColumns, MessageFields
    from rocketstore.replication import ReplicationStatus
    from rocketstore.store import RunningFlags
    from rocketstore.values import Body, Column, Durability, Duration, ManualClock, Timestamp

__all__ = ["Store"]


class Store:
    """A store in one event loop; made by `rocketstore.aio.open`, or by `attach` for further loops.

    Everything that `rocketstore.Store` can do, by the same names; what may block is awaited.
    Properties and `stats` look at memory and are not; with mode "r" they look at what another
    process has written since.
    """

    def __init__(
        self,
        store: rocketstore.Store,
        threads: ThreadPoolExecutor,
        *,
        owns: bool,
        max_in_flight: int,
        max_in_flight_bytes: int,
    ) -> None:
        """Made by `open` and `attach`, on the loop that is to use it."""
        self._store = store
        self._threads = threads
        self._owns = owns
        self._port = LoopPort(
            store, threads, max_in_flight=max_in_flight, max_in_flight_bytes=max_in_flight_bytes
        )
        self._closing: asyncio.Task[None] | None = None

    @property
    def blocking(self) -> rocketstore.Store:
        """The store itself, for threads and for `attach` in another loop."""
        return self._store

    @property
    def closed(self) -> bool:
        return self._closing is not None or self._store.closed

    @property
    def in_flight(self) -> int:
        """Puts of this loop that are in the log and wait for the disk."""
        return self._port.pending

    @property
    def in_flight_bytes(self) -> int:
        """The bytes of their records."""
        return self._port.native.pending_bytes

    # ---- writing ----

    def writer(
        self,
        topic: str,
        *,
        queue_id: int | None = None,
        queues: int | None = None,
        properties: Mapping[str, str] | None = None,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        durability: Durability | None = None,
    ) -> Writer:
        """A handle that puts messages into `topic`; arguments as in `rocketstore.Store.writer`.
        Keep it: each handle looks at its topic once."""
        self._port.check()
        opened = functools.partial(
            self._store.writer,
            topic,
            queue_id=queue_id,
            queues=queues,
            properties=properties,
            tags=tags,
            keys=keys,
            durability=durability,
        )
        level = durability_of(durability or self._store.config.durability)
        return Writer(self._port, opened, topic, level)

    async def put_message(
        self,
        topic: str,
        body: Body,
        *,
        durability: Durability | None = None,
        **fields: Unpack[MessageFields],
    ) -> PutResult:
        """RocketMQ's putMessage: every field as given; see `rocketstore.Store.put_message`."""
        properties = fields.get("properties") or {}
        if durability is None and properties.get("WAIT", "").lower() == "false":
            durability = "memory"
        return await self._port.put_kept(durability, self._store.put_message, topic, body, **fields)

    async def put_columns(
        self,
        bodies: Column,
        *,
        durability: Durability | None = None,
        **columns: Unpack[MessageColumns],
    ) -> PutResult:
        """Appends messages of any topics and queues out of columns; see
        `rocketstore.Store.put_columns`. Do not change the buffers before this returns."""
        put = functools.partial(self._store.put_columns, bodies, **columns)
        return await self._port.put_kept(durability, put)

    async def put_frames(
        self, frames: Body, *, durability: Durability | None = None
    ) -> FramesResult:
        """Appends messages that `encode_frames` has encoded; see `rocketstore.Store.put_frames`. Do
        not change the buffer before this returns."""
        level = self._port.level(durability)
        first = "memory" if level == "disk" else level  # the thread does not wait for the disk
        port, put = self._port, self._store.put_frames

        async def work(future: asyncio.Future[object]) -> object:
            await port.room()
            result = await port.put(future, put, frames, durability=first)
            assert result is not None  # else nobody awaits it
            return result, port.promise_flushed(result.end_offset) if level == "disk" else None

        result: FramesResult
        result, flushed = await port.in_line(work)
        if flushed is None:
            return result
        await flushed
        return dataclasses.replace(result, durability=level)

    async def put_batch(
        self,
        messages: Iterable[NewMessage],
        *,
        durability: Durability | None = None,
        chunk: bool = False,
    ) -> PutResult:
        """Appends messages of any topics and queues: all or none, and one wait for the disk; see
        `rocketstore.Store.put_batch`."""
        return await self._port.put_kept(durability, self._store.put_batch, messages, chunk=chunk)

    def transaction(self, *, durability: Durability | None = None) -> StoreTransaction:
        """Messages and offsets of groups, all or none: `async with store.transaction() as tx`; see
        `rocketstore.Store.transaction`. It begins when it is first used."""
        self._port.check()
        opened = functools.partial(self._store.transaction, durability=durability)
        return StoreTransaction(self._port, opened)

    # ---- services ----

    @property
    def delayed(self) -> Delayed:
        """Messages that wait for their time; see `rocketstore.Store.delayed`."""
        from rocketstore.aio.services import Delayed  # with the first use: many modules

        return Delayed(self._port, lambda: self._store.delayed)

    @property
    def retention(self) -> StoreRetention:
        """What retention removes; see `rocketstore.Store.retention`."""
        from rocketstore.aio.services import StoreRetention

        return StoreRetention(self._port, lambda: self._store.retention)

    @property
    def transactions(self) -> Transactions:
        """Transactions in RocketMQ's form; see `rocketstore.Store.transactions`."""
        from rocketstore.aio.services import Transactions

        return Transactions(self._port, lambda: self._store.transactions)

    async def wait_flushed(self, end_offset: int, timeout_s: Duration | None = None) -> None:
        """Returns once everything below physical offset `end_offset` survives a power cut.

        Raises:
            DurabilityTimeoutError: not within the timeout (default `sync_flush_timeout_ms`).
            StoreFailedError: a sync failed.
            ValueError: the log ends before `end_offset`.
        """
        self._port.check()
        end_offset = whole_number("end_offset", end_offset, 0)
        if end_offset > self._store.end_offset:
            raise ValueError(f"end_offset = {end_offset}: the log ends at {self._store.end_offset}")
        if timeout_s is None:
            await self._port.promise_flushed(end_offset)
        else:
            await self._flushed_within(end_offset, seconds("timeout_s", timeout_s))

    async def _flushed_within(self, end_offset: int, timeout_s: float) -> None:
        now = self._port.loop.time
        deadline = now() + timeout_s
        while True:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._port.promise_flushed(end_offset)
                return
            except TimeoutError:  # also the store's own, which may be the shorter one
                flushed = self._store.flushed_offset
                if flushed >= end_offset:
                    return
                if now() >= deadline:
                    raise DurabilityTimeoutError(
                        f"flushed = {flushed} after {timeout_s} s, asked for {end_offset}"
                    ) from None

    async def flush(self, timeout_s: Duration | None = None) -> int:
        """Waits until everything that is in the log now is on disk; returns the flushed offset.

        Raises:
            DurabilityTimeoutError, StoreFailedError: as `wait_flushed`.
        """
        await self.wait_flushed(self._store.end_offset, timeout_s)
        return self._store.flushed_offset

    # ---- reading ----

    def consumer(
        self,
        topic: str,
        *,
        queue_id: int | None = None,
        queue_ids: Iterable[int] | None = None,
        group: str | None = None,
        offset: Literal["earliest", "latest"] | int = "earliest",
        when: Timestamp | None = None,
        tags: str | Sequence[str] | None = None,
        where: str | None = None,
        reset: Literal["earliest", "latest"] | None = None,
        must_exist: bool = False,
    ) -> Consumer:
        """Reads `topic`; arguments as in `rocketstore.Store.consumer`. Begins when it is first
        used: with a group, or from "latest", say `async with`."""
        self._port.check()
        opened = functools.partial(
            self._store.consumer,
            topic,
            queue_id=queue_id,
            queue_ids=queue_ids,
            group=group,
            offset=offset,
            when=when,
            tags=tags,
            where=where,
            reset=reset,
            must_exist=must_exist,
        )
        return Consumer(self._port, opened, topic, group)

    get = awaited(rocketstore.Store.get)
    query = looked_up(rocketstore.Store.query)
    compacted = looked_up(rocketstore.Store.compacted)
    offset_at = awaited(rocketstore.Store.offset_at)

    # ---- what is there ----

    topics = awaited(rocketstore.Store.topics)
    queues = awaited(rocketstore.Store.queues)
    groups = awaited(rocketstore.Store.groups)
    committed = awaited(rocketstore.Store.committed)
    min_queue_offset = awaited(rocketstore.Store.min_queue_offset)
    max_queue_offset = awaited(rocketstore.Store.max_queue_offset)

    @property
    def path(self) -> str:
        """The directory of the store."""
        return self._store.path

    @property
    def clock(self) -> ManualClock | None:
        """The clock that the open was given, or None."""
        return self._store.clock

    @property
    def begin_offset(self) -> int:
        """Smallest physical offset kept."""
        return self._store.begin_offset

    @property
    def end_offset(self) -> int:
        """Physical offset of the first byte after the last record."""
        return self._store.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below is on the disk."""
        return self._store.flushed_offset

    @property
    def visible_offset(self) -> int:
        """Everything below may be read."""
        return self._store.visible_offset

    @property
    def dispatched_offset(self) -> int:
        """Everything below is in its consume queue."""
        return self._store.dispatched_offset

    @property
    def recovery(self) -> rocketstore.RecoveryReport:
        """What the last open found and did."""
        return self._store.recovery

    @property
    def replication(self) -> ReplicationStatus:
        """As `rocketstore.Store.replication`."""
        return self._store.replication

    @property
    def config(self) -> rocketstore.StoreConfig:
        """The options in force; sizes are those of the files."""
        return self._store.config

    @property
    def flags(self) -> RunningFlags:
        """Why the store does not read or write at present, if so; RocketMQ's running flags."""
        return self._store.flags

    def stats(self) -> rocketstore.Statistics:
        """Counters and latencies since the store was opened, at this moment."""
        return self._store.stats()

    # ---- care ----

    compact = awaited(rocketstore.Store.compact)
    configure = awaited(rocketstore.Store.configure)
    trim = awaited(rocketstore.Store.trim)
    ship = awaited(rocketstore.Store.ship)

    async def destroy(self) -> None:
        """Closes the store and deletes every file that belongs to it. There is no way back."""
        if self._closing is not None:
            raise rocketstore.StoreClosedError("the store is closed; open it again to destroy it")
        await self._finish(self._store.destroy)

    async def close(self) -> None:
        """Waits for the puts in flight, then closes the store (an attached one stays open for
        others). Idempotent; goes on when it is cancelled. Messages stay readable."""
        await self._finish(self._store.close if self._owns else _nothing)

    async def _finish(self, end: Callable[[], None]) -> None:
        if self._closing is None:
            self._port.check()
            self._closing = self._port.loop.create_task(self._end(end))
        await asyncio.shield(self._closing)

    async def _end(self, end: Callable[[], None]) -> None:
        port = self._port
        ending: Future[None] | None = None

        async def drained(_: object) -> bool:
            port.closed = True
            await port.idle()
            return True

        try:
            # Puts that wait for room go first, as far as the log takes them.
            await port.in_line(drained)
            ending = self._threads.submit(end)
            await asyncio.shield(asyncio.wrap_future(ending))
        except asyncio.CancelledError:
            # By nobody but the loop's own end: after it nobody could close the store.
            (ending or self._threads.submit(end)).result()
            raise
        finally:
            port.close()
            self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        self._port.check()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<rocketstore.aio.Store {self._store!r}, in_flight={self.in_flight}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Store belongs to its event loop and cannot be pickled; open it again with "
            "rocketstore.aio.open"
        )


def _nothing() -> None:
    """An attached store stays open: its opener closes it."""
