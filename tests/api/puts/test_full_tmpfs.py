"""A store on a full tmpfs, which takes a page even to read a hole: what is there is served (D-34)."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from rocketstore import BackpressureError, Store, StoreBehindError, open, tools
from rocketstore._native.format import queue_file
from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from tests.filesystems.disks import Disk, disk
from tests.support.small_store import dispatched
from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

PAGE: Final = 4096
#: Queue files of several pages, which are sparse.
SHAPE: Final[dict[str, Any]] = {
    "commit_log_file_size_bytes": 1 << 20,
    "consume_queue_file_size_bytes": 20_000 * 20,
    "index_slots": 1000,
    "index_entries": 4000,
}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Disk]:
    yield from disk_of(tmp_path)


def disk_of(root: Path) -> Iterator[Disk]:
    with disk(root, "tmpfs") as made:
        yield made


def with_messages(root: Path, number: int = 5) -> Path:
    with open(root, **SHAPE) as store:
        for count in range(number):
            store.writer("whole").put(b"%d" % count, keys=f"k{count}")
    return root


def make_sparse(root: Path) -> None:
    """As a copy by `cp --sparse=always`, or RocketMQ, leaves the files: without blocks for zeros."""
    for path in [path for path in root.rglob("*") if path.stat().st_size >= PAGE]:
        data = path.read_bytes()
        os.truncate(path, 0)
        os.truncate(path, len(data))
        with path.open("r+b") as file:
            for at in range(0, len(data), PAGE):
                if any(data[at : at + PAGE]):
                    file.seek(at)
                    file.write(data[at : at + PAGE])


def take(store: Store, topic: str) -> list[bytes]:
    """The bodies up to where the queues lack messages."""
    found: list[bytes] = []
    with store.consumer(topic) as consumer:
        while messages := consumer.poll(100):
            found += [message.body for message in messages]
    return found


def keys_found(store: Store, number: int = 5) -> list[int]:
    return [len(store.query("whole", f"k{count}")) for count in range(number)]


BODIES: Final = [b"0", b"1", b"2", b"3", b"4"]


def with_a_late_message(memory: Disk) -> tuple[Path, Path]:
    """Its queue has no room. The directory of the store, and the ballast."""
    with open(memory.path / "store", **SHAPE) as store:
        for body in BODIES:
            store.writer("whole").put(body, keys=f"k{int(body)}")
        dispatched(store).flush()
        ballast = memory.fill()
        store.writer("late").put(b"late")
    return memory.path / "store", ballast


def test_a_topic_without_room_takes_no_other_with_it(memory: Disk) -> None:
    root, ballast = with_a_late_message(memory)
    memory.fill()
    with open(root, "r", **SHAPE) as reader:
        assert (take(reader, "whole"), take(reader, "late")) == (BODIES, [b"late"])
        assert keys_found(reader) == [1] * 5
    # The open removes the index, whose room would do for the queue: something else reads it still.
    (index,) = (root / "index").iterdir()
    with index.open("rb"), open(root, **SHAPE) as store:
        gc.collect()  # which may run at any moment: nothing gives back room
        assert "consume queues" in dict(store.flags.behind)
        for opened in (store, open(root, "r", **SHAPE)):
            with opened.consumer("whole") as consumer:
                assert [message.body for message in consumer.poll(100)] == BODIES
            with pytest.raises(StoreBehindError):
                take(opened, "late")
        end = store.end_offset
        with pytest.raises(BackpressureError, match="No space left"):
            store.writer("whole").put(b"5")
        assert store.end_offset == end
        ballast.unlink()
        wait_until(lambda: not store.flags.behind)
        store.writer("whole").put(b"5")
        assert (take(store, "whole"), take(store, "late")) == ([*BODIES, b"5"], [b"late"])
        opened.close()
    assert tools.verify(root).ok


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_sparse_store_is_served(memory: Disk, mode: Any, clean: bool) -> None:
    root = with_messages(memory.path / "store")
    make_sparse(root)
    if not clean:
        (root / "abort").touch()
    memory.fill()
    assert tools.verify(root).ok
    with open(root, mode, check_queues=True, **SHAPE) as store:
        assert take(store, "whole") == BODIES
        assert keys_found(store) == [1] * 5


@pytest.mark.parametrize("mode", ["r", "rw"])
def test_a_queue_of_holes_takes_no_other_with_it(memory: Disk, mode: Any) -> None:
    """Its units are zeros, as after a crash, and it has no page for its first one."""
    root = with_messages(memory.path / "store")
    with open(root, **SHAPE) as store:
        store.writer("holes").put(b"x")
    (units,) = (root / "consumequeue" / "holes" / "0").iterdir()
    os.truncate(units, 0)
    os.truncate(units, 20_000 * 20)
    make_sparse(root)
    (root / "abort").touch()
    ballast = memory.fill()
    with open(root, mode, **SHAPE) as store:
        with store.consumer("whole") as consumer:
            assert [message.body for message in consumer.poll(100)] == BODIES
        if mode == "r":
            assert take(store, "holes") == [b"x"]
        ballast.unlink()
        wait_until(lambda: not store.flags.behind)
        assert take(store, "holes") == [b"x"]


def test_holes_are_cut_and_read_without_a_page(memory: Disk) -> None:
    path = memory.path / "units"
    path.write_bytes(b"")
    os.truncate(path, 8 * PAGE)
    for access in ("write", "private"):
        with path.open("r+b") as file:
            for page in (0, 3):
                file.seek(page * PAGE)
                file.write((100).to_bytes(8, "big") + (50).to_bytes(4, "big") + bytes(8))
        ballast = memory.fill()
        mapped = MappedFile.open(path, 0, 8 * PAGE, access)
        assert queue_file.written_units(mapped) == 1
        assert queue_file.physical_end(mapped, 8 * PAGE // 20) in (150, -1)
        assert mapped.read(0, 8 * PAGE) == path.read_bytes()
        assert mapped.find_data(PAGE, 8 * PAGE) == 3 * PAGE + 7
        assert queue_file.cut(mapped, 120) == 1
        assert queue_file.written_units(mapped) == 1
        assert mapped.find_data(20, 8 * PAGE) == 8 * PAGE
        mapped.close()
        del mapped
        ballast.unlink()
    with path.open("rb") as file:
        assert syscalls.seek_data(file.fileno(), PAGE) == 3 * PAGE  # no hole was filled
