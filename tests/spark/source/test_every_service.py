"""Whatever a store's services make, each face shows the messages that its consumers are given, topic by
topic, and each copy has them."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark import jobs
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.jobs.audit import audit_part, audit_scans
from rocketstore.spark.jobs.stats import merge_stats, stats_part, stats_scans
from rocketstore.spark.source import plan
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import plan_batch
from tests.support.every_service import (
    OF_ONE_STORE,
    SYSTEM,
    Put,
    by_queue,
    make,
    messages_by_topic,
    shown,
)

pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")

Shown = dict[tuple[str, int], list[Put]]


def rows_by_queue(rows: Iterable[tuple[str, int, Any, Any, Any, Any]]) -> Shown:
    found: Shown = {}
    for topic, queue_id, *rest in rows:
        found.setdefault((topic, queue_id), []).append(shown(*rest))
    return found


def of_scan(scan: Any) -> Shown:
    """What a scan has, without the records that no consumer is given (docs/arrow.md)."""
    names = ("topic", "queue_id", "body", "tags", "keys")
    rows = scan.to_arrow().read_all().to_pylist()
    return rows_by_queue(
        (*(row[name] for name in names), dict(row["properties"]))
        for row in rows
        if not row["sys_flag"] & 4
    )


def of_frame(frame: Any) -> Shown:
    names = ("topic", "queue_id", "body", "tags", "keys", "properties")
    return rows_by_queue(map(tuple, frame.select(*names).collect()))


def of_kafka(frame: Any) -> Shown:
    rows = []
    for row in frame.collect():
        headers = {key: bytes(value).decode() for key, value in row.headers or ()}
        key = None if row.key is None else bytes(row.key).decode()
        rows.append((row.topic, row.partition, row.value, headers.get("TAGS"), key, headers))
    return rows_by_queue(rows)


def of_copy(path: Path) -> Shown:
    """What is in a store that was written, once it was opened with all its services: they find nothing
    to do."""
    before = by_queue(messages_by_topic(path))
    with rocketstore.open(path) as store:
        assert (store.transactions.open(), len(store.delayed), store.groups()) == ([], 0, [])
        assert not SYSTEM & set(store.topics(system=True))
    messages = messages_by_topic(path)
    assert by_queue(messages) == before
    names = {name for those in messages.values() for m in those for name in m.properties}
    assert not names & (OF_ONE_STORE - {"__CRC32#"})
    return before


def latest(messages: dict[str, list[rocketstore.Message]], *topics: str) -> Shown:
    """The last message of each topic and key, and all that have none."""
    kept: dict[str, list[rocketstore.Message]] = {}
    for topic in topics or messages:
        there = sorted(messages[topic], key=lambda m: m.physical_offset)
        last = {m.keys: m for m in there if m.keys}
        kept[topic] = [m for m in there if not m.keys or last[m.keys] is m]
    return by_queue(kept)


@pytest.fixture
def source(tmp_path: Path, rng: random.Random) -> Path:
    """A store with all kinds of messages; its consumers are given what was put, and nothing else."""
    path = tmp_path / "source"
    wanted = make(path, rng)
    there = messages_by_topic(path)
    bodies = {topic: Counter(bytes(m.body) for m in those) for topic, those in there.items()}
    assert bodies.pop("beats").total() >= 1
    assert bodies == wanted
    with rocketstore.open(path, "r") as store:
        assert set(store.topics(system=True)) - set(there) == SYSTEM
    return path


def test_scans_and_archives(source: Path, tmp_path: Path) -> None:
    truth = by_queue(messages_by_topic(source))
    names = ("topic", "queue_id", "body", "tags", "keys", "properties", "sys_flag")
    uri = f"file://{tmp_path}/archive"
    rocketstore.ship(source, uri, tail=True)
    for place in (source, uri):
        scan = rocketstore.scan(place, columns=names)
        assert of_scan(scan) == truth
        everything = rocketstore.scan(place, columns=names, system_topics=True)
        rows = of_scan(everything)
        assert {topic for topic, _ in rows} == SYSTEM | {topic for topic, _ in truth}
        assert {queue: rows[queue] for queue in truth} == truth
        assert scan.bookmark == everything.bookmark
        for topic in SYSTEM:
            named = of_scan(rocketstore.scan(place, columns=names, topics=topic))
            assert named == {queue: found for queue, found in rows.items() if queue[0] == topic}
    with rocketstore.open(source, "r") as store:
        store.compact(["orders", "audit"], into=tmp_path / "compacted")
    compacted = by_queue(messages_by_topic(tmp_path / "compacted"))
    assert compacted == latest(messages_by_topic(source), "orders", "audit")


def test_reads_and_statistics(source: Path) -> None:
    """As Spark calls the source, without a session."""
    messages = messages_by_topic(source)
    truth = by_queue(messages)

    def read(**given: str) -> Shown:
        options = ReadOptions.parse({"path": str(source), **given}, stream=False)
        scans, bounds = plan_batch(options)
        batches = [batch for scan in scans for batch in plan.read(scan, options, bounds)]
        names = ("topic", "queue_id", "body", "tags", "keys")
        rows = [row for batch in batches for row in batch.to_pylist()]
        return rows_by_queue((*(row[n] for n in names), dict(row["properties"])) for row in rows)

    every = read(systemTopics="true")
    assert {topic for topic, _ in every} == SYSTEM | set(messages)
    assert read(topicPattern=".*") == read(queues="0,1,2") == truth
    halves = {queue: rows for queue, rows in every.items() if "TRANS_HALF" in queue[0]}
    assert read(topicPattern=".*TRANS_HALF.*", systemTopics="true") == halves
    assert read(topicPattern=".*TRANS_HALF.*") == {}
    for topic in SYSTEM:
        named = {queue: rows for queue, rows in every.items() if queue[0] == topic}
        queues = json.dumps({topic: [queue_id for _, queue_id in named]})
        assert read(topic=topic) == read(queues=queues) == named
        with pytest.raises(SparkFaceError, match=rf"RS_NO_TOPIC_THERE.*{topic}': 99"):
            read(queues=json.dumps({topic: [99]}))
    rows = merge_stats(row for scan in stats_scans(source, 1 << 20) for row in stats_part(scan))
    counts: Counter[str] = Counter()
    for topic, _, _, count, *_ in rows:
        counts[topic] += count
    assert counts == {topic: len(those) for topic, those in messages.items()}
    audited = [row for scan in audit_scans(source, 1 << 20) for row in audit_part(scan)]
    assert sum(row[2] for row in audited) == sum(map(len, every.values()))


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_frames_streams_and_copies(spark: Any, source: Path, tmp_path: Path) -> None:
    messages = messages_by_topic(source)
    truth = by_queue(messages)

    def load(**options: Any) -> Any:
        return spark.read.format("rocketstore").options(path=str(source), **options).load()

    given = {"path": str(source), "startingOffsets": "earliest"}
    stream = spark.readStream.format("rocketstore").options(**given).load()

    def run(writer: Any, checkpoint: str) -> None:
        writer.option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    frame, kafka = load(), load(subscribePattern=".*", includeHeaders=True)
    assert of_frame(frame) == truth
    assert of_kafka(kafka) == truth
    run(stream.writeStream.format("memory").queryName("every_service"), "shown")
    assert of_frame(spark.table("every_service")) == truth

    def target(name: str) -> dict[str, str]:
        return {"path": str(tmp_path / name), "badRows": "fail"}

    frame.write.format("rocketstore").mode("append").options(**target("batch")).save()
    assert of_copy(tmp_path / "batch") == truth
    kafka.write.format("rocketstore").mode("append").options(**target("kafka")).save()
    assert of_copy(tmp_path / "kafka") == truth
    run(stream.writeStream.format("rocketstore").options(**target("stream")), "copied")
    assert of_copy(tmp_path / "stream") == truth

    total = sum(map(len, messages.values()))
    assert jobs.replay(spark, source, tmp_path / "replayed") == total
    assert of_copy(tmp_path / "replayed") == truth
    jobs.export(spark, source, str(tmp_path / "files"))
    assert jobs.import_(spark, str(tmp_path / "files"), tmp_path / "imported") == total
    assert of_copy(tmp_path / "imported") == truth
    jobs.compact(spark, source, tmp_path / "small")
    assert of_copy(tmp_path / "small") == latest(messages)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_no_commit_record_comes_into_another_store(
    spark: Any, source: Path, tmp_path: Path
) -> None:
    """Its next open would put the messages of the transaction, and set offsets of groups."""
    names = {"path": str(source), "systemTopics": "true"}
    frame = spark.read.format("rocketstore").options(**names).load()
    system = frame.where(frame.topic.isin(*SYSTEM)).count()
    assert system > 0
    target = tmp_path / "target"
    writer = frame.write.format("rocketstore").mode("append")
    with pytest.raises(Exception, match=r"\[RS_BAD_ROW\] row \d+ .*services act upon"):
        writer.options(path=str(target)).save()
    writer.options(path=str(target), badRows="divert").save()
    assert of_copy(target) == by_queue(messages_by_topic(source))
    kept = spark.read.parquet(str(target / "rocketstore" / "sink" / "bad_rows"))
    assert kept.count() == system
