"""Blocks of the log's files come in steps ahead of the writer, and a put never stores where there are none."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
from pathlib import Path
from typing import Any, Final

import pytest

import rocketstore
from rocketstore import DiskFullError, Store
from rocketstore._native.append.raw_append import append_raw
from rocketstore._native.os import syscalls
from rocketstore.log.mapped_files import segment_blocks
from tests.process.other_process import numbers, open_small
from tests.support.small_store import dispatched, parts
from tests.unit.conftest import probe

__all__ = ["probe"]

STEP: Final = 16 << 10
SEGMENT: Final = 16 * STEP
BODY: Final = bytes(1000)
MODES: Final = ("disk", "os", "memory")
MIB: Final = 1 << 20


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_blocks, "STEP_BYTES", STEP)


def open_steps(path: Path, **options: Any) -> Store:
    sizes = {"commit_log_file_size_bytes": SEGMENT, "write_buffer_bytes": 8 * STEP}
    return open_small(path, **sizes, **options)


def found(store: Store) -> list[int]:
    """What a reader sees once all of it is on disk."""
    store.wait_flushed(store.end_offset)
    return numbers(store)


def segment(path: Path, start: int = 0) -> Path:
    return path / "commitlog" / f"{start:020d}"


def used(path: Path) -> int:
    return path.stat().st_blocks * 512


def fill(store: Store, first: int, end: int) -> int:
    """Messages from number `first` on, up to the offset `end`; the next number."""
    writer = store.writer("Orders")
    while store.end_offset < end:
        writer.put(b"%d:" % first + BODY)
        first += 1
    return first


def used_below(root: Path) -> int:
    """As `du` counts: a file with two names once."""
    inodes = {path.stat().st_ino: used(path) for path in root.rglob("*")}
    return sum(inodes.values())


@pytest.mark.parametrize("durability", MODES)
def test_a_store_of_one_message_and_one_key_takes_little(tmp_path: Path, durability: Any) -> None:
    """With the sizes of a new store: at most 4 MiB while it is open, and less after the close."""
    for _ in range(2):
        with rocketstore.open(tmp_path / "s", durability=durability) as store:
            store.writer("Orders").put(b"x", keys="k", durability="disk")
            dispatched(store)
            assert used_below(tmp_path) <= 4 * MIB
            assert segment(tmp_path / "s").stat().st_size == 1 << 30
        assert used_below(tmp_path) <= 2 * MIB
        assert used(segment(tmp_path / "s")) <= 64 << 10


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("durability", MODES)
def test_blocks_come_ahead_of_the_writer(tmp_path: Path, durability: str) -> None:
    """D-10 D-16: over several files, batches and single messages, with what is there read back."""
    with open_steps(tmp_path, durability=durability) as store:
        count = fill(store, 0, 1)
        assert used(segment(tmp_path)) <= 4 * STEP
        assert segment(tmp_path).stat().st_size == SEGMENT
        count = fill(store, count, SEGMENT + 3 * STEP)
        assert used(segment(tmp_path)) >= SEGMENT
        store.writer("Orders").put_batch([b"%d:" % (count + n) + BODY for n in range(40)])
        count = fill(store, count + 40, 3 * SEGMENT)
        assert found(store) == list(range(count))
    with open_steps(tmp_path, durability=durability) as store:
        assert store.recovery.mode == "clean"
        count = fill(store, count, 4 * SEGMENT)
        assert found(store) == list(range(count))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("durability", MODES)
def test_a_full_disk_within_a_segment(tmp_path: Path, probe: Any, durability: str) -> None:
    """D-16: DiskFullError before a byte changes; what fits goes on, and all does once there is room."""
    with open_steps(tmp_path, durability=durability) as store:
        count = fill(store, 0, 1)
        assert found(store) == list(range(count))
        probe.fail("fallocate", errno.ENOSPC, times=-1)
        writer = store.writer("Orders")
        with pytest.raises(DiskFullError, match="commit_log_file_size_bytes") as caught:
            count = fill_to_the_brim(store, count)
        assert caught.value.errno == errno.ENOSPC
        count = len(found(store))
        end = store.end_offset
        assert 0 < end < SEGMENT // 2
        with pytest.raises(DiskFullError):
            writer.put_batch([BODY] * 20)
        with pytest.raises(DiskFullError):
            writer.put(BODY * 3)
        assert store.end_offset == end
        with pytest.raises(DiskFullError):
            while True:
                writer.put(b"%d:" % count)
                count += 1
        store.wait_flushed(store.end_offset)
        probe.restore()
        count = fill(store, count, SEGMENT + STEP)
        assert found(store) == list(range(count))
    with open_steps(tmp_path, durability=durability) as store:
        assert store.recovery.mode == "clean"
        assert found(store) == list(range(count))


def fill_to_the_brim(store: Store, first: int) -> int:
    return fill(store, first, SEGMENT)


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("durability", MODES)
def test_what_has_no_blocks_gets_some_before_the_writer_goes_on(
    tmp_path: Path, probe: Any, durability: str
) -> None:
    """D-16: a segment of an earlier run may have holes: given back, copied sparsely, made by RocketMQ."""
    with open_steps(tmp_path / "a", durability=durability) as store:
        count = fill(store, 0, STEP // 2)
    shutil.copytree(tmp_path / "a", tmp_path / "b")  # another file: not the descriptor's own
    fd = os.open(segment(tmp_path / "b"), os.O_RDWR)
    syscalls.punch_hole(fd, 3 * STEP, SEGMENT - 3 * STEP)
    os.close(fd)
    with open_steps(tmp_path / "b", durability=durability) as store:
        probe.fail("fallocate", errno.ENOSPC, times=-1)
        end = store.end_offset
        with pytest.raises(DiskFullError):
            store.writer("Orders").put(BODY)
        assert store.end_offset == end
        probe.restore()
        count = fill(store, count, 5 * STEP)
        assert used(segment(tmp_path / "b")) >= 5 * STEP
        assert found(store) == list(range(count))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("durability", MODES)
def test_a_close_gives_back_what_was_not_used(tmp_path: Path, durability: str) -> None:
    """The bytes stay the same, also where the close comes in the middle of a page."""
    with open_steps(tmp_path, durability=durability) as store:
        count = fill(store, 0, 2 * STEP)
        opened = used(segment(tmp_path))
        end = store.end_offset
    assert used(segment(tmp_path)) <= end + 4096 < opened
    assert segment(tmp_path).stat().st_size == SEGMENT
    assert segment(tmp_path).read_bytes()[end:] == bytes(SEGMENT - end)
    with open_steps(tmp_path, durability=durability) as store:
        assert store.recovery.mode == "clean"
        assert store.end_offset == end
        assert found(store) == list(range(count))
        count = fill(store, count, end + STEP)
        assert found(store) == list(range(count))


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("durability", MODES)
def test_whole_files_where_nothing_can_be_allocated(
    tmp_path: Path, probe: Any, caplog: pytest.LogCaptureFixture, durability: str
) -> None:
    """K-04: said once; a close leaves them as they are."""
    probe.fail("fallocate", errno.EOPNOTSUPP, times=-1)
    with caplog.at_level(logging.WARNING), open_steps(tmp_path, durability=durability) as store:
        count = fill(store, 0, 1)
        assert used(segment(tmp_path)) >= SEGMENT
        count = fill(store, count, 2 * SEGMENT + STEP)
    assert len([m for m in caplog.messages if "whole size" in m]) == 1
    assert used(segment(tmp_path, 2 * SEGMENT)) >= SEGMENT
    with open_steps(tmp_path, durability=durability) as store:
        count = fill(store, count, 3 * SEGMENT)
        assert found(store) == list(range(count))


@pytest.mark.usefixtures("small_steps")
def test_prewritten_files_keep_all_their_blocks(tmp_path: Path) -> None:
    """`prewrite` takes the time to write them once, so a close does not give them back."""
    with open_steps(tmp_path, durability="disk", prewrite=True) as store:
        fill(store, 0, 1)
    assert used(segment(tmp_path)) >= SEGMENT


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("durability", MODES)
def test_bytes_as_they_are_get_blocks_too(tmp_path: Path, durability: str) -> None:
    with open_steps(tmp_path / "a", durability=durability) as store:
        count = fill(store, 0, 4 * STEP)
        end = store.end_offset
    raw = segment(tmp_path / "a").read_bytes()[:end]
    with open_steps(tmp_path / "b", durability=durability) as store:
        log = parts(store).commit_log.log
        for begin in range(0, end, 5000):
            append_raw(log, begin, raw[begin : begin + 5000])
        assert found(store) == list(range(count))


@pytest.mark.usefixtures("small_steps")
def test_tasks_put_across_steps(tmp_path: Path) -> None:
    """An event loop's put that finds no blocks has a thread wait for them."""

    async def play() -> None:
        from rocketstore import aio

        async with aio.open(
            tmp_path, "rw", commit_log_file_size_bytes=SEGMENT, durability="os"
        ) as store:
            writer = store.writer("Orders")
            for n in range(300):
                await writer.put(b"%d:" % n + BODY)

    asyncio.run(play())
    with rocketstore.open(tmp_path) as store:
        assert found(store) == list(range(300))
