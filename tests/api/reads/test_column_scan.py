"""`rocketstore.scan`: columns say what messages say."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from tests.support.column_tools import fill_at_random, messages_of, rows_of


def test_columns_equal_messages(rng: random.Random, root: Path) -> None:
    fill_at_random(root, rng, 600)
    expected = messages_of(root)
    assert rows_of(rocketstore.scan(root)) == expected
    assert len(expected) == 600


def test_parts_hold_each_record_once(rng: random.Random, root: Path) -> None:
    fill_at_random(root, rng, 600)
    whole = rocketstore.scan(root)
    expected = rows_of(whole)
    for split_bytes in (1000, 10_000, 64 << 10, 1 << 30):
        parts = pickle.loads(pickle.dumps(whole.split(split_bytes)))
        assert [row for part in parts for row in rows_of(part)] == expected
        assert parts[0].begin_offset == whole.begin_offset
        assert parts[-1].end_offset == whole.end_offset


def test_a_little_behind_a_segment_is_no_part_of_its_own(tmp_path: Path) -> None:
    with rocketstore.open(
        tmp_path / "s", durability="os", commit_log_file_size_bytes=64 << 10
    ) as store:
        writer = store.writer("orders")
        while store.end_offset < (128 << 10) + 1000:
            writer.put(bytes(900))
    scan = rocketstore.scan(tmp_path / "s")
    parts = scan.split(32 << 10)
    assert [part.begin_offset >> 10 for part in parts] == [0, 32, 64, 96]
    assert parts[-1].end_offset == scan.end_offset > 128 << 10
    assert sum(len(rows_of(part)) for part in parts) == len(rows_of(scan))
    more = scan.split(4 << 10)  # here it is an eighth of a part, and more
    assert more[-1].begin_offset == 128 << 10


def test_filters(rng: random.Random, root: Path) -> None:
    fill_at_random(root, rng, 400)
    rows = rows_of(rocketstore.scan(root))
    middle = rows[200]["store_timestamp_ms"]
    cases = [
        ({"topics": "orders"}, lambda row: row["topic"] == "orders"),
        ({"topic_pattern": "o.*"}, lambda row: row["topic"].startswith("o")),
        ({"queues": 1}, lambda row: row["queue_id"] == 1),
        (
            {"queues": {"orders": [0, 2]}},
            lambda row: row["topic"] == "orders" and row["queue_id"] in (0, 2),
        ),
        ({"tags": "paid || late"}, lambda row: row["tags"] in ("paid", "late")),
        ({"begin": middle}, lambda row: row["store_timestamp_ms"] >= middle),
        ({"end": middle}, lambda row: row["store_timestamp_ms"] < middle),
    ]
    for arguments, wanted in cases:
        found = rows_of(rocketstore.scan(root, **arguments))
        assert found == [row for row in rows if wanted(row)], arguments


def test_offsets_choose_records(rng: random.Random, root: Path) -> None:
    fill_at_random(root, rng, 100)
    rows = rows_of(rocketstore.scan(root))
    places = [row["physical_offset"] for row in rows]
    for first, last in ((10, 90), (0, 1), (99, 99)):
        begin, end = places[first] - 1 if first else 0, places[last] + 1
        found = rows_of(rocketstore.scan(root, begin_offset=begin, end_offset=end))
        assert found == rows[first : last + 1]


def test_wrong_arguments_are_refused(tmp_path: Path, root: Path) -> None:
    with rocketstore.open(root, durability="os") as store:
        store.writer("orders").put(b"body")
        for wrong in (
            {"columns": ["colour"]},
            {"chunk_bytes": 0},
            {"on_damage": "ignore"},
            {"verify": "much"},
            {"tags": " "},
            {"queues": [2**40]},
            {"topics": "a", "topic_pattern": "b"},
        ):
            with pytest.raises(ValueError, match="="):
                rocketstore.scan(store, **wrong)
        with pytest.raises(rocketstore.OffsetOutOfRangeError):
            rocketstore.scan(store, begin_offset=10_000)
        with pytest.raises(rocketstore.OffsetOutOfRangeError):
            rocketstore.scan(store, end_offset=10_000)
    with pytest.raises(FileNotFoundError):
        rocketstore.scan(tmp_path / "nothing")


@pytest.mark.parametrize("on_damage", ["raise", "skip"])
def test_a_scan_that_is_changed_ends_within_its_log(tmp_path: Path, on_damage: Any) -> None:
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        store.writer("orders").put(b"body")
        scan = rocketstore.scan(store, on_damage=on_damage)
    end = scan.end_offset
    for changes, low, status in (
        ({"end_offset": end + 1}, 0, "OFFSET_OVERFLOW_BADLY"),
        ({"end_offset": 2**31}, 0, "OFFSET_OVERFLOW_BADLY"),
        ({"end_offset": -1}, 0, "OFFSET_TOO_SMALL"),
        ({"begin_offset": -1}, 0, "OFFSET_TOO_SMALL"),
        ({"begin_offset": end, "end_offset": end - 1}, end, "OFFSET_TOO_SMALL"),
        ({"limit_offset": end - 1}, 0, "OFFSET_OVERFLOW_BADLY"),
    ):
        with pytest.raises(rocketstore.OffsetOutOfRangeError) as caught:
            replace(scan, **changes)
        assert (caught.value.minimum, caught.value.status) == (low, status), changes
    with pytest.raises(TypeError, match="end_offset"):
        replace(scan, end_offset=1.5)
    assert rows_of(replace(scan, begin_offset=end)) == []
