"""What a first put would wait for is made once there is a writer."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from rocketstore import Store
from rocketstore.log.commitlog.running_flags import FlagReason
from tests.support.page_cache import drop, in_cache, on_disk
from tests.support.small_store import open_small, parts
from tests.support.waiting import wait_until

SIZE = 64 << 20
PAGE = 4096
#: Pages that a disk reads at once, at least; most read more.
AHEAD = 16


def log_files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").glob("0*"))


@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_the_first_file_is_made_without_a_put(tmp_path: Path, durability: str) -> None:
    with open_small(tmp_path, durability=durability) as store:
        assert not log_files(tmp_path)
        store.writer("t")
        wait_until(lambda: parts(store).preallocator.spare() is not None)
        made = parts(store).preallocator.spare()
        store.writer("u").put(b"x")
        assert parts(store).commit_log.log.segment_file is made
    assert len(log_files(tmp_path)) == 1


def test_a_file_that_no_put_came_to_goes(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.writer("t")
        wait_until(lambda: parts(store).preallocator.spare() is not None)
    assert not log_files(tmp_path)
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x")
        assert store.get(0).body == b"x"


def test_the_first_file_of_a_queue_is_made_without_a_put(tmp_path: Path) -> None:
    """It waited for the disk, 20 to 40 ms, in which nobody could read the message."""
    with open_small(tmp_path, durability="os") as store:
        writer = store.writer("t", queues=3)
        spares = parts(store).queues._first_files
        wait_until(lambda: len(spares._ready) == 3)
        assert not list((tmp_path / "consumequeue").iterdir())
        store.writer("t", queues=3)  # these are expected already
        assert not spares.wanted
        writer.put(b"x")
        wait_until(lambda: store.max_queue_offset("t", 0) == 1)
        assert len(spares._ready) == 2
    assert [path.name for path in (tmp_path / "consumequeue" / "t").iterdir()] == ["0"]
    assert not spares._ready


def test_none_is_made_where_puts_are_refused(store: Store) -> None:
    """Whoever says that the disk is full does not want it filled."""
    store.flags.set(FlagReason.DISK_FULL, "no room at all")
    store.writer("t")
    assert parts(store).preallocator._wanted is None
    store.flags.clear(FlagReason.DISK_FULL)
    store.writer("t")
    wait_until(lambda: parts(store).preallocator.spare() is not None)


def test_readers_have_none_made(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.writer("t").put(b"x")
        store.trim(before_offset=store.end_offset)
    with open_small(tmp_path) as store, store.consumer("t", queue_id=0) as consumer:
        consumer.poll()
        assert parts(store).preallocator.spare() is None


def test_the_first_pages_are_there_before_a_put(disk_path: Path) -> None:
    if not on_disk(disk_path):
        pytest.skip("a file system without a disk below its page cache")
    with open_small(disk_path, durability="os", commit_log_file_size_bytes=SIZE) as store:
        store.writer("t")
        wait_until(lambda: parts(store).preallocator.spare() is not None)
        assert in_cache(parts(store).preallocator.spare().path) >= AHEAD


def test_the_first_pages_of_a_log_that_goes_on(disk_path: Path) -> None:
    with open_small(disk_path, durability="os", commit_log_file_size_bytes=SIZE) as store:
        store.writer("t").put(b"x" * 10_000)
    (file,) = log_files(disk_path)
    if not drop(file):
        pytest.skip("a file system without a disk below its page cache")
    with open_small(disk_path, durability="os", commit_log_file_size_bytes=SIZE) as store:
        before = in_cache(file)
        store.writer("t")
        wait_until(lambda: in_cache(file) >= before + AHEAD)


def test_a_kernel_that_takes_no_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is as good as with it; one that stayed without its maker would fail the store."""

    def refuse(*_: object) -> NoReturn:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    with open_small(tmp_path, durability="os") as store:
        store.writer("t").put(b"x")
        assert store.get(0).body == b"x"


def test_a_read_ahead_that_is_cut_off_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: object) -> NoReturn:
        raise MemoryError

    monkeypatch.setattr(os, "posix_fadvise", cut_off)
    with open_small(tmp_path, durability="os") as store:
        store.writer("t")
        wait_until(lambda: parts(store).preallocator.failure is not None)
        assert not log_files(tmp_path)
