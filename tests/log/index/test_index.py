"""The key index of a store: rolling, queries, resets and retention."""

from __future__ import annotations

import errno
import json
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore._native.format import index_file
from rocketstore._native.os import syscalls
from rocketstore.errors import StoreBehindError
from rocketstore.log.index import store as index_store
from rocketstore.log.index.segment import IndexSegment
from rocketstore.log.index.store import IndexStore, hash_of
from rocketstore.log.layout.lock import OUR_MARK
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.store_json import StoreState
from tests.support.index_tools import NOW_MS, names, offsets_of, opened, put
from tests.support.paths import VECTORS

STORES = VECTORS / "stores"
CASES = json.loads((VECTORS / "vectors.json").read_text())["index"]["files"]


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreLayout:
    """Of a store that only we have written."""
    (tmp_path / "index").mkdir(mode=0o700)
    (tmp_path / "rocketstore" / "tmp").mkdir(parents=True)
    (tmp_path / "lock").write_bytes(OUR_MARK)
    monkeypatch.setattr(index_store, "load_store_state", lambda _: StoreState("id", 0, True))
    return StoreLayout(tmp_path)


def refuse(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def index(layout: StoreLayout) -> IndexStore:
    """Two keys fill a file."""
    return opened(layout, entries=3)


@pytest.mark.parametrize("there", [True, False])
def test_an_empty_or_missing_directory_is_an_empty_index(tmp_path: Path, there: bool) -> None:
    if there:
        (tmp_path / "index").mkdir()
    index = opened(StoreLayout(tmp_path))
    assert index.files == ()
    assert index.target is None
    assert index.end_physical_offset == 0
    assert offsets_of(index, "T", "a") == []
    assert index.sync()
    assert index.trim(100) == []
    index.reset_from(0)
    index.close()


def test_a_missing_directory_is_made_for_the_first_key(tmp_path: Path) -> None:
    index = opened(StoreLayout(tmp_path))
    assert put(index, "a", 0)
    assert offsets_of(index, "T", "a") == [0]
    assert (tmp_path / "index").stat().st_mode & 0o777 == tmp_path.stat().st_mode & 0o777


def test_rolling_gives_the_files_of_rocketmq(layout: StoreLayout) -> None:
    """Q-22: a full file and its successor, byte for byte; the successor carries the end on."""
    first, second, _ = CASES
    index = opened(layout, slots=first["slots"], entries=first["capacity"])
    puts = dict.fromkeys(tuple(x) for x in (*first["puts"], *second["puts"]))  # one is in both
    for text, offset, time_ms in puts:
        topic, _, key = text.partition("#")
        assert put(index, key, offset, time_ms, topic)
    index.close()
    contents = [(layout.index / name).read_bytes().hex() for name in names(layout)]
    assert contents == [first["hex"], second["hex"]]


def test_what_was_put_is_there_after_opening_again(layout: StoreLayout, rng: random.Random) -> None:
    index = opened(layout, slots=11, entries=20)
    model: dict[str, list[int]] = {}
    for offset in range(0, 10_000, 50):
        key = f"k{rng.randrange(30)}"
        put(index, key, offset)
        model.setdefault(key, []).insert(0, offset)
    end = index.end_physical_offset
    index.close()
    assert offsets_of(index, "T", "k1") == []
    again = opened(layout, slots=11, entries=20)
    assert again.end_physical_offset == end == 9951
    for key, offsets in model.items():
        assert offsets_of(again, "T", key) == offsets
    assert put(again, "last", 10_000)
    assert offsets_of(again, "T", "last") == [10_000]


def test_the_next_key_goes_on_in_the_file_that_is_not_full(layout: StoreLayout) -> None:
    index = opened(layout)
    put(index, "a", 0)
    index.close()
    again = opened(layout)
    assert again.target is not None
    assert again.target.limit == 0  # blocks are not known, so they are reserved first
    put(again, "a", 1)
    assert len(names(layout)) == 1
    assert offsets_of(again, "T", "a") == [1, 0]


def test_limit_takes_the_newest_over_all_files(layout: StoreLayout) -> None:
    index = opened(layout, entries=4)
    for offset in range(20):
        put(index, "a", offset)
    assert offsets_of(index, "T", "a", limit=5) == [19, 18, 17, 16, 15]
    assert offsets_of(index, "T", "a", limit=0) == []


def test_one_record_in_two_files_is_one_candidate(index: IndexStore) -> None:
    for key in ("x", "a", "a"):
        put(index, key, 7)
    assert len(index.files) == 2
    assert offsets_of(index, "T", "a") == [7]


def test_begin_is_widened_by_the_second_that_entries_lose(layout: StoreLayout) -> None:
    """Format 7.6: an entry's time can be 999 ms before its record's."""
    index = opened(layout)
    put(index, "a", 0, NOW_MS)
    put(index, "a", 1, NOW_MS + 1999)
    assert offsets_of(index, "T", "a", NOW_MS + 1999, NOW_MS + 1999) == [1]
    assert offsets_of(index, "T", "a", NOW_MS + 2001, NOW_MS + 9999) == []


def test_files_outside_the_window_are_not_searched(
    monkeypatch: pytest.MonkeyPatch, index: IndexStore
) -> None:
    for number in range(8):
        put(index, "a", number, NOW_MS + number * 10_000)
    searched: list[str] = []
    real = IndexSegment.walk

    def walk(segment: IndexSegment, *arguments: Any) -> Iterator[int]:
        searched.append(segment.name)
        return real(segment, *arguments)

    monkeypatch.setattr(IndexSegment, "walk", walk)
    assert offsets_of(index, "T", "a", NOW_MS + 40_000, NOW_MS + 50_000) == [5, 4]
    assert searched == [index.files[2].name]


def test_extreme_windows_are_no_error(layout: StoreLayout) -> None:
    index = opened(layout)
    put(index, "a", 0)
    assert offsets_of(index, "T", "a", -(2**70), 2**70) == [0]
    assert offsets_of(index, "T", "a", -(2**63), 2**63 - 1) == [0]


@pytest.mark.parametrize("limit", [0, 1, 60, 61, 149, 150, 199, 200, 10_000])
def test_a_reset_drops_what_lies_at_or_beyond(layout: StoreLayout, limit: int) -> None:
    index = opened(layout, entries=8)
    for offset in range(0, 200, 10):
        put(index, f"k{offset % 3}", offset)
    index.reset_from(limit)
    kept = [offset for offset in range(0, 200, 10) if offset < limit]
    for key in range(3):
        assert offsets_of(index, "T", f"k{key}") == [o for o in reversed(kept) if o % 3 == key]
    assert index.end_physical_offset == (kept[-1] + 1 if kept else 0)
    assert [segment.name for segment in index.files] == names(layout)
    for segment in index.files:
        assert index_file.validate(segment.file, *segment.shape)
    for offset in range(len(kept) * 10, 200, 10):
        put(index, f"k{offset % 3}", offset)
    for key in range(3):
        assert offsets_of(index, "T", f"k{key}") == [o for o in range(190, -1, -10) if o % 3 == key]


def test_a_reset_mends_what_a_loss_of_power_tore(layout: StoreLayout) -> None:
    """K-15: the newest file is not thrown away; its chains are linked anew from its entries."""
    index = opened(layout, entries=30)
    for offset in range(20):
        put(index, f"k{offset % 3}", offset)
    segment = index.files[0]
    for slot in range(5):  # slots of any age
        segment.file.write(40 + 4 * slot, (25).to_bytes(4, "big"))
    segment.file.zero(index_file.entry_position(5, 16), 5 * 20)  # a page that was never written
    index.close()
    again = opened(layout, entries=30)
    again.reset_from(12)
    for key in range(3):
        assert offsets_of(again, "T", f"k{key}") == [o for o in range(11, -1, -1) if o % 3 == key]


def test_a_reset_ends_the_trouble_of_a_full_disk(
    monkeypatch: pytest.MonkeyPatch, index: IndexStore
) -> None:
    """K-58: once there is room, what was not indexed is, without a restart."""
    put(index, "a", 0)
    put(index, "a", 1)
    with monkeypatch.context() as patched:
        patched.setattr(syscalls, "fallocate", refuse)
        assert not put(index, "a", 2)
        index.reset_from(2)
        cause = index.degraded
        assert cause is not None
        with pytest.raises(StoreBehindError, match=re.escape(cause)):
            offsets_of(index, "T", "a")
    index.reset_from(2)
    assert index.degraded is None
    assert put(index, "a", 2)
    assert offsets_of(index, "T", "a") == [2, 1, 0]


def test_a_reset_in_private_memory_leaves_the_disk_alone(
    layout: StoreLayout, index: IndexStore
) -> None:
    for offset in range(4):
        put(index, "a", offset)
    index.close()
    before = {name: (layout.index / name).read_bytes() for name in names(layout)}
    private = opened(layout, entries=3, access="private")
    private.reset_from(1)
    assert offsets_of(private, "T", "a") == [0]
    private.close()
    assert {name: (layout.index / name).read_bytes() for name in names(layout)} == before


def test_a_reader_changes_nothing(layout: StoreLayout) -> None:
    index = opened(layout)
    put(index, "a", 0)
    reader = opened(layout, access="read")
    assert offsets_of(reader, "T", "a") == [0]
    with pytest.raises(ValueError, match="read"):
        reader.reset_from(0)
    with pytest.raises(ValueError, match="read"):
        reader.make_room()


def test_a_reader_follows_a_live_writer(layout: StoreLayout, index: IndexStore) -> None:
    put(index, "a", 0)
    reader = opened(layout, entries=3, access="read")
    put(index, "a", 1)
    put(index, "a", 2)
    assert offsets_of(reader, "T", "a") == [1, 0]
    first = reader.files[0]
    reader.load()
    assert offsets_of(reader, "T", "a") == [2, 1, 0]
    assert reader.files[0] is first


def test_trim_removes_whole_files_and_never_the_newest(
    layout: StoreLayout, index: IndexStore
) -> None:
    for offset in range(6):
        put(index, "a", offset)
    all_names = names(layout)
    assert index.trim(1) == []
    assert index.trim(2) == all_names[:1]
    assert index.trim(1000) == all_names[1:2]
    assert names(layout) == all_names[2:]
    assert offsets_of(index, "T", "a") == [5, 4]


def test_a_query_outlives_the_files_it_looks_at(index: IndexStore) -> None:
    """A file that is trimmed or closed meanwhile stays mapped as long as somebody has it."""
    for offset in range(6):
        put(index, "a", offset)
    segment = index.files[0]
    index.trim(1000)
    index.close()
    assert list(segment.walk(hash_of("T", "a"), 0, 2**62)) == [1, 0]


@pytest.mark.parametrize(
    ("state", "mark"),
    [
        (None, OUR_MARK),
        (StoreState("id", 0, True, foreign=((0, 9),)), OUR_MARK),
        (StoreState("id", 0, True), b"lock"),
    ],
    ids=["none", "foreign", "not noted yet"],
)
def test_times_of_another_writer_may_fall(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, state: StoreState | None, mark: bytes
) -> None:
    """Nobody kept a clock that was set back from its entries. Who only reads does not note that another wrote last."""
    layout.lock.write_bytes(mark)
    index = opened(layout)
    for offset, time_ms in ((0, NOW_MS + 90_000_000), (1, NOW_MS)):
        assert put(index, "a", offset, time_ms)
    monkeypatch.setattr(index_store, "load_store_state", lambda _: state)
    assert offsets_of(index, "T", "a", end_ms=NOW_MS + 1000) == [1, 0]


@pytest.mark.parametrize("window", [{"begin_ms": NOW_MS}, {"end_ms": NOW_MS}, {}])
def test_where_times_fall_is_asked_only_with_a_time(
    layout: StoreLayout, monkeypatch: pytest.MonkeyPatch, window: dict[str, int]
) -> None:
    """A reader beside a live writer looks at the directory anew for each query."""
    index = opened(layout)
    assert put(index, "a", 0, NOW_MS)
    looks: list[StoreLayout] = []

    def look(layout: StoreLayout) -> StoreState:
        looks.append(layout)
        return StoreState("id", 0, True)

    monkeypatch.setattr(index_store, "load_store_state", look)
    for times in (1, 2):
        index.load()
        assert offsets_of(index, "T", "a", **window) == [0]
        assert offsets_of(index, "T", "a", **window) == [0]
        assert len(looks) == (times if window else 0)
