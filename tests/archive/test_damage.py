"""What is wrong with an archive is noticed and named; what `ship` leaves out of a log with damage."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.archive.manifest import Manifest
from rocketstore.archive.object_store import ObjectStore
from tests.archive.watched_object_store import (
    SEGMENT_BYTES,
    named,
    sealed,
    shipped,
    small_pieces,
    uri_of,
    watch,
)
from tests.support.column_tools import fill_at_random, messages_of, rows_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")


def change(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def test_a_changed_byte_is_noticed_wherever_it_is(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, report = shipped(tmp_path, rng, monkeypatch)
    names = [f"{start:020}" for start in range(0, report.end_offset, SEGMENT_BYTES)]
    for _ in range(20):
        name, position = rng.choice(names), rng.randrange(SEGMENT_BYTES)
        place = int(name) + position
        change(tmp_path / "archive" / name, position)
        with pytest.raises(rocketstore.CorruptRecordError, match=f"{uri}/{name}") as caught:
            list(rocketstore.scan(uri))
        piece = ObjectStore(uri).manifest().segments[names.index(name)].piece(position)
        assert caught.value.physical_offset == int(name) + piece[0] <= place
        # Behind it nothing is wrong.
        rest = rocketstore.scan(uri, begin_offset=int(name) + piece[1])
        list(rest)
        change(tmp_path / "archive" / name, position)


def test_damage_that_is_skipped_is_what_it_would_be_in_the_log(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri, report = shipped(tmp_path, rng, monkeypatch)
    rows = rows_of(rocketstore.scan(uri))
    # Every other one: damage that goes on where damage ended is one range.
    for row in rng.sample([row for row in rows[::2] if row["size"] > 300], 5):
        segment, position = divmod(row["physical_offset"], SEGMENT_BYTES)
        for folder in (tmp_path / "archive", store / "commitlog"):
            change(folder / f"{segment * SEGMENT_BYTES:020}", position + row["size"] // 2)
    here = rocketstore.scan(store, on_damage="skip", end_offset=report.end_offset)
    there = rocketstore.scan(uri, on_damage="skip")
    assert rows_of(there) == rows_of(here)
    assert there.report == here.report
    assert there.report.damage_count == 5
    parts = there.split(10_000)
    assert sum(columns.rows for part in parts for columns in part) == len(rows) - 5
    assert sum(part.report.lost_bytes for part in parts) == here.report.lost_bytes


def test_zeros_inside_of_a_segment_are_damage(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch)
    segment = ObjectStore(uri).manifest().segments[1]
    begin, end, _ = segment.piece(segment.pieces[1][0])
    path = tmp_path / "archive" / segment.name
    content = path.read_bytes()
    path.write_bytes(content[:begin] + bytes(end - begin) + content[end:])
    scan = rocketstore.scan(uri, on_damage="skip")
    assert sum(columns.rows for columns in scan) > 0
    lost = [(damage.start, damage.end) for damage in scan.report.damage]
    assert lost == [(segment.start_offset + begin, segment.start_offset + end)]


@pytest.mark.parametrize("missing", [0, 2])
def test_a_missing_object_is_named(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch)
    name = f"{missing * SEGMENT_BYTES:020}"
    (tmp_path / "archive" / name).unlink()
    for on_damage in ("raise", "skip"):
        with pytest.raises(FileNotFoundError) as caught:
            list(rocketstore.scan(uri, on_damage=on_damage))  # type: ignore[arg-type]
        assert caught.value.filename == f"{uri}/{name}"


def test_a_short_object_is_named(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch)
    path = tmp_path / "archive" / f"{SEGMENT_BYTES:020}"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(rocketstore.ReadFailedError, match=f"{uri}/{path.name}: .* instead of"):
        list(rocketstore.scan(uri))


def test_a_place_that_does_not_answer_is_named(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch)
    system = watch(monkeypatch)
    name = f"{SEGMENT_BYTES:020}"
    scan = rocketstore.scan(uri)
    system.broken = {name}
    with pytest.raises(rocketstore.ReadFailedError, match=f"{uri}/{name}: planted"):
        list(scan)
    system.broken = {"manifest.json"}
    with pytest.raises(rocketstore.ReadFailedError, match=f"{uri}/manifest.json: planted"):
        rocketstore.scan(uri)


def test_a_place_without_a_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"nothing was shipped here") as caught:
        rocketstore.scan(f"file://{tmp_path}/nowhere")
    assert caught.value.filename == f"file://{tmp_path}/nowhere/manifest.json"


def test_secrets_of_a_uri_are_not_told(tmp_path: Path) -> None:
    uri = "s3://me:secret@bucket/archive?endpoint_override=localhost:1&token=secret"
    shown = "s3://bucket/archive"
    for wrong in (uri.replace("s3", "s9"), uri + "&colour=secret"):
        with pytest.raises(rocketstore.ConfigError) as caught:
            rocketstore.scan(wrong)
        assert shown[2:] in str(caught.value)
        assert "secret" not in str(caught.value)
        assert caught.value.__suppress_context__


def hole(document: dict[str, Any]) -> None:
    del document["segments"][1]


CONTRADICTIONS: list[Callable[[dict[str, Any]], Any]] = [
    lambda d: d.update(format="other"),
    lambda d: d.update(version="1"),
    lambda d: d.update(end_offset=1),
    lambda d: d.update(store=7),
    lambda d: d.update(segments=None),
    lambda d: d["segments"].reverse(),
    lambda d: d["segments"].append(d["segments"][-1]),
    lambda d: d["segments"][0].update(start_offset=-SEGMENT_BYTES),
    lambda d: d["segments"][0].update(size=0),
    lambda d: d["segments"][0].update(size=SEGMENT_BYTES * 2),
    lambda d: d["segments"][0].update(size=True),
    lambda d: d["segments"][0].update(pieces=[]),
    lambda d: d["segments"][0]["pieces"].reverse(),
    lambda d: d["segments"][0]["pieces"].pop(),
    lambda d: d["segments"][0]["pieces"][0].append(1),
    lambda d: d["segments"][0].update(store_times_ms=[1]),
    lambda d: d["segments"][0].update(topics=[1]),
    lambda d: d["segments"][0].pop("crc32"),
    lambda d: d["segments"][0].update(crc32=2**32),
]


@pytest.mark.parametrize("number", range(len(CONTRADICTIONS)))
def test_a_manifest_that_contradicts_itself_is_refused(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch, 300)
    path = tmp_path / "archive" / "manifest.json"
    document = json.loads(path.read_bytes())
    assert Manifest.parse(json.dumps(document).encode(), "it").segments
    CONTRADICTIONS[number](document)
    path.write_text(json.dumps(document))
    with pytest.raises(rocketstore.ReadFailedError, match=f"{uri}/manifest.json"):
        rocketstore.scan(uri)


def test_sizes_that_no_object_has_take_no_memory(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch, 300)
    path = tmp_path / "archive" / "manifest.json"
    document = json.loads(path.read_bytes())
    segment = document["segments"][0]
    del document["segments"][1:]
    segment["size"] = document["end_offset"] = 2**62
    segment["pieces"] = [[2**62, 0]]
    path.write_text(json.dumps(document))
    with pytest.raises(rocketstore.ReadFailedError, match=f"{SEGMENT_BYTES} bytes at 0 instead of"):
        list(rocketstore.scan(uri))


def test_a_manifest_that_is_cut_anywhere_is_refused(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch, 300)
    content = (tmp_path / "archive" / "manifest.json").read_bytes()
    for size in [0, 1, *(rng.randrange(len(content) - 2) for _ in range(30))]:
        with pytest.raises(rocketstore.ReadFailedError):
            Manifest.parse(content[:size], uri)


def test_a_newer_manifest_is_refused(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch, 300)
    path = tmp_path / "archive" / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"version": 3}))
    with pytest.raises(rocketstore.ConfigError, match="a newer rocketstore"):
        rocketstore.scan(uri)


def test_a_hole_is_damage_and_counted(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch)
    path = tmp_path / "archive" / "manifest.json"
    rows = rows_of(rocketstore.scan(uri))
    document = json.loads(path.read_bytes())
    hole(document)
    path.write_text(json.dumps(document))
    with pytest.raises(rocketstore.CorruptRecordError, match="missing segment") as caught:
        list(rocketstore.scan(uri))
    assert caught.value.physical_offset == SEGMENT_BYTES
    for scan in (
        rocketstore.scan(uri, on_damage="skip"),
        rocketstore.scan(uri, on_damage="skip", topics="orders"),
    ):
        assert rows_of(scan) == [
            row
            for row in rows
            if row["physical_offset"] // SEGMENT_BYTES != 1
            and scan.filter.topics in (None, {row["topic"]})
        ]
        assert scan.report.lost_bytes == SEGMENT_BYTES


def test_a_hole_behind_what_is_passed_over_is_counted(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, _ = shipped(tmp_path, rng, monkeypatch)
    path = tmp_path / "archive" / "manifest.json"
    document = json.loads(path.read_bytes())
    del document["segments"][2]
    document["segments"][1]["topics"] = ["nobody wants it"]
    path.write_text(json.dumps(document))
    for start in (0, 5):
        scan = rocketstore.scan(uri, begin_offset=start, on_damage="skip", topics="orders")
        assert {row["physical_offset"] // SEGMENT_BYTES for row in rows_of(scan)} >= {0, 3}
        assert scan.report.lost_bytes == SEGMENT_BYTES
        parts = scan.split(SEGMENT_BYTES)
        assert [row for part in parts for row in rows_of(part)] == rows_of(scan)
        assert sum(part.report.lost_bytes for part in parts) == SEGMENT_BYTES


def test_a_place_that_cannot_be_reached_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of hdfs:// without a Java, pyarrow gives 15 KB of paths."""

    def fail(uri: str) -> None:
        raise OSError(f"Unable to load libjvm for {uri}\ndlopen(a) failed\ndlopen(b) failed")

    monkeypatch.setattr("rocketstore.archive.object_store.file_system", fail)
    with pytest.raises(rocketstore.ReadFailedError) as caught:
        rocketstore.scan("hdfs://me:secret@lake/orders")
    said = "Unable to load libjvm for hdfs://lake/orders"
    assert str(caught.value) == f"hdfs://lake/orders: {said}"


