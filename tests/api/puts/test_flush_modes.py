"""Who moves flushed, and when: group commit for waiters, the timed flush of the rest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketstore import Store, Writer
from rocketstore.log.commitlog.flusher import SYNC_MODE_MS
from rocketstore.log.worker import Worker
from tests.support.disk_calls import DiskCalls, disk_calls
from tests.support.small_store import DAY_MS, STILL, open_small, open_still, parts, segments, until


@pytest.fixture
def calls() -> Iterator[DiskCalls]:
    """What reaches the disk."""
    with disk_calls() as calls:
        yield calls


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_each_promise_has_its_workers(tmp_path: Path, durability: str) -> None:
    """S000-79 S002-03 S002-27 S002-28: one flusher always; a committer and buffers for memory only."""
    with open_small(tmp_path, durability=durability) as store:
        write = parts(store)
        assert (write.committer is not None) is (durability == "memory")
        assert (write.pool is not None) is (durability == "memory")
        workers = [write.flusher, write.preallocator, write.checkpointer]
        workers += [write.committer] if write.committer else []
        assert all(isinstance(worker, Worker) and worker.alive for worker in workers)
        names = {thread.name for thread in threading.enumerate()}
        assert "rocketstore-flusher" in names
    assert not any(worker.alive for worker in workers)


@pytest.mark.store(**STILL, durability="os")
def test_way_two_syncs_the_mapping(calls: DiskCalls, store: Store) -> None:
    """S000-81 S000-85 S002-24: an os store: bytes in the mapping, forced with it, no write call."""
    result = store.writer("orders").put(b"x", durability="disk")
    assert store.flushed_offset == result.end_offset
    assert not calls.made


@pytest.mark.store(**STILL, durability="memory")
def test_way_one_writes_then_forces_the_descriptor(calls: DiskCalls, store: Store) -> None:
    """S000-80 S002-39: a memory store: buffer → file (commit) → disk (flush), in this order."""
    positions = parts(store).commit_log.positions
    seen: list[tuple[int, int]] = []
    calls.before["fdatasync"] = lambda: seen.append((positions.committed, positions.flushed))
    end = store.writer("orders").put(b"x", durability="disk").end_offset
    assert seen == [(end, 0)]
    assert calls.made == ["pwrite", "fdatasync"]


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_positions_keep_their_order(tmp_path: Path, durability: str) -> None:
    """S000-82 S004-10 S004-11: flushed ≤ committed ≤ wrote at every moment, over every file."""
    wrong: list[tuple[int, int, int]] = []
    stop = threading.Event()
    with open_small(
        tmp_path, durability=durability, flush_interval_ms=1, commit_interval_ms=1
    ) as store:
        positions = parts(store).commit_log.positions

        def watch() -> None:
            while not stop.is_set():
                flushed, committed = positions.flushed, positions.committed
                wrote = positions.wrote
                if not flushed <= committed <= wrote:
                    wrong.append((flushed, committed, wrote))

        thread = threading.Thread(target=watch)
        thread.start()
        writer = store.writer("orders", durability="memory")
        for _ in range(100):
            writer.put(b"x" * 300)
        store.wait_flushed(store.end_offset)
        stop.set()
        thread.join()
        assert positions.flushed == positions.committed == positions.wrote
    assert not wrong


@pytest.mark.store(**STILL, durability="os")
def test_request_goes_over_any_number_of_files(tmp_path: Path, store: Store) -> None:
    """S000-109 S002-18 S003-41: K-07: six files behind, one wait is enough."""
    for _ in range(50):
        store.writer("orders").put(b"x" * 400)
    end = store.end_offset
    assert len(segments(tmp_path)) >= 6
    assert store.flushed_offset == 0
    store.wait_flushed(end)
    assert store.flushed_offset == end


def test_disk_flush_over_several_files_writes_all_then_syncs_all(
    calls: DiskCalls, store: Store
) -> None:
    """D-10: a range over files is written first, then each file is synced in order."""
    gate, held = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert gate.wait(20)

    calls.before["pwritev2"] = hold
    writer = store.writer("orders", durability="memory")
    writer.put(b"first")
    assert held.wait(20)
    for _ in range(25):
        writer.put(b"x" * 400)
    calls.made.clear()
    gate.set()
    store.wait_flushed(store.end_offset)
    made = [name for name in calls.made if name != "pwritev2"]
    writes = made.count("pwrite")
    assert writes >= 3
    assert made[:writes] == ["pwrite"] * writes
    assert made[writes:] == ["fdatasync"] * writes


@pytest.mark.store(commit_log_file_size_bytes=1 << 16)
def test_one_sync_serves_all_who_wait(calls: DiskCalls, store: Store) -> None:
    """S000-106 S000-107 S002-10 S002-14 S002-16 S002-23 S003-39 S001-53: group commit: requests that
    came during a sync are served by the next one together; asking never waits for a sync."""
    gate, held = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert gate.wait(20)

    calls.before["pwritev2"] = hold
    threads = [
        threading.Thread(target=store.writer("orders").put, args=(b"%d" % n,)) for n in range(9)
    ]
    threads[0].start()
    assert held.wait(20)
    one = store.end_offset
    for thread in threads[1:]:
        thread.start()
    until(store, lambda: store.end_offset == 9 * one)  # all appended beside the running sync
    gate.set()
    for thread in threads:
        thread.join(20)
    assert store.flushed_offset == 9 * one
    assert calls.made.count("pwritev2") == 2


@pytest.mark.store(**STILL, durability="os")
def test_done_when_flushed_reaches_the_offset(store: Store) -> None:
    """S000-108 S002-17 S001-54: what is flushed already asks for nothing; one byte more does."""
    first = store.writer("orders").put(b"x")
    store.wait_flushed(first.end_offset)
    flushes = parts(store).flusher.flushes
    store.wait_flushed(first.end_offset)
    store.wait_flushed(first.physical_offset)
    assert parts(store).flusher.flushes == flushes
    second = store.writer("orders").put(b"y")
    store.wait_flushed(second.physical_offset + 1)
    assert parts(store).flusher.flushes == flushes + 1
    assert store.flushed_offset == second.end_offset


@pytest.mark.store(**STILL, durability="os")
def test_a_request_is_gone_after_its_round(store: Store, writer: Writer) -> None:
    """S002-21 S001-56: the next put is not flushed on its account."""
    end = writer.put(b"x", durability="disk").end_offset
    writer.put(b"y")
    parts(store).flusher.step()
    assert store.flushed_offset == end


def test_asynchronous_puts_do_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S002-25 S002-26 S003-43: with a disk that hangs, puts of os and memory stores return at once."""
    gate = threading.Event()
    for durability in ("os", "memory"):
        with open_small(tmp_path / durability, durability=durability, flush_interval_ms=1) as store:
            flusher = parts(store).flusher
            real = flusher.flush

            def hang(real: object = real) -> None:
                assert gate.wait(20)
                real()  # type: ignore[operator]

            monkeypatch.setattr(flusher, "flush", hang)
            for _ in range(5):
                store.writer("orders").put(b"x")
            assert store.flushed_offset == 0
            gate.set()
        gate.clear()


