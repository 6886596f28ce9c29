"""Puts from tasks: what they promise, how they share syncs, and what bounds them."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import numpy as np
import pytest

import rocketstore
import rocketstore.aio
from rocketstore import (
    ConfigError,
    DurabilityTimeoutError,
    InvalidTopicError,
    MessageRejectedError,
    MessageTooLargeError,
    PutResult,
    StoreFailedError,
)
from tests.aio.loops import Disk, happens, open_small, run, turns

BIG = {"commit_log_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 20_000}


async def test_a_put_returns_when_it_is_on_disk(disk: Disk, store: rocketstore.aio.Store) -> None:
    put = store.writer("orders").put(b"x", tags="paid", keys="k")
    await happens(disk.reached.is_set)
    assert not put.done()
    assert store.in_flight == 1
    assert store.in_flight_bytes == store.blocking.end_offset
    disk.work.set()
    result = await put
    assert result.durability == "disk"
    assert store.blocking.flushed_offset >= result.end_offset
    assert (store.in_flight, store.in_flight_bytes) == (0, 0)
    message = await store.get(result.physical_offset)
    assert (message.body, message.tags, message.keys) == (b"x", "paid", ("k",))


@pytest.mark.parametrize("tasks", [1, 64, 256])
@pytest.mark.store(**BIG)
async def test_tasks_share_syncs_and_wake_ups(
    tasks: int, monkeypatch: pytest.MonkeyPatch, store: rocketstore.aio.Store
) -> None:
    """One wake-up of the loop for each flush at most, and far fewer flushes than messages."""
    wakes = 0

    native = store._port.native
    drain = native.drain

    def counted() -> None:
        nonlocal wakes
        wakes += 1
        drain()

    monkeypatch.setattr(native, "drain", counted)
    writer = store.writer("t")
    await writer.put(b"first")
    flushes = store.blocking.stats().flush_latency.count

    async def work(number: int) -> list[int]:
        return [(await writer.put(b"%d" % number)).physical_offset for _ in range(10)]

    offsets = await asyncio.gather(*map(work, range(tasks)))
    assert len({offset for found in offsets for offset in found}) == 10 * tasks
    assert all(found == sorted(found) for found in offsets)
    flushes = store.blocking.stats().flush_latency.count - flushes
    assert flushes <= 10 * tasks
    if tasks > 1:
        assert flushes < 10 * tasks / 4
    # Dispatch rings too, when somebody waits: each arrival and each flush once at most.
    assert wakes <= 2 * flushes + 4


@pytest.mark.store(**BIG)
async def test_no_thread_waits_for_the_disk(disk: Disk, store: rocketstore.aio.Store) -> None:
    writer = store.writer("t")
    first = writer.put(b"x")
    await happens(lambda: store.in_flight == 1)
    before = threading.active_count()
    puts = [writer.put(b"%d" % n) for n in range(500)]
    assert store.in_flight == 501
    assert threading.active_count() == before
    disk.work.set()
    results = await asyncio.gather(first, *puts)
    assert [r.queue_offset for r in results] == list(range(501))


@pytest.mark.store(**BIG)
async def test_a_sync_goes_on_while_the_rest_is_put(
    disk: Disk, store: rocketstore.aio.Store
) -> None:
    """The first puts of a turn of the loop do not wait for its end; the last do not wait for more."""
    writer = store.writer("t")
    disk.work.set()
    await writer.put(b"first")
    disk.work.clear()
    disk.reached.clear()
    puts = [writer.put(b"%d" % n) for n in range(20)]
    assert disk.reached.wait(20), "this very turn goes on"
    disk.work.set()
    await asyncio.gather(*puts)


@pytest.mark.store(durability="os", **BIG)
async def test_an_unknown_durability_stores_nothing(store: rocketstore.aio.Store) -> None:
    writer = store.writer("t")
    for _ in range(2):  # the first put of a handle goes another way
        for put in (
            writer.put,
            writer.submit,
            lambda body, **given: writer.put_batch([body], **given),
        ):
            with pytest.raises(ValueError, match="durability = 'certain'"):
                await put(b"x", durability="certain")
        with pytest.raises(ValueError, match="durability = 'certain'"):
            await store.put_message("t", b"x", durability="certain")
        assert store.blocking.max_queue_offset("t", 0) == 0
        await store.writer("other").put(b"y")


@pytest.mark.parametrize("durability", ["os", "memory"])
@pytest.mark.store("durability", **BIG)
async def test_a_put_that_needs_no_wait_is_done_at_once(
    durability: str, store: rocketstore.aio.Store
) -> None:
    """Inline, without a thread; and yet other tasks have their turn."""
    writer = store.writer("t")
    await writer.put(b"first")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    done = 0
    for number in range(1000):
        put = writer.put(b"%d" % number)
        done += put.done()
        assert (await put).durability == durability
    ticking.cancel()
    assert done >= 900
    assert ticks >= 10
    stronger = await writer.put(b"x", durability="disk")
    assert stronger.durability == "disk"
    assert store.blocking.flushed_offset >= stronger.end_offset


@pytest.mark.store(durability="memory", **BIG)
async def test_os_promise_in_a_memory_store(store: rocketstore.aio.Store) -> None:
    """Waits for the commit, not for the disk."""
    result = await store.writer("t").put(b"x", durability="os")
    assert result.durability == "os"
    await store.writer("t").put(b"y", durability="disk")


async def test_submit_gives_the_place_now_and_the_promise_later(
    disk: Disk, store: rocketstore.aio.Store
) -> None:
    soon = await store.writer("t").submit(b"x")
    assert not soon.done()
    assert store.blocking.end_offset > 0
    disk.work.set()
    assert (await soon).queue_offset == 0


def test_a_future_for_threads(tmp_path: Path) -> None:
    """`submit` of the blocking writer gives a concurrent.futures.Future on request; a loop may wrap it."""

    async def main() -> PutResult:
        async with open_small(tmp_path) as store:
            future = store.blocking.writer("t").submit(b"x").future()
            return await asyncio.wrap_future(future)

    assert run(main).durability == "disk"


@pytest.mark.store(**BIG)
async def test_batches_and_columns(store: rocketstore.aio.Store) -> None:
    writer = store.writer("t", properties={"region": "eu"})
    batch = await writer.put_batch([b"a", b"b", b"c"], tags="x")
    assert (batch.count, batch.durability) == (3, "disk")
    data = np.frombuffer(b"alphabeta", dtype=np.uint8)
    columns = await writer.put_columns((np.array([0, 5, 9]), data), keys="k")
    assert columns.count == 2
    both = await asyncio.gather(writer.put(b"one"), writer.put_batch([b"two"]))
    assert {r.queue_offset for r in both} == {5, 6}
    assert [m.body for m in await store.consumer("t").poll()][:5] == [
        b"a", b"b", b"c", b"alpha", b"beta",
    ]  # fmt: skip
    result = await store.put_message("t", b"raw", queue_id=3, sys_flag=1)
    assert (await store.get(result.physical_offset)).sys_flag == 1
    assert (await writer.put_batch([])).count == (await store.put_batch([])).count == 0


@pytest.mark.store(max_message_size_bytes=500)
async def test_what_is_wrong_with_a_message_is_raised_and_stores_nothing(
    store: rocketstore.aio.Store,
) -> None:
    writer = store.writer("t")
    await writer.put(b"x")
    end = store.blocking.end_offset
    with pytest.raises(MessageTooLargeError, match="max_message_size_bytes"):
        await writer.put(b"x" * 501)
    with pytest.raises(TypeError, match="encode"):
        await writer.put("text")
    with pytest.raises(MessageRejectedError, match="KEYS"):
        await writer.put(b"x", properties={"KEYS": "k"})
    with pytest.raises(ValueError, match="durability"):
        await store.writer("t", durability="certain").put(b"x")
    with pytest.raises(InvalidTopicError):
        await store.writer("../evil").put(b"x")
    assert store.blocking.end_offset == end
    await writer.put(bytearray(b"mutable"), shard_key="s", flag=3, born_time=12)
    await writer.put(memoryview(b"view"))
    found = [m.body async for m in store.consumer("t")]
    assert found == [b"x", b"mutable", b"view"]


# ---- bounds ----


@pytest.mark.parametrize("limits", [{"max_in_flight": 8}, {"max_in_flight_bytes": 1500}])
async def test_puts_wait_where_too_much_is_in_flight(
    tmp_path: Path, disk: Disk, limits: dict[str, int]
) -> None:
    async with rocketstore.aio.open(tmp_path, **BIG, **limits) as store:
        writer = store.writer("t")
        puts = [asyncio.ensure_future(writer.put(b"%02d" % n + bytes(98))) for n in range(40)]
        await happens(lambda: store.in_flight == 8)
        await turns(20)
        assert store.in_flight == 8
        end = store.blocking.end_offset
        late = asyncio.ensure_future(writer.put_batch([b"40"]))
        await turns(20)
        assert store.blocking.end_offset == end
        disk.work.set()
        results = await asyncio.gather(*puts, late)
        # Those who waited keep their order, and nobody overtook them.
        assert [r.queue_offset for r in results] == list(range(41))


async def test_puts_begun_together_keep_their_order(store: rocketstore.aio.Store) -> None:
    """The first ones meet a topic that was not looked at, or a log without room; the next do not."""
    writer = store.writer("t")
    for round_ in range(20):
        puts = [writer.put(bytes(3000 if n % 5 == 0 else 10)) for n in range(20)]
        found = [r.queue_offset for r in await asyncio.gather(*puts)]
        assert found == list(range(20 * round_, 20 * round_ + 20))


@pytest.mark.store(**BIG, max_in_flight_bytes=1)
async def test_a_message_larger_than_the_bound_fits_alone(store: rocketstore.aio.Store) -> None:
    writer = store.writer("t")
    results = await asyncio.gather(*[writer.put(bytes(5000)) for _ in range(5)])
    assert [r.queue_offset for r in results] == list(range(5))


@pytest.mark.store(**BIG, max_unflushed_bytes=65_536)
async def test_a_full_log_is_waited_for_off_the_loop(
    disk: Disk, store: rocketstore.aio.Store
) -> None:
    """The store's own bound is met in a thread: the loop turns on meanwhile."""
    writer = store.writer("t")
    puts = [asyncio.ensure_future(writer.put(bytes(16_000))) for _ in range(10)]
    await happens(lambda: store.in_flight == 4)
    await asyncio.wait_for(turns(100), 5)
    assert not any(put.done() for put in puts)
    disk.work.set()
    results = await asyncio.gather(*puts)
    assert [r.queue_offset for r in results] == list(range(10))


