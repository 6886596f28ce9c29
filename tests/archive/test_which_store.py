"""An archive belongs to one store, with a name or without, in a directory that may not be there yet."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import shipping
from rocketstore.archive.object_store import ObjectStore
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
