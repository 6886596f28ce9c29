"""Who flushes a write buffer, and who is called when it is flushed."""

from __future__ import annotations

import os
import random
import select
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import DurabilityTimeoutError, Store, StoreClosedError
from rocketstore._native.sync.futex import EventFd
from rocketstore.log.commitlog import flusher
from tests.support.disk_calls import DiskCalls, disk_calls
from tests.support.small_store import (
    DAY_MS,
    STILL,
    dispatched,
    engine_of,
    everything,
    no_dispatch,
    open_small,
    parts,
    until,
)
from tests.support.waiting import PATIENCE_S, wait_until

LARGE = 1 << 20


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[DiskCalls]:
    """What reaches the disk, where only somebody who waits makes the flusher act."""
    monkeypatch.setattr(flusher, "SYNC_MODE_MS", DAY_MS)
    with disk_calls() as calls:
        yield calls


def syncing_threads(store: Store, calls: DiskCalls) -> list[str]:
    """Names of the threads that write and sync from here on."""
    found: list[str] = []
    group = parts(store).flusher._group
    group.take_turn()  # the flusher may still be at work behind the last flush
    group.give_turn()
    calls.before["pwritev2"] = lambda: found.append(threading.current_thread().name)
    return found


@pytest.mark.store(**STILL, durability="disk", commit_log_file_size_bytes=LARGE)
def test_a_put_by_itself_syncs_in_its_own_thread(
    calls: DiskCalls, store: Store, writer: rocketstore.Writer
) -> None:
    writer.put(b"the first comes into a new file, which the flusher arms")
    own = threading.current_thread().name
    found = syncing_threads(store, calls)
    for n in range(5):
        assert writer.put(b"%d" % n).end_offset == store.flushed_offset
    assert found == [own] * 5
    assert parts(store).flusher.flushes == 6


