"""Segments that cannot be made, or not in time, and puts that wait for room in vain."""

from __future__ import annotations

import errno
import os
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from rocketstore import BackpressureError, DiskFullError, Store, StoreClosedError
from tests.process.other_process import numbers, open_small
from tests.support.small_store import parts

BIG = bytes(10_000)


class Stuck:
    """A method of a worker that hangs until `go_on`, as on a disk that does not answer."""

    def __init__(self, worker: Any, name: str) -> None:
        self._free = threading.Event()
        self.reached = threading.Event()
        real = getattr(worker, name)

        def hang(*arguments: Any) -> Any:
            self.reached.set()
            self._free.wait(30)
            return real(*arguments)

        setattr(worker, name, hang)

    def go_on(self) -> None:
        self._free.set()


def fill(store: Store) -> tuple[int, str]:
    """Puts until one is refused for want of room; how many were stored, and what it said."""
    writer = store.writer("Orders")
    count = 0
    while count < 1000:
        try:
            writer.put(b"%d:" % count + bytes(1000), durability="memory")
        except BackpressureError as error:
            return count, str(error)
        count += 1
    raise AssertionError("there was room for everything")


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_stuck_flusher_is_named(tmp_path: Path, durability: str) -> None:
    """D-14 D-15 S003-21: after max_wait_ms the put is refused; the error names the position, where it
    stands and the bound; once the disk answers puts go on."""
    options: dict[str, Any] = {"max_unflushed_bytes": 64 * 1024, "max_wait_ms": 150}
    with open_small(tmp_path, durability=durability, **options) as store:
        flusher = parts(store).flusher
        store.writer("Orders", queue_id=1).put(b"0:", durability="disk")
        flushed = store.flushed_offset
        flusher._retire()  # flushes that need no Python end, too
        stuck = Stuck(flusher, "flush")
        count, message = fill(store)
        assert 0 < count < 100
        assert f"stuck at flushed = {flushed} " in message
        assert "65536" in message
        assert "150 ms" in message
        end = store.end_offset
        assert f"wrote = {end}" in message
        assert end - flushed <= 64 * 1024
        stuck.go_on()
        store.wait_flushed(end, 30)
        store.writer("Orders").put(b"%d:" % count, durability="disk")
        assert numbers(store) == list(range(count + 1))
    assert not (tmp_path / "abort").exists()


def test_a_segment_that_is_not_ready_in_time(tmp_path: Path) -> None:
    """D-15 D-16 S004-48 S004-49: the put gives up after max_wait_ms; the segment is still being made,
    and a later put finds it."""
    with open_small(tmp_path, durability="os", max_wait_ms=150) as store:
        preallocator = parts(store).preallocator
        stuck = Stuck(preallocator, "_create")
        writer = store.writer("Orders")
        with pytest.raises(BackpressureError, match=r"segment at 0 was not ready after 0\.1"):
            writer.put(b"0:")
        assert store.end_offset == 0
        stuck.go_on()
        while True:
            try:
                writer.put(b"0:")
                break
            except BackpressureError:
                continue
        assert numbers(store) == [0]


def test_a_put_that_waits_for_a_segment_hears_of_a_close(tmp_path: Path) -> None:
    """D-36 K-38: it ends with StoreClosedError at once, not after max_wait_ms."""
    store = open_small(tmp_path, durability="os", max_wait_ms=60_000)
    preallocator = parts(store).preallocator
    stuck = Stuck(preallocator, "_create")
    heard: list[BaseException] = []

    def put() -> None:
        try:
            store.writer("Orders").put(b"0:")
        except StoreClosedError as error:
            heard.append(error)

    putter = threading.Thread(target=put)
    putter.start()
    assert stuck.reached.wait(30)
    closer = threading.Thread(target=store.close)
    closer.start()
    putter.join(10)
    assert heard
    stuck.go_on()
    closer.join(30)
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert numbers(store) == []


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.EMFILE])
def test_an_error_of_creation_goes_to_the_put_and_is_forgotten(
    tmp_path: Path, probe: Any, error: int
) -> None:
    """D-16 K-36 S000-60 S004-47 S004-56: the put hears the cause, nothing changed, the worker lives
    and the next put tries again."""
    with open_small(tmp_path) as store:
        probe.fail("fallocate", error, times=-1)
        writer = store.writer("Orders")  # has the file made
        for _ in range(2):
            with pytest.raises(OSError, match=re.escape(os.strerror(error))) as caught:
                writer.put(b"0:")
            assert caught.value.errno == error
        assert store.end_offset == 0
        probe.restore()
        assert writer.put(b"0:").queue_offset == 0
        assert numbers(store) == [0]
    assert not (tmp_path / "abort").exists()


def test_no_half_made_segment_is_left(tmp_path: Path, probe: Any) -> None:
    """D-06: a segment that could not be made leaves no name behind."""
    with open_small(tmp_path) as store:
        probe.fail("fallocate", errno.ENOSPC, times=-1)
        with pytest.raises(DiskFullError):
            store.writer("Orders").put(b"0:")
        assert list((tmp_path / "commitlog").iterdir()) == []
        probe.restore()


def test_the_next_segment_is_made_ahead_and_removed_at_the_end(tmp_path: Path) -> None:
    """D-07 S000-59 S004-22: when half of a segment is used the next is made; unused, it goes at close."""
    with open_small(tmp_path) as store:
        writer = store.writer("Orders")
        for number in range(4):
            writer.put(b"%d:" % number + BIG)
        preallocator = parts(store).preallocator
        deadline = threading.Event()
        for _ in range(1000):
            if preallocator.spare() is not None:
                break
            deadline.wait(0.01)
        assert preallocator.spare() is not None
        assert len(list((tmp_path / "commitlog").iterdir())) == 2
    assert len(list((tmp_path / "commitlog").iterdir())) == 1
