"""The begin of a segment that is not full, in an archive: `ship` with `tail=True`."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.archive.manifest import Manifest
from rocketstore.archive.object_store import ObjectStore
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import plan_batch
from tests.archive.watched_object_store import (
    MANIFEST,
    SEGMENT_BYTES,
    objects,
    sealed,
    small_pieces,
    uri_of,
    watch,
)
from tests.support.column_tools import fill_at_random, rows_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")

ANY_SEED = 7


def ship(tmp_path: Path, **options: Any) -> rocketstore.ShipReport:
    return rocketstore.ship(tmp_path / "store", uri_of(tmp_path), **{"tail": True, **options})


def put(tmp_path: Path, count: int) -> None:
    fill_at_random(tmp_path / "store", random.Random(ANY_SEED), count)


def here(tmp_path: Path, end: int | None = None) -> list[dict[str, Any]]:
    return rows_of(rocketstore.scan(tmp_path / "store", end_offset=end))


def there(tmp_path: Path, **options: Any) -> list[dict[str, Any]]:
    return rows_of(rocketstore.scan(uri_of(tmp_path), **options))


def tails(tmp_path: Path) -> list[str]:
    return [name for name in objects(tmp_path) if name.endswith(".tail")]


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_pieces(monkeypatch)
    put(tmp_path, 300)
    report = ship(tmp_path)
    assert there(tmp_path) == here(tmp_path)
    assert report.segments == report.archived_segments == len(sealed(tmp_path)) > 0
    assert report.bytes == report.segments * SEGMENT_BYTES + report.tail_bytes == report.end_offset
    assert (report.left_begin, report.left_messages) == (report.end_offset, ())
    assert report.missing_bytes == 0
    assert tails(tmp_path) == [f"{report.segments * SEGMENT_BYTES:020}.tail"]
    topic = here(tmp_path)[-1]["topic"]
    wanted = [row for row in here(tmp_path) if row["topic"] == topic]
    assert there(tmp_path, topics=topic) == wanted
    parts = rocketstore.scan(uri_of(tmp_path)).split(PART := 7000)
    assert [row for part in parts for row in rows_of(part)] == here(tmp_path)
    assert len(parts) > report.end_offset // (3 * PART)
    options = ReadOptions.parse({"path": uri_of(tmp_path), "splitBytes": "20k"})
    assert sum(chunk.rows for s in plan_batch(options)[0] for chunk in s) == len(here(tmp_path))


def test_a_log_of_one_segment(tmp_path: Path) -> None:
    """Nothing of it came into an archive before it was full."""
    with rocketstore.open(tmp_path / "store", durability="disk", index_enabled=False) as store:
        store.ship(uri_of(tmp_path), tail=True)
        assert objects(tmp_path) == [MANIFEST]
        store.writer("orders").put(b"one")
        report = store.ship(uri_of(tmp_path), tail=True)
        assert report.end_offset == report.tail_bytes == store.flushed_offset
        [scan] = rocketstore.scan(uri_of(tmp_path)).split(1)
        assert [body for chunk in scan for body in chunk["body"].tolist()] == [b"one"]


def test_parts_of_a_tail_begin_at_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it is the only segment that is looked into: its size is not that of a segment."""
    small_pieces(monkeypatch)
    put(tmp_path, 150)
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        for number in range(60):
            store.writer("last").put(b"%d" % number * 100)
    ship(tmp_path)
    wanted = [row for row in here(tmp_path) if row["topic"] == "last"]
    for split_bytes in (5000, 20_000, 40_000, 1 << 20):
        parts = rocketstore.scan(uri_of(tmp_path), topics="last").split(split_bytes)
        assert [row for part in parts for row in rows_of(part)] == wanted


def test_the_next_call_replaces_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, 200)
    first = ship(tmp_path)
    earlier = rocketstore.scan(uri_of(tmp_path))
    rows = rows_of(earlier)
    system = watch(monkeypatch)
    assert (ship(tmp_path).bytes, ship(tmp_path).tail_bytes) == (0, first.tail_bytes)
    assert ship(tmp_path, tail=False).left_begin == first.end_offset
    assert [what for what, _ in system.calls if what == "open_output_stream"] == []
    put(tmp_path, 3)
    second = ship(tmp_path)
    assert second.tail_bytes == second.bytes > first.tail_bytes
    assert tails(tmp_path) == [f"{first.segments * SEGMENT_BYTES:020}.tail"]
    put(tmp_path, 100)
    third = ship(tmp_path)
    assert third.segments > 0
    assert there(tmp_path) == here(tmp_path)
    assert rows_of(earlier) == rows  # a reader that has the first manifest
    assert len(tails(tmp_path)) == 2
    ship(tmp_path)
    assert tails(tmp_path) == [f"{third.archived_segments * SEGMENT_BYTES:020}.tail"]
    # Without `tail` a whole segment replaces it as well.
    put(tmp_path, 100)
    last = ship(tmp_path, tail=False)
    assert last.tail_bytes == 0
    assert there(tmp_path) == here(tmp_path, last.end_offset)
    assert last.end_offset % SEGMENT_BYTES == 0
    assert json.loads((tmp_path / "archive" / MANIFEST).read_bytes())["version"] == 1


