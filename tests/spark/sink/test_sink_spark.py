"""The sink in a real session: batch and stream, and jobs of Kafka's connector in which only format and path change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.sink.journal import Journal, sink_directory
from tests.spark.patience import patiently

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


def messages(root: Path, topic: str) -> list[rocketstore.Message]:
    with rocketstore.open(root, "r") as store:
        return [m for q in store.queues(topic) for m in store.consumer(topic, queue_id=q)]


def test_a_frame_becomes_messages(spark: Any, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    frame = spark.range(0, 5000, 1, 3).select(
        f.encode(f.concat(f.lit("body "), f.col("id").cast("string")), "UTF-8").alias("body"),
        f.concat(f.lit("t"), (f.col("id") % 2).cast("string")).alias("topic"),
        (f.col("id") % 4).cast("int").alias("queue_id"),
        f.when(f.col("id") % 3 == 0, f.lit("red")).alias("tags"),
        f.array(f.lit("k"), f.col("id").cast("string")).alias("keys"),
        f.create_map(f.lit("n"), f.col("id").cast("string"), f.lit("x"), f.lit(None)).alias(
            "properties"
        ),
        f.timestamp_millis(f.col("id") + 1_700_000_000_000).alias("born_timestamp"),
    )
    root = tmp_path / "s"
    frame.write.format("rocketstore").mode("append").option("path", str(root)).save()
    seen = {}
    for topic in ("t0", "t1"):
        for message in messages(root, topic):
            number = int(message.body.split()[1])
            seen[number] = message
            assert (topic, message.queue_id) == (f"t{number % 2}", number % 4)
            assert message.tags == ("red" if number % 3 == 0 else None)
            assert message.keys == ("k", str(number))
            assert message.properties["n"] == str(number) and "x" not in message.properties
            assert message.born_timestamp_ms == 1_700_000_000_000 + number
    assert sorted(seen) == list(range(5000))
    in_log = sorted(seen, key=lambda number: seen[number].physical_offset)
    assert in_log == list(range(5000))
    assert not list((sink_directory(root) / "staging").rglob("*.frames"))


def test_the_same_version_is_written_once(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([("a",), ("b",)], "value string")
    root = tmp_path / "s"
    for version in (1, 1, 2, 1):
        (
            frame.write.format("rocketstore")
            .mode("append")
            .options(path=str(root), topic="t", txnAppId="load", txnVersion=str(version))
            .save()
        )
    assert [m.body for m in messages(root, "t")] in ([b"a", b"b"] * 2, [b"b", b"a"] * 2)
    assert [c["version"] for c in Journal(root).commits("load")] == [1, 2]


@pytest.mark.parametrize(
    ("sql", "options", "code"),
    [
        ("select 'a' as body", {}, "RS_NO_TOPIC"),
        ("select 'a' as text", {"topic": "t"}, "RS_UNKNOWN_COLUMN"),
        ("select 'a' as tags", {"topic": "t"}, "RS_NO_BODY"),
        ("select 1 as body", {"topic": "t"}, "RS_COLUMN_TYPE"),
        ("select 'a' as body", {"topic": "t", "topics": "x"}, "RS_UNKNOWN_OPTION"),
        ("select 'a' as body", {"topic": "t", "badRows": "keep"}, "RS_BAD_OPTION"),
        ("select 'a' as body", {"topic": "t", "txnVersion": "1"}, "RS_BAD_OPTION"),
        ("select cast(null as string) as body", {"topic": "t"}, r"RS_BAD_ROW\].*row 0.*body"),
        ("select 'a' as body, cast(null as string) as topic", {}, r"RS_BAD_ROW\].*topic"),
        (
            "select 'aaa' as body",
            {"topic": "t", "maxMessageSizeBytes": "2"},
            "RS_BAD_ROW.*3 bytes, at most 2",
        ),
        ("select 'a' as body", {"topic": "no/topic"}, "not allowed"),
    ],
)
def test_what_cannot_be_written_is_said(
    spark: Any, tmp_path: Path, sql: str, options: dict[str, str], code: str
) -> None:
    writer = spark.sql(sql).write.format("rocketstore").mode("append")
    with pytest.raises(Exception, match=code):
        writer.options(path=str(tmp_path / "s"), **options).save()
    assert not (tmp_path / "s").exists() or messages(tmp_path / "s", "t") == []


def test_bad_rows_can_be_left_out(spark: Any, tmp_path: Path) -> None:
    rows = [(b"a", "t"), (None, "t"), (b"b", None), (b"toolarge", "t"), (b"c", "t")]
    frame = spark.createDataFrame(rows, "body binary, topic string").coalesce(1)
    options = {"path": str(tmp_path / "s"), "badRows": "drop", "maxMessageSizeBytes": "4"}
    frame.write.format("rocketstore").mode("append").options(**options).save()
    assert [m.body for m in messages(tmp_path / "s", "t")] == [b"a", b"c"]


def test_bad_rows_can_be_kept(spark: Any, tmp_path: Path) -> None:
    rows = [(b"a", "t"), (None, "t"), (b"b", None), (b"toolarge", "t"), (b"c", "t"), (b"d", "x/y")]
    frame = spark.createDataFrame(rows, "body binary, topic string").coalesce(1)
    options = {"path": str(tmp_path / "s"), "badRows": "divert", "maxMessageSizeBytes": "4"}
    for _ in range(2):
        once = {"txnAppId": "a/b load", "txnVersion": "1"}
        frame.write.format("rocketstore").mode("append").options(**options, **once).save()
    assert [m.body for m in messages(tmp_path / "s", "t")] == [b"a", b"c"]
    bad = spark.read.parquet(str(sink_directory(tmp_path / "s") / "bad_rows"))
    assert sorted(bytes(row.body or b"") for row in bad.collect()) == [b"", b"b", b"d", b"toolarge"]
    assert {row.bad_row_reason for row in bad.collect()} >= {"body is null", "topic is null"}


def test_a_stream_is_written_once_though_it_is_replayed(spark: Any, tmp_path: Path) -> None:
    """The last commit file of the checkpoint is deleted: Spark runs that batch again."""
    source, root, checkpoint = tmp_path / "in", tmp_path / "s", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        query = (
            spark.readStream.schema("value string")
            .text(str(source))
            .writeStream.format("rocketstore")
            .options(path=str(root), topic="t", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for number in range(2):
        (source / f"{number}.txt").write_text("".join(f"{number}-{n}\n" for n in range(100)))
        patiently(run)
    expected = [f"{number}-{n}".encode() for number in range(2) for n in range(100)]
    assert [m.body for m in messages(root, "t")] == expected
    for last in (checkpoint / "commits").glob("*1*"):
        last.unlink()
    patiently(run)
    assert [m.body for m in messages(root, "t")] == expected
    (writer,) = (sink_directory(root) / "writers").glob("*.json")
    assert writer.is_file()


def test_the_driver_has_the_store_open_and_serves_it(spark: Any, tmp_path: Path) -> None:
    """A batch, then a stream, are appended by this process while it puts messages itself."""
    from rocketstore.spark import serve

    root, source = tmp_path / "s", tmp_path / "in"
    source.mkdir()
    (source / "0.txt").write_text("".join(f"line {n}\n" for n in range(50)))
    frame = spark.range(0, 3000, 1, 3).selectExpr("cast(id as string) as body", "'t' as topic")
    with rocketstore.open(root, durability="os") as store, serve(store):
        writer = store.writer("own")
        writer.put(b"before")
        options = {"path": str(root), "lockTimeoutS": "600"}
        frame.write.format("rocketstore").mode("append").options(**options).save()
        assert [m.body for m in store.consumer("t")] == [b"%d" % n for n in range(3000)]
        writer.put(b"between")

        def run() -> None:
            stream = spark.readStream.schema("value string").text(str(source))
            query = (
                stream.writeStream.format("rocketstore")
                .options(**options, topic="lines", checkpointLocation=str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()

        patiently(run)
        assert len(list(store.consumer("lines"))) == 50
        writer.put(b"after")
    assert [m.body for m in messages(root, "own")] == [b"before", b"between", b"after"]


def test_a_store_that_is_held_and_not_served_is_named(spark: Any, tmp_path: Path) -> None:
    frame = spark.sql("select 'a' as body, 't' as topic")
    with rocketstore.open(tmp_path / "s") as store:
        writer = frame.write.format("rocketstore").mode("append")
        with pytest.raises(Exception, match=r"RS_STORE_LOCKED.*rocketstore\.spark\.serve"):
            writer.options(path=str(tmp_path / "s"), lockTimeoutS="1").save()
        assert store.end_offset == 0


def all_messages(root: Path) -> list[rocketstore.Message]:
    with rocketstore.open(root, "r") as store:
        found = [
            m
            for topic in store.topics(system=True)
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
    found = all_messages(tmp_path / "s")
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
    [found] = all_messages(tmp_path / "s")
    assert (found.body, found.keys, found.properties["n"]) == (b"a\xff", ("k",), "1")
