"""Puts of one topic from the tasks of one loop."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import rocketstore
from rocketstore import PutResult, QueueOffsetMismatchError
from rocketstore.aio.awaited import PutFuture
from rocketstore.aio.loop_port import ATTEND, IN_LINE, NOT_PUT

if TYPE_CHECKING:
    from rocketstore.aio.loop_port import LoopPort
    from rocketstore.values import (
        ArrowArray,
        Body,
        Column,
        Durability,
        Duration,
        KeyRows,
        Numbers,
        TextRows,
        Timestamp,
    )

__all__ = ["Writer"]


class Writer:
    """Puts messages into one topic; made by `store.writer(topic, …)`, used by any task of its loop.

    The topic is looked at with the first put, which says what is wrong with it. Messages of one
    task keep their order, and so do puts that are begun one after the other without an await
    between them.

    **Cancelled puts.** A put that is cancelled while it waits for the disk *is* in the log: it
    becomes durable with the next flush, and consumers see it. One that is cancelled while it waits
    for room, or as the first one for its topic, was not put, except where a thread had begun with
    it: then it comes before whatever is put later. It is there whole or not at all.
    """

    def __init__(
        self,
        port: LoopPort,
        open_writer: Callable[[], rocketstore.Writer],
        topic: str,
        durability: Durability,
    ) -> None:
        """Made by `store.writer`."""
        self._port = port
        self._open_writer = open_writer
        self._topic = topic
        self._durability = durability
        self._writer: rocketstore.Writer | None = None

    @property
    def topic(self) -> str:
        return self._topic

    @property
    def durability(self) -> Durability:
        """What this writer's puts promise unless they say otherwise."""
        return self._durability

    def put(
        self,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
        durability: Durability | None = None,
        expected_queue_offset: int | None = None,
        unique_id: str | None = None,
        delay_level: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
    ) -> PutFuture[PutResult]:
        """Appends one message; await the result for its PutResult, once the promise is met. The
        result also goes to `create_task`, `gather`, `wait_for` and the like.

        The message is in the log when this returns, also without the await, unless puts have to
        wait for room: then a task of the loop puts it. Arguments and errors are those of
        `rocketstore.Writer.put`; what is wrong with the message is raised at once. A put with
        `expected_queue_offset` or `unique_id` is put by a thread, and says what is wrong when it is
        awaited.

        Raises, when awaited:
            DurabilityTimeoutError: not on disk within `sync_flush_timeout_ms`; the message *is* in
                the log.
            StoreFailedError: a sync failed; whether the message is on disk is not known.
        """
        port, writer = self._port, self._writer
        port.check()
        condition = expected_queue_offset is not None or unique_id is not None
        if writer is not None and not port.line.busy and not condition:
            future: PutFuture[PutResult] = PutFuture(loop=port.loop)
            placed = port.native.put(
                writer, body, tags, keys, properties, flag, born_time, shard_key, durability,
                future, delay_level, deliver_at, deliver_after,
            )  # fmt: skip
            if placed == IN_LINE:
                return future
            if placed != NOT_PUT:
                return port.placed(placed, future)
        put = functools.partial(
            rocketstore.Writer.put,
            body=body,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            born_time=born_time,
            shard_key=shard_key,
            delay_level=delay_level,
            deliver_at=deliver_at,
            deliver_after=deliver_after,
        )
        if condition:
            put.keywords.update(
                expected_queue_offset=expected_queue_offset,
                unique_id=unique_id,
                durability="memory",
                timeout_s=0,
            )
            return self._put_many(put, durability)
        return port.in_line(lambda future: self._append(put, durability, future, future))

    async def submit(
        self,
        body: Body,
        *,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
        durability: Durability | None = None,
        delay_level: int | None = None,
        deliver_at: Timestamp | None = None,
        deliver_after: Duration | None = None,
    ) -> PutFuture[PutResult]:
        """Appends now, promises later: waits for room only, and returns what to await for the
        promise."""
        put = functools.partial(
            rocketstore.Writer.put,
            body=body,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            born_time=born_time,
            shard_key=shard_key,
            delay_level=delay_level,
            deliver_at=deliver_at,
            deliver_after=deliver_after,
        )
        promised: PutFuture[PutResult] = PutFuture(loop=self._port.loop)

        async def work(place: asyncio.Future[Any]) -> bool:
            await self._append(put, durability, place, promised)
            return True

        await self._port.in_line(work)
        return promised

    async def put_batch(
        self,
        bodies: Iterable[Body],
        *,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
        durability: Durability | None = None,
        chunk: bool = False,
    ) -> PutResult:
        """Appends all bodies to one queue, in one segment: all or none, or with `chunk` in parts. One
        wait for the disk."""
        append = functools.partial(
            rocketstore.Writer.put_batch,
            bodies=bodies,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            born_time=born_time,
            shard_key=shard_key,
            durability="memory",
            chunk=chunk,
        )
        return await self._put_many(append, durability)

    async def put_columns(
        self,
        bodies: Column | ArrowArray,
        *,
        row_tags: TextRows | None = None,
        row_keys: KeyRows | None = None,
        queue_ids: Numbers | None = None,
        born_timestamps_ms: Numbers | None = None,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time: Timestamp | None = None,
        shard_key: str | None = None,
        durability: Durability | None = None,
    ) -> PutResult:
        """Appends a message for each row; see `rocketstore.Writer.put_columns`. Do not change the
        buffers before this returns."""
        append = functools.partial(
            rocketstore.Writer.put_columns,
            bodies=bodies,
            row_tags=row_tags,
            row_keys=row_keys,
            queue_ids=queue_ids,
            born_timestamps_ms=born_timestamps_ms,
            tags=tags,
            keys=keys,
            properties=properties,
            flag=flag,
            born_time=born_time,
            shard_key=shard_key,
            durability="memory",
        )
        return await self._put_many(append, durability)

    async def _append(
        self,
        put: functools.partial[PutResult],
        durability: Durability | None,
        place: asyncio.Future[Any],
        promised: asyncio.Future[Any],
    ) -> None:
        """In line: puts a message, unless its place was given up; `promised` is what is done once
        its promise is met."""
        port = self._port
        writer = await self._opened()
        await port.room()
        if place.done():
            return
        placed = port.native.put(writer, **put.keywords, durability=durability, waiter=promised)
        if placed == ATTEND:
            port.attend()
        elif placed == NOT_PUT:
            # The log itself is full, or its next segment is not there yet: that blocks.
            result = await port.put(place, put, writer, durability="memory")
            port.keep(result, durability or self._durability, promised)

    def _put_many(
        self, append: Callable[[rocketstore.Writer], PutResult], durability: Durability | None
    ) -> PutFuture[PutResult]:
        port = self._port

        async def work(future: asyncio.Future[Any]) -> None:
            writer = await self._opened()
            level = port.level(durability or self._durability)
            await port.room()
            try:
                result = await port.put(future, append, writer)
            except QueueOffsetMismatchError as error:  # no put in line waits for this one
                port.fail_visible(future, error)
            else:
                port.keep(result, level, future)

        return port.in_line(work)

    async def _opened(self) -> rocketstore.Writer:
        if self._writer is None:
            # Its queues are looked up, which may read files.
            self._writer = await self._port.call(self._open_writer)
        return self._writer

    def __repr__(self) -> str:
        return f"<rocketstore.aio.Writer topic={self._topic!r}>"
