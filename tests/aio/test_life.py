"""Opening and closing, several loops, loops that go without a word, and tasks that are cancelled."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import random
import threading
from pathlib import Path
from typing import Any

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import StoreClosedError, StoreLockedError
from tests.aio.loops import Disk, Slow, happens, open_small, run, turns
from tests.support.small_store import everything

BIG = {"commit_log_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 20_000}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def event_descriptors() -> int:
    """Those of the loops' ports; threads of a store open and close files meanwhile."""
    names = os.listdir("/proc/self/fd")
    return sum("[eventfd]" in os.path.realpath(f"/proc/self/fd/{name}") for name in names)


async def test_close_awaits_what_is_in_flight(tmp_path: Path, disk: Disk) -> None:
    async with rocketstore.aio.open(tmp_path, **BIG, max_in_flight=5) as store:
        writer = store.writer("t")
        puts = [asyncio.ensure_future(writer.put(b"%d" % n)) for n in range(20)]
        await happens(lambda: store.in_flight == 5)
        closing = asyncio.create_task(store.close())
        again = asyncio.create_task(store.close())
        await turns(20)
        assert not closing.done()
        disk.work.set()
        await asyncio.gather(closing, again)
        results = await asyncio.gather(*puts)
        assert [r.queue_offset for r in results] == list(range(20))
        assert store.closed
        with pytest.raises(StoreClosedError):
            await writer.put(b"late")
        with pytest.raises(StoreClosedError):
            store.writer("t")
        with pytest.raises(StoreClosedError):
            await store.get(0)
    with rocketstore.open(tmp_path) as store:
        assert len(everything(store, "t")) == 20


async def test_a_cancelled_close_goes_on(tmp_path: Path, disk: Disk) -> None:
    store = await rocketstore.aio.open(tmp_path, **BIG)
    put = asyncio.ensure_future(store.writer("t").put(b"x"))
    await happens(disk.reached.is_set)
    closing = asyncio.create_task(store.close())
    await turns()
    closing.cancel()
    await asyncio.wait([closing])
    disk.work.set()
    assert (await put).durability == "disk"
    await store.close()
    assert store.blocking.closed


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_small(tmp_path) as store:
            await store.writer("t").put(b"x")
            assert len([m async for m in store.consumer("t")]) >= 1

    def left() -> tuple[int, int]:
        gc.collect()
        # Threads of the pool end by themselves once the loop's executor is gone.
        for thread in threading.enumerate():
            if thread.name.startswith("rocketstore-aio"):
                thread.join(20)
        return descriptors(), threading.active_count()

    run(main)
    before = left()
    for _ in range(3):
        run(main)
    assert left() == before


def test_a_store_that_is_not_closed_is_not_harmed_by_its_loops_end(tmp_path: Path) -> None:
    """The loop ends with a put in flight and nothing closed: threads go on with the store."""
    kept: list[Any] = []

    async def main() -> None:
        store = await open_small(tmp_path)
        kept.append(store)
        writer = store.writer("t")
        await writer.put(b"0")
        kept.append(writer.put(b"1"))

    run(main)
    blocking = kept[0].blocking
    before = event_descriptors()
    for number in range(2, 8):
        blocking.writer("t").put(b"%d" % number)
    assert [m.body for m in everything(blocking, "t")] == [b"%d" % n for n in range(8)]
    kept.clear()
    gc.collect()
    assert event_descriptors() == before - 1, "the eventfd went with the last reference"
    blocking.writer("t").put(b"8")
    blocking.close()


def test_several_loops_in_several_threads(tmp_path: Path) -> None:
    """Each loop attaches; blocking threads put beside them; every message comes once."""
    with rocketstore.open(tmp_path, **BIG) as store:
        errors: list[BaseException] = []

        async def main(number: int) -> None:
            async with rocketstore.aio.attach(store, max_in_flight=16) as mine:
                writer = mine.writer("t", queue_id=number)
                results = await asyncio.gather(*[writer.put(b"%d" % n) for n in range(200)])
                assert [r.queue_offset for r in results] == list(range(200))
                got = [int(m.body) async for m in mine.consumer("t", queue_id=number)]
                assert got == list(range(200))
            assert not store.closed

        def loop(number: int) -> None:
            try:
                run(lambda: main(number))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=loop, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for number in range(50):
            store.writer("t", queue_id=9).put(b"%d" % number)
        for thread in threads:
            thread.join()
        assert errors == []
        assert len(everything(store, "t")) == 850


