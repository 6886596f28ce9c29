"""`where` of consumers in tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import rocketstore.aio
from rocketstore import FilterSyntaxError
from rocketstore.consuming import cursors

BIG = {"commit_log_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 20_000}


async def fill(store: rocketstore.aio.Store, count: int) -> None:
    writer = store.writer("t")
    puts = [writer.put(b"%d" % n, properties={"n": str(n)}) for n in range(count)]
    await asyncio.gather(*puts)


@pytest.mark.store(**BIG)
async def test_what_matches(store: rocketstore.aio.Store) -> None:
    await fill(store, 900)
    where = "n > 880 AND n <> 890"
    expected = [n for n in range(881, 900) if n != 890]
    assert [int(m.body) async for m in store.consumer("t", where=where)] == expected
    consumer = store.consumer("t", where=where)
    found = await consumer.poll(5)
    found += await consumer.poll(100)
    assert [int(m.body) for m in found] == expected
    columns = await store.consumer("t", where="n = 7").poll_columns(columns=["body"])
    assert columns["body"].tolist() == [b"7"]


async def test_passing_over_many_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll has a bound; iterating ends where the consumer has caught up."""
    monkeypatch.setattr(cursors, "PASSING_S", 0.0)
    monkeypatch.setattr(cursors, "FILTERED", 20)

    async with rocketstore.aio.open(tmp_path, **BIG) as store:
        await fill(store, 900)
        consumer = store.consumer("t", where="n > 880")
        assert await consumer.poll() == []
        assert 0 < await consumer.lag() < 900
        assert len(await consumer.poll(100, timeout_s=20.0)) == 19
        assert len([m async for m in store.consumer("t", where="n > 880")]) == 19
        following = store.consumer("t", where="n > 880").follow(timeout_s=0.0)
        assert len([m async for m in following]) == 19


@pytest.mark.store(**BIG)
async def test_what_comes_later(store: rocketstore.aio.Store) -> None:
    consumer = store.consumer("t", where="n = 2")
    waiting = asyncio.create_task(consumer.poll(timeout_s=20.0))
    await fill(store, 3)
    assert [m.body for m in await waiting] == [b"2"]


@pytest.mark.store(**BIG)
async def test_a_wrong_expression(store: rocketstore.aio.Store) -> None:
    with pytest.raises(FilterSyntaxError):
        await store.consumer("t", where="n >").poll()
