"""What `ship` puts where, in which order, and what it refuses."""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import shipping
from rocketstore.archive.manifest import Manifest
from rocketstore.archive.object_store import ObjectStore
from rocketstore.archive.writer import ArchiveWriter
from rocketstore.log.read.column_reader import LogFiles
from tests.archive.watched_object_store import (
    MANIFEST,
    SEGMENT_BYTES,
    WatchedSystem,
    named,
    objects,
    sealed,
    shipped,
    small_pieces,
    uri_of,
    watch,
)
from tests.support.column_tools import fill_at_random, messages_of, rows_of

pytest.importorskip("pyarrow", reason="needs pyarrow: make arrow")


def test_the_manifest_says_what_the_records_say(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri, report = shipped(tmp_path, rng, monkeypatch)
    manifest = ObjectStore(uri).manifest()
    assert manifest.store == json.loads((store / "rocketstore/store.json").read_bytes())["uuid"]
    messages = messages_of(store)
    starts = {message["physical_offset"] for message in messages}
    for segment in manifest.segments:
        mine = [m for m in messages if m["physical_offset"] // SEGMENT_BYTES * SEGMENT_BYTES
                == segment.start_offset]  # fmt: skip
        times = [m["store_timestamp_ms"] for m in mine]
        content = (store / "commitlog" / segment.name).read_bytes()
        assert segment.crc32 == zlib.crc32(content)
        begin = 0
        for end, crc32 in segment.pieces:
            assert crc32 == zlib.crc32(content[begin:end])
            begin = end
        assert segment.records == len(mine)
        assert segment.store_times_ms == (min(times), max(times))
        assert segment.topics == tuple(sorted({m["topic"] for m in mine}))
        assert not segment.foreign
        begins = {segment.start_offset + end for end, _ in segment.pieces[:-1]}
        assert begins <= starts
    assert Manifest.parse(manifest.dump(), "it") == manifest
    assert report == shipping.ShipReport(
        len(manifest.segments), report.end_offset, report.seconds, report.segments,
        len(manifest.segments) * SEGMENT_BYTES, 0,
        report.left_begin, report.left_end, report.left_messages,
    )  # fmt: skip


def test_a_second_call_copies_what_is_new(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, first = shipped(tmp_path, rng, monkeypatch)
    system = watch(monkeypatch)
    again = rocketstore.ship(tmp_path / "store", uri)
    assert (again.segments, again.bytes, again.archived_segments) == (0, 0, first.segments)
    assert [what for what, _ in system.calls if what == "open_output_stream"] == []
    fill_at_random(tmp_path / "store", rng, 300)
    steps: list[tuple[str, int, int]] = []
    more = rocketstore.ship(tmp_path / "store", uri, progress=lambda *step: steps.append(step))
    assert more.segments > 0
    assert named(tmp_path) == sealed(tmp_path)
    assert more.archived_segments == first.segments + more.segments
    assert steps[0] == ("ship", 0, more.bytes)
    assert steps[-1] == ("ship", more.bytes, more.bytes)
    assert steps == sorted(steps)


@pytest.mark.parametrize("kind", ["local", "s3", "hdfs"])
def test_a_failure_at_any_step_leaves_what_a_second_call_finishes(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The manifest names whole objects alone, whatever failed; nothing that it names is copied again."""
    monkeypatch.setattr(shipping, "PIECE_BYTES", 40_000)
    fill_at_random(tmp_path / "store", rng, 350)
    archive = tmp_path / "archive"
    archive.mkdir()
    uri = uri_of(tmp_path)
    system = watch(monkeypatch, kind)
    rocketstore.ship(tmp_path / "store", uri)
    calls = len(system.calls)
    assert len(sealed(tmp_path)) > 1
    for number in range(calls):
        shutil.rmtree(archive)
        archive.mkdir()
        system = watch(monkeypatch, kind)
        system.fail_at = number
        with pytest.raises((OSError, rocketstore.ReadFailedError), match="planted"):
            rocketstore.ship(tmp_path / "store", uri)
        before = seen_by_a_reader(tmp_path, monkeypatch, kind)
        system = watch(monkeypatch, kind)
        rocketstore.ship(tmp_path / "store", uri)
        copied = {name for what, name in system.calls if what == "open_output_stream"}
        assert not {name.partition(".")[0] for name in copied} & set(before), number
        assert named(tmp_path) == sealed(tmp_path)
        assert objects(tmp_path) == [*sealed(tmp_path), MANIFEST]


def seen_by_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> list[str]:
    """Segments that a reader of the archive finds, each of them whole; none without a manifest."""
    watch(monkeypatch, kind)
    try:
        manifest = ObjectStore(uri_of(tmp_path)).manifest()
    except FileNotFoundError:
        return []
    for segment in manifest.segments:
        here = (tmp_path / "archive" / segment.name).read_bytes()
        assert here == (tmp_path / "store" / "commitlog" / segment.name).read_bytes()
    return [segment.name for segment in manifest.segments]


def test_the_manifest_is_never_ahead_of_the_objects(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    fill_at_random(tmp_path / "store", rng, 300)
    (tmp_path / "archive").mkdir()
    seen: list[int] = []

    class Looking(WatchedSystem):
        def fails(self, what: str, path: str) -> bool:
            if (tmp_path / "archive" / MANIFEST).exists():
                seen.append(len(named(tmp_path)))
            return super().fails(what, path)

    system = watch(monkeypatch)
    system.__class__ = Looking
    report = rocketstore.ship(tmp_path / "store", uri_of(tmp_path))
    assert seen == sorted(seen)
    assert set(seen) == set(range(report.segments))


def test_a_live_writer_goes_on(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is shipped while messages are put is sealed and durable, and in the end nothing is missing."""
    small_pieces(monkeypatch)
    uri = uri_of(tmp_path)
    config: dict[str, Any] = {"commit_log_file_size_bytes": SEGMENT_BYTES, "durability": "os"}
    stop = threading.Event()
    put = threading.Event()
    with rocketstore.open(tmp_path / "store", **config) as store:

        def write() -> None:
            writer = store.writer("orders")
            while not stop.wait(0.0002):  # all that it puts is read twice below
                writer.put(os.urandom(500))
                put.set()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            ends = []
            while len(set(ends)) < 6:
                assert put.wait(20)
                put.clear()
                report = store.ship(uri)
                assert report.end_offset <= store.flushed_offset
                found = rocketstore.scan(uri)
                assert found.end_offset == report.end_offset
                here = rocketstore.scan(store, end_offset=report.end_offset)
                assert rows_of(found) == rows_of(here)
                ends.append(report.end_offset)
        finally:
            stop.set()
            thread.join()
        assert ends == sorted(ends)
    rocketstore.ship(tmp_path / "store", uri)
    assert named(tmp_path) == [f"{n * SEGMENT_BYTES:020}" for n in range(len(named(tmp_path)))]


def test_what_is_not_durable_is_not_shipped(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "commit_log_file_size_bytes": SEGMENT_BYTES,
        "durability": "os",
        "flush_interval_ms": 3_600_000,
        "flush_thorough_interval_ms": 3_600_000,
    }
    with rocketstore.open(tmp_path / "store", **config) as store:
        writer = store.writer("orders")
        results = [writer.put(b"x" * 1000) for _ in range(200)]
        covered = store.flushed_offset // SEGMENT_BYTES * SEGMENT_BYTES
        report = store.ship(uri_of(tmp_path))
        assert report.end_offset >= covered
        assert report.end_offset <= store.flushed_offset
        store.wait_flushed(results[-1].end_offset)
        sealed_end = results[-1].physical_offset // SEGMENT_BYTES * SEGMENT_BYTES
        assert store.ship(uri_of(tmp_path)).end_offset == sealed_end > 0


@pytest.mark.parametrize("count", [0, 1, 20])
def test_a_store_without_a_sealed_segment(tmp_path: Path, count: int) -> None:
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        for _ in range(count):
            store.writer("orders").put(b"body")
        report = store.ship(uri_of(tmp_path))
        assert (report.segments, report.archived_segments, report.end_offset) == (0, 0, 0)
    assert objects(tmp_path) == [MANIFEST]
    scan = rocketstore.scan(uri_of(tmp_path))
    assert rows_of(scan) == []
    assert scan.split() == []
    assert rocketstore.ship(tmp_path / "store", uri_of(tmp_path)).segments == 0


def test_what_the_store_trims_stays(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_path, uri, first = shipped(tmp_path, rng, monkeypatch)
    rows = rows_of(rocketstore.scan(uri))
    with rocketstore.open(store_path) as store:
        store.trim(before_offset=3 * SEGMENT_BYTES)
        assert store.begin_offset == 3 * SEGMENT_BYTES
    fill_at_random(store_path, rng, 300)
    report = rocketstore.ship(store_path, uri)
    assert report.archived_segments == first.segments + report.segments
    assert report.missing_bytes == 0
    assert rows_of(rocketstore.scan(uri, end_offset=first.end_offset)) == rows
    begin = rocketstore.scan(store_path).begin_offset
    both: dict[str, Any] = {"begin_offset": begin, "end_offset": report.end_offset}
    assert rows_of(rocketstore.scan(uri, **both)) == rows_of(rocketstore.scan(store_path, **both))


def test_what_was_trimmed_too_early_is_counted(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_path, uri, first = shipped(tmp_path, rng, monkeypatch)
    fill_at_random(store_path, rng, 500)
    with rocketstore.open(store_path) as store:
        store.trim(before_offset=first.end_offset + 2 * SEGMENT_BYTES)
    report = rocketstore.ship(store_path, uri)
    assert report.missing_bytes == 2 * SEGMENT_BYTES
    with pytest.raises(rocketstore.CorruptRecordError, match="missing segment"):
        list(rocketstore.scan(uri))
    rest = rocketstore.scan(uri, begin_offset=first.end_offset + 2 * SEGMENT_BYTES)
    assert rows_of(rest)


def test_a_blank_that_never_reached_the_disk(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros behind the last record of a segment, also of the last one that was shipped."""
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 400)
    last = messages_of(store)[-1]["physical_offset"] // SEGMENT_BYTES * SEGMENT_BYTES
    ends = {row["physical_offset"] // SEGMENT_BYTES: row["physical_offset"] + row["size"]
            for row in messages_of(store)}  # fmt: skip
    for number in (0, last // SEGMENT_BYTES - 1):
        path = store / "commitlog" / f"{number * SEGMENT_BYTES:020}"
        used = ends[number] % SEGMENT_BYTES
        path.write_bytes(path.read_bytes()[:used] + bytes(SEGMENT_BYTES - used))
    assert rocketstore.ship(store, uri).end_offset == last
    scan = rocketstore.scan(uri)
    assert rows_of(scan) == rows_of(rocketstore.scan(store, end_offset=last))
    assert scan.report.lost_bytes == 0


def test_objects_are_the_files_of_a_store(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, uri, report = shipped(tmp_path, rng, monkeypatch)
    rows = rows_of(rocketstore.scan(uri))
    (tmp_path / "back").mkdir()
    (tmp_path / "archive").rename(tmp_path / "back" / "commitlog")
    (tmp_path / "back" / "commitlog" / MANIFEST).unlink()
    with rocketstore.open(tmp_path / "back", auto_wide_topic=True) as store:
        assert store.begin_offset == 0
        assert rows_of(rocketstore.scan(store)) == rows
        assert store.end_offset <= report.end_offset


def test_a_damaged_manifest_is_not_replaced(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, uri, _ = shipped(tmp_path, rng, monkeypatch)
    fill_at_random(store, rng, 300)
    path = tmp_path / "archive" / MANIFEST
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    with pytest.raises(rocketstore.ReadFailedError, match=f"{uri}/{MANIFEST}"):
        rocketstore.ship(store, uri)
    assert path.read_bytes() == whole[:-5]
    path.write_bytes(whole)
    rocketstore.ship(store, uri)
    assert named(tmp_path) == sealed(tmp_path)


def test_many_topics_are_not_listed(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "TOPICS_MAX", 3)
    _, uri, _ = shipped(tmp_path, rng, monkeypatch)
    assert [segment.topics for segment in ObjectStore(uri).manifest().segments].count(None) > 0
    rows = rows_of(rocketstore.scan(uri))
    mine = [row for row in rows if row["topic"] == "orders"]
    assert rows_of(rocketstore.scan(uri, topics="orders")) == mine


def test_a_path_is_no_place(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        for wrong in (str(tmp_path / "archive"), "nothing://here", ""):
            with pytest.raises(rocketstore.ConfigError) as caught:
                store.ship(wrong)
            assert caught.value.field == "uri"
        with pytest.raises(ValueError, match="commit_log_dir"):
            rocketstore.ship(store, uri_of(tmp_path), commit_log_dir="x")
    with pytest.raises(ValueError, match="commit_log_dir"):
        rocketstore.scan(uri_of(tmp_path), commit_log_dir="x")


def test_a_missing_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.fs", None)
    with rocketstore.open(tmp_path / "store", durability="os") as store:
        for call in (store.ship, rocketstore.scan):
            with pytest.raises(ModuleNotFoundError) as caught:
                call(uri_of(tmp_path))
            assert str(caught.value) == (
                "an archive is reached through pyarrow: pip install 'rocketstore[arrow]'"
            )


def test_what_another_call_names_meanwhile_stays(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    store, uri = tmp_path / "store", uri_of(tmp_path)
    fill_at_random(store, rng, 300)
    counts: list[int] = []

    def progress(what: str, done: int, total: int) -> None:
        if done and not counts:
            rocketstore.ship(store, uri)
        if done:
            counts.append(len(named(tmp_path)))

    rocketstore.ship(store, uri, progress=progress)
    assert len(counts) > 3
    assert set(counts) == {len(sealed(tmp_path))} == {len(named(tmp_path))}


def test_a_segment_that_is_trimmed_while_a_shipment_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed, and is gone when it is compared with the archive: the log is the same all the same."""
    from tests.support.retention_tools import ALL, fill
    from tests.support.small_store import open_small

    uri = (tmp_path / "archive").as_uri()
    with fill(open_small(tmp_path / "s")) as store:
        rocketstore.ship(tmp_path / "s", uri)
        real = ArchiveWriter._check_log

        def late(writer: ArchiveWriter, files: LogFiles, end: int) -> bool:
            files.starts()
            store.retention.run(ALL)
            return real(writer, files, end)

        monkeypatch.setattr(ArchiveWriter, "_check_log", late)
        assert rocketstore.ship(tmp_path / "s", uri).missing_bytes == 0
