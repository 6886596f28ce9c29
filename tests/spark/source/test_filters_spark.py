"""Filters of real queries: the same rows with and without them in the source, and fewer that cross."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from rocketstore import spark as face
from rocketstore.spark.frame import PUSHDOWN
from tests.spark.reading import crossed, make_store

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


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