@pytest.mark.store(**STILL, durability="disk", commit_log_file_size_bytes=LARGE)
def test_a_put_by_itself_dispatches_what_is_short(store: Store, writer: rocketstore.Writer) -> None:
    """It wakes the dispatcher for what takes longer, or is not its own to do; bells ring for both."""
    signal, positions = parts(store).commit_log.log.dispatch_signal, engine_of(store).positions
    event_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
    bell = EventFd(event_fd)
    signal.hang(bell)

    def wakes(body: bytes) -> bool:
        bell.arm()
        before, end = signal.count, writer.put(body).end_offset
        assert select.select([event_fd], [], [], PATIENCE_S)[0]  # a flusher rings after the put
        os.eventfd_read(event_fd)
        assert signal.count > before or positions.dispatched == end
        return signal.count > before

    wait_until(lambda: not wakes(b"short"))  # once the dispatcher serves natively
    assert wakes(bytes(LARGE // 4))
    with no_dispatch(store):
        assert wakes(b"paused")
    signal.take_down(bell)
    os.close(event_fd)
    assert everything(dispatched(store))[-1].body == b"paused"


@pytest.mark.store(commit_log_file_size_bytes=LARGE)
def test_who_is_impatient_leaves_the_sync_to_the_flusher(
    calls: DiskCalls, store: Store, writer: rocketstore.Writer
) -> None:
    """S000-45: nothing ends a sync that hangs, so a put with a short timeout sleeps beside it."""
    writer.put(b"x")
    found = syncing_threads(store, calls)
    gate = threading.Event()
    calls.before["pwritev2"] = lambda: (
        found.append(threading.current_thread().name) or (gate.wait(20))
    )
    with pytest.raises(DurabilityTimeoutError):
        writer.put(b"y", timeout_s=0.05)
    gate.set()
    store.wait_flushed(store.end_offset)
    assert set(found) == {"rocketstore-flusher"}


@pytest.mark.store(commit_log_file_size_bytes=LARGE)
def test_after_a_slow_sync_callers_sleep_beside_the_next(
    calls: DiskCalls, store: Store, writer: rocketstore.Writer
) -> None:
    """A disk that has begun to hang gets no more threads into its hands than one."""
    writer.put(b"x")
    calls.before["pwritev2"] = lambda: time.sleep(0.15)
    writer.put(b"slow")
    found = syncing_threads(store, calls)
    writer.put(b"y")
    assert found == ["rocketstore-flusher"]
    found = syncing_threads(store, calls)
    writer.put(b"z")  # the disk was quick again
    assert found == [threading.current_thread().name]


@pytest.mark.store(commit_log_file_size_bytes=LARGE)
def test_a_name_that_goes_between_two_puts_comes_back(
    tmp_path: Path, store: Store, writer: rocketstore.Writer
) -> None:
    """D-05: also where the flush needs no Python: nothing is published before the name is back."""
    for n in range(4):
        writer.put(b"%d" % n)
        path = tmp_path / "commitlog" / f"{0:020d}"
        os.unlink(path)
        end = writer.put(b"%d again" % n).end_offset
        assert path.exists()
        assert store.flushed_offset == end
    assert len(everything(store)) == 8


def test_second_names_go_with_their_segments(tmp_path: Path, writer: rocketstore.Writer) -> None:
    """D-05: also of segments that flushes without Python filled; one that is whole has one name."""
    for n in range(60):
        writer.put(b"x" * (200 + 7 * n))
        assert len(os.listdir(tmp_path / "rocketstore" / "live")) <= 2
    assert len(os.listdir(tmp_path / "commitlog")) > 5


@pytest.mark.store(commit_log_file_size_bytes=LARGE)
def test_times_of_flushes_are_counted(store: Store, writer: rocketstore.Writer) -> None:
    """S000-99: those of waiting threads, too; more than are kept natively are taken in time."""
    for number in range(20):
        writer.put(b"x")
        assert store.stats().flush_latency.count == number + 1
    taken = engine_of(store)._statistics._flush_latency
    for half in (1, 2):  # the flusher takes them at 256 of the 512 that are kept
        for _ in range(300):
            writer.put(b"x")
        until(store, lambda half=half: taken.summary().count >= half * 256)  # type: ignore[misc]
    assert parts(store).flusher.flushes == store.stats().flush_latency.count == 620


@pytest.mark.store(commit_log_file_size_bytes=LARGE)
def test_every_waiter_is_called(rng: random.Random, store: Store) -> None:
    """S000-107 K-33: threads with long and with short patience, hundreds of flushes; nobody whose bytes
    are on disk sleeps on."""
    late: list[int] = []
    store.writer("orders").put(b"x")

    def work(seed: int) -> None:
        own = random.Random(seed)
        writer = store.writer("orders")
        for _ in range(60):
            result = writer.put(b"x" * own.randrange(300), durability="memory")
            timeout_s = own.choice([0.0, 0.0005, 0.002, 30.0, 30.0, 30.0])
            try:
                store.wait_flushed(result.end_offset, timeout_s)
            except DurabilityTimeoutError:
                if timeout_s == 30.0:
                    late.append(result.end_offset)

    threads = [threading.Thread(target=work, args=(rng.random(),)) for _ in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert late == []
    assert len(everything(dispatched(store))) == 24 * 60 + 1


def test_a_close_tells_who_waits(tmp_path: Path) -> None:
    """D-36: what waits for the disk while the store closes is flushed, or hears that it is closed."""
    for durability in ("disk", "os"):
        store = open_small(tmp_path / durability, durability=durability, flush_interval_ms=60_000)
        store.writer("orders").put(b"x", durability="disk")
        told: list[Any] = []

        def put(store: Any = store, told: list[Any] = told) -> None:
            writer = store.writer("orders")
            try:
                while True:
                    told.append(writer.put(b"y", durability="disk").durability)
            except StoreClosedError as error:
                told.append(error)

        threads = [threading.Thread(target=put) for _ in range(6)]
        for thread in threads:
            thread.start()
        until(store, lambda told=told: len(told) >= 12)
        store.close()
        for thread in threads:
            thread.join(20)
        assert not any(thread.is_alive() for thread in threads)
        assert sum(isinstance(found, StoreClosedError) for found in told) == 6
        with open_small(tmp_path / durability, "r") as store:
            assert store.recovery.mode == "clean"
            assert len(everything(store)) >= told.count("disk") + 1


@pytest.mark.store(index_slots=1000, index_entries=1000)
def test_indexed_stands_still_once_the_index_is_degraded(
    store: Store, writer: rocketstore.Writer
) -> None:
    """K-58: by whatever thread, and though the dispatcher needs no Python for the messages that follow."""
    writer.put(b"x", keys="a")
    positions = engine_of(dispatched(store)).positions
    before = positions.indexed
    assert before == store.end_offset
    engine_of(store).index.degrade(OSError(5, "bad block"))
    for _ in range(5):
        writer.put(b"y", keys="a")
    assert dispatched(store).dispatched_offset == store.end_offset
    assert positions.indexed == before


def flusher_switches(store: Store) -> int:
    """How often its thread went to sleep."""
    thread = next(t for t in threading.enumerate() if t.name == "rocketstore-flusher")
    text = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(text.partition("voluntary_ctxt_switches:")[2].split()[0])


def test_an_idle_flusher_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked 100 times a second whether there was anything to flush."""
    monkeypatch.setattr(flusher, "REST_MS", DAY_MS)
    with open_small(tmp_path, durability="disk") as store:
        store.writer("orders").put(b"x")
        until(store, lambda: bool(parts(store).commit_log.log.group.resting))
        before = flusher_switches(store)
        time.sleep(20 * flusher.SYNC_MODE_MS / 1000)
        assert flusher_switches(store) - before <= 1  # it may just have been on its way


@pytest.mark.parametrize("visible", ["auto", "committed"])
@pytest.mark.parametrize(
    "entry", ["put", "put_batch", "put_columns", "put_message", "put_frames", "put_rows"]
)
def test_what_nobody_waits_for_wakes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, visible: str
) -> None:
    """Semantics 7.2: bytes that nobody waits for are on the disk soon all the same."""
    monkeypatch.setattr(flusher, "REST_MS", DAY_MS)
    frames, _ = rocketstore.encode_frames(((0, 1), b"x"), topics=["orders"])
    with open_small(tmp_path, durability="disk", visible=visible) as store:
        writer = store.writer("orders")
        writer.put(b"x")
        until(store, lambda: bool(parts(store).commit_log.log.group.resting))
        kind = {"durability": "memory"}
        puts: dict[str, Callable[[], object]] = {
            "put": lambda: writer.put(b"y", **kind),
            "put_batch": lambda: writer.put_batch([b"y", b"z"], **kind),
            "put_columns": lambda: writer.put_columns(([0, 1, 2], b"yz"), **kind),
            "put_message": lambda: store.put_message("orders", b"y", **kind),
            "put_frames": lambda: store.put_frames(frames, **kind),
            "put_rows": lambda: store.put_columns(([0, 1], b"y"), topics=["orders"], **kind),
        }
        puts[entry]()
        wait_until(lambda: store.flushed_offset == store.end_offset)


def test_a_close_right_behind_a_put_that_nobody_waits_for(tmp_path: Path) -> None:
    """Both wake the flusher that rests, perhaps as one: it hears of the end, too."""
    for _ in range(20):
        with open_small(tmp_path, durability="disk") as store:
            writer = store.writer("orders")
            writer.put(b"x")
            until(store, lambda: bool(parts(store).commit_log.log.group.resting))
            writer.put(b"y", durability="memory")
    with open_small(tmp_path, "r+") as store:
        assert store.recovery.mode == "clean"
        assert len(everything(store)) == 40
