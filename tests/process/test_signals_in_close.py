"""A close that a signal comes to goes on to its end, and keeps the store locked until then."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketstore import BackpressureError, Store, StoreClosedError, StoreLockedError
from rocketstore._native.os import mapping
from tests.process.other_process import numbers, open_small
from tests.process.test_signals import WAIT_S, HungFlusher, interrupted
from tests.support import small_store
from tests.support.disk_calls import DiskCalls, disk_calls
from tests.support.small_store import engine_of
from tests.support.waiting import wait_until

#: The alarms here would take away a limit by SIGALRM.
pytestmark = pytest.mark.timeout(300, method="thread")


@pytest.fixture
def calls() -> Iterator[DiskCalls]:
    with disk_calls() as calls:
        yield calls


@contextmanager
def handled(work: Callable[[], object], ready: Callable[[], object]) -> Iterator[list[bool]]:
    """`work` in a signal's handler, once `ready()` has returned in another thread. The list tells when it ended."""
    ended: list[bool] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: (work(), ended.append(True)))

    def send() -> None:
        ready()
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGUSR1)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield ended
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def with_unflushed(path: Path) -> tuple[Store, HungFlusher]:
    store = open_small(path)
    hung = HungFlusher(store)
    store.writer("Orders").put(b"0:", durability="memory")
    return store, hung


def test_ctrl_c_in_close_leaves_a_close_that_goes_on(tmp_path: Path) -> None:
    """D-36: it flushes, marks and unlocks; who asks again waits for the same close."""
    store, hung = with_unflushed(tmp_path)
    with interrupted(hung.reached.wait):
        store.close()
    assert store.closed
    with pytest.raises(StoreLockedError):
        open_small(tmp_path)
    hung.go_on()
    store.close()
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert numbers(store) == [0]


def test_ctrl_c_in_destroy_does_not_give_the_lock_away(tmp_path: Path) -> None:
    """D-12 D-36: an old flusher would write into the files of whoever opens next."""
    store, hung = with_unflushed(tmp_path)
    with interrupted(hung.reached.wait):
        store.destroy()
    with pytest.raises(StoreLockedError):
        open_small(tmp_path)
    hung.go_on()
    store.close()
    assert not (tmp_path / "commitlog").exists()


def test_a_handler_may_close_what_its_own_thread_closes(tmp_path: Path) -> None:
    store, hung = with_unflushed(tmp_path)

    def close() -> None:
        hung.go_on()
        store.close()

    with handled(close, hung.reached.wait) as ended:
        store.close()
    assert ended
    open_small(tmp_path, "r+").close()


def with_a_hanging_flush(
    store: Store, calls: DiskCalls
) -> tuple[threading.Event, threading.Event, int]:
    """Told when the flush of one more message was reached; what lets it go on; the end of the log."""
    for number in range(100):
        store.writer("Orders").put(b"%d:" % number + bytes(500))
    reached, go_on = threading.Event(), threading.Event()
    calls.hold(lambda: (reached.set(), go_on.wait(WAIT_S)))
    return reached, go_on, store.writer("Orders").submit(b"100:").end_offset


def test_a_handler_may_close_in_the_middle_of_a_trim(tmp_path: Path, calls: DiskCalls) -> None:
    """The trim ends first, then the store is closed."""
    store = small_store.open_small(tmp_path)
    reached, go_on, end = with_a_hanging_flush(store, calls)

    def close() -> None:
        store.close()
        calls.before.clear()
        go_on.set()

    with handled(close, reached.wait) as ended:
        assert store.trim(before_offset=end) > 0
    assert ended
    assert store.closed
    small_store.open_small(tmp_path, "r+").close()


def test_a_trim_waits_for_a_flush_no_longer_than_a_put(tmp_path: Path, calls: DiskCalls) -> None:
    """D-33: neither behind the limit nor behind Ctrl-C."""
    store = small_store.open_small(tmp_path, sync_flush_timeout_ms=300)
    reached, go_on, end = with_a_hanging_flush(store, calls)
    assert reached.wait(WAIT_S)
    with pytest.raises(BackpressureError, match="nothing was trimmed"):
        store.trim(before_offset=end)
    calls.before.clear()
    go_on.set()
    wait_until(lambda: store.flushed_offset >= end)
    assert store.trim(before_offset=end) > 0
    store.close()


def test_ctrl_c_ends_a_trim_behind_a_hanging_flush(tmp_path: Path, calls: DiskCalls) -> None:
    store = small_store.open_small(tmp_path, sync_flush_timeout_ms=int(WAIT_S * 1000))
    reached, go_on, end = with_a_hanging_flush(store, calls)
    with interrupted(reached.wait):
        store.trim(before_offset=end)
    calls.before.clear()
    go_on.set()
    store.close()


def test_nobody_can_ask_for_more_than_is_there(tmp_path: Path) -> None:
    """A flusher that was asked for what is not written yet would never come to rest, nor stop."""
    with open_small(tmp_path) as store:
        end = store.writer("Orders").put(b"0:").end_offset
        log = engine_of(store).commit_log.log
        assert not log.wait_flushed(end + 1000, 50)
        assert log.group.wanted <= end


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
def test_a_handler_closes_at_any_moment(tmp_path: Path, durability: str) -> None:
    """In the middle of puts, rolls and polls; what a put has returned is there."""
    chance = random.Random(seed := random.randrange(1 << 32))
    print(f"seed {seed}")
    for number in range(25):
        store = small_store.open_small(tmp_path / str(number), durability=durability)
        writer, consumer, put = store.writer("orders"), store.consumer("orders"), 0
        before = signal.signal(signal.SIGALRM, lambda *_, store=store: store.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.001 + chance.random() * 0.02)
            while True:
                writer.put(b"x" * 200)
                put += 1
                consumer.poll(3)
        except StoreClosedError:
            store.close()
        finally:
            signal.signal(signal.SIGALRM, before)
        with small_store.open_small(tmp_path / str(number), "r+") as store:
            assert store.recovery.mode == "clean"
            assert put <= len(small_store.everything(store)) <= put + 1


def test_nothing_is_left_of_a_store_that_was_closed(tmp_path: Path) -> None:
    """Neither a thread nor a mapped file, from the moment that close returns."""
    threads = threading.active_count()
    for number in range(50):
        store = small_store.open_small(tmp_path / str(number), durability="memory")
        store.writer("orders").put(b"x")
        before = mapping.mapped_files()
        store.close()
        names = [thread.name for thread in threading.enumerate()]
        assert (threading.active_count(), names[threads:]) == (threads, [])
        del store
        gc.collect()
        assert mapping.mapped_files() < before


def test_a_destroy_that_comes_too_late_says_so(tmp_path: Path) -> None:
    """Another thread closes meanwhile: nothing is removed, and nobody is told that it was."""
    store, hung = with_unflushed(tmp_path)
    closer = threading.Thread(target=store.close)
    closer.start()
    assert hung.reached.wait(WAIT_S)
    hung.go_on()
    with pytest.raises(StoreClosedError):
        engine_of(store).destroy()  # as one that had seen the store open an instant before
    closer.join()
    with open_small(tmp_path, "r+") as store:
        assert numbers(store) == [0]
