"""Option `lock_segments`: RocketMQ's `warmMapedFileEnable`, which locks a file until it is rolled out."""

from __future__ import annotations

import logging
import resource
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store, StoreConfig
from rocketstore._native.sync.positions import Positions
from rocketstore.log.mapped_files.locked_segments import LockedSegments
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.mapped_files.mapped_files import MappedFiles
from tests.support.file_tools import created
from tests.support.small_store import open_small, parts, put_many, until

SMALLEST_LIMIT = 1 << 20


@pytest.fixture(autouse=True)
def may_lock() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if 0 <= soft < SMALLEST_LIMIT:
        pytest.skip(f"RLIMIT_MEMLOCK is {soft}")


def locked(store: rocketstore.Store) -> list[bool]:
    return [file.memory_locked for file in parts(store).commit_log.queue.files]


def locked_by_the_kernel(root: Path) -> list[bool]:
    """Of each file of the log that has its place, whether a mapping of it is locked."""
    inodes, inode = set(), 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and len(words) >= 5:
            inode = int(words[4])
        elif words[0] == "VmFlags:" and "lo" in words[1:]:
            inodes.add(inode)
    return [path.stat().st_ino in inodes for path in sorted((root / "commitlog").iterdir())]


@pytest.mark.parametrize("durability", ["os", "disk", "memory"])
def test_a_segment_that_was_rolled_out_is_unlocked(tmp_path: Path, durability: Any) -> None:
    """S000-40, S003-33"""
    with open_small(tmp_path, durability=durability, lock_segments=True) as store:
        put_many(store.writer("orders"), 1, 100)
        assert locked(store)[0]
        put_many(store.writer("orders"), 60, 100)
        until(store, lambda: locked(store)[:-1] == [False] * (len(locked(store)) - 1))
        count = len(locked(store))
        assert count > 2 and locked(store)[-1]
        assert locked_by_the_kernel(tmp_path)[:count] == locked(store)
    assert not any(locked_by_the_kernel(tmp_path))
    with open_small(tmp_path, durability=durability, lock_segments=True) as store:
        assert locked(store) == [False] * (len(locked(store)) - 1) + [True]
        assert len(store.consumer("orders").poll()) == 61


def test_without_the_option_nothing_is_locked(tmp_path: Path, store: Store) -> None:
    put_many(store.writer("orders"), 60, 100)
    assert not any(locked(store)) and not any(locked_by_the_kernel(tmp_path))


def test_it_is_the_option_of_rocketmq() -> None:
    assert StoreConfig.from_rocketmq({"warmMapedFileEnable": "true"}).lock_segments
    assert not StoreConfig.from_rocketmq({"warmMapedFileEnable": "false"}).lock_segments
    assert not StoreConfig().lock_segments


class Refusing:
    """A file that may not be locked."""

    path, closed, end_offset = "00000", False, 4096

    def lock_memory(self, **options: Any) -> bool:
        return False


def test_a_refusal_is_said_once_and_the_store_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    segments = LockedSegments(MappedFiles("commit log", None), Positions(), wanted=True)
    file: Any = Refusing()
    with caplog.at_level(logging.WARNING):
        segments.add(file)
        segments.add(file)
    assert caplog.text.count("RLIMIT_MEMLOCK") == 1
    segments.release_full()


def test_a_segment_that_is_gone_is_let_go(tmp_path: Path) -> None:
    files = MappedFileQueue(tmp_path, "write", file_size=4096, name="commit log")
    file, positions = created(files, 0, sparse=False), Positions()
    segments = LockedSegments(files, positions, wanted=True)
    segments.add(file)
    segments.release_full()
    assert file.memory_locked  # it is not full
    positions.wrote = 4096
    segments.release_full()
    assert not file.memory_locked
    segments.add(file)
    file.close()
    segments.close()


def test_the_write_buffer_is_locked_page_by_page(tmp_path: Path) -> None:
    """A store that is open and idle holds none of its memory."""

    def resident_kib() -> list[int]:
        found, ours = [], False
        for line in Path("/proc/self/smaps").read_text().splitlines():
            words = line.split()
            if "-" in words[0] and len(words) >= 5:
                ours = "memfd:rocketstore-ring" in line
            elif ours and words[0] == "Locked:":
                found.append(int(words[1]))
        return found

    with rocketstore.open(tmp_path, durability="disk") as store:
        idle = sum(resident_kib())
        store.writer("t").put(bytes(1 << 20))
        assert idle < 256 and sum(resident_kib()) - idle >= 1024
