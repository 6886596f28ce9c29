"""No room for the next segment: the put that needs it is refused before a byte changes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import DiskFullError, Store
from tests.process.other_process import SMALL, fingerprint, number_of, numbers, open_small

SEGMENT = SMALL["commit_log_file_size_bytes"]
BIG = bytes(10_000)
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