async def test_rolls(store: rocketstore.aio.Store) -> None:
    """Segments of 4 KiB: nearly every put of these meets a log whose next segment is not there."""
    writer = store.writer("t")
    await asyncio.gather(*[writer.put(b"%03d" % n + bytes(900)) for n in range(60)])
    bodies = [m.body[:3] async for m in store.consumer("t")]
    assert bodies == [b"%03d" % n for n in range(60)]


@pytest.mark.parametrize("value", [0, -1, True, 1.5, "8"])
def test_bounds_are_checked(tmp_path: Path, value: int) -> None:
    with pytest.raises(ConfigError, match="max_in_flight"):
        rocketstore.aio.open(tmp_path, max_in_flight=value)


# ---- a disk that fails or is late ----


async def test_a_failed_sync_reaches_every_task(tmp_path: Path, disk: Disk) -> None:
    async with rocketstore.aio.open(tmp_path, **BIG) as store:
        writer = store.writer("t")
        disk.work.set()
        await writer.put(b"durable")
        disk.work.clear()  # nothing fails before all have put
        flushed = store.blocking.flushed_offset
        for name in ("pwritev2", "fdatasync"):
            disk.calls.errors[name] = OSError(errno.EIO, "as the test wants")
        puts = [asyncio.ensure_future(writer.put(b"%d" % n)) for n in range(100)]
        flush = asyncio.ensure_future(store.flush())
        disk.work.set()
        found = await asyncio.gather(*puts, flush, return_exceptions=True)
        disk.calls.errors.clear()
        assert {type(error) for error in found} == {StoreFailedError}
        assert len({id(error) for error in found}) == 101, "each task has an error of its own"
        assert all(isinstance(error.__cause__, OSError) for error in found)
        assert store.blocking.flushed_offset == flushed
        assert store.in_flight == 0
        with pytest.raises(StoreFailedError, match="nothing was stored"):
            await writer.put(b"later")
        assert [m.body async for m in store.consumer("t")] == [b"durable"]
    with rocketstore.open(tmp_path) as again:
        assert next(iter(again.consumer("t"))).body == b"durable"


@pytest.mark.store(sync_flush_timeout_ms=30)
async def test_a_flush_that_comes_too_late(disk: Disk, store: rocketstore.aio.Store) -> None:
    with pytest.raises(DurabilityTimeoutError, match="do not put it again") as caught:
        await store.writer("t").put(b"late")
    result = caught.value.result
    assert result is not None
    assert store.in_flight == 0
    with pytest.raises(DurabilityTimeoutError):
        await store.wait_flushed(result.end_offset)
    disk.work.set()
    await store.flush()
    assert (await store.get(result.physical_offset)).body == b"late"
