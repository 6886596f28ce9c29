"""A stream whose store was put back, or replaced, under its checkpoint, without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rocketstore.log.layout import identity
from rocketstore.spark.errors import SparkFaceError
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
