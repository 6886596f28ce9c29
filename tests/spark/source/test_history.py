"""A stream whose store was put back, replaced or cut under its checkpoint, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketstore.log.layout import identity
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication import promote
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.stream_progress import Progress
from tests.replication.copies import caught_up, open_copy, open_master
from tests.spark.source.test_progress import batch, progress, put


def older_copy_that_grew(root: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The checkpoint of a stream that read ten messages which the copy, put back since, lacks."""
    monkeypatch.setattr("rocketstore.spark.source.stream_progress.REOPEN_S", -1.0)
    older = root.with_name("older")
    put(root, "t", *[b"A%d" % i for i in range(10)])
    shutil.copytree(root, older)
    put(root, "t", *[b"B%d" % i for i in range(10)])
    start, found = batch(progress(root), progress(root, startingOffsets="earliest").initial())
    assert len(found) == 20
    shutil.rmtree(root)
    shutil.copytree(older, root)
    return start


@pytest.mark.parametrize("body", [b"C%d", b"longer %d"], ids=["at a record", "inside of one"])
def test_an_older_copy_that_grew_beyond_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Ten of its messages lay below the place, and were never read: the place was not theirs."""
    root = tmp_path / "s"
    start = older_copy_that_grew(root, monkeypatch)
    with pytest.raises(SparkFaceError, match="RS_LOG_TRUNCATED.*ends at"):
        progress(root).latest(start)
    put(root, "t", *[body % i for i in range(30)])
    end = progress(root).end()
    for call in (
        lambda: progress(root).latest(start),
        lambda: progress(root).parts(start, end),
        lambda: progress(root).parts({**start, "phys": 0, "last": None}, start),
    ):
        with pytest.raises(SparkFaceError, match="RS_LOG_TRUNCATED.*in this history"):
            call()
    end, found = batch(progress(root, failOnDataLoss="false"), start)
    assert found == [body % i for i in range(30)][-len(found) :] != []
    assert caplog.text.count("the stream goes on at") == 1
    assert batch(progress(root), end) == (end, [])


def test_an_older_copy_goes_on_where_that_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "s"
    start = older_copy_that_grew(root, monkeypatch)
    stream = progress(root, failOnDataLoss="false")
    end, found = batch(stream, start)
    assert (found, end["phys"] < start["phys"]) == ([], True)
    put(root, "t", b"new")
    assert batch(progress(root), end)[1] == [b"new"]


def test_a_store_that_is_replaced_under_a_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream holds it open; what it finds in its place is judged by the checkpoint."""
    monkeypatch.setattr(identity, "BELIEF_S", 0.0)
    root, copy = tmp_path / "s", tmp_path / "copy"
    put(root, "t", b"a", b"b")
    stream = progress(root, startingOffsets="earliest")
    start = stream.latest(stream.initial())
    shutil.copytree(root, copy)
    shutil.rmtree(root)
    copy.rename(root)
    put(root, "t", b"c")
    end = stream.latest(start)  # a copy that has all of it
    assert [int(n) for s in stream.parts(start, end)[0] for c in s for n in c["queue_offset"]] == [
        2
    ]
    shutil.rmtree(root)
    put(root, "t", b"another")
    with pytest.raises(SparkFaceError, match="RS_STORE_REPLACED"):
        stream.latest(end)
    stream.close()


def test_checkpoints_without_the_record_before_their_place(tmp_path: Path) -> None:
    """An earlier release did not note it."""
    root = tmp_path / "s"
    put(root, "t", b"a", b"b")
    start = progress(root, startingOffsets="earliest").end()
    assert start.pop("last")["phys"] > 0
    put(root, "t", b"c")
    assert batch(progress(root), start)[1] == [b"c"]


def put_and_copy(path: Path, copy: Path, *bodies: bytes) -> None:
    with open_master(path) as master, open_copy(copy, master) as follower:
        for body in bodies:
            master.writer("t").put(body)
        caught_up(follower, master)


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A master and its replica: both had thirty messages, and the master has lost twenty since."""
    monkeypatch.setattr("rocketstore.spark.source.stream_progress.REOPEN_S", -1.0)
    master, copy = tmp_path / "m", tmp_path / "c"
    put_and_copy(master, copy, *[b"A%d" % i for i in range(10)])
    shutil.copytree(master, tmp_path / "older")
    put_and_copy(master, copy, *[b"B%d" % i for i in range(20)])
    shutil.rmtree(master)
    shutil.move(tmp_path / "older", master)
    return master, copy


def read_all(root: Path) -> dict[str, Any]:
    start, found = batch(progress(root), progress(root, startingOffsets="earliest").initial())
    assert len(found) == 30
    return start


@pytest.mark.parametrize("more", [5, 40], ids=["below the place", "beyond it"])
def test_what_was_read_and_cut_off_is_named(roots: tuple[Path, Path], more: int) -> None:
    master, copy = roots
    start = read_all(copy)
    put_and_copy(master, copy, *[b"C%d" % i for i in range(more)])
    end = progress(copy).end()
    message = "RS_LOG_TRUNCATED.* has another history from [0-9]+ on.*quarantine"
    for call in (
        lambda: progress(copy).latest(start),
        lambda: progress(copy).parts(start, end),
        lambda: progress(copy).parts({**start, "phys": 0, "last": None}, start),
    ):
        with pytest.raises(SparkFaceError, match=message):
            call()


@pytest.mark.parametrize("more", [5, 40], ids=["below the place", "beyond it"])
def test_a_stream_that_may_lose_goes_on_where_the_histories_part(
    roots: tuple[Path, Path], more: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It leaves out nothing of what took the place of the cut, and reads nothing twice."""
    master, copy = roots
    start = read_all(copy)
    put_and_copy(master, copy, *[b"C%d" % i for i in range(more)])
    end, found = batch(progress(copy, failOnDataLoss="false"), start)
    assert found == [b"C%d" % i for i in range(more)]
    assert "the stream goes on at" in caplog.text
    put_and_copy(master, copy, b"D")
    assert batch(progress(copy), end)[1] == [b"D"]


