"""Trimming beside consumers: what they fetched keeps no file, and nothing is skipped or doubled."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import rocketstore
import rocketstore.aio
from rocketstore import Consumer, OffsetOutOfRangeError, Store
from tests.support.small_store import dispatched, open_small


def _polled(store: Store, reader: Consumer) -> object:
    reader.poll(3)
    return None


def _iterating(store: Store, reader: Consumer) -> object:
    messages = iter(reader)
    next(messages)
    return messages


def _columns(store: Store, reader: Consumer) -> object:
    reader.poll_columns(3)
    return None


IDLE: dict[str, Callable[[Store, Consumer], object]] = {
    "poll": _polled,
    "next": lambda _, reader: next(reader) and None,
    "iterator": _iterating,
    "poll_columns": _columns,
    "prefetch": lambda _, reader: reader._prefetch(5) and None,
    "after a whole read": lambda _, reader: list(reader) and reader.poll(1) and None,
}


def removed_and_mapped(path: Path) -> list[str]:
    """Files of the log and of queues that this process maps, though no directory names them."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    names = {line.split(None, 5)[5] for line in lines if line.endswith(" (deleted)")}
    here = (f"{path}/commitlog/", f"{path}/consumequeue/")
    return sorted(name for name in names if name.startswith(here))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("mode", ["rw", "r"])
@pytest.mark.parametrize(
    ("idle", "tags"), [*((idle, None) for idle in IDLE), ("poll", "a"), ("next", "a")]
)
def test_an_idle_consumer_keeps_no_trimmed_segment(
    tmp_path: Path, idle: str, tags: str | None, mode: Literal["rw", "r"]
) -> None:
    """What it fetched and did not hand out is gone, too: it says so, and skips nothing else."""
    with open_small(tmp_path) as writer:
        results = [writer.writer("orders", tags="a").put(b"%02d" % n * 300) for n in range(40)]
        dispatched(writer)
        with contextlib.ExitStack() as stack:
            store = writer
            if mode == "r":
                store = stack.enter_context(rocketstore.open(tmp_path, "r"))
            reader = store.consumer("orders", queue_id=0, tags=tags)
            kept = IDLE[idle](store, reader)
            position = reader.positions[0]
            begin = writer.trim(before_offset=writer.end_offset)
            assert begin > results[20].physical_offset
            if mode == "r":
                assert store.begin_offset == begin  # any call of a reader lets go
            found = removed_and_mapped(tmp_path)
            if mode == "r":  # a reader's cache of queue files has a bound of its own
                found = [name for name in found if "/commitlog/" in name]
            assert found == []
            assert reader.positions[0] == position
            if position < store.min_queue_offset("orders", 0):
                for _ in range(2):
                    with pytest.raises(OffsetOutOfRangeError):
                        reader.poll(40)
                reader.seek("earliest")
            offsets = [message.physical_offset for message in reader]
            minimum = max(position, store.min_queue_offset("orders", 0))
            assert offsets == [result.physical_offset for result in results[minimum:]]
            del kept


def test_a_trim_leaves_fetched_messages_that_the_log_keeps(store: Store) -> None:
    results = [store.writer("orders").put(b"%02d" % n * 300) for n in range(40)]
    dispatched(store)
    reader = store.consumer("orders", queue_id=0, offset=20)
    messages = iter(reader)
    found = [next(messages)]
    begin = store.trim(before_offset=found[0].physical_offset)
    assert 0 < begin <= found[0].physical_offset
    found += messages
    assert [m.physical_offset for m in found] == [r.physical_offset for r in results[20:]]


@pytest.mark.store(durability="memory")
def test_a_trim_beside_readers_gives_no_message_twice_and_skips_none(store: Store) -> None:
    """Threads read while another trims what they may have fetched: each gets a message, or hears
    that it was trimmed away."""
    writer, stop, faults = store.writer("orders"), threading.Event(), []

    def read(poll: bool) -> None:
        consumer, expected = store.consumer("orders", queue_id=0, reset="earliest"), 0
        while not stop.is_set() or consumer.lag():
            for message in consumer.poll(7) if poll else consumer:
                offset = message.queue_offset
                body = bytes(message.body)
                if body != b"%06d" % offset * 40:
                    faults.append(f"{offset} has {body[:6]!r}")
                if offset < expected:
                    faults.append(f"{offset} after {expected - 1}")
                if offset > expected and offset > store.min_queue_offset("orders", 0):
                    faults.append(f"{offset} in place of {expected}")
                expected = offset + 1

    threads = [threading.Thread(target=read, args=(n % 2 == 0,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for n in range(400):
        writer.put(b"%06d" % n * 40)
        if n % 20 == 19:
            store.trim(before_offset=store.end_offset)
    stop.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert faults == []


def lags(store: Store, path: Path, group: str) -> dict[str, int]:
    """What each face says of a group that has a consumer, and commits."""
    from rocketstore.cli.commands.stat import facts

    with store.consumer("orders", group=group) as consumer:
        found = {"consumer": consumer.lag()}
    told = facts(store, path, group)
    found["stat --group"] = told["group"]["lag"]["orders"]
    found["stat"] = next(row["lag"] for row in told["groups"] if row["group"] == group)
    if importlib.util.find_spec("prometheus_client"):
        from rocketstore.metrics import StoreCollector

        for family in StoreCollector({"s": store}).collect():
            for sample in family.samples:
                if sample.name == "rocketstore_group_lag_messages":
                    found["metrics"] = int(sample.value)
    return found


@pytest.mark.parametrize("mode", ["rw", "r"])
def test_a_lag_counts_no_message_that_a_trim_removed(tmp_path: Path, mode: str) -> None:
    """In each face, for a consumer that has a batch in hand, one that has none, and a group."""
    with open_small(tmp_path) as writer, contextlib.ExitStack() as stack:
        results = [
            writer.writer("orders", queue_id=n % 2).put(b"%02d" % n * 300) for n in range(60)
        ]
        dispatched(writer)
        with writer.consumer("orders", group="billing") as billing:
            billing.poll(4)
            billing.commit()
        store = writer if mode == "rw" else stack.enter_context(rocketstore.open(tmp_path, "r"))
        fetched, fresh = store.consumer("orders"), store.consumer("orders", queue_id=1)
        next(fetched)
        assert fetched.lag() == 59 and fresh.lag() == 30
        begin = writer.trim(before_offset=results[40].physical_offset)
        left = [
            sum(result.physical_offset >= begin for result in results[queue_id::2])
            for queue_id in (0, 1)
        ]
        assert min(left) > 0 and sum(left) < 56
        assert store.begin_offset == begin
        assert (fetched.lag(), fresh.lag()) == (sum(left), left[1])
        found = lags(store, tmp_path, "billing")
        assert len(found) >= 3 and set(found.values()) == {sum(left)}, found

        async def of_aio() -> tuple[int, int]:
            async with rocketstore.aio.open(tmp_path, "r") as reader:
                consumer = reader.consumer("orders", group="billing", reset="earliest")
                return await consumer.lag(), len([message async for message in consumer])

        assert asyncio.run(of_aio()) == (sum(left), sum(left))
        assert len(list(fresh)) == left[1] and fresh.lag() == 0
        fetched.seek("earliest")
        assert len(list(fetched)) == sum(left) and fetched.lag() == 0