@pytest.mark.parametrize("kind", ["local", "s3"])
def test_a_failure_at_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Readers see the tail before or the one after, and the next call finishes."""
    put(tmp_path, 150)
    archive, before = tmp_path / "archive", tmp_path / "before"
    first = ship(tmp_path)
    put(tmp_path, 90)  # the segment gets full, and there is a tail of the next one
    archive.rename(before)
    shutil.copytree(before, archive)
    system = watch(monkeypatch, kind)
    assert ship(tmp_path).segments > 0
    calls, everything = len(system.calls), here(tmp_path)
    known = (here(tmp_path, first.end_offset), everything)
    for number in range(calls):
        shutil.rmtree(archive)
        shutil.copytree(before, archive)
        watch(monkeypatch, kind).fail_at = number
        with pytest.raises((OSError, rocketstore.ReadFailedError), match="planted"):
            ship(tmp_path)
        watch(monkeypatch, kind)
        found = there(tmp_path)
        assert found[: len(known[0])] == known[0], number
        assert found == everything[: len(found)], number
        ship(tmp_path)
        assert there(tmp_path) == everything, number


def test_a_place_that_replaces_in_two_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, 100)
    watch(monkeypatch, "hdfs")
    with pytest.raises(rocketstore.ConfigError, match="tail = True: False: this place replaces"):
        ship(tmp_path)
    assert not (tmp_path / "archive").exists()
    with pytest.raises(TypeError, match="tail = 1: True or False"):
        ship(tmp_path, tail=1)
    ship(tmp_path, tail=False)


def test_another_log_is_refused(tmp_path: Path) -> None:
    """An older copy, put back, and grown to more than was shipped."""
    put(tmp_path, 150)
    shutil.copytree(tmp_path / "store", tmp_path / "older")
    put(tmp_path, 5)
    ship(tmp_path)
    shutil.rmtree(tmp_path / "store")
    (tmp_path / "older").rename(tmp_path / "store")
    fill_at_random(tmp_path / "store", random.Random(ANY_SEED + 1), 10)
    with pytest.raises(rocketstore.ConfigError, match="cut or replaced"):
        ship(tmp_path)


def test_a_damaged_tail_is_not_shipped(tmp_path: Path) -> None:
    put(tmp_path, 150)
    last = here(tmp_path)[-1]["physical_offset"]
    name = sealed(tmp_path)[-1]
    newest = sorted((tmp_path / "store" / "commitlog").iterdir())[-1]
    with newest.open("r+b") as file:
        file.seek(last % SEGMENT_BYTES + 90)
        file.write(b"\xff\xff")
    with pytest.raises(rocketstore.CorruptRecordError):
        ship(tmp_path)
    assert objects(tmp_path)[-2:] == [name, MANIFEST]


def test_a_tail_that_cannot_be_removed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, 150)
    ship(tmp_path)
    put(tmp_path, 100)
    ship(tmp_path)
    [old, _] = tails(tmp_path)
    watch(monkeypatch).broken = {old}
    ship(tmp_path)
    assert f"{old} stays there: planted" in caplog.text
    assert there(tmp_path) == here(tmp_path)


def test_what_a_manifest_says_of_it(tmp_path: Path) -> None:
    put(tmp_path, 150)
    ship(tmp_path)
    manifest = ObjectStore(uri_of(tmp_path)).manifest()
    assert [s.tail_of for s in manifest.segments[:-1]] == [0] * (len(manifest.segments) - 1)
    assert manifest.segments[-1].tail_of == SEGMENT_BYTES
    found = json.loads(manifest.dump())
    assert found["version"] == 2
    assert Manifest.parse(manifest.dump(), "it") == manifest
    for wrong in (found["segments"][-1]["size"], -1, "64k", True):
        found["segments"][-1]["tail_of"] = wrong
        with pytest.raises(rocketstore.ReadFailedError, match="contradicts itself"):
            Manifest.parse(json.dumps(found).encode(), "it")
