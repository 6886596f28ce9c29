"""Closes of consumers in tasks: what waits ends, and nothing else stands still."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore.aio
from rocketstore import StoreClosedError
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from tests.aio.loops import happens, open_small, turns


async def test_a_store_that_closes_ends_a_follow(tmp_path: Path) -> None:
    store = await open_small(tmp_path)
    consumer = store.consumer("t")

    async def follow() -> None:
        async for _ in consumer.follow():
            pass

    following = asyncio.create_task(follow())
    await turns()
    await store.close()
    with pytest.raises(StoreClosedError):
        await following
    with pytest.raises(StoreClosedError):
        await consumer.poll()


async def test_a_consumer_that_closes_ends_its_wait(store: rocketstore.aio.Store) -> None:
    consumer = store.consumer("t")
    waiting = asyncio.create_task(consumer.poll(timeout_s=None))
    await turns()
    await consumer.close()
    await consumer.close()
    await store.writer("t").put(b"x")
    with pytest.raises(StoreClosedError):
        await waiting


async def test_a_close_beside_a_commit_leaves_the_loop_alone(
    monkeypatch: pytest.MonkeyPatch, store: rocketstore.aio.Store
) -> None:
    """Giving a group back waits for whoever stores offsets, which waits for the disk."""
    begun, go_on = threading.Event(), threading.Event()
    add = ConsumerOffsets._add

    def slow_add(*words: Any, **options: Any) -> None:
        begun.set()
        assert go_on.wait(40), "the loop stood still"
        add(*words, **options)

    await store.writer("t").put(b"0")
    first, second = (store.consumer("t", group=group) for group in ("first", "second"))
    assert len(await first.poll()) == len(await second.poll()) == 1
    monkeypatch.setattr(ConsumerOffsets, "_add", slow_add)
    committing = asyncio.ensure_future(first.commit())
    await happens(begun.is_set)
    closing = asyncio.ensure_future(second.close())
    await turns(50)
    assert not closing.done()
    go_on.set()
    await closing
    assert await committing == {0: 1}
    async with store.consumer("t", group="second") as again:
        assert again.positions == {0: 0}


async def test_a_close_that_is_cancelled_can_be_done_again(store: rocketstore.aio.Store) -> None:
    await store.writer("orders").put(b"x")
    consumer = store.consumer("orders", group="g")
    opening = asyncio.ensure_future(consumer.poll(1))
    await turns()
    closing = asyncio.ensure_future(consumer.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(opening, closing, return_exceptions=True)
    await consumer.close()
    async with store.consumer("orders", group="g") as other:
        assert [m.body for m in await other.poll(1, timeout_s=20)] == [b"x"]
    with pytest.raises(ValueError, match="nan"):
        await store.consumer("orders").poll(timeout_s=float("nan"))


async def test_a_consumer_that_never_opened_can_be_closed(store: rocketstore.aio.Store) -> None:
    consumer = store.consumer("orders", offset=5)
    with pytest.raises(ValueError, match="queue_id"):
        await consumer.poll(1)
    await consumer.close()
    assert consumer.closed
