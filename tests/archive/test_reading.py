"""A scan of an archive says what a scan of the log says, and fetches no more than it needs."""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.archive.object_store import ObjectStore
from rocketstore.archive.segments import ObjectFiles
from rocketstore.columns import COLUMNS
from tests.archive.watched_object_store import SEGMENT_BYTES, objects, shipped, watch
from tests.support.column_tools import rows_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")


def test_an_archive_is_scanned_as_the_log(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri, report = shipped(tmp_path, rng, monkeypatch)
    assert report.segments == len(objects(tmp_path)) - 1 >= 4
    local = rocketstore.scan(store, columns=COLUMNS, end_offset=report.end_offset)
    expected = rows_of(local)
    found = rocketstore.scan(uri, columns=COLUMNS)
    assert rows_of(found) == expected
    assert len(expected) > 300
    assert found.report.records == local.report.records == len(expected)
    for columns in ([], ["body"], ["topic", "body_view"]):
        here = rocketstore.scan(store, columns=columns, end_offset=report.end_offset)
        assert (
            rocketstore.scan(uri, columns=columns)
            .to_arrow()
            .read_all()
            .equals(here.to_arrow().read_all())
        )


def test_objects_are_the_files_byte_for_byte(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, _, report = shipped(tmp_path, rng, monkeypatch)
    names = [name for name in objects(tmp_path) if name.isdecimal()]
    assert len(names) * SEGMENT_BYTES == report.bytes == report.end_offset
    for name in names:
        here = (store / "commitlog" / name).read_bytes()
        assert (tmp_path / "archive" / name).read_bytes() == here


@pytest.mark.parametrize("split_bytes", [1000, 20_000, SEGMENT_BYTES, 1 << 30])
def test_parts_hold_each_record_once_wherever_they_are_read(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, split_bytes: int
) -> None:
    _, uri, report = shipped(tmp_path, rng, monkeypatch)
    system = watch(monkeypatch)
    whole = rocketstore.scan(uri)
    plan = whole.split(split_bytes)
    assert system.opened() == []  # the manifest is all that planning reads
    if split_bytes <= 20_000:
        assert len(plan) > 2 * report.segments
    parts = pickle.loads(pickle.dumps(plan))
    assert [row for part in parts for row in rows_of(part)] == rows_of(whole)
    assert [part.end_offset for part in parts[:-1]] == [part.begin_offset for part in parts[1:]]
    assert (parts[0].begin_offset, parts[-1].end_offset) == (0, report.end_offset)


def test_a_part_fetches_its_pieces_alone(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch)
    system = watch(monkeypatch)
    manifest = ObjectStore(uri).manifest()
    second = manifest.segments[1]
    assert len(second.pieces) > 5
    part = rocketstore.scan(
        uri,
        begin_offset=second.start_offset + second.pieces[1][0],
        end_offset=second.start_offset + second.pieces[3][0],
        aligned=True,
    )
    system.calls.clear()
    assert rows_of(part)
    assert [what for what, name in system.calls] == ["open_input_file", "read_at", "read_at"]
    assert {name for _, name in system.calls} == {second.name}


def test_offsets_choose_records(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri, report = shipped(tmp_path, rng, monkeypatch)
    for _ in range(30):
        first, last = sorted(rng.randrange(report.end_offset + 1) for _ in range(2))
        bounds: dict[str, Any] = {"begin_offset": first, "end_offset": last}
        assert rows_of(rocketstore.scan(uri, **bounds)) == rows_of(
            rocketstore.scan(store, **bounds)
        )
    with pytest.raises(rocketstore.OffsetOutOfRangeError):
        rocketstore.scan(uri, end_offset=report.end_offset + 1)


def test_filters_choose_what_they_choose_in_the_log(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri, report = shipped(tmp_path, rng, monkeypatch)
    rows = rows_of(rocketstore.scan(uri))
    middle = rows[len(rows) // 2]["store_timestamp_ms"]
    cases: list[dict[str, Any]] = [
        {"topics": "orders"},
        {"topic_pattern": "o.*"},
        {"queues": {"orders": [0, 2]}},
        {"tags": "paid || late"},
        {"begin": middle, "end": middle + 2},
        {"topics": "nobody-has-it"},
    ]
    for wanted in cases:
        here = rows_of(rocketstore.scan(store, end_offset=report.end_offset, **wanted))
        assert rows_of(rocketstore.scan(uri, **wanted)) == here, wanted
        parts = rocketstore.scan(uri, **wanted).split(10_000)
        assert [row for part in parts for row in rows_of(part)] == here, wanted


def store_by_topic(path: Path) -> list[dict[str, Any]]:
    """Each topic fills the rest of a segment and begins the next one, a millisecond or more behind the one
    before; the rows."""
    config: dict[str, Any] = {"commit_log_file_size_bytes": SEGMENT_BYTES, "durability": "os"}
    with rocketstore.open(path, **config) as store:
        for number in range(6):
            writer = store.writer(f"topic{number}")
            first = result = writer.put(b"x" * 2000)
            while result.physical_offset // SEGMENT_BYTES == first.physical_offset // SEGMENT_BYTES:
                result = writer.put(b"x" * 2000)
            last = result.store_timestamp_ms
            while result.store_timestamp_ms == last:
                result = store.put_message("filler", b"")
        return rows_of(rocketstore.scan(store))


def test_what_cannot_match_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = store_by_topic(tmp_path / "store")
    uri = f"file://{tmp_path}/archive"
    rocketstore.ship(tmp_path / "store", uri)
    system = watch(monkeypatch)
    for number in range(5):
        mine = [row for row in rows if row["topic"] == f"topic{number}"]
        homes = {row["physical_offset"] // SEGMENT_BYTES for row in mine}
        names = [f"{home * SEGMENT_BYTES:020}" for home in sorted(homes)]
        assert len(names) <= 2
        first, last = mine[0]["store_timestamp_ms"], mine[-1]["store_timestamp_ms"]
        for wanted in (
            {"topics": f"topic{number}"},
            {"topic_pattern": f".*{number}"},
            {"topics": f"topic{number}", "begin": first, "end": last + 1},
        ):
            system.calls.clear()
            scan = rocketstore.scan(uri, **wanted)
            assert rows_of(scan) == mine
            assert system.opened() == names, wanted
    system.calls.clear()
    late = rows[-1]["store_timestamp_ms"] + 1
    assert rows_of(rocketstore.scan(uri, begin=late)) == []
    assert rows_of(rocketstore.scan(uri, topics="nobody-has-it")) == []
    assert rocketstore.scan(uri, topics="nobody-has-it").split(1000) == []
    assert system.opened() == []


def test_times_pass_over_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = store_by_topic(tmp_path / "store")
    uri = f"file://{tmp_path}/archive"
    rocketstore.ship(tmp_path / "store", uri)
    system = watch(monkeypatch)
    manifest = ObjectStore(uri).manifest()
    third = manifest.segments[2]
    assert third.store_times_ms is not None
    begin, end = third.store_times_ms
    mine = [row for row in rows if begin <= row["store_timestamp_ms"] <= end]
    system.calls.clear()
    scan = rocketstore.scan(uri, begin=begin, end=end + 1)
    assert rows_of(scan) == mine
    expected = [
        s.name
        for s in manifest.segments
        if s.store_times_ms and s.store_times_ms[0] <= end and s.store_times_ms[1] >= begin
    ]
    assert system.opened() == expected
    assert third.name in expected
    assert len(expected) < len(manifest.segments)


def test_parts_are_cut_where_pieces_begin(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, report = shipped(tmp_path, rng, monkeypatch)
    begins = [
        segment.start_offset + begin
        for segment in ObjectStore(uri).manifest().segments
        for begin in (0, *(end for end, _ in segment.pieces[:-1]))
    ]
    archive = rocketstore.scan(uri).archive
    assert archive is not None
    files = ObjectFiles(archive, check=True, skip_damage=False)
    for offset in (*begins, *(rng.randrange(report.end_offset) for _ in range(200))):
        following = min((begin for begin in begins if begin >= offset), default=report.end_offset)
        assert files.cut(offset, report.end_offset) == following
        assert files.cut(offset, offset + 1) == (offset if following == offset else offset + 1)
    assert files.cut(report.end_offset, report.end_offset + 7) == report.end_offset + 7


def test_a_filter_over_properties(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri, report = shipped(tmp_path, rng, monkeypatch)
    for where in ("KEYS CONTAINS 'k1'", "p0 IS NOT NULL AND 'k0' <> KEYS"):
        here = rocketstore.scan(store, columns=COLUMNS, where=where, end_offset=report.end_offset)
        expected = rows_of(here)
        assert rows_of(rocketstore.scan(uri, columns=COLUMNS, where=where)) == expected
        assert 10 < len(expected) < 300
