"""Versions of a writer: what is noted of them, looked into seldom, and one that comes again."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink import cleanup
from rocketstore.spark.sink.cleanup import remove_orphans
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.journal import (
    TOPICS_MAX,
    Journal,
    Staged,
    facts_of,
    read_state,
    sink_directory,
)
from rocketstore.spark.sink.options import WriteOptions
from rocketstore.spark.sink.shards import Shard, commit_shards
from tests.spark.staged import make, stage_bodies

FIRST = [b"one", b"two", b"three"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "s"
    rocketstore.open(root, durability="os", commit_log_file_size_bytes=64 << 10).close()
    assert commit(str(root), "job", 7, [stage_bodies(root, "first", FIRST)])
    return root


def topics(root: Path) -> dict[str, int]:
    with rocketstore.open(root, "r") as store:
        return {
            topic: sum(store.max_queue_offset(topic, q) for q in store.queues(topic))
            for topic in store.topics(system=True)
        }


def test_the_same_rows_are_written_once(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However the tasks have divided them."""
    halves = [stage_bodies(root, "a", FIRST[:1]), stage_bodies(root, "b", FIRST[1:])]
    for reuse in ("fail", "retry", "skip"):
        assert not commit(str(root), "job", 7, halves, reuse=reuse)
    assert topics(root) == {"t": 3}
    assert not [one for one in caplog.records if one.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("bodies", "topic", "said"),
    [
        (FIRST, "other", r"topics \['t'\], now \['other'\]"),
        (FIRST[:2], "t", r"rows 3, now 2, bytes \d+, now \d+"),
        ([b"one", b"two", b"threes"], "t", r"with bytes \d+, now \d+"),
    ],
)
def test_other_rows_are_an_error(root: Path, bodies: list[bytes], topic: str, said: str) -> None:
    """Two writes of one micro-batch under one name: the second was left out, and nobody said so."""
    files = [stage_bodies(root, "again", bodies, topic=topic)]
    with pytest.raises(SparkFaceError, match=rf"RS_VERSION_REUSED.*{said}.*txnAppId='job-topic'"):
        commit(str(root), "job", 7, files)
    assert topics(root) == {"t": 3}
    assert Journal(root).pending() is None
    assert commit(str(root), f"job-{topic}", 7, files)


def test_what_a_stream_tries_again(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The same input may give other rows; another topic is another write."""
    files = [stage_bodies(root, "again", FIRST[:2])]
    assert not commit(str(root), "job", 7, files, reuse="retry")
    assert "was written with rows 3, now 2" in caplog.text
    more = [stage_bodies(root, "a", FIRST), stage_bodies(root, "b", FIRST, topic="other")]
    assert not commit(str(root), "job", 7, more, reuse="retry")
    with pytest.raises(SparkFaceError, match="RS_VERSION_REUSED"):
        commit(str(root), "job", 7, more[1:], reuse="retry")
    assert not commit(str(root), "job", 7, more[1:], reuse="skip")
    assert topics(root) == {"t": 3}


def test_an_earlier_version_that_is_remembered(root: Path) -> None:
    assert commit(str(root), "job", 8, [stage_bodies(root, "next", [b"x"])])
    files = [stage_bodies(root, "again", FIRST, topic="other")]
    with pytest.raises(SparkFaceError, match="RS_VERSION_REUSED.*version 7 of job"):
        commit(str(root), "job", 7, files)
    assert not commit(str(root), "job", 3, files)  # never written: a warning, as before


def test_a_journal_of_0_1_and_many_topics(root: Path) -> None:
    """What was not noted is not compared."""
    [file] = (sink_directory(root) / "writers").iterdir()
    content: dict[str, Any] = json.loads(file.read_text())
    for commit_ in content["commits"]:
        del commit_["bytes"], commit_["topics"]
    file.write_text(json.dumps(content))
    assert not commit(str(root), "job", 7, [stage_bodies(root, "a", FIRST, topic="other")])
    with pytest.raises(SparkFaceError, match="RS_VERSION_REUSED.*rows 3, now 1;"):
        commit(str(root), "job", 7, [stage_bodies(root, "b", FIRST[:1])])
    many = Staged("p", 1, ((1, 1, 1),), topics=tuple(map(str, range(TOPICS_MAX + 1))))
    assert facts_of([many]) == {"bytes": 1, "topics": None}
    assert facts_of([Staged("p", 1, ((1, 1, 1),))])["topics"] is None


def test_a_commit_that_is_handed_over_says_it(root: Path) -> None:
    with rocketstore.open(root, shared="host"):
        other = [stage_bodies(root, "b", FIRST, topic="other")]
        with pytest.raises(SparkFaceError, match=r"RS_VERSION_REUSED.*topics.*said by process"):
            commit(str(root), "job", 7, other, reuse="retry")
        assert not commit(str(root), "job", 7, other, reuse="skip")


def test_shards(tmp_path: Path) -> None:
    def load(run: str, rows: int, **given: Any) -> bool:
        name = f"_staged/{run}/0"
        (tmp_path / "d" / name / "commitlog").mkdir(parents=True)
        shard = Shard(name, rows, rows)
        return commit_shards(str(tmp_path / "d"), run, [shard], writer="job", version=1, **given)

    assert load("a", 3)
    assert not load("b", 3)
    with pytest.raises(SparkFaceError, match="RS_VERSION_REUSED.*rows 3, now 4"):
        load("c", 4)
    assert not load("e", 4, skip_reused=True)


def test_the_option() -> None:
    given = {"path": "p", "topic": "t"}
    assert not WriteOptions.parse(given).skip_reused
    assert WriteOptions.parse({**given, "reusedVersion": "SKIP"}).skip_reused
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*reusedVersion = 'no': fail or skip"):
        WriteOptions.parse({**given, "reusedVersion": "no"})


def test_named_writers_are_looked_into_once_a_week(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each commit read what is noted of each that had not written for a week."""
    root, looked = tmp_path / "s", list[str]()
    make(root)
    for day in range(5):
        assert commit(str(root), f"load-{day}", 0, [stage_bodies(root, f"{day}", [b"x"])])
    files = list((sink_directory(root) / "writers").glob("*.json"))

    def read(path: Path) -> dict[str, Any] | None:
        looked.append(path.name)
        return read_state(path)

    monkeypatch.setattr(cleanup, "read_state", read)
    for weeks in (2, 1):
        for file in files:
            os.utime(file, times=(time.time() - weeks * 8 * 24 * 3600,) * 2)
        for _ in range(3):
            assert remove_orphans(str(root)) == 0
        assert sorted(looked) == sorted(file.name for file in files)
        looked.clear()
    assert Journal(root).last_version("load-0") == 0
