"""Segments that cannot be made in time or for lack of room: the put is refused before a byte changes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import BackpressureError, DiskFullError, Store, StoreClosedError
from tests.process.other_process import SMALL, fingerprint, number_of, numbers, open_small
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


SEGMENT = SMALL["commit_log_file_size_bytes"]
MODES = ("disk", "os", "memory")


def log_files(path: Path) -> dict[str, tuple[int, str]]:
    return {name: value for name, value in fingerprint(path).items() if "commitlog" in name}


def fill_first_segment(store: Store, topic: str = "Orders") -> int:
    """Big messages until the next one needs another segment; how many."""
    writer = store.writer(topic)
    count = 0
    while store.end_offset + len(BIG) + 200 < SEGMENT:
        writer.put(b"%d:" % count + BIG, durability="disk")
        count += 1
    return count


def refuse_segments(store: Store, probe: Any) -> Callable[[], None]:
    """The first segment is there; no other can be made until the function returned is called."""
    store.writer("Warm").put(b"0:", durability="disk")
    assert numbers(store, "Warm") == [0]  # its queue file is there too
    probe.fail("fallocate", errno.ENOSPC, times=-1)

    def make_room() -> None:
        probe.restore()

    return make_room


@pytest.mark.parametrize("durability", MODES)
def test_a_put_without_room_changes_nothing(tmp_path: Path, probe: Any, durability: str) -> None:
    """D-16 S000-32 S000-35 S002-03: DiskFullError comes before the blank is written."""
    with open_small(tmp_path, durability=durability) as store:
        probe.fail("fallocate", errno.ENOSPC, times=-1)
        writer = store.writer("Orders")
        with pytest.raises(DiskFullError) as caught:
            writer.put(BIG, durability="disk")
        assert caught.value.errno == errno.ENOSPC
        assert store.end_offset == 0
        probe.restore()


@pytest.mark.parametrize("durability", MODES)
def test_small_puts_that_fit_go_on(tmp_path: Path, probe: Any, durability: str) -> None:
    """D-16 S000-35: the segment in use takes whatever still fits; after room was made the big message
    is taken too, without reopening."""
    with open_small(tmp_path, durability=durability) as store:
        make_room = refuse_segments(store, probe)
        count = fill_first_segment(store)
        writer = store.writer("Orders")
        end, before = store.end_offset, log_files(tmp_path)
        for _ in range(3):
            with pytest.raises(DiskFullError):
                writer.put(BIG)
            with pytest.raises(DiskFullError):
                writer.put_batch([BIG])
            assert store.end_offset == end
        assert log_files(tmp_path) == before
        writer.put(b"%d:" % count, durability="disk")
        assert end < store.end_offset < SEGMENT
        make_room()
        writer.put(b"%d:" % (count + 1) + BIG)
        writer.put(b"%d:" % (count + 2), durability="disk")
        assert store.end_offset > SEGMENT
        assert numbers(store) == list(range(count + 3))
    with open_small(tmp_path, durability=durability) as store:
        assert store.recovery.mode == "clean"
        assert numbers(store) == list(range(count + 3))


def test_a_refused_put_takes_no_queue_offset(tmp_path: Path, probe: Any) -> None:
    """D-16 S000-70 S000-78: the queue offset of a message that was refused goes to the next one."""
    with open_small(tmp_path) as store:
        make_room = refuse_segments(store, probe)
        count = fill_first_segment(store)
        writer = store.writer("Orders")
        with pytest.raises(DiskFullError):
            writer.put(BIG)
        assert writer.put(b"small").queue_offset == count
        make_room()
        assert writer.put(BIG).queue_offset == count + 1


def test_closing_a_store_on_a_full_disk(tmp_path: Path, probe: Any) -> None:
    """D-03 D-16: no room is no failure: the stop is clean."""
    store = open_small(tmp_path)
    refuse_segments(store, probe)
    fill_first_segment(store, "Warm")
    with pytest.raises(DiskFullError):
        store.writer("Warm").put(BIG)
    found = [message.queue_offset for message in store.consumer("Warm")]
    store.close()
    probe.restore()
    assert not (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "clean"
        assert [message.queue_offset for message in store.consumer("Warm")] == found


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB in memory."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    libc = ctypes.CDLL(None, use_errno=True)
    target = tmp_path / "disk"
    target.mkdir()
    if libc.mount(b"tmpfs", os.fsencode(target), b"tmpfs", 0, b"size=1m") != 0:
        pytest.skip(f"cannot mount here: {os.strerror(ctypes.get_errno())}")
    yield target
    assert libc.umount2(os.fsencode(target), 2) == 0


@pytest.mark.root
@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_disk_that_is_really_full(small_disk: Path, durability: str) -> None:
    """D-16 D-19: with a real file system: refused, small puts go on, and big ones after space was
    freed, all without reopening."""
    ballast = small_disk / "ballast"
    path = small_disk / "store"
    with open_small(path, durability=durability, index_enabled=False) as store:
        writer = store.writer("Orders")
        ballast.write_bytes(bytes(300_000))
        count = 0
        with contextlib.suppress(DiskFullError):
            while count < 1000:
                writer.put(b"%d:" % count + BIG)
                count += 1
        end = store.end_offset
        assert 5 < count < 1000
        with pytest.raises(DiskFullError):
            writer.put(BIG)
        assert store.end_offset == end
        writer.put(b"%d:" % count)
        ballast.unlink()
        for number in range(count + 1, count + 8):
            writer.put(b"%d:" % number + BIG)
        store.wait_flushed(store.end_offset)
        assert [number_of(m.body) for m in store.consumer("Orders")] == list(range(count + 8))
    with open_small(path) as store:
        assert store.recovery.mode == "clean"
        assert numbers(store) == list(range(count + 8))
