"""asyncio: puts that share syncs, and messages that tasks are handed. One round is `ROUND` messages a task."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import rocketstore.aio
from bench.conftest import SIZES, TOPIC, OpenStore, check, fill, note

ROUND = 20


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tasks", [1, 64, 256])
@pytest.mark.parametrize("durability", ["disk", "os"])
def test_put(benchmark: Any, open_store: OpenStore, durability: str, tasks: int, size: int) -> None:
    store = open_store(durability=durability)
    body = bytes(size)
    note(benchmark, size, 1, f"{durability}, {tasks} tasks")

    async def main() -> None:
        async with rocketstore.aio.attach(store) as mine:
            put = mine.writer(TOPIC, queue_id=0).put

            async def work() -> None:
                for _ in range(ROUND):
                    await put(body)

            await asyncio.gather(*[work() for _ in range(tasks)])

    benchmark.pedantic(lambda: asyncio.run(main()), rounds=10, warmup_rounds=1)
    check(store, ROUND * tasks)


@pytest.mark.parametrize("size", SIZES)
def test_iterate(benchmark: Any, open_store: OpenStore, size: int) -> None:
    store = open_store()
    fill(store, 20_000, size)
    note(benchmark, size, 1, "os")

    async def main() -> None:
        async with rocketstore.aio.attach(store) as mine:
            count = 0
            async for _ in mine.consumer(TOPIC):
                count += 1
            assert count == 20_000

    benchmark.pedantic(lambda: asyncio.run(main()), rounds=10, warmup_rounds=1)
