"""An archive belongs to one store, with a name or without, and to one history of its log."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import CorruptRecordError, Retention, shipping
from rocketstore.archive.manifest import Manifest
from rocketstore.archive.object_store import ObjectStore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import plan_batch
from tests.archive.changed_log import Case, note_of, rows, shipped_and_trimmed, taken_back, trim
from tests.archive.watched_object_store import (
    SEGMENT_BYTES,
    objects,
    sealed,
    shipped,
    small_pieces,
    uri_of,
)
from tests.support.column_tools import fill_at_random, messages_of, rows_of
from tests.support.made_store import rocketmq_store
from tests.support.small_store import SEGMENT, segments
from tests.support.state_json import change_json

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")


def test_another_store_is_refused(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, report = shipped(tmp_path, rng, monkeypatch)
    before = {n: (tmp_path / "archive" / n).read_bytes() for n in objects(tmp_path)}
    fill_at_random(tmp_path / "other", rng, 300)
    with pytest.raises(rocketstore.ConfigError, match="ship to another place") as caught:
        rocketstore.ship(tmp_path / "other", uri)
    assert caught.value.field == "uri"
    assert {n: (tmp_path / "archive" / n).read_bytes() for n in objects(tmp_path)} == before
    assert report.segments > 0


@pytest.mark.parametrize("where", ["commitlog", ""])
def test_a_store_is_no_place_for_an_archive(tmp_path: Path, rng: random.Random, where: str) -> None:
    """Segments of the same names would be written over."""
    for name in ("store", "other"):
        fill_at_random(tmp_path / name, rng, 300)
    place = tmp_path / "other" / where
    images = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with pytest.raises(rocketstore.ConfigError, match="choose another place") as caught:
        rocketstore.ship(tmp_path / "store", place.as_uri())
    assert caught.value.field == "uri"
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == images


def test_a_log_that_was_put_back_is_refused(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older copy of the same store goes on with other messages at the same offsets."""
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 200)
    shutil.copytree(store, tmp_path / "copy")
    fill_at_random(store, rng, 300)
    rocketstore.ship(store, uri)
    shutil.rmtree(store)
    (tmp_path / "copy").rename(store)
    fill_at_random(store, rng, 400)
    with pytest.raises(rocketstore.ConfigError, match="cut or replaced"):
        rocketstore.ship(store, uri)


def test_a_store_that_only_rocketmq_wrote(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no name: its bytes tell it from others. It gets one when rocketstore opens it for writing."""
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 300)
    shutil.rmtree(store / "rocketstore")
    first = rocketstore.ship(store, uri, commit_log_dir=str(store / "commitlog"))
    assert first.segments > 0
    manifest = ObjectStore(uri).manifest()
    assert manifest.store == ""
    assert all(segment.foreign for segment in manifest.segments)
    assert rows_of(rocketstore.scan(uri)) == rows_of(
        rocketstore.scan(store, end_offset=first.end_offset)
    )
    fill_at_random(tmp_path / "other", rng, 300)
    shutil.rmtree(tmp_path / "other" / "rocketstore")
    with pytest.raises(rocketstore.ConfigError, match="cut or replaced"):
        rocketstore.ship(tmp_path / "other", uri)
    fill_at_random(store, rng, 300)
    assert rocketstore.ship(store, uri).segments > 0
    assert ObjectStore(uri).manifest().store != ""
    with pytest.raises(rocketstore.ConfigError, match="without a name"):
        rocketstore.ship(tmp_path / "other", uri)


@pytest.mark.parametrize(
    "name", ["batches-498", "batches-533", "clean-498", "clean-533", "crashed-533", "expired-498",
             "queues-lost-498", "torn-533"],
)  # fmt: skip
def test_stores_of_rocketmq(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "PIECE_BYTES", 1000)
    root, _ = rocketmq_store(name, tmp_path)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    report = rocketstore.ship(root, uri_of(tmp_path))
    assert report.segments > 0
    found = rocketstore.scan(uri_of(tmp_path))
    both: dict[str, Any] = {"begin_offset": found.begin_offset, "end_offset": report.end_offset}
    expected = rows_of(rocketstore.scan(root, **both))
    assert rows_of(found) == expected != []
    assert [row for part in found.split(2000) for row in rows_of(part)] == expected
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_a_log_without_a_name_needs_a_common_segment(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 300)
    shutil.rmtree(store / "rocketstore")
    rocketstore.ship(store, uri)
    for name in sealed(tmp_path):
        (store / "commitlog" / name).unlink()
    with pytest.raises(rocketstore.ConfigError, match="no segment in common"):
        rocketstore.ship(store, uri)


def test_checksums_that_rocketmq_left_behind_are_counted(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that it put again may carry the record checksum of before, which is no damage."""
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 300)
    victims = rng.sample([m for m in messages_of(store) if m["physical_offset"] < SEGMENT_BYTES], 3)
    shutil.rmtree(store / "rocketstore")
    path = store / "commitlog" / f"{0:020}"
    content = bytearray(path.read_bytes())
    for message in victims:
        content[message["physical_offset"] + 16] ^= 1  # its flag
    path.write_bytes(content)
    report = rocketstore.ship(store, uri)
    here = rocketstore.scan(store, end_offset=report.end_offset)
    there = rocketstore.scan(uri)
    assert rows_of(there) == rows_of(here)
    assert there.report == here.report
    assert there.report.record_crc_mismatches == 3


