"""A stream of a replica that is cut, or a master that lost its tail, under its checkpoint, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketstore.log.layout.paths import StoreLayout
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.stream_progress import Progress
from tests.replication.copies import caught_up, open_copy, open_master
from tests.spark.source.test_progress import batch, progress


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
