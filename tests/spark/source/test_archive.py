"""An archive in place of a store: options, plans and errors without Spark."""

from __future__ import annotations

import pickle
import random
import socket
from pathlib import Path

import pytest

import rocketstore
from rocketstore import shipping
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.audit import audit_part, audit_scans
from rocketstore.spark.jobs.reading import coded_rows
from rocketstore.spark.jobs.stats import merge_stats, stats_part, stats_scans
from rocketstore.spark.sink.options import WriteOptions
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import plan_batch, read
from tests.archive.watched_object_store import SEGMENT_BYTES, watch
from tests.spark.reading import make_store, rows_in, rows_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")


def archived(tmp_path: Path, rng: random.Random) -> tuple[list[rocketstore.Message], str]:
    """The messages of sealed segments, and the URI of their archive."""
    messages = make_store(tmp_path / "s", rng)
    uri = f"file://{tmp_path}/archive"
    end = rocketstore.ship(tmp_path / "s", uri).end_offset
    return [m for m in messages if m.physical_offset < end], uri


def test_a_batch_reads_what_the_store_has(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "PIECE_BYTES", 6000)
    messages, uri = archived(tmp_path, rng)
    system = watch(monkeypatch)
    for given in ({}, {"splitBytes": "20k"}, {"minPartitions": "30"}):
        options = ReadOptions.parse({"path": uri, **given}, stream=False)
        system.calls.clear()
        scans, bounds = pickle.loads(pickle.dumps(plan_batch(options)))
        assert system.opened() == []
        segments = len(rocketstore.scan(uri).archive.segments)
        assert len(scans) > segments if given else len(scans) == segments
        rows = [row for scan in scans for row in rows_in(list(read(scan, options, bounds)))]
        assert rows == rows_of(messages)
    middle = messages[len(messages) // 2].store_timestamp_ms
    given = {"path": uri, "topic": "orders", "startingTimestamp": str(middle)}
    options = ReadOptions.parse(given, stream=False)
    scans, bounds = plan_batch(options)
    rows = [row for scan in scans for row in rows_in(list(read(scan, options, bounds)))]
    wanted = [m for m in messages if m.topic == "orders" and m.store_timestamp_ms >= middle]
    assert rows == rows_of(wanted)
    latest = ReadOptions.parse({"path": uri, "startingOffsets": "latest"}, stream=False)
    assert plan_batch(latest) == ([], {})


def test_a_topic_that_no_segment_lists_is_named(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages, uri = archived(tmp_path, rng)
    later = str(messages[-1].store_timestamp_ms + 86_400_000)
    for given in ({"topic": "nope"}, {"topic": "orders,nope"}, {"topic": "orders.v1"}):
        options = ReadOptions.parse({"path": uri, **given}, stream=False)
        with pytest.raises(SparkFaceError, match="RS_NO_TOPIC_THERE.*; name others, or give fail"):
            plan_batch(options)
        options = ReadOptions.parse({"path": uri, **given, "failOnDataLoss": "false"}, stream=False)
        plan_batch(options)
        with pytest.raises(SparkFaceError, match="RS_NO_TOPIC_THERE.*; name others$"):
            stats_scans(uri, SEGMENT_BYTES, topics=given["topic"].split(","))
    given = {"path": uri, "topic": "orders", "startingTimestamp": later}
    assert plan_batch(ReadOptions.parse(given, stream=False))[0] == []
    # Too many to list: any may be there.
    monkeypatch.setattr(shipping, "TOPICS_MAX", 1)
    rocketstore.ship(tmp_path / "s", f"file://{tmp_path}/other")
    options = ReadOptions.parse({"path": f"file://{tmp_path}/other", "topic": "nope"}, stream=False)
    assert [row for scan in plan_batch(options)[0] for row in read(scan, options, {})] == []


def test_what_an_archive_cannot_do_is_refused(tmp_path: Path, rng: random.Random) -> None:
    _, uri = archived(tmp_path, rng)
    remote = "s3://key:secret@bucket/archive"
    for path in (uri, remote):
        with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*a stream follows") as caught:
            ReadOptions.parse({"path": path}, stream=True)
        assert "secret" not in str(caught.value)
        with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*rocketstore.ship") as caught:
            WriteOptions.parse({"path": path})
        assert "secret" not in str(caught.value)
        for name in ("startingOffsets", "endingOffsets"):
            given = {"path": path, name: '{"orders": {"0": 1}}'}
            with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*queue offsets need"):
                ReadOptions.parse(given, stream=False)
    (tmp_path / "a b").symlink_to(tmp_path / "archive")
    spaced = f"file://{tmp_path}/a%20b"
    assert ReadOptions.parse({"path": spaced}, stream=False).path == spaced
    assert rocketstore.scan(spaced).end_offset > 0
    # A store may be named by such a URI, too: it has no manifest.
    for path in (f"file://{tmp_path}/s", str(tmp_path / "s")):
        assert ReadOptions.parse({"path": path}, stream=True).path == str(tmp_path / "s")
        assert WriteOptions.parse({"path": path}).path == str(tmp_path / "s")


def test_places_that_are_none_have_codes(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text("{")
    cases = [
        ("s9://bucket/archive", "RS_BAD_OPTION.*s9://bucket/archive.*pyarrow.fs"),
        (f"file://{tmp_path}/broken", f"RS_SEGMENT_UNREACHABLE.*host={socket.gethostname()}"),
    ]
    for path, text in cases:
        options = ReadOptions.parse({"path": path}, stream=False)
        with pytest.raises(SparkFaceError, match=text):
            plan_batch(options)
        with pytest.raises(SparkFaceError, match=text):
            jobs.stats(None, path)  # type: ignore[arg-type]


def test_a_place_without_a_manifest_has_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    watch(monkeypatch)
    options = ReadOptions.parse({"path": "s3:///nowhere/archive"}, stream=False)
    with pytest.raises(SparkFaceError, match=r"RS_NO_STORE.*nothing was shipped here"):
        plan_batch(options)


def test_an_object_that_a_task_cannot_have_is_told(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri = archived(tmp_path, rng)
    name = f"{SEGMENT_BYTES:020}"
    options = ReadOptions.parse({"path": uri}, stream=False)
    scans, bounds = plan_batch(options)
    part = next(scan for scan in scans if scan.end_offset > SEGMENT_BYTES)
    system = watch(monkeypatch)
    system.broken = {name}
    text = rf"RS_SEGMENT_UNREACHABLE\] host={socket.gethostname()} path={uri} .*{name}"
    with pytest.raises(SparkFaceError, match=rf"{text}.*credentials"):
        list(read(part, options, bounds))
    with pytest.raises(SparkFaceError, match=rf"{text}.*credentials"):
        list(coded_rows(stats_part, part))
    system.broken = set()
    (tmp_path / "archive" / name).unlink()
    with pytest.raises(SparkFaceError, match=rf"{text}.*put the object back"):
        list(read(part, options, bounds))


def test_jobs_that_read_take_archives(tmp_path: Path, rng: random.Random) -> None:
    messages, uri = archived(tmp_path, rng)
    end = messages[-1].physical_offset + messages[-1].size
    here = stats_scans(tmp_path / "s", 1 << 30, end_offset=end)
    there = stats_scans(uri, SEGMENT_BYTES)
    rows = merge_stats(row for part in there for row in stats_part(part))
    assert rows == merge_stats(row for part in here for row in stats_part(part))
    assert sum(row[3] for row in rows) == len(messages)
    path = tmp_path / "archive" / f"{0:020}"
    content = bytearray(path.read_bytes())
    content[messages[3].physical_offset + 95] ^= 1
    path.write_bytes(content)
    found = [row for part in audit_scans(uri, SEGMENT_BYTES) for row in audit_part(part)]
    assert [damage[0] for row in found for damage in row[5]] == [messages[3].physical_offset]
    assert sum(row[2] for row in found) == len(messages) - 1
