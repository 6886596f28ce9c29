"""What a store counts of the puts of tasks."""

from __future__ import annotations

import asyncio

import rocketstore.aio


async def test_every_put_that_waits_for_the_disk_is_timed(store: rocketstore.aio.Store) -> None:
    writer = store.writer("orders")
    await writer.put(b"x")  # a thread makes the first segment, and the put
    before = store.blocking.stats().put_latency.count
    for _ in range(5):
        await writer.put(b"x")
    await asyncio.gather(*(writer.put(b"x") for _ in range(5)))
    await (await writer.submit(b"x"))
    await writer.put_batch([b"x", b"y"])
    stats = store.blocking.stats()
    assert (stats.put_latency.count - before, stats.put_messages) == (12, 14)
    assert stats.put_p99_ms is not None
    await asyncio.gather(*(writer.put(b"x", durability="memory") for _ in range(50)))
    waited_for_nothing = store.blocking.stats().put_latency.count - before - 12
    assert 5 <= waited_for_nothing <= 6  # the first, second, fourth …
