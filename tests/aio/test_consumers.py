"""Consumers in tasks: order, waiting without threads, and that cancelled tasks lose nothing."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from pathlib import Path

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import ConsumerBusyError, GroupClaimedError, StoreClosedError
from rocketstore.aio import consumer as consumers
from rocketstore.consuming.consumer_offsets import ConsumerOffsets
from tests.aio.loops import Disk, happens, turns
from tests.process.other_process import PUT, number_of, other_process

BIG = {"commit_log_file_size_bytes": 1 << 20, "consume_queue_file_size_bytes": 20_000}


async def fill(store: rocketstore.aio.Store, count: int, topic: str = "t") -> None:
    writer = store.writer(topic)
    await asyncio.gather(*[writer.put(b"%d" % n) for n in range(count)])


@pytest.mark.store(**BIG)
async def test_iterating_ends_when_caught_up_and_goes_on(store: rocketstore.aio.Store) -> None:
    consumer = store.consumer("t", queue_id=0)
    assert [m async for m in consumer] == []
    await fill(store, 1200)
    assert [int(m.body) async for m in consumer] == list(range(1200))
    await store.writer("t").put(b"1200")
    assert [int(m.body) async for m in consumer] == [1200]
    assert consumer.positions == {0: 1201}


@pytest.mark.store(**BIG)
async def test_follow_wakes_without_a_thread(store: rocketstore.aio.Store) -> None:
    """A hundred consumers wait; no thread waits for any of them."""
    await fill(store, 3)
    seen: list[list[int]] = [[] for _ in range(100)]

    async def follow(number: int) -> None:
        async for message in store.consumer("t").follow():
            seen[number].append(int(message.body))
            if message.body == b"5":
                return

    tasks = [asyncio.create_task(follow(n)) for n in range(100)]
    await happens(lambda: all(len(found) == 3 for found in seen))
    waiting = threading.active_count()
    writer = store.writer("t")
    for number in (3, 4, 5):
        await writer.put(b"%d" % number)
    await asyncio.gather(*tasks)
    assert all(found == [0, 1, 2, 3, 4, 5] for found in seen)
    assert threading.active_count() <= waiting + 4


async def test_follow_and_poll_end_after_their_time(store: rocketstore.aio.Store) -> None:
    await fill(store, 2)
    assert [m.body async for m in store.consumer("t").follow(0.05)] == [b"0", b"1"]
    consumer = store.consumer("t", offset="latest")
    assert await consumer.poll(timeout_s=0.02) == []
    waiting = asyncio.create_task(consumer.poll(timeout_s=None))
    await asyncio.sleep(0)
    await store.writer("t").put(b"2")
    assert [m.body for m in await waiting] == [b"2"]
    with pytest.raises(ValueError, match="max_messages"):
        await consumer.poll(0)


@pytest.mark.store(**BIG)
async def test_poll_seek_lag(store: rocketstore.aio.Store) -> None:
    await fill(store, 700)
    consumer = store.consumer("t", queue_id=0)
    assert len(await consumer.poll(10)) == 10
    assert await consumer.lag() == 690
    await consumer.seek(695)
    assert [int(m.body) for m in await consumer.poll()] == [695, 696, 697, 698, 699]
    await consumer.seek("earliest")
    assert len(await consumer.poll(1000)) == 700


@pytest.mark.store(**BIG)
async def test_a_poll_takes_of_all_queues(store: rocketstore.aio.Store) -> None:
    writer = store.writer("t", queues=3)
    await asyncio.gather(*[writer.put(b"%d" % n) for n in range(30)])
    consumer = store.consumer("t")
    assert len(await consumer.poll(10)) == 10
    assert len(await consumer.poll(15)) == 15
    assert len(await consumer.poll()) == 5
    assert await consumer.poll() == []
    assert consumer.positions == {0: 10, 1: 10, 2: 10}


@pytest.mark.store(**BIG)
async def test_a_poll_of_all_queues_that_is_cancelled_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, store: rocketstore.aio.Store
) -> None:
    """Cancelled while a thread takes the rest: what was in hand and what it took come again."""
    plain, begun, goes_on = rocketstore.Consumer.poll, threading.Event(), threading.Event()

    def slow(consumer: rocketstore.Consumer, most: int) -> list[rocketstore.Message]:
        found = plain(consumer, most)
        begun.set()
        goes_on.wait(20)
        return found

    writer = store.writer("t", queues=4)
    await asyncio.gather(*[writer.put(b"%d" % n) for n in range(40)])
    consumer = store.consumer("t")
    found = [int(m.body) for m in await consumer.poll(5)]
    monkeypatch.setattr(rocketstore.Consumer, "poll", slow)
    polling = asyncio.create_task(consumer.poll(30))
    await happens(begun.is_set)
    polling.cancel()
    await turns()
    goes_on.set()
    await asyncio.wait([polling])
    assert polling.cancelled()
    monkeypatch.undo()
    found += [int(m.body) for m in await consumer.poll()]
    assert sorted(found) == list(range(40))
    assert consumer.positions == dict.fromkeys(range(4), 10)


@pytest.mark.store(**BIG)
async def test_an_error_of_one_queue_waits_for_the_next_poll(store: rocketstore.aio.Store) -> None:
    writer = store.writer("t", queues=2)
    for number in range(4):
        await writer.put(b"%d" % number)
    consumer = store.consumer("t")
    await consumer.poll(1)
    await consumer.seek(0, queue_id=0)
    await consumer.seek(77, queue_id=1)
    found = []
    with pytest.raises(rocketstore.OffsetOutOfRangeError):
        for _ in range(3):
            found += [m.body for m in await consumer.poll()]
    assert found in ([], [b"0", b"2"])
    await consumer.seek("earliest", queue_id=1)
    found += [m.body for m in await consumer.poll()]
    assert sorted(found) == [b"0", b"1", b"2", b"3"]


async def test_groups(store: rocketstore.aio.Store) -> None:
    await fill(store, 30)
    async with store.consumer("t", group="billing") as billing:
        assert len(await billing.poll(10)) == 10
        with pytest.raises(GroupClaimedError):
            await store.consumer("t", group="billing").poll()
        assert await billing.commit() == {0: 10}
        await billing.poll(5)  # not committed
    async with store.consumer("t", group="billing") as billing:
        assert (await billing.poll(1))[0].queue_offset == 10
    assert await store.groups() == await store.groups("t") == ["billing"]
    assert await store.groups("u") == []


@pytest.mark.parametrize("how", ["commit", "transaction", "asleep in a transaction", "stays"])
@pytest.mark.store(**BIG)
async def test_the_next_consumer_waits_for_the_group_of_a_cancelled_task(
    how: str, store: rocketstore.aio.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the cancelled task has to end is held until the next consumer was refused."""
    await fill(store, 3)
    refused, begun, over = threading.Event(), asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    claim = ConsumerOffsets.claim

    def claimed(*args: object) -> None:
        try:
            claim(*args)  # type: ignore[arg-type]
        except GroupClaimedError:
            refused.set()
            raise

    def held(owner: type, name: str) -> None:
        call = getattr(owner, name)

        def calls(*args: object, **named: object) -> object:
            loop.call_soon_threadsafe(begun.set)
            assert refused.wait(30)
            return call(*args, **named)

        monkeypatch.setattr(owner, name, calls)

    async def work() -> None:
        async with store.consumer("t", group="g") as consumer:
            if how == "commit":
                await consumer.poll(2)
                await consumer.commit()
            elif how == "stays":
                begun.set()
                try:
                    await consumer.poll(timeout_s=None)
                    await consumer.poll(timeout_s=None)
                except asyncio.CancelledError:
                    await over.wait()
            else:
                async with store.transaction() as tx:
                    await tx.consume(consumer, 2)
                    if how == "transaction":
                        await tx.commit()
                    begun.set()
                    await asyncio.Event().wait()

    monkeypatch.setattr(ConsumerOffsets, "claim", claimed)
    if how == "commit":
        held(rocketstore.Consumer, "commit")
    elif how == "transaction":
        held(rocketstore.StoreTransaction, "commit")
    elif how == "stays":
        monkeypatch.setattr(consumers, "GIVEN_BACK_S", 0.1)
    else:
        held(rocketstore.StoreTransaction, "__exit__")
    task = asyncio.create_task(work())
    await begun.wait()
    task.cancel()
    if how == "stays":
        with pytest.raises(GroupClaimedError):
            await store.consumer("t", group="g").poll()
        over.set()
    else:
        async with store.consumer("t", group="g") as consumer:
            assert consumer.positions == {0: 0 if how.startswith("asleep") else 2}
    await asyncio.wait([task])
    assert refused.is_set()


