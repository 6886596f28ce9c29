"""Jobs that write, in a real session."""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

import rocketstore
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.reading import source_options
from rocketstore.spark.sink.shards import commit_shards
from tests.spark.reading import everything, make_store
from tests.spark.shard_stores import make_shard

pytestmark = [pytest.mark.filterwarnings("ignore")]


def contents(found: list[rocketstore.Message]) -> list[tuple[Any, ...]]:
    """What stays when a message is stored again."""
    return [
        (m.topic, m.queue_id, m.body, m.keys, m.tags, m.born_timestamp_ms, m.properties.get("n"))
        for m in found
    ]


@pytest.mark.spark
def test_parquet_and_back(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    there = make_store(tmp_path / "s", rng)
    target = str(tmp_path / "parquet")
    files = jobs.export(spark, tmp_path / "s", target, split_bytes=30_000).collect()
    assert sum(row.messages for row in files) == len(there)
    assert sorted(row.file for row in files) == [row.file for row in files]
    assert {p.name[0] for p in (tmp_path / "parquet").iterdir()} == {"t"}
    assert jobs.import_(spark, target, tmp_path / "back", app_id="once") == len(there)
    assert jobs.import_(spark, target, tmp_path / "back", app_id="once") == 0
    assert contents(everything(tmp_path / "back")) == contents(there)
    with pytest.raises(SparkFaceError, match="RS_TARGET_NOT_EMPTY"):
        jobs.export(spark, tmp_path / "s", target)
    more = jobs.export(
        spark, tmp_path / "s", target, topics="orders", columns=["body"], mode="append"
    ).collect()
    assert {row.topic for row in more} == {"orders"}


@pytest.mark.spark
def test_names_of_kafka_are_imported(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An ordinary dump was refused, though the sink takes its names; others vanished in silence."""
    rows = [("k1", b"one", 2, [("trace", b"7")], "de"), ("k2", b"two", 3, None, "fr")]
    headers = "headers array<struct<key:string,value:binary>>"
    kinds = f"key string, value binary, partition int, {headers}, flag string"
    frame = spark.createDataFrame(rows, kinds)
    frame.coalesce(1).write.parquet(str(tmp_path / "dump"))
    with pytest.raises(Exception, match=r"\[RS_NO_STORE\]"):
        jobs.import_(spark, str(tmp_path / "dump"), tmp_path / "s", topic="t", create_store=False)
    assert jobs.import_(spark, str(tmp_path / "dump"), tmp_path / "s", topic="t") == 2
    assert "columns that no message has are left out: flag" in caplog.text
    found = everything(tmp_path / "s")
    assert [(m.keys, m.body, m.queue_id) for m in found] == [
        (("k1",), b"one", 2),
        (("k2",), b"two", 3),
    ]


@pytest.mark.spark
def test_topics_that_look_like_numbers_stay_texts(spark: Any, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as store:
        for topic in ("007", "7", "%DLQ%g"):
            store.writer(topic).put(topic.encode())
    target = str(tmp_path / "parquet")
    jobs.export(spark, tmp_path / "s", target)
    assert jobs.import_(spark, target, tmp_path / "back") == 3
    assert [(m.topic, m.body) for m in everything(tmp_path / "back")] == [
        ("007", b"007"), ("7", b"7"), ("%DLQ%g", b"%DLQ%g"),
    ]  # fmt: skip


@pytest.mark.spark
def test_replay_to_another_topic_and_store(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    from pyspark.sql import functions as f

    there = make_store(tmp_path / "s", rng)
    red = [m for m in there if m.topic == "orders" and m.tags == "red"]
    count = jobs.replay(
        spark, tmp_path / "s", tmp_path / "s", to_topic="again", topics="orders", tags="red"
    )
    assert count == len(red)
    found = [m for m in everything(tmp_path / "s") if m.topic == "again"]
    assert [row[1:] for row in contents(found)] == [row[1:] for row in contents(red)]

    wanted = [m for m in there if {"a", "k7"} & set(m.keys)]
    count = jobs.replay(
        spark,
        tmp_path / "s",
        tmp_path / "other",
        keys=["a", "k7"],
        topics=["orders", "events"],
        transform=lambda frame: frame.withColumn("body", f.lit("new")),
    )
    assert count == len(wanted)
    found = everything(tmp_path / "other")
    assert [(m.topic, m.keys) for m in found] == [(m.topic, m.keys) for m in wanted]
    assert {m.body for m in found} == {b"new"}
    count = jobs.replay(
        spark, tmp_path / "s", tmp_path / "one", topics=["orders", "events"], keys="k7"
    )
    assert count == sum("k7" in m.keys for m in there)  # a text was taken for its letters


def test_a_store_is_not_replayed_to_itself_by_accident(tmp_path: Path, rng: random.Random) -> None:
    """It held each message twice then."""
    make_store(tmp_path / "s", rng, 5)
    (tmp_path / "link").symlink_to("s")
    for target in ("s", "link"):
        with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*twice; give to_topic$"):
            jobs.replay(MagicMock(), tmp_path / "s", tmp_path / target, topics="orders")
    assert len(everything(tmp_path / "s")) == 5


@pytest.mark.spark
def test_compact_keeps_the_last_of_each_key(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        for number in range(500):
            key = rng.choice([None, "a", "b", ("c", "d"), f"k{number % 50}"])
            body = rng.choice([b"", b"%d" % number])
            store.writer(rng.choice(["t", "u"])).put(body, keys=key)
    there = everything(tmp_path / "s")
    last = {(m.topic, m.keys): m.physical_offset for m in there if m.keys}
    kept = [m for m in there if not m.keys or last[m.topic, m.keys] == m.physical_offset]
    alive = [m for m in kept if not m.keys or m.body]
    assert jobs.compact(spark, tmp_path / "s", tmp_path / "small") == len(alive)
    assert contents(everything(tmp_path / "small")) == contents(alive)
    assert jobs.compact(spark, tmp_path / "s", tmp_path / "all", tombstones=False) == len(kept)
    assert contents(everything(tmp_path / "all")) == contents(kept)


def test_compact_into_itself_is_refused(tmp_path: Path) -> None:
    nobody: Any = None
    (tmp_path / "link").symlink_to(tmp_path / "s")
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*another store"):
        jobs.compact(nobody, tmp_path / "s", tmp_path / "link")
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*another store"):
        jobs.compact(nobody, f"file://{tmp_path}/s", tmp_path / "s")


def test_compact_of_shards_is_refused(tmp_path: Path) -> None:
    """A message of a later load may stand at a smaller physical offset than the one that it replaces."""
    nobody: Any = None
    root = tmp_path / "shards"
    commit_shards(str(root), "0", [make_shard(root, "0", 0, [b"old"])])
    with pytest.raises(SparkFaceError, match=r"RS_BAD_OPTION.*1 shards.*last message of a key"):
        jobs.compact(nobody, root, tmp_path / "small")


def test_what_only_another_job_takes_is_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="decompress: there are topics"):
        jobs.compact(MagicMock(), tmp_path / "s", tmp_path / "small", decompress=False)


def test_what_a_job_chooses_by() -> None:
    assert source_options({"topics": ["a", "b"], "tags": None, "begin": 5}) == {
        "topic": "a,b",
        "startingTimestamp": "5",
    }
    found = source_options({"queues": {"a": (0, 1)}, "tags": ("x", "y")})
    assert (json.loads(found["queues"]), found["tags"]) == ({"a": [0, 1]}, "x||y")
    assert source_options({"queues": 3, "topic_pattern": "a.*", "end": 9}) == {
        "queues": "3",
        "topicPattern": "a.*",
        "endingTimestamp": "9",
    }
    with pytest.raises(TypeError, match="topic: there are topics"):
        source_options({"topic": "x"})


@pytest.mark.spark
def test_properties_of_services_are_not_ordered_again(spark: Any, tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "s") as store:
        store.put_message(
            "t", b"x", properties={"PGROUP": "g", "DELAY": "0", "__SHARDINGKEY": "u1", "mine": "1"}
        )
    assert jobs.replay(spark, tmp_path / "s", tmp_path / "other") == 1
    [found] = everything(tmp_path / "other")
    assert {k: v for k, v in found.properties.items() if k != "__CRC32#"} == {
        "__SHARDINGKEY": "u1",
        "mine": "1",
    }


@pytest.mark.spark
@pytest.mark.parametrize("options", [{}, {"shards": 1}])
def test_what_was_appended_is_counted(spark: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    """Neither bad rows nor rows of a version that is there."""
    rows = spark.createDataFrame([(b"a",), (None,), (b"b",)], "body binary").coalesce(1)
    rows.write.parquet(str(tmp_path / "parquet"))
    given = {"topic": "t", "badRows": "drop", "app_id": "load", **options}
    for version, count in ((3, 2), (3, 0), (2, 0), (4, 2)):
        found = jobs.import_(
            spark, str(tmp_path / "parquet"), tmp_path / "s", version=version, **given
        )
        assert found == count
    bad = spark.createDataFrame([(None,)], "body binary")
    bad.write.parquet(str(tmp_path / "bad"))
    assert (
        jobs.import_(spark, str(tmp_path / "bad"), tmp_path / "s", **{**given, "version": 5}) == 0
    )


@pytest.mark.spark
def test_bodies_that_stay_compressed_are_known_as_such(spark: Any, tmp_path: Path) -> None:
    """Through Parquet, or by a replay, which unpacked them always."""
    with rocketstore.open(tmp_path / "s") as store:
        store.put_message("t", zlib.compress(b"plain" * 99), sys_flag=0x301, flag=7)
    target = str(tmp_path / "parquet")
    jobs.export(spark, tmp_path / "s", target, decompress=False)
    assert jobs.import_(spark, target, tmp_path / "back") == 1
    assert jobs.replay(spark, tmp_path / "back", tmp_path / "plain") == 1
    assert jobs.replay(spark, tmp_path / "back", tmp_path / "same", decompress=False) == 1
    [packed], [plain] = everything(tmp_path / "back"), everything(tmp_path / "plain")
    [same] = everything(tmp_path / "same")
    assert (same.body, same.sys_flag, same.flag) == (packed.body, packed.sys_flag, packed.flag)
    assert (packed.body, packed.sys_flag, packed.flag) == (zlib.compress(b"plain" * 99), 0x301, 7)
    assert (plain.body, plain.sys_flag, plain.flag) == (b"plain" * 99, 0, 7)