def test_a_damaged_segment_is_not_shipped(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 400)
    victim = next(
        row
        for row in messages_of(store)
        if row["physical_offset"] > 2 * SEGMENT_BYTES and row["size"] > 300
    )
    path = store / "commitlog" / f"{2 * SEGMENT_BYTES:020}"
    content = bytearray(path.read_bytes())
    content[victim["physical_offset"] % SEGMENT_BYTES + 150] ^= 1
    path.write_bytes(content)
    with pytest.raises(rocketstore.CorruptRecordError) as caught:
        rocketstore.ship(store, uri)
    assert caught.value.physical_offset == victim["physical_offset"]
    whole = sealed(tmp_path)
    assert named(tmp_path) == whole[:2] + whole[3:]
    assert caught.value.__notes__ == [
        f"not shipped: {2 * SEGMENT_BYTES:020}",
        f"{len(whole) - 1} other segments shipped by this call",
    ]


@pytest.mark.parametrize("left", [300, 0])
def test_a_segment_that_was_cut_is_not_shipped(
    left: int, tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where it ends behind a record."""
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 400)
    within = [m for m in messages_of(store) if m["physical_offset"] // SEGMENT_BYTES == 1]
    last = within[-1]["physical_offset"] % SEGMENT_BYTES + within[-1]["size"]
    os.truncate(store / "commitlog" / f"{SEGMENT_BYTES:020}", last - left)
    with pytest.raises(rocketstore.CorruptRecordError):
        rocketstore.ship(store, uri)
    assert named(tmp_path) == sealed(tmp_path)[:1] + sealed(tmp_path)[2:]


def test_a_segment_that_is_missing_between_others_is_named(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 400)
    path = store / "commitlog" / f"{SEGMENT_BYTES:020}"
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(rocketstore.CorruptRecordError, match="missing segment") as caught:
        rocketstore.ship(store, uri)
    assert caught.value.physical_offset == SEGMENT_BYTES
    assert named(tmp_path) == sealed(tmp_path)
    path.write_bytes(content)
    rocketstore.ship(store, uri)
    assert named(tmp_path) == sealed(tmp_path)
    path.unlink()
    rocketstore.ship(store, uri)  # the archive has it