@pytest.mark.store(**BIG)
async def test_a_cancelled_wait_loses_nothing(
    rng: random.Random, store: rocketstore.aio.Store
) -> None:
    """Polls and iterations are cancelled at random points: each message comes once, in order."""
    writer = store.writer("t")

    async def produce() -> None:
        for number in range(1500):
            await writer.put(b"%d" % number, durability="memory")
            if number % 50 == 0:
                await store.flush()
        await store.flush()

    producer = asyncio.create_task(produce())
    found: list[int] = []
    consumer = store.consumer("t")

    async def one() -> None:
        if rng.random() < 0.5:
            found.extend(int(m.body) for m in await consumer.poll(7, timeout_s=0.01))
        else:
            async for message in consumer.follow(0.01):
                found.append(int(message.body))

    async with asyncio.timeout(50):
        while len(found) < 1500:
            task = asyncio.create_task(one())
            await asyncio.wait([task], timeout=rng.choice([0, 0.0002, 0.001, 0.02]))
            task.cancel()
            await asyncio.wait([task])
            assert found == list(range(len(found)))
            assert sum(consumer.positions.values()) == len(found)
    await producer


@pytest.mark.store(**BIG)
async def test_commit_speaks_of_what_was_handed_out(store: rocketstore.aio.Store) -> None:
    """A fetch whose task was cancelled is not among the positions."""
    await fill(store, 20)
    consumer = store.consumer("t", group="g")
    await consumer.poll(5)
    polling = asyncio.create_task(consumer.poll(10))
    await asyncio.sleep(0)
    polling.cancel()
    await asyncio.wait([polling])
    assert await consumer.commit() == {0: 5}
    assert [int(m.body) for m in await consumer.poll(3)] == [5, 6, 7]


