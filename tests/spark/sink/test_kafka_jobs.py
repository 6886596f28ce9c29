"""Seven jobs as they are written for Kafka's source and sink: `format` and `path` alone differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark import lag_listener
from tests.spark.patience import patiently
from tests.support.small_store import open_small
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

COUNT = 301
QUEUES = 4
#: What stays in a job that was written for Kafka.
KAFKAS = {"kafka.bootstrap.servers": "host1:9092,host2:9092", "kafka.group.id": "jobs"}
#: The event time of a message: its number, seconds after 2026 began.
EVENT = "timestamp_seconds(1767225600 + cast(split(value, ' ')[1] as int)) as at"
WORDS = ("red", "green", "blue")


def put(root: Path, topic: str, numbers: range, keys: int = 7) -> None:
    """Bodies are a word and a number, in several queues, without regard to the keys."""
    with open_small(root, durability="os", index_enabled=False) as store:
        writers = [store.writer(topic, queue_id=queue) for queue in range(QUEUES)]
        for number in numbers:
            body = f"{WORDS[number % 3]} {number}".encode()
            properties = {"trace": f"t{number}"}
            writers[number % QUEUES].put(body, keys=f"k{number % keys}", properties=properties)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kafka") / "shop"
    put(root, "clicks", range(COUNT))
    put(root, "views", range(0, COUNT, 2))
    return root


def source(spark: Any, root: Path, topic: str, **options: str) -> Any:
    reader = spark.readStream.format("rocketstore").option("path", str(root)).options(**KAFKAS)
    return reader.options(subscribe=topic, startingOffsets="earliest").options(**options).load()


def texts(frame: Any, *more: str) -> Any:
    strings = frame.selectExpr("cast(key as string) key", "cast(value as string) value", "offset")
    return strings.selectExpr("*", *more)


def ended(make: Callable[[], Any]) -> Any:
    """A query that reads what is there, once it has ended."""
    found: list[Any] = []

    def run() -> None:
        found[:] = [make().trigger(availableNow=True).start()]
        found[0].awaitTermination()

    patiently(run)
    return found[0]


def in_memory(name: str, frame: Any, mode: str) -> Callable[[], Any]:
    return lambda: frame.writeStream.format("memory").queryName(name).outputMode(mode)


def rows(spark: Any, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(text).collect()]


def test_word_count(spark: Any, shop: Path) -> None:
    words = texts(source(spark, shop, "clicks"), "split(value, ' ')[0] as word")
    ended(in_memory("counts", words.groupBy("word").count(), "complete"))
    assert dict(rows(spark, "select word, count from counts")) == {
        word: len(range(number, COUNT, 3)) for number, word in enumerate(WORDS)
    }


def test_sessions(spark: Any, shop: Path) -> None:
    """Those are closed that end before the watermark; a later batch with a message moves it."""
    from pyspark.sql import functions as f

    clicks = texts(source(spark, shop, "clicks", maxOffsetsPerTrigger="150"), EVENT)
    sessions = (
        clicks.withWatermark("at", "1 seconds")
        .groupBy("key", f.session_window("at", "5 seconds"))
        .count()
    )
    ended(in_memory("sessions", sessions, "append"))
    # A key comes every 7 seconds, so that each message is a session of its own.
    found = rows(spark, "select key, count, unix_seconds(session_window.start) from sessions")
    starts = [start - 1767225600 for _, _, start in found]
    assert sorted(starts) == list(range(COUNT - 6))
    assert {key: count for key, count, _ in found} == {f"k{key}": 1 for key in range(7)}


def test_two_streams_are_joined(spark: Any, shop: Path) -> None:
    from pyspark.sql import functions as f

    sides = []
    for name in ("clicks", "views"):
        side = texts(source(spark, shop, name, maxOffsetsPerTrigger="100"), EVENT)
        sides.append(side.withWatermark("at", "10 seconds").alias(name))
    on = "clicks.value = views.value and clicks.at = views.at"
    joined = sides[0].join(sides[1], f.expr(on)).selectExpr("clicks.value as value")
    ended(in_memory("joined", joined, "append"))
    found = [value for (value,) in rows(spark, "select value from joined")]
    wanted = [f"{WORDS[number % 3]} {number}" for number in range(0, COUNT, 2)]
    assert sorted(found) == sorted(wanted)


def test_an_upsert_that_is_started_again(spark: Any, tmp_path: Path) -> None:
    root, sizes, table = tmp_path / "s", [], {}
    put(root, "orders", range(COUNT))

    def upsert(batch: Any, _: int) -> None:
        found = batch.selectExpr("cast(key as string)", "partition", "offset").collect()
        sizes.append(len(found))
        table.update({(partition, offset): key for key, partition, offset in found})

    first = '{"orders": {"0": 6, "1": -2, "2": 5, "3": -2}}'
    given = {"startingOffsets": first, "maxOffsetsPerTrigger": "100", "failOnDataLoss": "false"}

    def query() -> Any:
        frame = source(spark, root, "orders", **given)
        where = str(tmp_path / "checkpoint")
        return frame.writeStream.foreachBatch(upsert).option("checkpointLocation", where)

    ended(query)
    # Messages before a starting offset are no rows; of the limit they count.
    assert sum(sizes) == len(table) == COUNT - 11
    assert max(sizes) <= 100
    assert min(offset for partition, offset in table if partition == 0) == 6
    sizes.clear()
    put(root, "orders", range(COUNT, COUNT + 10))
    ended(query)
    assert (sum(sizes), len(table)) == (10, COUNT - 1)


def test_headers_have_kafkas_type(spark: Any, shop: Path) -> None:
    frame = source(spark, shop, "clicks", includeHeaders="true")
    types = dict(frame.dtypes)
    assert types["headers"] == "array<struct<key:string,value:binary>>"
    assert (types["key"], types["value"], types["offset"]) == ("binary", "binary", "bigint")
    traces = frame.selectExpr(
        "cast(filter(headers, h -> h.key = 'trace')[0].value as string) as trace",
        "split(cast(value as string), ' ')[1] as number",
    )
    ended(in_memory("traces", traces, "append"))
    found = rows(spark, "select trace, number from traces")
    assert len(found) == COUNT
    assert all(trace == f"t{number}" for trace, number in found)


def test_from_topic_to_topic_in_the_order_of_keys(spark: Any, tmp_path: Path) -> None:
    """A key is in one queue, in the order in which it was read; with a restart in between."""
    root, target = tmp_path / "s", tmp_path / "t"
    with open_small(root, durability="os", index_enabled=False) as store:
        for number in range(COUNT):
            store.writer("orders").put(f"{number}".encode(), keys=f"k{number % 7}")

    def query() -> Any:
        copied = source(spark, root, "orders", maxOffsetsPerTrigger="200").selectExpr(
            "key", "value"
        )
        return (
            copied.writeStream.format("rocketstore")
            .options(**KAFKAS, path=str(target), topic="copy", queues=str(QUEUES))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
        )

    ended(query)
    with open_small(root, durability="os", index_enabled=False) as store:
        for number in range(COUNT, COUNT + 10):
            store.writer("orders").put(f"{number}".encode(), keys=f"k{number % 7}")
    ended(query)
    queues: dict[str, set[int]] = defaultdict(set)
    numbers: dict[str, list[int]] = defaultdict(list)
    with rocketstore.open(target, "r") as store:
        for queue in store.queues("copy"):
            for message in store.consumer("copy", queue_id=queue):
                queues[message.keys[0]].add(queue)
                numbers[message.keys[0]].append(int(message.body))
    assert {len(found) for found in queues.values()} == {1}
    assert len(set.union(*queues.values())) > 1
    assert dict(numbers) == {f"k{key}": list(range(key, COUNT + 10, 7)) for key in range(7)}


def test_from_now_on(spark: Any, tmp_path: Path) -> None:
    root = tmp_path / "s"
    put(root, "orders", range(9))
    found: list[bytes] = []
    told: list[int] = []
    listener = lag_listener(root, report=lambda lag: told.append(lag.messages))
    spark.streams.addListener(listener)

    def run() -> None:
        found.clear()
        frame = source(spark, root, "orders", startingOffsets="latest")
        query = (
            frame.writeStream.foreachBatch(
                lambda batch, _: found.extend(bytes(row.value) for row in batch.collect())
            )
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        try:
            query.processAllAvailable()
            put(root, "orders", range(9, 19))
            query.processAllAvailable()
        finally:
            query.stop()

    try:
        patiently(run)
        wait_until(lambda: told[-1:] == [0] and listener.lags == [])
    finally:
        spark.streams.removeListener(listener)
    assert sorted(int(body.split()[1]) for body in found) == list(range(9, 19))
