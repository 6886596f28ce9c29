"""A scan that goes on where an earlier one ended, and refuses another log."""

from __future__ import annotations

import dataclasses
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Bookmark, BookmarkError, OffsetOutOfRangeError
from tests.support.small_store import dispatched
from tests.support.waiting import wait_until

SEGMENT_BYTES = 16 << 10


def put(root: Path, *bodies: bytes) -> None:
    with rocketstore.open(
        root, durability="os", commit_log_file_size_bytes=SEGMENT_BYTES, index_enabled=False
    ) as store:
        for body in bodies:
            store.writer("orders").put(body)


def read(scan: rocketstore.Scan) -> list[bytes]:
    return [body for chunk in scan for body in chunk["body"].tolist()]


def go_on(root: Any, after: Any, **given: Any) -> tuple[list[bytes], Bookmark]:
    scan = rocketstore.scan(root, after=after, columns=("body",), **given)
    return read(scan), scan.bookmark


def refused(root: Any, after: Any) -> str:
    with pytest.raises(BookmarkError, match="without after= begins at the begin") as caught:
        rocketstore.scan(root, after=after)
    assert pickle.loads(pickle.dumps(caught.value)).kind == caught.value.kind
    return caught.value.kind


@pytest.mark.parametrize("form", [lambda b: b, Bookmark.to_json, dataclasses.asdict])
def test_each_message_once(form: Any, root: Path) -> None:
    put(root, b"0")
    place = rocketstore.scan(root).bookmark
    for number in range(1, 60):
        put(root, *[b"%d-%d" % (number, each) + bytes(500) for each in range(number % 4)])
        found, place = go_on(root, form(place))
        assert [body.rstrip(b"\0") for body in found] == [
            b"%d-%d" % (number, each) for each in range(number % 4)
        ]
    assert go_on(root, form(place)) == ([], place)
    assert Bookmark.from_json(place.to_json()) == place


def test_an_empty_store(tmp_path: Path) -> None:
    rocketstore.open(tmp_path / "s").close()
    place = rocketstore.scan(tmp_path / "s").bookmark
    assert place.last is None
    put(tmp_path / "s", b"first")
    assert go_on(tmp_path / "s", place)[0] == [b"first"]


def test_another_store(tmp_path: Path) -> None:
    put(tmp_path / "a", b"1", b"2")
    put(tmp_path / "b", b"1", b"2")
    assert refused(tmp_path / "b", rocketstore.scan(tmp_path / "a").bookmark) == "store"


def test_an_older_copy(tmp_path: Path) -> None:
    """Below the place at first; then grown beyond it, with other messages."""
    root, copy = tmp_path / "s", tmp_path / "copy"
    put(root, *[b"A%d" % n for n in range(10)])
    shutil.copytree(root, copy)
    put(root, *[b"B%d" % n for n in range(10)])
    place = rocketstore.scan(root, topics="orders").bookmark
    shutil.rmtree(root)
    copy.rename(root)
    assert refused(root, place) == "cut"
    put(root, *[b"C%d" % n for n in range(30)])
    assert refused(root, place) == "history"
    with rocketstore.open(root) as store:
        assert refused(store, place) == "history"
    longer = dataclasses.replace(place, last={**(place.last or {}), "phys": place.offset - 1})
    assert refused(root, longer) == "history"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"version": 2}, "release"),
        ({"version": 0}, "form"),
        ({"version": "1"}, "form"),
        ({"offset": -1}, "form"),
        ({"offset": 1.5}, "form"),
        ({"offset": True}, "form"),
        ({"store": None}, "form"),
        ({"last": {"phys": 0}}, "form"),
        ({"last": {"phys": 0, "stored": 0, "size": "1", "crc": 0}}, "form"),
        ({"last": 7}, "form"),
    ],
)
def test_what_is_no_bookmark(tmp_path: Path, given: dict[str, Any], kind: str) -> None:
    put(tmp_path / "s", b"1")
    place = dataclasses.asdict(rocketstore.scan(tmp_path / "s").bookmark)
    assert refused(tmp_path / "s", {**place, **given}) == kind
    assert refused(tmp_path / "s", json.dumps({**place, **given})) == kind


