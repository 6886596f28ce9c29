"""Puts that go different ways keep their order; what `aio` takes is what the blocking store takes."""

from __future__ import annotations

import array
import asyncio
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rocketstore
import rocketstore.aio
from rocketstore import MessageRejectedError
from rocketstore.aio.loop_port import THREADS
from rocketstore.aio.put_line import Line
from tests.aio.loops import Slow, happens, run, turns
from tests.support.small_store import everything

PUTS = 20
BIG = {"commit_log_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 20_000}


@pytest.mark.parametrize("first", ["a new writer", "a full port"])
async def test_puts_of_one_task_keep_their_order(tmp_path: Path, first: str) -> None:
    """Whatever way each of them takes."""
    options = {"max_in_flight": 1} if first == "a full port" else {}

    async with rocketstore.aio.open(tmp_path, **BIG, **options) as store:
        writer = store.writer("orders")
        if options:
            await writer.put(b"0")
        waiting = [writer.put(b"0"), writer.put(b"1")]
        waiting.append(await writer.submit(b"2"))
        waiting.append(writer.put(b"3"))
        await writer.put_batch([b"4", b"5"])
        waiting.append(writer.put(b"6"))
        gone = writer.put(b"gone")
        await store.put_message("orders", b"7")
        gone.cancel()
        await asyncio.gather(*waiting)
        async with store.consumer("orders") as consumer:
            found = [m.body for m in await consumer.poll(100, timeout_s=20) if m.body != b"gone"]
    assert found[bool(options) :] == [b"%d" % n for n in range(8)]


async def test_a_line_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stood in it once puts at once again: tasks that come back to its end while it is gone through one
    by one would keep it forever, and nobody would share a sync."""
    places = 0

    class Counted(Line):
        def join(self, *given: Any) -> None:
            nonlocal places
            places += 1
            super().join(*given)

    monkeypatch.setattr("rocketstore.aio.loop_port.Line", Counted)

    async def work(writer: rocketstore.aio.Writer) -> None:
        for number in range(PUTS):
            await writer.put(b"%d" % number)

    async with rocketstore.aio.open(tmp_path, **BIG) as store:
        writer = store.writer("t")  # looked at with the first put: 39 stand behind it
        await asyncio.gather(*[work(writer) for _ in range(40)])
        assert len([m async for m in store.consumer("t")]) == 40 * PUTS
    assert places == 41  # each task once, and the end of the store


async def test_what_is_wrong_with_a_message_in_line_harms_nobody(
    store: rocketstore.aio.Store,
) -> None:
    writer = store.writer("t")
    await writer.put(b"0")
    bodies = Slow(b"1")
    batch = asyncio.ensure_future(writer.put_batch(bodies))
    await happens(bodies.reached.is_set)
    puts = [
        writer.put(b"2"),
        writer.put(b"wrong", tags="a\x01b"),
        writer.put("text"),
        writer.put(b"gone"),
        writer.put(b"late"),
        writer.put(b"3"),
    ]
    puts[3].cancel()  # a task that has not begun
    await asyncio.sleep(0)
    puts[4].cancel()  # one that stands in line
    bodies.there.set()
    found = await asyncio.gather(batch, *puts, return_exceptions=True)
    kinds = [type(result).__name__ for result in found]
    assert kinds == [
        "PutResult", "PutResult", MessageRejectedError.__name__, "TypeError",
        "CancelledError", "CancelledError", "PutResult",
    ]  # fmt: skip
    assert [m.body async for m in store.consumer("t")] == [b"0", b"1", b"2", b"3"]


async def test_who_gave_up_in_line_leaves_nothing_there(store: rocketstore.aio.Store) -> None:
    """As long as the first one waits, timeouts behind it would fill the memory with bodies."""
    writer = store.writer("t")
    await writer.put(b"0")
    line = writer._port.line
    bodies = Slow(b"1")
    batch = asyncio.ensure_future(writer.put_batch(bodies))
    await happens(bodies.reached.is_set)
    kept = [writer.put(b"2")]
    gone = []
    for number in range(100):
        body = array.array("B", b"gone")
        gone.append(weakref.ref(body))
        put = writer.put(body)
        del body
        if number == 50:
            kept.append(writer.put(b"3"))
        await asyncio.sleep(0)
        put.cancel()
        await asyncio.sleep(0)
        assert put.cancelled()
        del put
        assert [body() for body in gone] == [None] * len(gone)
        assert len(line._line) == len(kept)
    kept.append(writer.put(b"4"))
    bodies.there.set()
    await asyncio.gather(batch, *kept)
    await asyncio.sleep(0)
    assert (line.busy, len(line._line)) == (False, 0)
    assert [m.body async for m in store.consumer("t")] == [b"%d" % n for n in range(5)]


async def test_a_put_that_is_cancelled_before_a_thread_begins_is_not_put(
    store: rocketstore.aio.Store,
) -> None:
    writer = store.writer("t")
    await writer.put(b"0")
    gate = threading.Event()
    busy = [store._port.start(gate.wait, 20) for _ in range(THREADS)]
    batch = asyncio.create_task(writer.put_batch([b"gone"]))
    behind = writer.put(b"behind")
    await turns(20)
    batch.cancel()
    await turns()
    gate.set()
    await asyncio.gather(*busy)
    await asyncio.gather(batch, behind, return_exceptions=True)
    assert batch.cancelled()
    assert [m.body async for m in store.consumer("t")] == [b"0", b"behind"]


def test_a_loop_that_ends_cancels_what_stands_in_line(tmp_path: Path) -> None:
    """What a thread has begun is made, and the puts that follow it are not."""
    bodies = Slow(b"begun")
    waiting: list[Any] = []

    async def main() -> None:
        store = await rocketstore.aio.open(tmp_path, **BIG)
        writer = store.writer("t")
        await writer.put(b"0")
        waiting.append(asyncio.ensure_future(writer.put_batch(bodies)))
        waiting[0].add_done_callback(lambda _: bodies.there.set())  # the loop waits for the thread
        await happens(bodies.reached.is_set)
        waiting.extend(writer.put(b"%d" % n) for n in range(3))
        waiting.append(store)

    run(main)
    *puts, store = waiting
    assert all(put.cancelled() for put in puts)
    store.blocking.close()
    with rocketstore.open(tmp_path) as opened:
        assert [m.body for m in everything(opened, "t")] == [b"0", b"begun"]


async def test_wait_false_asks_for_the_copy_only(store: rocketstore.aio.Store) -> None:
    result = await store.put_message("orders", b"x", properties={"WAIT": "false"})
    assert result.durability == "memory"


async def test_bodies_of_subclasses_of_bytes(store: rocketstore.aio.Store) -> None:
    result = await store.writer("orders").put(np.bytes_(b"abc"))
    assert (await store.get(result.physical_offset)).body == b"abc"
