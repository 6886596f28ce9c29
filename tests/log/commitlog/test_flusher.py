"""The flusher's schedule and its walk over files, one step at a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store
from rocketstore.engine.engine import CloseMode
from rocketstore.log.commitlog import commit_log
from rocketstore.log.commitlog import flusher as flusher_module
from rocketstore.log.commitlog.flusher import Flusher
from tests.support.small_store import SEGMENT, engine_of, open_small, open_still, parts, until

PAGE = 4096


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_still(tmp_path, "os", commit_log_file_size_bytes=16 * PAGE) as store:
        yield store


def idle(store: Store, **options: Any) -> Flusher:
    """The store's flusher, whose thread sleeps for a day: the test takes each step."""
    flusher: Flusher = parts(store).flusher
    flusher.timed = False
    for name, value in options.items():
        setattr(flusher, name, value)
    return flusher


def test_acts_only_with_enough_pages(store: Store) -> None:
    """S000-83: below the least pages a round does nothing."""
    flusher = idle(store)
    writer = store.writer("t")
    writer.put(b"x" * (2 * PAGE))
    flusher.step()
    assert store.flushed_offset == 0
    writer.put(b"x" * (2 * PAGE))
    flusher.step()
    assert store.flushed_offset == store.end_offset > 4 * PAGE


def test_thorough_interval_drops_the_limit_for_one_round(store: Store) -> None:
    """S000-95: then the limit holds again."""
    flusher = idle(store, thorough_interval_ms=86_400_000)
    first = store.writer("t").put(b"x").end_offset
    flusher.step()
    assert store.flushed_offset == 0
    flusher._last_thorough -= 86_400
    flusher.step()
    assert store.flushed_offset == first
    store.writer("t").put(b"y")
    flusher.step()
    assert store.flushed_offset == first


def test_timed_waits_for_its_moment(store: Store) -> None:
    flusher = idle(store, timed=True, interval_ms=60_000, least_pages=0)
    flusher._next_timed = time.monotonic() + 60
    end = store.writer("t").put(b"x").end_offset
    assert 0 < (flusher.step() or 0) <= 60
    assert store.flushed_offset == 0
    flusher._next_timed = 0.0
    flusher.step()
    assert store.flushed_offset == end


def test_much_that_waits_is_not_left_to_the_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer would come to the bound, and wait for a flush of all of it."""
    monkeypatch.setattr(commit_log, "MARK_EVERY_BYTES", PAGE)
    bound = 64 * PAGE
    options = {"commit_log_file_size_bytes": 1024 * PAGE, "max_unflushed_bytes": bound}
    with open_still(tmp_path, "os", **options) as store:
        writer = store.writer("t")
        while store.end_offset < bound // commit_log.FLUSH_SHARE - 2 * PAGE:
            writer.put(b"x" * 1000)
        assert not store.flushed_offset
        while store.end_offset < bound // 2:
            writer.put(b"x" * 1000)
        until(store, lambda: store.flushed_offset > 0)


def test_a_wish_ends_the_waiting(store: Store) -> None:
    """S000-107 S002-11 S002-12: a signal counts, so a wake before the wait is never lost (K-33)."""
    signal = parts(store).flusher.signal
    seen = signal.count
    signal.notify()
    assert signal.wait(seen, 60_000) == seen + 1  # returns at once


def test_walk_over_three_files(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """S000-82: each file is forced before flushed passes its end; names are looked at first."""
    seen: list[int] = []
    flusher = idle(store, least_pages=0)
    monkeypatch.setattr(flusher._live, "check", lambda: seen.append(store.flushed_offset))
    for _ in range(3):
        store.writer("t").put(b"x" * (12 * PAGE))
    flusher.flush()
    assert store.flushed_offset == store.end_offset
    assert seen == [0, 16 * PAGE, 32 * PAGE]


def test_large_ranges_are_flushed_in_steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_module, "FLUSH_STEP_BYTES", 2 * PAGE)
    seen: list[int] = []
    flusher = idle(store)
    monkeypatch.setattr(flusher._live, "check", lambda: seen.append(store.flushed_offset))
    store.writer("t").put(b"x" * (7 * PAGE))
    flusher.flush()
    assert seen == [0, 2 * PAGE, 4 * PAGE, 6 * PAGE]


def test_nothing_new_does_nothing(store: Store) -> None:
    flusher = idle(store)
    store.writer("t").put(b"x")
    flusher.flush()
    flusher.flush()
    assert flusher.flushes == 1


def test_latency_is_told(store: Store) -> None:
    """S000-99: numbers a program can read take the place of progress lines in a log."""
    told: list[int] = []
    flusher = idle(store, _record_latency=told.append)
    store.writer("t").put(b"x")
    flusher.flush()
    assert len(told) == 1
    assert 0 <= told[0] < 60e9


def test_error_leaves_the_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-01: a force that fails on the second file: flushed stands at the end of the first."""
    store = open_still(tmp_path, "memory", transient_pool_buffers=5)
    for _ in range(8):
        store.writer("t").put(b"x" * 900)
    parts(store).committer.commit()
    second = parts(store).commit_log.queue.find(SEGMENT).fd

    class Failing:
        def fdatasync(self, fd: int) -> None:
            if fd == second:
                raise OSError(5, "bad block")
            os.fdatasync(fd)

    with monkeypatch.context() as patched:
        patched.setattr(flusher_module, "syscalls", Failing())
        with pytest.raises(OSError, match="bad block"):
            parts(store).flusher.flush()
    assert store.flushed_offset == SEGMENT
    store.close()


def test_a_stop_that_comes_with_a_put_ends_the_flusher(tmp_path: Path) -> None:
    """Both move one signal; what is wanted was flushed, and the stop was slept through for ever."""
    for number in range(100):
        store = open_small(tmp_path / f"{number}", durability="disk", flush_interval_ms=86_400_000)
        writer = store.writer("t", queue_id=0)
        writer.put(b"first")
        writer.submit(b"second")
        engine = engine_of(store)
        closing = threading.Thread(target=engine._close, args=[CloseMode(clean=False)], daemon=True)
        closing.start()
        closing.join(30)
        assert not closing.is_alive(), f"round {number}"
