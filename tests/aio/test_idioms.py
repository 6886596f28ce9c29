"""What asyncio takes: each awaitable of the face, by each way that a program may await it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore.aio
from tests.aio.loops import open_small

BIG = {"commit_log_file_size_bytes": 16 << 20}


async def in_group(put: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(put)
    return task.result()


async def waited(put: Any) -> Any:
    done, _ = await asyncio.wait([asyncio.create_task(put)])
    return done.pop().result()


async def completed(put: Any) -> Any:
    (done,) = asyncio.as_completed([put])
    return await done


async def gathered(put: Any) -> Any:
    (result,) = await asyncio.gather(put)
    return result


WAYS: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "await": lambda put: put,
    "create_task": asyncio.create_task,
    "TaskGroup": in_group,
    "gather": gathered,
    "wait": waited,
    "as_completed": completed,
    "wait_for": lambda put: asyncio.wait_for(put, 20),
    "ensure_future": asyncio.ensure_future,
    "shield": asyncio.shield,
}


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.parametrize("known", [True, False], ids=["known topic", "first put"])
@pytest.mark.parametrize("way", WAYS)
async def test_a_put_goes_to_whatever_awaits(
    way: str, known: bool, durability: Any, store: rocketstore.aio.Store
) -> None:
    writer = store.writer("t")
    if known:
        await writer.put(b"known")
    result = await WAYS[way](writer.put(b"x", durability=durability))
    assert (result.queue_offset, result.durability) == (int(known), durability)
    promised = await writer.submit(b"y", durability=durability)
    assert (await WAYS[way](promised)).queue_offset == known + 1
    assert await store.max_queue_offset("t", 0) == known + 2


async def test_wait_takes_the_task_of_a_put(store: rocketstore.aio.Store) -> None:
    """It refuses a bare put, as any coroutine. What it refused can still be awaited."""
    put = store.writer("t").put(b"x")
    with pytest.raises(TypeError, match="tasks"):
        await asyncio.wait([put])
    assert asyncio.isfuture(put)
    assert asyncio.iscoroutine(put)
    assert (await put).queue_offset == 0


@pytest.mark.parametrize("way", WAYS)
async def test_every_other_call_goes_there_too(tmp_path: Path, way: str) -> None:
    store = await WAYS[way](open_small(tmp_path))
    writer = store.writer("t")
    by = WAYS[way]
    await by(writer.put_batch([b"a", b"b"]))
    await (await by(writer.submit(b"c")))
    consumer = store.consumer("t", group="g")
    assert len(await by(consumer.poll(3))) == 3
    assert await by(consumer.commit()) == {0: 3}
    assert await by(store.flush()) == store.end_offset
    await by(consumer.close())
    await by(store.close())


async def test_a_cancelled_task_of_a_put(store: rocketstore.aio.Store) -> None:
    writer = store.writer("t")
    for known in (False, True):
        task = asyncio.create_task(writer.put(b"x"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled() or known
        await writer.put(b"y")


async def test_an_error_of_a_put_comes_out_of_its_task(store: rocketstore.aio.Store) -> None:
    with pytest.raises(rocketstore.InvalidTopicError):
        await asyncio.create_task(store.writer("not allowed!").put(b"x"))
    assert await store.topics() == []


def test_opening_that_no_task_awaits_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="async with rocketstore"):
        open_small(tmp_path).close()


async def test_all_tasks_share_one_budget_of_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a clock that stands still a turn has the slices of four tasks. Here the clock moves by a
    millisecond a look, and each turn has a few looks only, however many tasks are ready."""
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += 0.001
        return now_s

    monkeypatch.setattr("rocketstore.aio.fairness.perf_counter", clock)

    async with rocketstore.aio.open(tmp_path, durability="os", **BIG) as store:
        writer = store.writer("t")
        await writer.put(b"first")
        done = 0
        stop = False

        async def puts() -> None:
            nonlocal done
            while not stop:
                await writer.put(b"x")
                done += 1

        tasks = [asyncio.create_task(puts()) for _ in range(200)]
        seen = []
        for _ in range(50):
            before = done
            await asyncio.sleep(0)
            seen.append(done - before)
        stop = True
        await asyncio.gather(*tasks)
        # Two looks of sixteen puts, then one put each: of 200 tasks once, then of four.
        assert max(seen) <= 4 * 64 + 200, seen
        assert sum(seen) >= 50, "nobody goes on"
