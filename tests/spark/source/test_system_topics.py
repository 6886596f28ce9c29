"""Topics of RocketMQ's own services: jobs that append leave them out, unless they are asked for."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.writing import system_topics
from rocketstore.values import is_system_topic
from tests.spark.reading import everything
from tests.support.made_store import MadeStore

DELAYED, HALVES = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"


def make(root: Path) -> None:
    """As a broker leaves it: three delayed messages and a half beside two of applications."""
    store = MadeStore(root)
    store.put("orders", body=b"one", keys=["k"])
    for level in (2, 2, 7):
        properties = {"REAL_TOPIC": "orders", "REAL_QID": "0"}
        store.put(DELAYED, level, b"later", properties=properties)
    store.put(HALVES, body=b"half")
    store.put("rmq_system", body=b"two")
    store.dispatch()


@pytest.mark.parametrize("topic", [DELAYED, HALVES, "rmq_sys_wheel_timer", "OFFSET_MOVED_EVENT"])
def test_names(topic: str) -> None:
    assert is_system_topic(topic)
    assert not is_system_topic(f"my_{topic}") and not is_system_topic("rmq_system")


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    make(tmp_path)
    assert system_topics(str(tmp_path), {}) == {DELAYED: 3, HALVES: 1}
    assert system_topics(str(tmp_path), {"topic_pattern": "RMQ.*"}) == {HALVES: 1}
    assert system_topics(str(tmp_path), {"topic_pattern": "o.*"}) == {}


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_a_whole_broker_is_copied(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(tmp_path / "s")
    with caplog.at_level(logging.WARNING, "rocketstore.spark.jobs.writing"):
        assert jobs.replay(spark, tmp_path / "s", tmp_path / "replayed") == 2
        assert jobs.compact(spark, tmp_path / "s", tmp_path / "compacted") == 2
        jobs.export(spark, tmp_path / "s", str(tmp_path / "files"), system_topics=True)
        assert jobs.import_(spark, str(tmp_path / "files"), tmp_path / "imported") == 2
    for name in ("replayed", "compacted", "imported"):
        assert [m.body for m in everything(tmp_path / name)] == [b"one", b"two"]
    told = f"left out: {HALVES} (1 messages), {DELAYED} (3 messages)"
    messages = [r.getMessage() for r in caplog.records if r.name.endswith("jobs.writing")]
    assert [told in message for message in messages] == [True] * 3
    remedies = [message.rpartition("; ")[2] for message in messages]
    by_directory = "import the directory topic=… of each with the argument topic to have them"
    assert remedies == ["name them in topics and replay them with to_topic to have them"] * 2 + [
        by_directory
    ]
    alone = str(tmp_path / "files" / f"topic={DELAYED}")
    assert jobs.import_(spark, alone, tmp_path / "imported", topic="late") == 3
    for job in (jobs.replay, jobs.compact):
        for topic in (DELAYED, HALVES):
            with pytest.raises(SparkFaceError, match=r"^\[RS_BAD_OPTION\] topics = .*to_topic"):
                job(spark, tmp_path / "s", tmp_path / "none", topics=[topic, "orders"])
    assert not (tmp_path / "none").exists()
    more = jobs.replay(spark, tmp_path / "s", tmp_path / "more", topics=DELAYED, to_topic="late")
    assert more == 3
    with rocketstore.open(tmp_path / "more", "r") as store:
        assert store.topics() == ["late"]
