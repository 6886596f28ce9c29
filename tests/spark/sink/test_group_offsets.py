"""Offsets of a consumer group that a stream publishes: never beyond what its batches held."""

from __future__ import annotations

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.group_offsets import GroupOffsets
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from tests.spark.patience import patiently
from tests.spark.reading import make_store

Offsets = dict[tuple[str, int], int]


def stored(root: Path, group: str = "g") -> Offsets:
    """What RocketMQ's tools would read."""
    path = root / "config" / "consumerOffset.json"
    table = json.loads(path.read_text())["offsetTable"] if path.exists() else {}
    return {
        (name.removesuffix(f"@{group}"), int(queue_id)): offset
        for name, row in table.items()
        if name.endswith(f"@{group}")
        for queue_id, offset in row.items()
    }


def reached(messages: list[rocketstore.Message]) -> Offsets:
    found: Offsets = {}
    for m in messages:
        found[m.topic, m.queue_id] = max(found.get((m.topic, m.queue_id), 0), m.queue_offset + 1)
    return found


def stream_of(root: Path, **given: str) -> tuple[Progress, GroupOffsets]:
    options = ReadOptions.parse(
        {"path": str(root), "startingOffsets": "earliest", "consumerGroup": "g", **given},
        stream=True,
    )
    assert options.group == "g"
    return Progress(options), GroupOffsets(options, "g")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, lambda m: True),
        ({"topic": "orders"}, lambda m: m.topic == "orders"),
        ({"queues": "1,2"}, lambda m: m.queue_id in (1, 2)),
        ({"tags": "red"}, lambda m: m.tags == "red"),
        (
            {"startingOffsets": '{"orders": {"0": 9, "1": 5, "2": 0, "3": 0}}', "topic": "orders"},
            lambda m: m.topic == "orders" and m.queue_offset >= {0: 9, 1: 5}.get(m.queue_id, 0),
        ),
    ],
)
def test_each_batch_publishes_what_it_held(
    tmp_path: Path, rng: random.Random, given: dict[str, str], wanted: Any
) -> None:
    root = tmp_path / "s"
    messages = [m for m in make_store(root, rng, 300) if wanted(m)]
    stream, group = stream_of(root, maxBytesPerTrigger="30000", **given)
    start, batches = stream.initial(), 0
    while (end := stream.latest(start)) != start:
        _, bounds = stream.parts(start, end)
        group.plan(start["phys"], end["phys"], bounds)
        before = stored(root)
        assert before == reached([m for m in messages if m.physical_offset < start["phys"]])
        group.commit(end["phys"])
        assert stored(root) == reached([m for m in messages if m.physical_offset < end["phys"]])
        start, batches = end, batches + 1
    stream.close()
    assert batches > 2 and stored(root) == reached(messages)
    with rocketstore.open(root, "r") as store, store.consumer("orders", group="g") as consumer:
        behind = reached([m for m in messages if m.topic == "orders"])
        assert {("orders", q): o for q, o in consumer.positions.items() if o} == behind


def test_a_writer_is_left_alone(
    tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, no error; when the writer is gone the next batch publishes all of it."""
    root = tmp_path / "s"
    messages = make_store(root, rng, 200)
    stream, group = stream_of(root, maxBytesPerTrigger="20000")
    start = stream.initial()
    with rocketstore.open(root), caplog.at_level(logging.WARNING, "rocketstore.spark"):
        for _ in range(3):
            end = stream.latest(start)
            group.plan(start["phys"], end["phys"], stream.parts(start, end)[1])
            group.commit(end["phys"])
            start = end
    assert stored(root) == {}
    assert [r.getMessage() for r in caplog.records if "group g" in r.getMessage()] == [
        f"offsets of group g are not published in {root}: another process writes it, or it was not "
        "stopped cleanly"
    ]
    end = stream.latest(start)
    group.plan(start["phys"], end["phys"], stream.parts(start, end)[1])
    group.commit(end["phys"])
    assert stored(root) == reached([m for m in messages if m.physical_offset < end["phys"]])
    stream.close()


def test_what_is_never_done(tmp_path: Path, rng: random.Random) -> None:
    """No larger offset goes back; a batch that a run before planned, and a store that we never wrote, publish
    nothing; a store that cannot be opened does not stop the stream."""
    root = tmp_path / "s"
    messages = make_store(root, rng, 100)
    ends = reached(messages)
    with rocketstore.open(root) as store, store.consumer("orders", group="g") as consumer:
        consumer.seek("latest")
        consumer.commit()
    stream, group = stream_of(root)
    start = stream.initial()
    end = stream.latest(start)
    group.commit(end["phys"])
    assert set(stored(root)) == {key for key in ends if key[0] == "orders"}
    group.plan(start["phys"], messages[50].physical_offset, {})
    group.commit(messages[50].physical_offset)
    assert stored(root) == {
        **reached(messages[:50]), **{key: end for key, end in ends.items() if key[0] == "orders"}
    }  # fmt: skip
    stream.close()
    foreign = tmp_path / "f"
    make_store(foreign, rng, 20)
    (foreign / "rocketstore" / "store.json").unlink()
    _, group = stream_of(foreign)
    group.plan(0, 1000, {})
    group.commit(1000)
    assert stored(foreign) == {}
    _, group = stream_of(tmp_path / "nowhere")
    group.plan(0, 1000, {})
    group.commit(1000)
    assert not (tmp_path / "nowhere").exists()


def test_names_that_no_group_has() -> None:
    for name in ("", "a@b", "größe", "x" * 256):
        with pytest.raises(SparkFaceError, match="RS_BAD_OPTION. consumerGroup"):
            ReadOptions.parse({"path": "p", "consumerGroup": name}, stream=True)
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION. consumerGroup.*only in a stream"):
        ReadOptions.parse({"path": "p", "consumerGroup": "g"}, stream=False)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_a_query_publishes_its_batches(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    """Spark says that a batch is done when it begins the next one: the last of a run is published with later
    messages of its queues."""
    root = tmp_path / "s"
    messages = make_store(root, rng, 200)

    def run() -> None:
        frame = spark.readStream.format("rocketstore").options(
            path=str(root),
            startingOffsets="earliest",
            maxBytesPerTrigger="40k",
            consumerGroup="g",
        )
        query = (
            frame.load()
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def known(end: int) -> Offsets:
        return reached([m for m in messages if m.physical_offset < end])

    def last_batch() -> tuple[int, int]:
        names = sorted((tmp_path / "c" / "offsets").glob("[0-9]*"), key=lambda p: int(p.name))
        begin, end = (json.loads(p.read_text().splitlines()[-1])["phys"] for p in names[-2:])
        return int(begin), int(end)

    patiently(run)
    begin, end = last_batch()
    assert known(begin) != known(end) == reached(messages)
    assert stored(root) == known(begin)
    with rocketstore.open(root, durability="os") as store:
        for queue_id in range(4):
            for topic in ("orders", "events"):
                result = store.writer(topic, queue_id=queue_id).put(b"x" * 20_000)
                messages.append(store.get(result.physical_offset))
    patiently(run)
    later, _ = last_batch()
    told = [m for m in messages if end <= m.physical_offset < later]
    assert told and stored(root) == {**known(begin), **reached(told)}
