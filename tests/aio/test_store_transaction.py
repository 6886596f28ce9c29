"""Messages and offsets together, from a loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import rocketstore.aio
from rocketstore import (
    NewMessage,
    OffsetGapError,
    TransactionBusyError,
    TransactionSettledError,
)
from tests.aio.loops import open_small

BIG = {"commit_log_file_size_bytes": 1 << 16}


@pytest.mark.store(**BIG)
async def test_a_loop_reads_works_and_puts_each_message_once(store: rocketstore.aio.Store) -> None:
    for n in range(5):
        await store.writer("in").put(b"%d" % n)
    async with store.consumer("in", group="work") as consumer:
        while messages := await consumer.poll(2):
            async with store.transaction() as tx:
                for message in messages:
                    await tx.put("out", message.body, tags="t", properties={"a": "b"})
                await tx.commit_offsets(consumer)
            assert tx.outcome == "commit"
    assert [m.body async for m in store.consumer("out")] == [b"%d" % n for n in range(5)]
    async with store.consumer("in", group="work") as consumer:
        assert await consumer.poll() == []


@pytest.mark.store(**BIG)
async def test_an_exception_and_a_cancelled_task_leave_no_trace(
    store: rocketstore.aio.Store,
) -> None:
    tx = store.transaction()
    assert (tx.id, tx.outcome) == ("", None)
    with pytest.raises(ZeroDivisionError):
        async with tx:
            await tx.put("out", b"no")
            raise ZeroDivisionError
    assert tx.outcome == "rollback"

    begun = asyncio.Event()

    async def work() -> None:
        async with store.transaction() as tx:
            await tx.put("out", b"no")
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await store.topics() == []


async def test_an_end_is_one_and_so_is_its_with(tmp_path: Path) -> None:
    async with open_small(tmp_path, **BIG) as store, store.transaction() as tx:
        with pytest.raises(TransactionBusyError):
            async with tx:
                pass
        await tx.put("out", b"1")
        await tx.commit()
        await tx.commit()
        with pytest.raises(TransactionSettledError, match="put cannot follow"):
            await tx.put("out", b"2")
        with pytest.raises(TransactionSettledError, match="rollback cannot follow"):
            await tx.rollback()
        assert len([m async for m in store.consumer("out")]) == 1


@pytest.mark.store(**BIG)
async def test_a_put_is_no_coroutine_where_nothing_waits(store: rocketstore.aio.Store) -> None:
    async with store.transaction() as tx:
        tx.put("out", b"0")
        tx.put_batch([NewMessage("out", b"1"), NewMessage("out", b"2")])
        await tx.put("out", b"3")
        await asyncio.gather(tx.put("out", b"4"), tx.put("out", b"5"))
        with pytest.raises(ValueError, match="queue_id = -1"):
            tx.put("out", b"no", queue_id=-1)
    assert [m.body async for m in store.consumer("out")] == [b"%d" % n for n in range(6)]
    with pytest.raises(TransactionSettledError):
        tx.put("out", b"6")
    tx = store.transaction()
    await tx.put("out", b"6")
    tx.put("out", b"7")
    await tx.commit()
    assert [result.queue_offset for result in tx.results] == [6, 7]


async def test_what_a_transaction_read_comes_again_after_a_rollback(tmp_path: Path) -> None:
    async with open_small(tmp_path, **BIG) as store:
        for n in range(5):
            await store.writer("in").put(b"%d" % n)
        async with store.consumer("in", group="work") as consumer:
            with pytest.raises(ZeroDivisionError):
                async with store.transaction() as tx:
                    assert len(await tx.consume(consumer, 2)) == 2
                    assert len(await tx.consume(consumer, 1)) == 1
                    raise ZeroDivisionError
            assert consumer.positions == {0: 0}

            begun = asyncio.Event()

            async def waits() -> None:
                async with store.transaction() as tx:
                    assert len(await tx.consume(consumer)) == 5
                    begun.set()
                    await tx.consume(consumer, timeout_s=None)

            task = asyncio.create_task(waits())
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert consumer.positions == {0: 0}
            await consumer.poll(1)
            await consumer.poll(1)
            async with store.transaction() as tx:
                with pytest.raises(OffsetGapError):
                    await tx.commit_offsets(consumer)
                with pytest.raises(OffsetGapError):
                    await tx.consume(consumer)
                await consumer.rewind()
                for message in await tx.consume(consumer):
                    await tx.put("out", message.body)
        async with store.consumer("in", group="work") as consumer:
            assert await consumer.poll() == []
        assert [m.body async for m in store.consumer("out")] == [b"%d" % n for n in range(5)]


async def test_what_is_no_consumer_of_a_loop(store: rocketstore.aio.Store) -> None:
    wrong: list[Any] = ["jobs", None, store.blocking.consumer("in")]
    async with store.transaction() as tx:
        for consumer in wrong:
            with pytest.raises(TypeError, match=r"consumer: expected one of rocketstore\.aio"):
                await tx.consume(consumer)
            with pytest.raises(TypeError, match=r"consumer: expected one of rocketstore\.aio"):
                await tx.commit_offsets(consumer)
