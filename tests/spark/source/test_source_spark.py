"""The source in a real session: SQL over a store, filters that it answers, streams that go on where they were."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import spark as face
from rocketstore.spark.frame import PUSHDOWN
from tests.spark.patience import patiently
from tests.spark.reading import crossed, make_store

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


def load(spark: Any, root: Path, **options: str) -> Any:
    return spark.read.format("rocketstore").option("path", str(root)).options(**options).load()


def bodies(root: Path) -> list[bytes]:
    with rocketstore.open(root, "r") as store:
        return [m.body for topic in store.topics(system=True) for m in store.consumer(topic)]


def test_a_store_is_a_table(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng)
    frame = load(spark, tmp_path / "s", splitBytes="100k")
    assert frame.rdd.getNumPartitions() > 2
    rows = frame.collect()
    assert [row.physical_offset for row in rows] == [m.physical_offset for m in messages]
    assert [bytes(row.body) for row in rows] == [m.body for m in messages]
    assert [row.properties for row in rows] == [m.properties for m in messages]
    frame.createOrReplaceTempView("store")
    counted = spark.sql("select topic, count(*) n from store where tags = 'red' group by topic")
    assert dict(map(tuple, counted.collect())) == {
        topic: sum(m.topic == topic and m.tags == "red" for m in messages)
        for topic in ("orders", "events")
    }
    assert load(spark, tmp_path / "s", columns="queue_id").count() == len(messages)
    rocketstore.open(tmp_path / "empty").close()
    assert load(spark, tmp_path / "empty").count() == 0


def test_a_schema_of_somebodys_own_is_refused(spark: Any, tmp_path: Path) -> None:
    """Tasks failed with what Spark says of a source that gives other columns than it has promised."""
    make_store(tmp_path / "s", random.Random(1), 9)
    own = load(spark, tmp_path / "s").schema
    for schema in ("body binary, topic string", "value string", own[:3]):
        reader = spark.read.format("rocketstore").schema(schema)
        with pytest.raises(
            Exception, match=r"\[RS_BAD_OPTION\] schema = struct<.*view and columns"
        ):
            reader.load(str(tmp_path / "s")).count()
    assert spark.read.format("rocketstore").schema(own).load(str(tmp_path / "s")).count() == 9
    kafka = load(spark, tmp_path / "s", view="kafka", includeHeaders="true")
    again = spark.read.format("rocketstore").schema(kafka.schema)
    options = {"path": str(tmp_path / "s"), "view": "kafka", "includeHeaders": "true"}
    assert again.options(**options).load().count() == 9
    followed = spark.readStream.format("rocketstore").schema("body binary")
    query = followed.load(str(tmp_path / "s")).writeStream.format("noop")
    query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    with pytest.raises(Exception, match=r"\[RS_BAD_OPTION\] schema = struct<body:binary>"):
        query.start().awaitTermination()


def test_a_session_whose_timestamps_have_no_zone(spark: Any, tmp_path: Path) -> None:
    """The source promised columns of that kind, and every read failed."""
    messages = make_store(tmp_path / "s", random.Random(1), 9)
    spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        frame = load(spark, tmp_path / "s")
        assert dict(frame.dtypes)["store_timestamp"] == "timestamp"
        times = frame.selectExpr("unix_millis(store_timestamp) t").collect()
        assert [row.t for row in times] == [m.store_timestamp_ms for m in messages]
    finally:
        spark.conf.unset("spark.sql.timestampType")


def test_errors_carry_their_code(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    with pytest.raises(Exception, match="RS_NO_STORE"):
        load(spark, tmp_path / "nowhere").collect()
    make_store(tmp_path / "s", rng, 40)
    with pytest.raises(Exception, match="RS_UNKNOWN_OPTION"):
        load(spark, tmp_path / "s", topics="orders")


def test_sql_makes_views(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    """A table of the catalog was refused for options that nobody gave."""
    messages = make_store(tmp_path / "s", rng, 60)
    given = f"USING rocketstore OPTIONS (path '{tmp_path / 's'}', topic 'orders')"
    with pytest.raises(Exception, match=r"RS_BAD_OPTION.*CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE made_by_sql {given}")
    spark.sql(f"CREATE TEMPORARY VIEW made_by_sql {given}")
    [[count]] = spark.sql("SELECT count(*) FROM made_by_sql").collect()
    assert count == sum(m.topic == "orders" for m in messages)


def copy(spark: Any, source: Path, target: Path, checkpoint: Path, **options: str) -> int:
    """A streaming copy of everything that is there now; how many batches had rows."""
    batches = 0

    def run() -> None:
        nonlocal batches
        query = started(spark, source, target, checkpoint, **options)
        query.awaitTermination()
        batches += len([p for p in query.recentProgress if p["numInputRows"]])

    patiently(run)
    return batches


def started(spark: Any, source: Path, target: Path, checkpoint: Path, **options: str) -> Any:
    frame = spark.readStream.format("rocketstore").options(
        path=str(source), startingOffsets="earliest", **options
    )
    return (
        frame.load()
        .select("topic", "queue_id", "body", "tags", "keys", "properties", "born_timestamp")
        .writeStream.format("rocketstore")
        .options(path=str(target), checkpointLocation=str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def test_a_streamed_copy_is_equal(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    """Limits, a restart with more messages, and a replayed batch: every message once, in order."""
    source, target, checkpoint = tmp_path / "s", tmp_path / "t", tmp_path / "c"
    make_store(source, rng)
    assert copy(spark, source, target, checkpoint, maxBytesPerTrigger="100k") > 1
    assert bodies(target) == bodies(source)
    with rocketstore.open(source, durability="os") as store:
        store.writer("orders", queue_id=2).put(b"later", properties={"n": "x"})
    copy(spark, source, target, checkpoint, maxBytesPerTrigger="100k")
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    copy(spark, source, target, checkpoint, maxBytesPerTrigger="100k")
    assert bodies(target) == bodies(source)
    with rocketstore.open(source, "r") as a, rocketstore.open(target, "r") as b:
        for old, new in zip(a.consumer("orders"), b.consumer("orders"), strict=True):
            assert (old.queue_id, old.queue_offset) == (new.queue_id, new.queue_offset)
            assert (old.properties, old.born_timestamp_ms) == (
                new.properties,
                new.born_timestamp_ms,
            )


def test_a_job_for_kafka_runs_with_another_format_and_path(
    spark: Any, tmp_path: Path, rng: random.Random
) -> None:
    messages = [m for m in make_store(tmp_path / "s", rng, 100) if m.topic == "orders"]
    frame = (
        spark.readStream.format("rocketstore")
        .option("path", str(tmp_path / "s"))
        .option("kafka.bootstrap.servers", "host1:port1,host2:port2")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "40")
        .load()
        .selectExpr("CAST(key AS STRING)", "value", "topic", "partition", "offset", "timestamp")
    )
    batches: list[int] = []

    def run() -> None:
        writer = frame.writeStream.format("memory").queryName("copied")
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        batches[:] = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]

    patiently(run)
    rows = spark.sql("select * from copied").collect()
    assert sorted((row.partition, row.offset, bytes(row.value)) for row in rows) == sorted(
        (m.queue_id, m.queue_offset, m.body) for m in messages
    )
    assert max(batches) <= 40 and sum(batches) == len(messages)


def plain(spark: Any, root: Path, **options: str) -> Any:
    return spark.read.format("rocketstore").option("path", str(root)).options(**options).load()


QUERIES = [
    "topic = 'orders' and queue_id in (1, 3)",
    "topic > 'f' and queue_offset >= 10 and queue_offset < 30",
    "tags = 'red' or topic = 'events'",
    "tags in ('red', 'grün') and keys is not null",
    "tags is null and length(body) > 300",
    "tags <> 'red' and queue_id != 2 and topic like 'ord%'",
    "physical_offset between 60000 and 130000",
    "store_timestamp >= timestamp_micros({middle_us}) and tags = 'blue'",
    "store_timestamp < timestamp_micros({middle_us} + 1)",
    "store_timestamp = timestamp_micros({middle_us} + 1)",
    "queue_offset > 7.5 and cast(queue_id as string) = '2'",
    "topic = 'nowhere'",
]


#: Of these Spark has nothing left to drop.
EXACT = [q for q in QUERIES if not any(w in q for w in ("length", " or ", "cast", "<>"))]


@pytest.mark.parametrize("query", QUERIES)
def test_the_same_rows_with_and_without(
    spark: Any, tmp_path: Path, rng: random.Random, query: str
) -> None:
    messages = make_store(tmp_path / "s", rng)
    where = query.format(middle_us=messages[300].store_timestamp_ms * 1000)
    without = plain(spark, tmp_path / "s").where(where).collect()
    rows, given = crossed(face.read(spark, tmp_path / "s", where=where))
    assert rows == without
    assert len(rows) <= given <= len(messages)
    if query in EXACT:
        assert given == len(rows)


def test_literals_that_spark_cannot_hand_over(
    spark: Any, tmp_path: Path, rng: random.Random
) -> None:
    """Its worker failed at a year before 1, and so did the read; now nothing is asked for."""
    make_store(tmp_path / "s", rng, 60)
    where = "queue_id = 1 and store_timestamp > '-0005-01-01'"
    rows, given = crossed(face.read(spark, tmp_path / "s", where=where))
    assert rows == plain(spark, tmp_path / "s").where("queue_id = 1").collect()
    assert given == 60
    with pytest.raises(Exception, match="RS_BAD_OPTION"):
        face.read(spark, tmp_path / "s", where=where, options={"maxBytesPerTrigger": "1m"}).count()


def test_a_frame_gives_the_same_rows_in_every_query(
    spark: Any, tmp_path: Path, rng: random.Random
) -> None:
    """Also beside other filters of the same frame, in one query or one after another: what Spark 4.3 itself
    pushes into a Python source stays there for the next query."""
    messages = make_store(tmp_path / "s", rng)
    frame = face.read(spark, tmp_path / "s", where="topic = 'orders'")
    orders = [m for m in messages if m.topic == "orders"]
    of = [sum(m.queue_id == q for m in orders) for q in range(4)]
    one, two = frame.where("queue_id = 1"), frame.where("queue_id = 2")
    assert [f.count() for f in (frame, one, two, frame)] == [len(orders), of[1], of[2], len(orders)]
    assert one.union(two).count() == of[1] + of[2]
    assert one.join(two, "queue_offset").count() == min(of[1], of[2])
    one._jdf.queryExecution().executedPlan()
    assert (two.count(), one.count()) == (of[2], of[1])
    frame.createOrReplaceTempView("orders")
    counted = spark.sql("select queue_id, count(*) from orders where queue_id > 1 group by 1")
    assert dict(map(tuple, counted.collect())) == {2: of[2], 3: of[3]}


def test_columns_and_views_and_options(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    from pyspark.sql import functions as f

    messages = make_store(tmp_path / "s", rng)
    given: dict[str, Any] = {
        "columns": ["offset", "partition"],
        "view": "kafka",
        "topics": "orders",
        "options": {"splitBytes": "64k"},
    }
    frame = face.read(spark, tmp_path / "s", **given)
    assert frame.columns == ["offset", "partition"] and frame.rdd.getNumPartitions() > 2
    assert frame.count() == sum(m.topic == "orders" for m in messages)
    where = (f.col("partition") == 2) & (f.col("offset") < 9)
    rows, crossing = crossed(face.read(spark, tmp_path / "s", where=where, **given))
    assert [row.offset for row in rows] == list(range(9)) and crossing == 9
    with pytest.raises(Exception, match="RS_UNKNOWN_COLUMN"):
        face.read(spark, tmp_path / "s", columns=["nothing"])
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        face.read(spark, tmp_path / "s", columns=["topic"], where="queue_id = 1")
    with pytest.raises(TypeError, match="topic: there are"):
        face.read(spark, tmp_path / "s", topic="orders")


def test_partitions_that_cannot_hold_a_row_are_not_planned(
    spark: Any, tmp_path: Path, rng: random.Random
) -> None:
    make_store(tmp_path / "s", rng)
    small = {"splitBytes": "64k"}
    whole = face.read(spark, tmp_path / "s", options=small).rdd.getNumPartitions()
    some = face.read(spark, tmp_path / "s", options=small, where="physical_offset < 1000")
    assert 1 == some.rdd.getNumPartitions() < whole


def test_sparks_setting_stays_as_it_was(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    """Its default refuses readers that take filters; neither our frames nor plain ones depend on it."""
    make_store(tmp_path / "s", rng, 40)
    assert spark.conf.get(PUSHDOWN) == "false"
    frame = face.read(spark, tmp_path / "s", where="queue_id = 1")
    assert spark.conf.get(PUSHDOWN) == "false"
    count = frame.count()
    spark.conf.set(PUSHDOWN, "true")
    try:
        again = face.read(spark, tmp_path / "s", where="queue_id = 1")
        assert spark.conf.get(PUSHDOWN) == "true"
        other = plain(spark, tmp_path / "s").where("queue_id = 1")
        assert again.count() == frame.count() == other.count() == count > 0
    finally:
        spark.conf.unset(PUSHDOWN)


def test_what_is_wrong_is_said(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    with pytest.raises(Exception, match="RS_NO_STORE"):
        face.read(spark, tmp_path / "nowhere", where="queue_id = 1").collect()
    assert spark.conf.get(PUSHDOWN) == "false"
    make_store(tmp_path / "s", rng, 40)
    asking = plain(spark, tmp_path / "s", askFilters="true").where("queue_id = 1")
    with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        asking.collect()
