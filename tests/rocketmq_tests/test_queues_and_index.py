"""Consume queues, the index and retention: what is built, where it begins, what goes with the log."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from rocketstore import Store
from tests.support.index_tools import make
from tests.support.made_store import PRE_BLANK, UNIT_SIZE, MadeStore
from tests.support.small_store import (
    DAY_MS,
    SEGMENT,
    SMALL,
    dispatched,
    everything,
    open_small,
    segments,
)

FIRST_MS = 1_700_000_000_000
QUEUE_FILE_UNITS = SMALL["consume_queue_file_size_bytes"] // UNIT_SIZE


def queue_bytes(root: Path) -> dict[str, bytes]:
    found = sorted((root / "consumequeue").rglob("0" * 10 + "*"))
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in found}


def bounds(store: Store, topic: str = "orders") -> tuple[int, int]:
    return store.min_queue_offset(topic, 0), store.max_queue_offset(topic, 0)


def at(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


# ---- queues ----


def test_a_unit_that_is_there_is_built_again_to_the_same_bytes(tmp_path: Path) -> None:
    """A crash makes the dispatcher begin in front of units that are there: no place moves (K-56)."""
    with open_small(tmp_path) as store:
        for number in range(40):
            store.writer("orders", queue_id=number % 2).put(b"x" * 50, tags="paid")
        dispatched(store)
    before = queue_bytes(tmp_path)
    assert len(before) == 4
    (tmp_path / "abort").touch()
    (tmp_path / "rocketstore" / "checkpoint").unlink()
    (tmp_path / "checkpoint").unlink()
    with open_small(tmp_path) as store:
        assert store.recovery.dispatch_start == 0
        assert len(everything(dispatched(store))) == 40
        assert queue_bytes(tmp_path) == before


def test_the_minimum_of_a_queue_follows_the_begin_of_the_log(tmp_path: Path) -> None:
    """The first unit at or beyond it; a queue with none left is empty at its maximum; again, the same."""
    made = MadeStore(tmp_path / "made")
    made.fill(5, topic="early")
    made.fill(60)
    with open_small(made.root) as store:
        assert (bounds(store, "early"), bounds(store)) == ((0, 5), (0, 60))
        for begin in (SEGMENT, SEGMENT, 3 * SEGMENT):
            assert store.trim(before_offset=begin) == begin
            kept = [r for r in made.records if r.physical_offset >= begin]
            assert bounds(store) == (kept[0].queue_offset, 60)
            assert bounds(store, "early") == (5, 5)
            assert everything(store, "early") == []
    first = next(r.queue_offset for r in made.records if r.physical_offset >= 3 * SEGMENT)
    with open_small(made.root) as store:
        assert (bounds(store, "early"), bounds(store)) == ((5, 5), (first, 60))
        assert store.writer("early").put(b"late").queue_offset == 5
        assert bounds(dispatched(store), "early") == (5, 6)


def test_a_queue_that_begins_at_100_begins_there_after_every_open(tmp_path: Path) -> None:
    """The places in front of its first message are filled, and count for nobody."""
    made = MadeStore(tmp_path / "made", queue_file_size=200)
    made.put(queue_offset=100)
    for number in range(100):
        made.write_unit("orders", 0, number, PRE_BLANK)
    made.dispatch()
    for mode in ("r", "rw", "rw"):
        with open_small(made.root, mode) as store:
            assert bounds(store) == (100, 101)
            assert [m.queue_offset for m in everything(store)] == [100]
    with open_small(made.root) as store:
        assert store.writer("orders").put(b"x").queue_offset == 101


# ---- the index ----


def test_every_key_of_a_full_index_file_is_found_once() -> None:
    sut = make(slots=100, entries=400)
    keys = [f"T#{number}" for number in range(399)]
    assert all(sut.put(key, number) for number, key in enumerate(keys))
    assert not sut.put("T#399", 399)
    for number, key in enumerate(keys):
        assert sut.offsets(key).count(number) == 1
    assert sut.offsets("T#60") == [60]
    assert 399 not in sut.offsets("T#399")


# ---- retention ----


def test_queue_and_index_files_go_with_the_last_message_they_speak_of(tmp_path: Path) -> None:
    """No file goes that speaks of a message still kept, and none stays that speaks of none."""
    with open_small(tmp_path) as store:
        writer = store.writer("orders")
        results = [writer.put(b"x" * 300, keys=f"k{n}") for n in range(150)]
        dispatched(store)
        per_index = SMALL["index_entries"] - 1
        for begin in range(SEGMENT, results[-1].physical_offset - SEGMENT, 3 * SEGMENT):
            assert store.trim(before_offset=begin) == begin
            first = next(n for n, r in enumerate(results) if r.physical_offset >= begin)
            assert bounds(store) == (first, 150)
            names = sorted(p.name for p in (tmp_path / "consumequeue/orders/0").iterdir())
            assert int(names[0]) == first // QUEUE_FILE_UNITS * QUEUE_FILE_UNITS * UNIT_SIZE
            assert len(names) == 15 - first // QUEUE_FILE_UNITS
            assert len(list((tmp_path / "index").iterdir())) == 3 - first // per_index
            assert [m.queue_offset for m in store.query("orders", f"k{first}")] == [first]


@pytest.mark.parametrize("young", [2, 4])
def test_by_time_files_go_in_order_up_to_the_first_young_one(tmp_path: Path, young: int) -> None:
    """K-49: records tell the time, so touching files changes nothing. A file is known to be old by the
    message that follows it; what lies behind a young one stays, however old it is."""
    made = MadeStore(tmp_path / "made")
    for number in range(6):
        for _ in range(3):
            made.put(body=b"x" * 1200, store_ms=FIRST_MS + (DAY_MS if number == young else 0))
    made.dispatch()
    assert [int(p.name) // SEGMENT for p in segments(made.root)] == list(range(6))
    for path in segments(made.root)[1:]:
        os.utime(path, (0, 0))
    with open_small(made.root) as store:
        assert store.trim(before_time=at(FIRST_MS)) == 0
        begin = store.trim(before_time=at(FIRST_MS + 1000))
        assert begin == (young - 1) * SEGMENT
        assert int(segments(made.root)[0].name) == begin