@pytest.mark.parametrize(
    "given", ["", "{", b"[]", 7, [], "null", {}, "[" * 60_000, "9" * 70, "x" * 100_000]
)
def test_what_is_nothing_like_it(tmp_path: Path, given: Any) -> None:
    put(tmp_path / "s", b"1")
    assert refused(tmp_path / "s", given) == "form"


def test_wrong_arguments(tmp_path: Path) -> None:
    put(tmp_path / "s", b"1")
    place = rocketstore.scan(tmp_path / "s").bookmark
    with pytest.raises(ValueError, match="begin_offset = 0: not together with after"):
        rocketstore.scan(tmp_path / "s", after=place, begin_offset=0)
    with pytest.raises(ValueError, match="durable"):
        rocketstore.scan(tmp_path / "s", durable="yes")  # type: ignore[arg-type]


def test_what_was_trimmed(root: Path) -> None:
    put(root, *[bytes(700)] * 10)
    place = rocketstore.scan(root).bookmark
    put(root, *[bytes(700)] * 90)
    with rocketstore.open(root) as store:
        dispatched(store)
        begin = store.trim(before_offset=3 * SEGMENT_BYTES)
    with pytest.raises(OffsetOutOfRangeError):
        rocketstore.scan(root, after=place)
    skips = rocketstore.scan(root, after=place, on_damage="skip")
    assert sum(chunk.rows for chunk in skips) == sum(c.rows for c in rocketstore.scan(root))
    assert skips.report.damage_count
    behind = dataclasses.replace(place, offset=begin)
    assert go_on(root, behind)[0]


def test_a_durable_scan_beside_a_writer(tmp_path: Path) -> None:
    """What is visible may lie beyond what is on the disk."""
    with rocketstore.open(
        tmp_path / "s", durability="os", flush_interval_ms=3_600_000, index_enabled=False
    ) as store:
        writer = store.writer("orders")
        writer.put(b"1")
        store.wait_flushed(store.end_offset, 60)
        flushed = store.flushed_offset
        writer.put(b"2")
        path = tmp_path / "s"
        # By its path a scan sees what the threads of the store have published.
        wait_until(lambda: rocketstore.scan(path).end_offset == store.end_offset)
        for source in (store, path):
            assert read(rocketstore.scan(source, columns=("body",))) == [b"1", b"2"]
            scan = rocketstore.scan(source, durable=True, columns=("body",))
            assert (scan.end_offset, read(scan)) == (store.flushed_offset, [b"1"])
            assert scan.end_offset == flushed
            ahead = rocketstore.scan(source).bookmark
            assert go_on(source, ahead, durable=True)[0] == []
        place = scan.bookmark
        store.wait_flushed(store.end_offset, 60)
        assert go_on(store, place, durable=True)[0] == [b"2"]


def test_an_archive(tmp_path: Path) -> None:
    """It has the name of its store: a bookmark of one is one of the other."""
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    root, uri = tmp_path / "s", (tmp_path / "archive").as_uri()
    put(root, *[b"%03d" % n + bytes(700) for n in range(70)])
    rocketstore.ship(root, uri)
    place = rocketstore.scan(uri).bookmark
    put(root, *[b"%03d" % n + bytes(700) for n in range(70, 140)])
    rocketstore.ship(root, uri)
    count = len(read(rocketstore.scan(uri, end_offset=place.offset, columns=("body",))))
    for source in (root, uri):
        found = go_on(source, place)[0]
        assert [int(body[:3]) for body in found] == [*range(count, count + len(found))]
        assert found
    assert len(go_on(root, place)[0]) == 140 - count
    assert go_on(uri, place, topics="none")[0] == []
