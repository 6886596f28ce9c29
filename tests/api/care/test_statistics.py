"""What store.stats() counts, against what was really done."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketstore import DurabilityTimeoutError, MessageTooLargeError, Store, encode_frames
from tests.support.small_store import (
    STILL,
    dispatched,
    everything,
    open_small,
    parts,
    put_many,
)


def test_messages_and_bytes_of_each_topic(tmp_path: Path) -> None:
    """S003-34: exact, whichever way they were put."""
    sizes: dict[str, list[int]] = {"a": [], "b": []}
    with open_small(tmp_path) as store:
        for n in range(10):
            topic = "ab"[n % 2]
            sizes[topic].append(store.writer(topic, queue_id=n).put(b"x" * n).size)
        sizes["a"].append(store.put_message("a", b"y").size)
        batch = store.writer("b").put_batch([b"1", b"2"])
        stats = store.stats()
    assert stats.topics == {
        "a": (6, sum(sizes["a"])),
        "b": (7, sum(sizes["b"]) + batch.size),
    }
    assert (stats.put_messages, stats.put_bytes) == (13, sum(map(sum, sizes.values())) + batch.size)
    assert stats.put_average_bytes == stats.put_bytes / 13


def test_blanks_are_not_counted(store: Store) -> None:
    size = sum(store.writer("a").put(b"x" * 900).size for _ in range(9))
    assert store.stats().put_bytes == size < store.end_offset


@pytest.mark.store(max_message_size_bytes=10)
def test_refused_messages_are_not_counted(store: Store) -> None:
    """Refusals before the log count neither as put nor as failed (semantics 2.2)."""
    with pytest.raises(MessageTooLargeError):
        store.writer("a").put(b"x" * 11)
    stats = store.stats()
    assert (stats.put_messages, stats.put_bytes, stats.put_failed) == (0, 0, 0)


def test_counting_starts_with_the_open(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.writer("a").put(b"x")
    with open_small(tmp_path) as store:
        assert store.stats().put_messages == 0
        store.writer("a").put(b"x")
        assert store.stats().topics["a"].messages == 1


def test_a_new_store_has_zeros(tmp_path: Path) -> None:
    """K-82: no 1 for 0, no error before the first sample."""
    with open_small(tmp_path) as store:
        stats = store.stats()
    assert (stats.put_messages, stats.put_rates.over_10_s, stats.put_average_bytes) == (0, 0, 0)


def test_syncs_are_timed(store: Store) -> None:
    for _ in range(5):
        store.writer("a").put(b"x")
    # The time of the last one is noted after its put was told.
    assert store.stats().flush_latency.count >= 4


def latencies(store: Store) -> int:
    """How many puts had their time taken; they are in every figure, or in none."""
    stats = store.stats()
    found = stats.put_latency
    assert sum(stats.put_distribution.values()) == found.count
    assert (stats.put_p99_ms is None) == (found.p99_ns is None) == (found.count == 0)
    return found.count


@pytest.mark.store(durability="disk")
def test_every_put_that_waits_for_the_disk_is_timed(store: Store) -> None:
    assert latencies(store) == 0
    writer = store.writer("a")
    for _ in range(20):
        writer.put(b"x")
    assert latencies(store) == 20
    writer.put_batch([b"x", b"y"])
    writer.put_columns(([0, 1, 2], b"xy"))
    store.put_frames(encode_frames(([0, 1], b"x"), topics=["a"])[0])
    store.put_columns(([0, 1], b"x"), topics=["a"])
    store.put_message("a", b"x")
    assert latencies(store) == 25
    assert 0 < (store.stats().put_latency.p50_ns or 0) < 10**10


@pytest.mark.store(**STILL, durability="os")
def test_a_put_whose_time_is_up_is_timed(store: Store) -> None:
    with pytest.raises(DurabilityTimeoutError):
        store.writer("a").put(b"x", durability="disk", timeout_s=0.0)
    assert latencies(store) == 1


@pytest.mark.store(durability="os", commit_log_file_size_bytes=1 << 20)
def test_of_puts_that_wait_for_nothing_the_first_ones_are_timed(store: Store) -> None:
    """The first, second, fourth … and then every 1,024th, of each writer."""
    writer = store.writer("a")
    for number, found in ((1, 1), (3, 2), (4, 3), (500, 9), (1024, 11), (2047, 11), (3072, 13)):
        while store.stats().put_messages < number:
            writer.put(b"x")
        assert latencies(store) == found
    store.writer("b").put(b"x")
    assert latencies(store) == 14
    writer.put_batch([b"x"])
    assert latencies(store) == 14


@pytest.mark.store(durability="disk")
def test_a_submitted_put_is_timed_as_one_that_waits_for_nothing(store: Store) -> None:
    writer = store.writer("a")
    for _ in range(3):
        writer.submit(b"x").result()
    assert latencies(store) == 2


def test_looks_at_a_queue_are_timed(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """The longest, also where a consumer goes on reading where it was."""
    put_many(store.writer("orders", queue_id=0), 20, 1)
    dispatched(store)
    assert store.stats().get_entire_time_max_ms == 0
    for step_ms in (7, 30, 5):
        ticks = itertools.count(0, step_ms * 1_000_000)
        with monkeypatch.context() as patch:
            clock = SimpleNamespace(monotonic_ns=lambda ticks=ticks: next(ticks))
            patch.setattr("rocketstore.log.read.reader.time", clock)
            assert len(store.consumer("orders", queue_id=0).poll(20)) == 20
        assert store.stats().get_entire_time_max_ms == max(7, 30 * (step_ms != 7))


def test_a_reader_has_statistics_too(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.writer("orders").put(b"x")
        dispatched(store)
    with open_small(tmp_path, "r") as store:
        assert len(everything(store)) == 1
        assert store.stats().put_messages == 0


@pytest.mark.store(durability="disk")
def test_flushes_that_are_just_being_counted_are_not_missing(store: Store) -> None:
    flusher = parts(store).flusher
    record, taken, go_on = flusher._record_latency, threading.Event(), threading.Event()

    def late(nanoseconds: int) -> None:
        taken.set()
        assert go_on.wait(20)
        record(nanoseconds)

    flusher._record_latency = late
    store.writer("a").submit(b"x").result(20)
    deadline = time.monotonic() + 20
    while not taken.wait(0.01):  # a wake-up may find the flusher just behind its look
        assert time.monotonic() < deadline
        flusher.wake()
    counts: list[int] = []
    asks = threading.Thread(target=lambda: counts.append(store.stats().flush_latency.count))
    asks.start()
    asks.join(0.05)
    assert counts == []
    go_on.set()
    asks.join(20)
    assert counts == [1]


@pytest.mark.store(durability="disk")
def test_the_flusher_waits_for_nobody_who_asks(store: Store) -> None:
    """He may be in a signal's handler, inside his own question, and put."""
    with parts(store).flusher._collecting():
        for _ in range(5):
            store.writer("a").submit(b"x").result(20)
    assert store.stats().flush_latency.count == 5