@pytest.mark.store(**STILL)
def test_idle_disk_store_flushes_what_nobody_waits_for(store: Store) -> None:
    """S000-113 S002-13: a round at least every 10 ms, so unawaited puts become durable, too."""
    assert SYNC_MODE_MS == 10
    end = store.writer("orders").put(b"x", durability="memory").end_offset
    until(store, lambda: store.flushed_offset >= end)


@pytest.mark.store(durability="os", flush_interval_ms=5, flush_least_pages=0)
def test_os_store_is_flushed_by_the_clock(store: Store) -> None:
    """S000-47 S001-57: without anybody asking, after the interval."""
    end = store.writer("orders").put(b"x").end_offset
    until(store, lambda: store.flushed_offset >= end)


@pytest.mark.parametrize("timed", [True, False])
def test_timed_or_woken(tmp_path: Path, timed: bool) -> None:
    """S000-96 S002-29 S003-45: timed: a wake before the interval does nothing; else it flushes."""
    with open_small(
        tmp_path,
        durability="os",
        flush_timed=timed,
        flush_interval_ms=DAY_MS,
        flush_least_pages=0,
        flush_thorough_interval_ms=DAY_MS,
    ) as store:
        flusher = parts(store).flusher
        end = store.writer("orders").put(b"x").end_offset
        flusher.wake()
        if timed:
            assert flusher.step() > 1000
            assert store.flushed_offset == 0
        else:
            until(store, lambda: store.flushed_offset >= end)


def test_waiters_do_not_wait_for_the_clock(tmp_path: Path) -> None:
    """A put that asks for the disk is served at once in a store that flushes once a day."""
    for durability in ("os", "memory"):
        with open_still(tmp_path / durability, durability) as store:
            result = store.writer("orders").put(b"x", durability="disk", timeout_s=20)
            assert result.durability == "disk"