def test_names_of_new_directories_are_synced(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store trims what was shipped: a crash must not take the archive's directory."""
    small_pieces(monkeypatch)
    fill_at_random(tmp_path / "store", rng, 200)
    synced: set[str] = set()
    sync = os.fsync

    def note(fd: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    place = tmp_path / "lake" / "2026" / "orders"
    assert rocketstore.ship(tmp_path / "store", f"file://{place}").segments == len(sealed(tmp_path))
    made = [place, *place.parents]
    assert synced.issuperset(map(str, made[: made.index(tmp_path) + 1]))


@pytest.mark.parametrize("uri", ["s3://", "gs://"])
def test_a_place_has_a_bucket(uri: str) -> None:
    """pyarrow's error for the path of the manifest came through."""
    with pytest.raises(rocketstore.ConfigError, match="with a bucket, as in s3://bucket/prefix"):
        rocketstore.scan(uri)


# ---- where nothing can be compared ----


def test_a_log_goes_on_where_its_archive_ends(tmp_path: Path) -> None:
    """Retention removed everything that was shipped: the note shows that the log is the same."""
    case = shipped_and_trimmed(tmp_path)
    before = rows(case.uri)
    report = rocketstore.ship(case.root, case.uri)
    assert (report.segments > 0, report.missing_bytes) == (True, 0)
    assert rows(case.uri) == before + rows(str(case.root))[: len(rows(case.uri)) - len(before)]
    assert ObjectStore(case.uri).manifest().parted == ()


def test_a_tail_and_a_hole_behind_it(tmp_path: Path) -> None:
    """The note has tails, too."""
    case = shipped_and_trimmed(tmp_path, tail=True)
    assert rocketstore.ship(case.root, case.uri).missing_bytes > 0


@pytest.mark.parametrize("tail", [False, True], ids=["segments", "tail"])
def test_what_nothing_shows_is_refused_unless_told(tmp_path: Path, tail: bool) -> None:
    case = shipped_and_trimmed(tmp_path, tail=tail)
    taken_back(case)
    manifest = tmp_path / "archive" / "manifest.json"
    before = manifest.read_bytes()
    with pytest.raises(rocketstore.ConfigError, match="no segment in common.*--force"):
        rocketstore.ship(case.root, case.uri)
    assert manifest.read_bytes() == before
    with case.open() as store, pytest.raises(TypeError, match="force = 'yes'"):
        store.ship(case.uri, force="yes")  # type: ignore[arg-type]
    end = ObjectStore(case.uri).manifest().end_offset
    assert rocketstore.ship(case.root, case.uri, force=True).segments > 0
    # Not again: from now on both have segments in common.
    case.put(b"last", 30)
    assert rocketstore.ship(case.root, case.uri).segments > 0
    assert ObjectStore(case.uri).manifest().parted == (end,)


def test_an_older_copy_that_has_noted_a_shorter_tail(tmp_path: Path) -> None:
    """Of sealed segments it has noted what the archive has."""
    case = Case(tmp_path / "s", (tmp_path / "archive").as_uri(), "")
    case.put(b"first", 40)
    first = rocketstore.ship(case.root, case.uri, tail=True)
    shutil.copytree(case.root, tmp_path / "older")
    case.put(b"gone", 1)
    second = rocketstore.ship(case.root, case.uri, tail=True)
    assert second.archived_segments == first.archived_segments
    assert second.tail_bytes > first.tail_bytes
    shutil.rmtree(case.root)
    (tmp_path / "older").rename(case.root)
    case.put(b"new", 40)
    trim(case)
    with pytest.raises(rocketstore.ConfigError, match="no segment in common"):
        rocketstore.ship(case.root, case.uri)


def test_a_forced_shipment_that_ships_nothing_yet(tmp_path: Path) -> None:
    case = shipped_and_trimmed(tmp_path)
    taken_back(case)
    trim(case)
    assert rocketstore.ship(case.root, case.uri, force=True).segments == 0
    case.put(b"last", 30)
    trim(case)
    rocketstore.ship(case.root, case.uri)
    assert len(ObjectStore(case.uri).manifest().parted) == 1


def test_segments_of_another_size(tmp_path: Path) -> None:
    """They would lie over those that are there."""
    case = shipped_and_trimmed(tmp_path)
    names = json.loads((case.root / "rocketstore/store.json").read_bytes())
    other = Case(tmp_path / "other", case.uri, "")
    with rocketstore.open(other.root, commit_log_file_size_bytes=2 * SEGMENT) as store:
        for number in range(200):
            store.writer("orders").put(b"%d" % number * 100)
    path = other.root / "rocketstore/store.json"
    change_json(path, uuid=names["uuid"])
    for force in (False, True):
        with pytest.raises(rocketstore.ConfigError, match="segments of 4096 bytes"):
            rocketstore.ship(other.root, case.uri, force=force)


def test_files_that_are_missing_are_no_other_history(tmp_path: Path) -> None:
    """A reader of a log without its last files says that they are missing, as before."""
    case = Case(tmp_path / "s", (tmp_path / "archive").as_uri(), "")
    case.put(b"first", 60)
    rocketstore.ship(case.root, case.uri)
    before = rows(case.uri), note_of(case).read_bytes()
    for path in segments(case.root)[-3:]:
        path.unlink()
    with pytest.raises(rocketstore.MissingSegmentsError):
        rocketstore.ship(case.root, case.uri)
    assert (rows(case.uri), note_of(case).read_bytes()) == before


def test_a_note_without_checksums_counts_for_nothing(tmp_path: Path) -> None:
    """A release before wrote it. The next shipment adds them."""
    case = Case(tmp_path / "s", (tmp_path / "archive").as_uri(), "")
    case.put(b"first", 60)
    end = rocketstore.ship(case.root, case.uri).end_offset
    note = case.root / "rocketstore/shipped.json"
    found = json.loads(note.read_bytes())
    note.write_text(json.dumps({"version": 1, "archives": {case.uri: [[0, end]]}}))
    rule = Retention(max_bytes=1, keep_unshipped=True)
    with case.open() as store:
        assert store.retention.plan(rule).count == 0
        store.ship(case.uri)
        assert json.loads(note.read_bytes()) == found
        assert store.retention.run(rule).new_begin_offset == end


def test_each_range_of_a_note_counts_for_itself(tmp_path: Path) -> None:
    case = Case(tmp_path / "s", (tmp_path / "archive").as_uri(), "")
    case.put(b"first", 60)
    end = rocketstore.ship(case.root, case.uri).end_offset
    note = case.root / "rocketstore/shipped.json"
    [[_, _, crc]] = json.loads(note.read_bytes())["archives"][case.uri]
    rule = Retention(max_bytes=1, keep_unshipped=True)
    with case.open() as store:
        for ranges, count in (
            ([[0, SEGMENT, crc ^ 1], [SEGMENT, end, crc]], 0),
            ([[0, SEGMENT, crc], [0, end, crc]], end // SEGMENT),
            ([[0, end, None]], 0),
            ([[0, end, 1 << 40]], 0),
            ([[0, end, "1"]], 0),
            ([[0, end, crc, 1]], 0),
        ):
            note.write_text(json.dumps({"version": 2, "archives": {"a": ranges}}))
            assert store.retention.plan(rule).count == count, ranges


# ---- an archive of two histories ----


def two_histories(tmp_path: Path) -> tuple[Case, int]:
    """A forced shipment made it; and where they part."""
    case = shipped_and_trimmed(tmp_path)
    taken_back(case)
    place = ObjectStore(case.uri).manifest().end_offset
    rocketstore.ship(case.root, case.uri, force=True)
    return case, place


def test_a_scan_does_not_read_over_the_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case, place = two_histories(tmp_path)
    for wanted in ({}, {"topics": "orders"}, {"topics": "none"}, {"begin_offset": place - 1}):
        with pytest.raises(CorruptRecordError, match="another history") as caught:
            rocketstore.scan(case.uri, **wanted)
        assert caught.value.physical_offset == place
    halves = [rows(case.uri, end_offset=place), rows(case.uri, begin_offset=place)]
    assert all(halves)
    assert "another history" not in caplog.text
    assert rows(case.uri, on_damage="skip") == halves[0] + halves[1]
    assert f"{case.uri}: at [{place}] begins another history" in caplog.text


def test_a_bookmark_does_not_lead_over_the_place(tmp_path: Path) -> None:
    case, place = two_histories(tmp_path)
    for end in (SEGMENT, place):
        mark = rocketstore.scan(case.uri, end_offset=end).bookmark
        with pytest.raises(CorruptRecordError, match="another history"):
            rocketstore.scan(case.uri, after=mark)
        assert rows(case.uri, after=mark, end_offset=place) == rows(
            case.uri, begin_offset=mark.offset, end_offset=place
        )
    mark = rocketstore.scan(case.uri, begin_offset=place, end_offset=place + SEGMENT).bookmark
    assert rows(case.uri, after=mark)


def test_spark_refuses_it(tmp_path: Path) -> None:
    case, place = two_histories(tmp_path)
    options = ReadOptions.parse({"path": case.uri}, stream=False)
    with pytest.raises(SparkFaceError, match=f"RS_CORRUPT_RECORD.*{place}: another history"):
        plan_batch(options)
    skips = ReadOptions.parse({"path": case.uri, "failOnDataLoss": "false"}, stream=False)
    assert sum(c.rows for scan in plan_batch(skips)[0] for c in scan) == len(
        rows(case.uri, on_damage="skip")
    )


def test_the_manifest_names_the_place(tmp_path: Path) -> None:
    case, place = two_histories(tmp_path)
    manifest = ObjectStore(case.uri).manifest()
    assert Manifest.parse(manifest.dump(), "it") == manifest
    found = json.loads(manifest.dump())
    assert found["parted"] == [place]
    for wrong in ([-1], ["1"], 7, [True]):
        with pytest.raises(rocketstore.ReadFailedError, match="contradicts itself"):
            Manifest.parse(json.dumps({**found, "parted": wrong}).encode(), "it")
