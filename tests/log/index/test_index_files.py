"""Index files on disk: how they are made, get blocks, are synced; and those of other makers."""

from __future__ import annotations

import errno
import json
import logging
import os
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.format import index_file
from rocketstore._native.os import syscalls
from rocketstore.errors import StoreBehindError
from rocketstore.log.index import segment as index_segment
from rocketstore.log.index.segment import CHUNK_BYTES, IndexSegment, Shape, following_name, new_name
from rocketstore.log.index.store import IndexStore, hash_of
from rocketstore.log.layout.paths import StoreLayout
from tests.support.index_tools import NOW_MS, forge, names, offsets_of, opened, put
from tests.support.paths import VECTORS

STORES = VECTORS / "stores"
CASES = json.loads((VECTORS / "vectors.json").read_text())["index"]["files"]


@pytest.fixture
def layout(tmp_path: Path) -> StoreLayout:
    (tmp_path / "index").mkdir(mode=0o700)
    (tmp_path / "rocketstore" / "tmp").mkdir(parents=True)
    return StoreLayout(tmp_path)


@pytest.fixture
def index(layout: StoreLayout) -> IndexStore:
    """Two keys fill a file."""
    return opened(layout, entries=3)


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, os.strerror(errno.EIO))])
def test_names_that_a_dead_process_gave_are_synced(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    """D-13 D-18: everybody sees them, but they may not be on disk; a sync that fails is not tried again."""
    left = opened(layout)
    put(left, "k", 10)
    left.close()
    synced: list[object] = []

    def sync_directory(path: object) -> None:
        synced.append(path)
        if error is not None:
            raise error

    monkeypatch.setattr(syscalls, "sync_directory", sync_directory)
    index = opened(layout)
    for _ in range(2):
        assert index.sync() is (error is None)
        put(index, "l", 20)
    assert synced == [str(layout.index)]
    index.close()


def test_a_fresh_file_is_whole_before_it_has_its_name(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-06 D-19: length, blocks, header and sync first, then the name, then the directory."""
    steps: list[str] = []

    def watch(name: str) -> None:
        real = getattr(syscalls, name)

        def call(*arguments: Any) -> Any:
            steps.append(name)
            assert names(layout) == [] or name in ("sync_directory",)
            return real(*arguments)

        monkeypatch.setattr(syscalls, name, call)

    for name in ("ftruncate", "fallocate", "pwrite", "fsync", "link_unnamed", "sync_directory"):
        watch(name)
    index = opened(layout)
    assert index.make_room() is not None
    made = ["ftruncate", "fallocate", "fallocate", "pwrite", "fsync"]
    assert steps == [*made, "link_unnamed", "sync_directory"]
    [name] = names(layout)
    assert (layout.index / name).stat().st_size == Shape(5, 8).file_size
    assert (layout.index / name).stat().st_mode & 0o777 == 0o600


def test_without_nameless_files_the_new_one_waits_elsewhere(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-06: no temporary name ever stands in index/."""

    def refuse(*_: Any) -> int:
        raise OSError(errno.EOPNOTSUPP, "no O_TMPFILE")

    real_fsync = syscalls.fsync

    def fsync(fd: int) -> None:
        assert names(layout) == []
        real_fsync(fd)

    monkeypatch.setattr(syscalls, "open_unnamed", refuse)
    monkeypatch.setattr(syscalls, "fsync", fsync)
    index = opened(layout)
    assert put(index, "a", 3)
    assert len(names(layout)) == 1
    assert list(layout.tmp.iterdir()) == []
    index.close()
    assert offsets_of(opened(layout, access="read"), "T", "a") == [3]


def test_two_files_in_one_millisecond_get_two_names(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syscalls, "realtime_ms", lambda: NOW_MS)
    index = opened(layout, entries=2)
    for offset in range(5):
        assert put(index, "a", offset)
    assert len(set(names(layout))) == 5
    assert [segment.name for segment in index.files] == names(layout)
    assert offsets_of(index, "T", "a") == [4, 3, 2, 1, 0]


def test_a_name_that_is_taken_is_passed_over(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is ever replaced, not even a file of nobody's."""
    monkeypatch.setattr(syscalls, "realtime_ms", lambda: NOW_MS)
    taken = layout.index / new_name(NOW_MS, "")
    taken.write_bytes(b"mine")
    index = opened(layout)
    assert put(index, "a", 0)
    assert taken.read_bytes() == b"mine"
    assert index.files[0].name == following_name(taken.name)


def test_names_rise_even_when_the_clock_falls() -> None:
    name = new_name(NOW_MS, "")
    assert len(name) == 17
    assert new_name(NOW_MS - 3_600_000, name) == following_name(name) > name
    assert following_name("20231231235959999") == "20240101000000000"
    assert following_name("20230228235959999") == "20230301000000000"
    assert following_name("99999999999999998") == "99999999999999999"
    assert following_name("99991231235959999") == "99991231235960000"


def test_entries_get_their_blocks_in_chunks(layout: StoreLayout) -> None:
    """D-19: a store to an entry never needs a block that the disk may not have."""
    shape = Shape(1000, 300_000)
    index = opened(layout, slots=shape.slots, entries=shape.entries)
    first = index.make_room()
    assert first is not None
    per_chunk = CHUNK_BYTES // 20
    assert abs(first.limit - per_chunk) <= 1
    path = Path(index.files[0].file.path)
    allocated = path.stat().st_blocks * 512
    assert 40 + 4 * 1000 + CHUNK_BYTES <= allocated + 4096 < shape.file_size
    limits = [first.limit]
    for offset in range(200_000):
        put(index, str(offset % 977), offset, NOW_MS)
        if index.files[0].limit != limits[-1]:
            limits.append(index.files[0].limit)
            needed = index_file.entry_position(shape.slots, limits[-1])
            assert path.stat().st_blocks * 512 >= needed
    assert len(limits) == 4
    assert all(later - earlier <= per_chunk + 1 for earlier, later in pairwise(limits))
    assert offsets_of(index, "T", "5", limit=3) == [199_313, 198_336, 197_359]


def test_a_full_disk_degrades_the_index_and_nothing_else(
    layout: StoreLayout,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    index: IndexStore,
) -> None:
    """K-58: no room for keys is the index's trouble; it says so once and raises nothing."""
    put(index, "a", 0)
    put(index, "a", 1)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def refuse(*_: Any) -> None:
        raise full

    monkeypatch.setattr(syscalls, "fallocate", refuse)
    with caplog.at_level(logging.ERROR):
        assert not put(index, "a", 2)
        assert not put(index, "a", 3)
    assert index.degraded == index.short == str(full)
    assert index.target is None
    assert index.make_room() is None
    assert index.sync() is False
    with pytest.raises(StoreBehindError, match="key index"):
        offsets_of(index, "T", "a")  # not [1, 0]
    assert len(names(layout)) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_failed_sync_is_final_for_that_file(
    monkeypatch: pytest.MonkeyPatch, index: IndexStore
) -> None:
    """D-13: its pages may be gone, so a later success would prove nothing."""
    for offset in range(3):
        put(index, "a", offset)
    first, second = index.files
    failed = OSError(errno.EIO, "sync failed")
    synced: list[IndexSegment] = []

    def sync(segment: IndexSegment) -> None:
        synced.append(segment)
        if segment is second:
            raise failed

    monkeypatch.setattr(IndexSegment, "sync", sync)
    assert index.sync() is False
    assert index.degraded == str(failed)
    assert index.sync() is False
    assert synced.count(second) == 1
    assert synced.count(first) == 2
    assert not put(index, "a", 9)


def test_a_failed_file_is_rebuilt_under_a_new_inode(
    monkeypatch: pytest.MonkeyPatch, index: IndexStore
) -> None:
    """D-13: what its file had is dropped as a whole and indexed again."""
    for offset in (0, 10, 20, 30):
        put(index, "a", offset)
    failed = index.files[1]
    inode = Path(failed.file.path).stat().st_ino

    def sync(segment: IndexSegment) -> None:
        if segment is failed:
            raise OSError(errno.EIO, "sync failed")

    with monkeypatch.context() as patched:
        patched.setattr(IndexSegment, "sync", sync)
        index.sync()
    again_from = failed.header().begin_offset
    assert again_from == 20
    keep = os.open(failed.file.path, os.O_RDONLY)  # or its inode number could be taken again
    index.reset_from(again_from)
    assert index.degraded is None
    for offset in (20, 30):
        assert put(index, "a", offset)
    assert Path(index.files[-1].file.path).stat().st_ino != inode
    assert index.sync()
    assert offsets_of(index, "T", "a") == [30, 20, 10, 0]
    os.close(keep)


def test_only_what_is_new_is_synced(monkeypatch: pytest.MonkeyPatch, index: IndexStore) -> None:
    for offset in range(3):
        put(index, "a", offset)
    counted: list[str] = []
    real = index_file.entry_position

    def watch(slots: int, number: int) -> int:
        counted.append("")
        return real(slots, number)

    assert index.sync()
    monkeypatch.setattr(index_file, "entry_position", watch)
    assert index.sync()
    assert counted == []
    put(index, "a", 3)
    assert index.sync()
    assert len(counted) == 3  # one file: header and slots, first and last new entry


@pytest.mark.parametrize("name", ["x", "2024010100000000", "20240101000000000.tmp", "١" * 17])
def test_alien_names_are_ignored_with_a_warning(
    layout: StoreLayout, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    (layout.index / name).write_bytes(bytes(Shape(5, 8).file_size))
    index = opened(layout)
    assert index.files == ()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert name in caplog.text


@pytest.mark.parametrize("size", [0, 39, 40, 219, 221, 420_000_041])
def test_a_file_of_another_length_is_set_aside(
    layout: StoreLayout, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Q-27: never extended or cut to fit; the warning names path and sizes."""
    path = layout.index / "20240101000000000"
    path.touch()
    os.truncate(path, size)
    index = opened(layout)
    assert index.files == ()
    assert str(path) in caplog.text
    assert size == 0 or f"{size} bytes" in caplog.text
    assert put(index, "a", 0)
    assert path.stat().st_size == size


def test_a_directory_and_a_link_are_set_aside(
    layout: StoreLayout, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D-09: files are never followed through symbolic links."""
    target = tmp_path / "target"
    target.write_bytes(bytes(Shape(5, 8).file_size))
    (layout.index / "20240101000000000").symlink_to(target)
    (layout.index / "20240101000000001").mkdir()
    assert opened(layout).files == ()
    assert len(caplog.records) == 2


def test_files_with_rocketmqs_default_shape_are_read_under_any_config(layout: StoreLayout) -> None:
    shape = index_segment.DEFAULT_SHAPE
    forge(layout, "20240101000000000", shape, [("a", 0, NOW_MS), ("a", 5, NOW_MS + 1)])
    index = opened(layout)
    assert index.files[0].shape == shape
    assert offsets_of(index, "T", "a") == [5, 0]
    assert put(index, "a", 9)  # it is not full, so it takes the next key too
    assert names(layout) == ["20240101000000000"]
    assert offsets_of(index, "T", "a") == [9, 5, 0]
    assert (layout.index / "20240101000000000").stat().st_blocks * 512 < 64 << 20
    index.close()


def test_a_shape_of_equal_length_is_not_taken_for_another(layout: StoreLayout) -> None:
    """S + 5 N is all that a length tells: entries and slots have to fit as well."""
    made, configured = Shape(10, 7), Shape(5, 8)
    assert made.file_size == configured.file_size
    forge(layout, "20240101000000000", made, [("a", 3, NOW_MS), ("b", 5, NOW_MS + 1)])
    index = opened(layout, slots=5, entries=8)
    assert index.files[0].shape == made
    assert offsets_of(index, "T", "b") == [5]


def test_a_sparse_file_of_rocketmq_gets_its_blocks_before_the_first_put(
    layout: StoreLayout,
) -> None:
    shape = Shape(300_000, 100_000)
    path = forge(layout, "20240101000000000", shape, [("a", 0, NOW_MS)])
    assert path.stat().st_blocks * 512 < 100_000
    index = opened(layout, slots=shape.slots, entries=shape.entries)
    assert put(index, "b", 1)
    one_piece = 4 * index_segment.SLOTS_IN_PIECE
    wanted = one_piece + 20 * index.files[0].limit
    assert wanted <= path.stat().st_blocks * 512 < wanted + one_piece


def test_an_empty_file_of_rocketmq_is_used(layout: StoreLayout) -> None:
    """Q-25: a file without entries has a header of zeros."""
    forge(layout, "20240101000000000", Shape(5, 8), [])
    index = opened(layout)
    assert index.end_physical_offset == 0
    assert put(index, "a", 0)
    assert offsets_of(index, "T", "a") == [0]


def test_key_text_is_topic_and_key_in_utf8(layout: StoreLayout) -> None:
    index = opened(layout)
    put(index, "k\udcff", 3, NOW_MS, "订单")
    assert offsets_of(index, "订单", "k\udcff") == [3]
    assert hash_of("TopicTest", "订单-1") == 573_861_415


@pytest.mark.parametrize("archive", sorted(STORES.glob("*.tar.xz")), ids=lambda p: p.name[:-7])
def test_the_index_of_a_store_that_rocketmq_wrote(tmp_path: Path, archive: Path) -> None:
    """Every key is found, with the configured shape and with a wrong one; no chain is damaged."""
    with tarfile.open(archive) as members:
        members.extractall(tmp_path, filter="data")
    expectation = json.loads(archive.with_name(archive.name[:-7] + ".expect.json").read_text())
    directories = list(tmp_path.rglob("index"))
    root = directories[0].parent if directories else tmp_path
    config = expectation["config"]
    for slots, entries in ((config["maxHashSlotNum"], config["maxIndexNum"]), (5, 8)):
        index = IndexStore(StoreLayout(root), "read", slots, entries)
        index.load()
        for segment in index.files:
            assert segment.shape == (64, 300)
            assert index_file.validate(segment.file, *segment.shape)
        end = index.end_physical_offset
        if archive.name.startswith(("batches", "clean", "expired")):
            assert end > 0
        for topic, key, offsets in expectation["must"]["index"]:
            # What RocketMQ's own recovery has yet to index lies at the end or beyond.
            assert {o for o in offsets if o < end} <= set(offsets_of(index, topic, key, limit=1000))
        index.close()