async def test_another_loop_is_refused(store: rocketstore.aio.Store) -> None:
    async def use(store: rocketstore.aio.Store, writer: rocketstore.aio.Writer) -> None:
        for call in (lambda: writer.put(b"x"), store.flush, lambda: store.get(0), store.close):
            with pytest.raises(RuntimeError, match="attach"):
                await call()

    writer = store.writer("t")
    await writer.put(b"x")
    await asyncio.to_thread(lambda: asyncio.run(use(store, writer)))


async def test_two_opens(tmp_path: Path, store: rocketstore.aio.Store) -> None:
    with pytest.raises(StoreLockedError):
        await open_small(tmp_path)
    assert "in_flight=0" in repr(store)
    assert "'t'" in repr(store.writer("t"))
    assert "'t'" in repr(store.consumer("t"))
    with pytest.raises(TypeError, match="open it again"):
        pickle.dumps(store)


async def test_a_cancelled_open_leaves_no_lock(tmp_path: Path) -> None:
    for delay_s in (0, 0.0005, 0.002, 0.01):
        opening = asyncio.ensure_future(open_small(tmp_path))
        await asyncio.wait([opening], timeout=delay_s)
        opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled():
            await opening.result().close()
        async with asyncio.timeout(20):
            while True:
                try:
                    await (await open_small(tmp_path)).close()
                    break
                except StoreLockedError:
                    await asyncio.sleep(0.01)


async def test_destroy(tmp_path: Path) -> None:
    store = await open_small(tmp_path / "s")
    await store.writer("t").put(b"x")
    await store.destroy()
    assert store.closed
    assert not (tmp_path / "s" / "commitlog").exists()


async def test_destroy_of_a_closed_store(tmp_path: Path) -> None:
    """It is not said to be done: the files are there."""
    store = await open_small(tmp_path / "s")
    await store.close()
    with pytest.raises(StoreClosedError, match="open it again to destroy it"):
        await store.destroy()
    assert (tmp_path / "s" / "commitlog").exists()