async def test_one_task_at_a_time(store: rocketstore.aio.Store) -> None:
    consumer = store.consumer("t")
    first = asyncio.create_task(consumer.poll(timeout_s=None))
    await turns()
    with pytest.raises(ConsumerBusyError, match="another task"):
        await consumer.poll()
    await store.writer("t").put(b"x")
    assert len(await first) == 1


async def test_readers_beside_another_process(tmp_path: Path) -> None:
    """mode "r" beside a writer in another process: follow hears of what it puts."""
    with other_process(PUT, tmp_path, given=[0, 50]) as other:
        assert other.line() == "open"
        async with rocketstore.aio.open(tmp_path, mode="r") as store:
            found: list[int] = []

            async def follow() -> None:
                async for message in store.consumer("Orders").follow():
                    found.append(number_of(message.body))
                    if len(found) == 50:
                        return

            following = asyncio.create_task(follow())
            await turns()
            other.hears()
            await following
            assert found == list(range(50))
            with pytest.raises(rocketstore.StoreReadOnlyError):
                await store.writer("Orders").put(b"x")
            with pytest.raises(rocketstore.StoreReadOnlyError):
                await store.flush()
        assert other.line() == "done"
        other.hears()
        other.ends()


async def test_get_query_and_what_is_there(store: rocketstore.aio.Store) -> None:
    writer = store.writer("t", queues=2)
    one = await writer.put(b"a", keys="k")
    await writer.put(b"b")
    assert [m.body for m in await store.query("t", "k")] == [b"a"]
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(store.query("t", "k", limit=1, order="oldest"))
    assert [m.body for m in asked.result()] == [b"a"]
    assert [m.body async for m in store.query("t", "k")] == [b"a"]
    assert [m.body async for m in store.query("t", "none")] == []
    with pytest.raises(ValueError, match="order = 'x'"):
        await store.query("t", "k", order="x")  # type: ignore[arg-type]
    assert (await store.get(one.physical_offset)).body == b"a"
    assert await store.topics() == ["t"]
    assert await store.queues("t") == [0, 1]
    assert await store.min_queue_offset("t", 0) == 0
    assert await store.max_queue_offset("t", 1) == 1
    assert await store.offset_at("t", 0, 0) == 0
    assert await store.trim(before_offset=0) == 0
    assert (await store.configure(flush_interval_ms=100)).flush_interval_ms == 100


async def test_consumers_see_only_what_is_on_disk(disk: Disk, store: rocketstore.aio.Store) -> None:
    put = asyncio.ensure_future(store.writer("t").put(b"x"))
    await happens(disk.reached.is_set)
    assert await store.consumer("t").poll() == []
    disk.work.set()
    await put
    assert len(await store.consumer("t").poll()) == 1


async def test_the_loop_tells_nothing_of_a_fetch_whose_task_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error reaches nobody: the consumer is not used again."""
    begun, goes_on = threading.Event(), threading.Event()

    def prefetch(self: rocketstore.Consumer, limit: int) -> bool:
        begun.set()
        goes_on.wait(20)
        raise StoreClosedError("closed meanwhile")

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
    async with rocketstore.aio.open(tmp_path, **BIG) as store:
        consumer = store.consumer("t", queue_id=0)
        async with consumer:
            monkeypatch.setattr(rocketstore.Consumer, "_prefetch", prefetch)
            polling = asyncio.create_task(consumer.poll())
            await happens(begun.is_set)
            polling.cancel()
            goes_on.set()  # the cancelled task waits for its fetch
            await asyncio.wait([polling])
        del consumer, polling
        gc.collect()
    assert told == []
