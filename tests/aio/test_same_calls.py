"""Calls of the store in threads that tasks have too: facts, columns, frames, flushes with a time limit."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import ConfigError, DurabilityTimeoutError, StoreReadOnlyError
from tests.aio.loops import Disk, happens, open_small, turns

BIG = {"commit_log_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 20_000}
FACTS = ("begin_offset", "end_offset", "flushed_offset", "visible_offset", "dispatched_offset")


def numbers(columns: rocketstore.Columns) -> list[int]:
    return [int(body) for body in columns["body"].tolist()]


async def fill(store: rocketstore.aio.Store, count: int) -> None:
    await store.writer("t").put_batch([b"%d" % n for n in range(count)])
    await happens(lambda: store.dispatched_offset == store.end_offset)


@pytest.mark.store(**BIG)
async def test_facts_need_no_await(store: rocketstore.aio.Store) -> None:
    await fill(store, 5)
    for name in FACTS:
        assert getattr(store, name) == getattr(store.blocking, name)
    assert store.end_offset > 0
    assert (store.config, store.recovery) == (
        store.blocking.config,
        store.blocking.recovery,
    )
    assert store.flags is store.blocking.flags
    assert store.stats().put_messages == 5
    consumer = store.consumer("t", group="billing")
    assert (consumer.group, consumer.statuses) == ("billing", {})
    await consumer.poll()
    await consumer.poll()
    assert consumer.statuses == {0: "OFFSET_OVERFLOW_ONE"}
    assert store.writer("t").durability == "disk"
    assert store.writer("t", durability="os").durability == "os"
    with pytest.raises(ConfigError, match="^durability = 'none'"):
        store.writer("t", durability="none")


@pytest.mark.store(**BIG)
async def test_columns(store: rocketstore.aio.Store) -> None:
    await fill(store, 700)
    consumer = store.consumer("t", queue_id=0)
    assert numbers(await consumer.poll_columns(10)) == list(range(10))
    assert [int(m.body) for m in await consumer.poll(5)] == list(range(10, 15))
    rest = await consumer.poll_columns(columns=["queue_offset"])
    assert list(rest) == ["queue_offset"]
    assert rest["queue_offset"].tolist() == list(range(15, 15 + rest.rows))
    while rest.rows:
        rest = await consumer.poll_columns()
    assert consumer.positions == {0: 700}
    waiting = asyncio.ensure_future(consumer.poll_columns(timeout_s=20))
    await store.writer("t").put(b"700")
    assert numbers(await waiting) == [700]
    for wrong in (0, 65537):
        with pytest.raises(ValueError, match=f"^max_messages = {wrong}"):
            await consumer.poll_columns(wrong)
    with pytest.raises(TypeError, match="^timeout_s = 'x'"):
        await consumer.poll_columns(timeout_s="x")  # type: ignore[arg-type]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("handed_out", [True, False])
@pytest.mark.store(**BIG)
async def test_a_cancelled_poll_of_columns_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, handed_out: bool, times: int, store: rocketstore.aio.Store
) -> None:
    """Also one whose thread has handed them out already, and one that is cancelled again while it waits for that."""
    taken, go_on = threading.Event(), threading.Event()
    original = rocketstore.Consumer.poll_columns

    def held(consumer: rocketstore.Consumer, *args: object, **named: object) -> rocketstore.Columns:
        if not handed_out:
            taken.set()
            assert go_on.wait(20)
        columns = original(consumer, *args, **named)  # type: ignore[arg-type]
        taken.set()
        assert go_on.wait(20)
        return columns

    await fill(store, 30)
    consumer = store.consumer("t")
    assert numbers(await consumer.poll_columns(3)) == [0, 1, 2]
    monkeypatch.setattr(rocketstore.Consumer, "poll_columns", held)
    polling = asyncio.ensure_future(consumer.poll_columns(7))
    await happens(taken.is_set)
    for _ in range(times):
        polling.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # so often the task has had the exception
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert consumer.positions == {0: 3}
    assert numbers(await consumer.poll_columns(4)) == [3, 4, 5, 6]


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
@pytest.mark.parametrize("asked", [None, "memory", "os", "disk"])
@pytest.mark.store("durability", **BIG)
async def test_frames(durability: str, asked: str | None, store: rocketstore.aio.Store) -> None:
    frames, refused = rocketstore.encode_frames(([0, 1, 3], b"abb"), topics=["t"])
    assert refused == {}

    await store.writer("t").put(b"first")
    put = await store.put_frames(frames, durability=asked)
    assert (put.count, put.end_offset) == (2, store.end_offset)
    assert put.durability in (asked or durability, durability)
    if put.durability == "disk":
        assert store.flushed_offset >= put.end_offset
    await store.flush()
    await happens(lambda: store.dispatched_offset == put.end_offset)
    assert [m.body async for m in store.consumer("t")] == [b"first", b"a", b"bb"]
    with pytest.raises(ValueError, match="^durability = 'certain'"):
        await store.put_frames(frames, durability="certain")


@pytest.mark.parametrize("asked", [None, "memory", "os", "disk"])
@pytest.mark.store(durability="os", **BIG)
async def test_columns_of_a_store(asked: str | None, store: rocketstore.aio.Store) -> None:
    columns: dict[str, Any] = {"topics": ["t", "u"], "topic_rows": [0, 1, 0]}
    put = await store.put_columns(([0, 1, 3, 3], b"abb"), durability=asked, **columns)
    assert (put.count, put.end_offset) == (3, store.end_offset)
    assert put.durability in (asked or "os", "os")
    if put.durability == "disk":
        assert store.flushed_offset >= put.end_offset
    await store.flush()
    await happens(lambda: store.dispatched_offset == put.end_offset)
    assert [m.body async for m in store.consumer("t")] == [b"a", b""]
    assert [m.body async for m in store.consumer("u")] == [b"bb"]
    with pytest.raises(ValueError, match="^durability = 'certain'"):
        await store.put_columns(([0, 1], b"a"), durability="certain", **columns)
    with pytest.raises(rocketstore.MessageRejectedError, match="queue_ids: -1"):
        await store.put_columns(([0, 1], b"a"), topics=["t"], queue_ids=-1)


async def test_frames_do_not_hold_a_thread_while_the_disk_works(
    disk: Disk, store: rocketstore.aio.Store
) -> None:
    frames, _ = rocketstore.encode_frames(([0, 1], b"a"), topics=["t"])

    puts = [asyncio.ensure_future(store.put_frames(bytes(frames))) for _ in range(20)]
    await happens(lambda: store.blocking.end_offset >= 20 * len(frames))
    assert not any(put.done() for put in puts)
    disk.work.set()
    assert [put.durability for put in await asyncio.gather(*puts)] == ["disk"] * 20


async def test_a_flush_with_a_time_limit(tmp_path: Path, disk: Disk) -> None:
    """Its own, whether it is longer or shorter than that of puts."""
    async with open_small(tmp_path, sync_flush_timeout_ms=30) as store:
        assert await store.flush(timeout_s=0) == 0
        put = await store.writer("t").submit(b"x", durability="disk")
        for call in (store.flush, lambda t: store.wait_flushed(store.end_offset, t)):
            for timeout_s in (0.0, 0.01, 0.1):
                with pytest.raises(DurabilityTimeoutError, match=f"after {timeout_s} s"):
                    await call(timeout_s)
        with pytest.raises(DurabilityTimeoutError):
            await put
        flushing = asyncio.ensure_future(store.flush(timeout_s=20))
        await turns()
        disk.work.set()
        assert await flushing == store.end_offset
        for wrong in ("x", []):
            with pytest.raises(TypeError, match="^timeout_s = "):
                await store.flush(wrong)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="^end_offset = -1: at least 0"):
            await store.wait_flushed(-1)
    async with open_small(tmp_path, "r") as reader:
        for timeout in (None, 1.0):
            with pytest.raises(StoreReadOnlyError, match="^flush: "):
                await reader.flush(timeout)


async def test_shipping_runs_on_a_thread(tmp_path: Path) -> None:
    async with open_small(tmp_path / "store") as store:
        with pytest.raises(ConfigError, match="^uri = 'nowhere'"):
            await store.ship("nowhere")
        pytest.importorskip("pyarrow")
        for _ in range(40):
            await store.writer("t").put(bytes(300))
        report = await store.ship((tmp_path / "archive").as_uri())
        assert report.segments >= 2