def test_a_loop_that_ends_while_the_store_closes(tmp_path: Path, disk: Disk) -> None:
    """Its last puts wait for the disk; the task that closes is cancelled with all others."""

    async def main() -> None:
        store = await open_small(tmp_path, **BIG)
        tasks = [asyncio.ensure_future(store.writer("t").put(b"x"))]
        await happens(disk.reached.is_set)
        tasks.append(asyncio.ensure_future(store.close()))
        await turns()
        assert store.closed
        threading.Timer(0.1, disk.work.set).start()

    run(main)
    with rocketstore.open(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert [m.body for m in store.consumer("t")] == [b"x"]


@pytest.mark.store(**BIG, max_in_flight=3)
async def test_a_cancelled_put_is_in_the_log(disk: Disk, store: rocketstore.aio.Store) -> None:
    """It waits for the disk no more; the message becomes durable and is read."""
    writer = store.writer("t")
    put = asyncio.ensure_future(writer.put(b"cancelled"))
    await happens(disk.reached.is_set)
    others = [asyncio.ensure_future(writer.put(b"%d" % n)) for n in range(4)]
    await happens(lambda: store.in_flight == 3)
    put.cancel()
    others[3].cancel()  # it waits for room: not put
    await asyncio.gather(put, others[3], return_exceptions=True)
    assert put.cancelled()
    disk.work.set()
    await asyncio.gather(*others[:3])
    assert store.in_flight == 0
    assert [m.body async for m in store.consumer("t")] == [b"cancelled", b"0", b"1", b"2"]


async def test_a_cancelled_put_that_a_thread_goes_on_with_is_not_overtaken(tmp_path: Path) -> None:
    async with open_small(tmp_path) as store:
        writer = store.writer("t")
        for number in range(3):
            bodies = Slow(b"slow %d" % number)
            batch = asyncio.ensure_future(writer.put_batch(bodies))
            await happens(bodies.reached.is_set)
            batch.cancel()
            await asyncio.wait([batch])
            later = [
                asyncio.create_task(writer.put(b"put %d" % number)),
                asyncio.ensure_future(writer.put_batch([b"batch %d" % number])),
                asyncio.ensure_future(store.put_message("t", b"message %d" % number)),
            ]
            await asyncio.wait(later, timeout=0.02)
            assert not any(put.done() for put in later)
            bodies.there.set()
            await asyncio.gather(*later)
        last = Slow(b"last")
        batch = asyncio.ensure_future(writer.put_batch(last))
        await happens(last.reached.is_set)
        batch.cancel()
        closing = asyncio.ensure_future(store.close())
        await turns(20)
        assert not closing.done()
        last.there.set()
        await closing
    with rocketstore.open(tmp_path) as store:
        kinds = [b"slow", b"put", b"batch", b"message"]
        expected = [b"%s %d" % (kind, number) for number in range(3) for kind in kinds]
        assert [m.body for m in everything(store, "t")] == [*expected, b"last"]


@pytest.mark.store(durability="disk")
async def test_flush_leaves_nothing_in_flight(store: rocketstore.aio.Store) -> None:
    """Also when the disk was done before the loop heard of it."""
    writer = store.writer("t")
    await writer.put(b"opened")
    put = writer.put(b"body")
    put.cancel()
    store.blocking.wait_flushed(store.end_offset)  # without a turn of the loop
    assert store.in_flight == 1
    await store.flush()
    assert (store.in_flight, store.in_flight_bytes) == (0, 0)


@pytest.mark.parametrize("durability", ["disk", "os"])
async def test_cancelled_at_random(tmp_path: Path, rng: random.Random, durability: str) -> None:
    """Acknowledged ⊆ recovered ⊆ sent, each at most once, whatever is cancelled when; and no waiter,
    bound or turn is left taken."""
    sent: set[int] = set()
    acknowledged: set[int] = set()

    async def work(writer: rocketstore.aio.Writer, numbers: list[int]) -> None:
        for number in numbers:
            sent.add(number)
            kind = number % 5
            body = b"%d:" % number + bytes(number * 37 % 900)
            if kind == 0:
                await writer.put_batch([body])
            elif kind == 1:
                await (await writer.submit(body))
            else:
                await writer.put(body)
            acknowledged.add(number)

    limits = {"max_in_flight": rng.choice([2, 9, 1000]), "max_in_flight_bytes": 4000}
    async with open_small(tmp_path, durability=durability, **limits) as store:
        writer = store.writer("t")
        for round_ in range(12):
            first = round_ * 1000
            tasks = [
                asyncio.create_task(work(writer, list(range(first + 10 * n, first + 10 * n + 10))))
                for n in range(20)
            ]
            while not all(task.done() for task in tasks):
                await asyncio.wait(tasks, timeout=rng.choice([0, 0, 0.0005, 0.003]))
                if rng.random() < 0.6:
                    rng.choice(tasks).cancel()
            for task in tasks:
                assert task.cancelled() or task.exception() is None
        assert store.in_flight == store.in_flight_bytes == 0 or durability == "disk"
        await store.flush()
        assert (store.in_flight, store.in_flight_bytes) == (0, 0)
        await writer.put(b"-1:")
    with rocketstore.open(tmp_path) as store:
        bodies = [m.body for m in everything(store, "t")]
    found = [int(body.partition(b":")[0]) for body in bodies]
    assert found.pop() == -1
    assert len(found) == len(set(found)), "a message twice"
    assert acknowledged <= set(found) <= sent
    assert all(
        len(body) == len(body.partition(b":")[0]) + 1 + number * 37 % 900
        for body, number in zip(bodies, found, strict=False)
    )


async def test_a_forked_child_puts_nothing(store: rocketstore.aio.Store) -> None:
    """The child has no running loop, and its store is closed."""
    writer = store.writer("t")
    await writer.put(b"x")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            writer.put(b"y")
        except (StoreClosedError, RuntimeError):
            code = 0
        finally:
            os._exit(code)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert status == 0
    assert (await writer.put(b"z")).queue_offset == 1
