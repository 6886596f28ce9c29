"""Jobs of Kafka's connector in which only format and path are changed; paths that cannot be written to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


def messages(root: Path) -> list[rocketstore.Message]:
    with rocketstore.open(root, "r") as store:
        found = [
            m
            for topic in store.topics()
            for queue_id in store.queues(topic)
            for m in store.consumer(topic, queue_id=queue_id)
        ]
    return sorted(found, key=lambda m: m.physical_offset)


@pytest.mark.parametrize("columns", [["key", "value"], ["*"]])
def test_a_copy_of_a_topic(spark: Any, tmp_path: Path, columns: list[str]) -> None:
    with rocketstore.open(tmp_path / "s") as store:
        for number in range(10):
            properties = {"n": str(number)}
            writer = store.writer("orders")
            writer.put(b"%d" % number, tags="red", keys="k", properties=properties)
    kafka = {"kafka.bootstrap.servers": "h:9092", "path": str(tmp_path / "s")}
    stream = (
        spark.readStream.format("rocketstore")
        .options(**kafka, subscribe="orders", startingOffsets="earliest", includeHeaders="true")
        .load()
        .selectExpr(*columns)
    )
    query = (
        stream.writeStream.format("rocketstore")
        .options(**kafka, topic="copy", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = messages(tmp_path / "s")
    assert [m.topic for m in found] == ["orders"] * 10 + ["copy"] * 10
    for number, message in enumerate(found[10:]):
        assert (message.body, message.keys) == (b"%d" % number, ("k",))
        if columns == ["*"]:
            assert (message.tags, message.properties["n"]) == ("red", str(number))


@pytest.mark.parametrize(
    ("path", "options", "reason"),
    [
        ("file", {}, "file"),
        ("file/below", {}, "file/below"),
        ("/proc/nothing", {}, "/proc/nothing"),
        ("others", {}, "others"),
        ("s", {"stagingPath": "file/staging"}, "file/staging"),
        ("s", {"badRows": "divert", "badRowsPath": "file/bad"}, "file/bad"),
        ("file/shards", {"shards": "auto"}, "file/shards"),
    ],
)
def test_paths_that_cannot_be_written_to_are_named(
    spark: Any, tmp_path: Path, path: str, options: dict[str, str], reason: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "data.txt").write_text("")
    frame = spark.sql("select 'a' as body union all select cast(null as string)")
    if "badRows" not in options:
        frame = frame.where("body is not null")
    options = {n: str(tmp_path / v) if n.endswith("Path") else v for n, v in options.items()}
    writer = frame.write.format("rocketstore").mode("append").option("topic", "t")
    with pytest.raises(Exception, match=rf"\[RS_(WRITE|SHARD)_FAILED\] host=\S+ path=\S*{reason}"):
        writer.options(path=str(tmp_path / path), **options).save()


def test_an_option_that_no_topic_may_have_is_said_by_the_driver(spark: Any, tmp_path: Path) -> None:
    writer = spark.sql("select 'a' as body").write.format("rocketstore").mode("append")
    with pytest.raises(Exception, match=r"\[RS_BAD_OPTION\] option topic: .*'x\.y'"):
        writer.options(path=str(tmp_path / "s"), topic="x.y", badRows="drop").save()
    assert not (tmp_path / "s").exists()


def test_types_with_large_offsets(spark: Any, tmp_path: Path) -> None:
    name = "spark.sql.execution.arrow.useLargeVarTypes"
    spark.conf.set(name, "true")
    try:
        frame = spark.createDataFrame(
            [(b"a\xff", ["k"], {"n": "1"})],
            "body binary, keys array<string>, properties map<string,string>",
        )
        writer = frame.write.format("rocketstore").mode("append").option("topic", "t")
        writer.option("path", str(tmp_path / "s")).save()
    finally:
        spark.conf.unset(name)
    [found] = messages(tmp_path / "s")
    assert (found.body, found.keys, found.properties["n"]) == (b"a\xff", ("k",), "1")