def test_a_batch_that_was_planned_before_the_cut(roots: tuple[Path, Path]) -> None:
    """It has what both histories have; the next one goes on from there."""
    master, copy = roots
    start = progress(copy, startingOffsets="earliest").initial()
    end = progress(copy).latest(start)
    put_and_copy(master, copy, *[b"C%d" % i for i in range(40)])
    lossy = progress(copy, failOnDataLoss="false")
    assert bodies(lossy, start, end) == [b"A%d" % i for i in range(10)]
    assert bodies(lossy, end, lossy.latest(end)) == [b"C%d" % i for i in range(40)]


def bodies(stream: Progress, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    scans, _ = stream.parts(start, json.loads(json.dumps(end)))
    return [bytes(body) for scan in scans for columns in scan for body in columns["body"]]


def test_new_runs_of_a_master_are_no_cut(roots: tuple[Path, Path]) -> None:
    """Nor does a role that cannot be read end a stream: the record before its place is compared."""
    master, copy = roots
    start, found = batch(progress(master), progress(master, startingOffsets="earliest").initial())
    assert len(found) == 10
    for number in range(3):
        put_and_copy(master, copy, b"C%d" % number)
    StoreLayout(master).replication.write_text("{")
    end, found = batch(progress(master), start)
    assert found == [b"C0", b"C1", b"C2"]
    assert "epochs" not in end


def uuid_of(root: Path) -> str:
    return str(progress(root).end()["store"])


@pytest.mark.parametrize("promoted", [True, False])
def test_a_checkpoint_of_the_master_goes_on_at_a_copy(
    roots: tuple[Path, Path], promoted: bool
) -> None:
    """The copy has all of it: nothing is read twice, a micro-batch that was planned there is repeated."""
    master, copy = roots
    put_and_copy(master, copy, b"C0", b"C1")
    begin = progress(master, startingOffsets="earliest").initial()
    start, _ = batch(progress(master), begin)
    assert bodies(progress(copy), begin, start) == [*(b"A%d" % i for i in range(10)), b"C0", b"C1"]
    if promoted:
        promote(copy)
        put(copy, "t", b"P0", b"P1")
    end, found = batch(progress(copy), start)
    assert found == [b"P0", b"P1"] * promoted
    assert (end["store"] == uuid_of(copy) != start["store"]) or not promoted
    assert batch(progress(copy), end) == (end, [])


@pytest.mark.parametrize("promoted", [True, False])
def test_what_a_copy_lacks_is_named(
    roots: tuple[Path, Path], promoted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    master, copy = roots
    put_and_copy(master, copy, b"C0")
    place = progress(copy).end()["phys"]
    put(master, "t", b"C1", b"C2")
    start, _ = batch(progress(master), progress(master, startingOffsets="earliest").initial())
    if promoted:
        promote(copy)
        put(copy, "t", b"P0", b"P1", b"P2")
    epoch, began = start["epochs"][-1]
    with pytest.raises(SparkFaceError, match="RS_LOG_TRUNCATED") as caught:
        progress(copy).latest(start)
    lost = f"[{place}, {start['phys']}) of store {start['store']}"
    assert f"{lost}, the end of its epoch {epoch} from {began}, never came" in str(caught.value)
    lossy = progress(copy, failOnDataLoss="false")
    assert batch(lossy, start)[1] == [b"P0", b"P1", b"P2"] * promoted
    assert f"the stream goes on at {place}" in caplog.text


def test_a_checkpoint_of_another_history(roots: tuple[Path, Path], tmp_path: Path) -> None:
    master, copy = roots
    start, _ = batch(progress(master), progress(master, startingOffsets="earliest").initial())
    alone = tmp_path / "alone"
    put(alone, "t", b"x")
    epoch, began = start["epochs"][-1]
    for options in ({}, {"failOnDataLoss": "false"}):
        with pytest.raises(SparkFaceError, match="RS_STORE_REPLACED") as caught:
            progress(alone, **options).latest(start)
        for said in (uuid_of(alone), start["store"], f"{epoch} from {began}"):
            assert said in str(caught.value)
        with pytest.raises(SparkFaceError, match="RS_STORE_REPLACED.*it has no epoch"):
            progress(copy, **options).latest(progress(alone).end())
