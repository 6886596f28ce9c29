"""Offsets of a consumer group that a stream stores: they hold the log for it, and never more is let go than what
its checkpoint has committed."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Retention
from rocketstore.spark import serve, starting_offsets
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.group_commit import commit_group
from rocketstore.spark.sink.serve import answer_offsets
from rocketstore.spark.source.group_offsets import GroupOffsets
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from tests.spark.owner import owner
from tests.spark.patience import patiently
from tests.spark.reading import make_store
from tests.support.small_store import SEGMENT, dispatched, open_small

Offsets = dict[tuple[str, int], int]
RULE = Retention(max_bytes=2 * SEGMENT, keep_unconsumed_by=["g"])


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


def reached(messages: list[rocketstore.Message], place: int) -> Offsets:
    """The next offset in each queue at a place of the log."""
    found: Offsets = {}
    for m in messages:
        below = m.queue_offset + 1 if m.physical_offset < place else 0
        found[m.topic, m.queue_id] = max(found.get((m.topic, m.queue_id), 0), below)
    return found


def stream_of(root: Path, **given: str) -> tuple[Progress, GroupOffsets]:
    options = ReadOptions.parse(
        {"path": str(root), "startingOffsets": "earliest", "consumerGroup": "g", **given},
        stream=True,
    )
    assert options.group == "g"
    return Progress(options), GroupOffsets(options.path, "g")


@pytest.mark.parametrize(
    ("given", "wanted", "firsts"),
    [
        ({}, lambda m: True, {}),
        ({"topic": "orders"}, lambda m: m.topic == "orders", {}),
        ({"queues": "1,2"}, lambda m: m.queue_id in (1, 2), {}),
        ({"tags": "red"}, lambda m: True, {}),
        (
            {"startingOffsets": '{"orders": {"0": 9, "1": 5, "2": 0, "3": 0}}', "topic": "orders"},
            lambda m: m.topic == "orders",
            {("orders", 0): 9, ("orders", 1): 5},
        ),
    ],
)
def test_each_batch_stores_what_the_ones_before_it_held(
    tmp_path: Path, rng: random.Random, given: dict[str, str], wanted: Any, firsts: Offsets
) -> None:
    """Also queues that have nothing to read: a topic without an offset of the group is not held."""
    root = tmp_path / "s"
    messages = [m for m in make_store(root, rng, 300) if wanted(m)]
    stream, group = stream_of(root, maxBytesPerTrigger="30000", **given)
    start, batches, end = stream.initial(), 0, None
    while end != start:
        start, batches = end or start, batches + 1
        end = stream.latest(start)
        group.publish(stream, start)
        there = reached(messages, start["phys"])
        assert stored(root) == {key: max(at, firsts.get(key, 0)) for key, at in there.items()}
    stream.close()
    assert batches > 3 and stored(root) == reached(messages, 1 << 62)


def test_hourly_runs_let_the_log_go(tmp_path: Path, rng: random.Random) -> None:
    """Each run goes on at its checkpoint and ends, and retention runs before the next one. It removes the blank
    behind the stream's place, and other topics, for which no run fails."""
    root, seen, put = tmp_path / "s", [], []
    start: Any = None
    for run in range(15):
        with open_small(root, durability="os", retention=RULE) as store:
            held = store.retention.plan().held_by
            assert not run or (held == () and store.groups() == ["g"])
            for number in range(rng.randrange(1, 12) if run != 9 else 20):
                topic = rng.choice(["t", "t", "other"]) if run != 9 else "other"
                topic = (
                    topic if run or number else "t"
                )  # a stream that has read nothing has no group
                result = store.writer(topic).put(rng.randbytes(rng.randrange(500, 900)))
                put += [result.queue_offset] if topic == "t" else []
            store.flush()
            dispatched(store)  # what is not stays
            [*causes] = {one.cause for one in store.retention.plan().held_by}
            assert causes in ([], ["group g"])  # what was put since the last run
            store.retention.run()
            left = store.end_offset - store.begin_offset
            assert left <= 7 * SEGMENT, (run, left)
        stream, group = stream_of(root, topic="t")
        stream.freeze()
        start = stream.initial() if start is None else json.loads(json.dumps(start))
        end = None
        while end != start:
            start = end or start
            end = stream.latest(start, unlimited=True)
            group.publish(stream, start)
            scans, _ = stream.parts(start, end)
            seen += [
                int(at) for scan in scans for columns in scan for at in columns["queue_offset"]
            ]
        stream.close()
    assert seen == put
    with open_small(root, durability="os") as store:
        for _ in range(12):
            store.writer("t").put(bytes(900))
        dispatched(store).trim(before_offset=store.end_offset)
    with pytest.raises(SparkFaceError, match="RS_DATA_LOST"):
        stream.parts(start, stream.latest(start))
    stream.close()


def test_beside_a_writer(
    tmp_path: Path, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning says what is missing there. A writer that serves is handed the offsets, and its retention
    removes what the stream has read."""
    root = tmp_path / "s"
    with open_small(root, durability="os", retention=RULE) as store:
        writer = store.writer("t")
        for _ in range(40):
            writer.put(bytes(500))
        store.flush()
        stream, group = stream_of(root)
        start = stream.initial()
        end = stream.latest(start)
        with caplog.at_level(logging.WARNING, "rocketstore.spark"):
            for place in (start, start, end):
                group.publish(stream, place)
        assert store.groups() == []
        [text] = [r.getMessage() for r in caplog.records if r.name.startswith("rocketstore.spark")]
        assert "rocketstore.spark.serve(store)" in text and str(root) in text
        assert "group g has stored no offset yet" in str(store.retention.plan())
        with serve(store):
            group.publish(stream, end)
            # It is tried again for the next micro-batch, or after some seconds.
            assert store.groups() == []
            for count in (60, 80, 100):
                for _ in range(20):
                    writer.put(bytes(500))
                store.flush()
                group.publish(stream, end := stream.latest(end))
                assert store.committed("t", "g") == {0: count}
                store.retention.run()
                assert store.end_offset - store.begin_offset <= 3 * SEGMENT
            for _ in range(40):
                writer.put(bytes(500))
            store.flush()
            [held] = store.retention.plan().held_by
            assert held.cause == "group g" and "queue offset 100" in held.what
            with store.consumer("t", group="g"):
                group.publish(stream, stream.latest(end))
        assert "RS_OWNER_FAILED" in caplog.text and store.committed("t", "g") == {0: 100}
    stream.close()


def test_what_is_never_done(tmp_path: Path, rng: random.Random) -> None:
    """No larger offset goes back; a store that rocketstore never wrote gets nothing; a store that cannot be
    opened does not stop the stream."""
    root = tmp_path / "s"
    messages = make_store(root, rng, 100)
    with rocketstore.open(root) as store, store.consumer("orders", group="g") as consumer:
        consumer.seek("latest")
        consumer.commit()
    stream, group = stream_of(root)
    place = {**stream.end(), "phys": messages[50].physical_offset, "last": 0}
    group.publish(stream, place)
    ends, below = reached(messages, 1 << 62), reached(messages, place["phys"])
    assert stored(root) == {k: ends[k] if k[0] == "orders" else below[k] for k in ends}
    stream.close()
    foreign = tmp_path / "f"
    make_store(foreign, rng, 20)
    (foreign / "rocketstore" / "store.json").unlink()
    stream, group = stream_of(foreign)
    group.publish(stream, stream.end())
    assert stored(foreign) == {}
    stream.close()
    stream, group = stream_of(tmp_path / "nowhere")
    group.publish(stream, place)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"offsets": 7}, "RS_JOURNAL_DAMAGED"),
        ({"offsets": {"t": [0]}}, "RS_JOURNAL_DAMAGED"),
        ({"offsets": {"t": {"x": 1}}}, "RS_JOURNAL_DAMAGED"),
        ({"offsets": {"t": {"0": -1}}}, "RS_JOURNAL_DAMAGED"),
        ({"group": "a@b", "offsets": {"t": {"0": 1}}}, "RS_OWNER_FAILED"),
        ({"offsets": {"t": {"0": 2, "7": 1}, "": {"0": 1}, "../t": {"-1": 1}}}, None),
    ],
)
def test_offsets_that_a_server_refuses(root: Path, fields: dict[str, Any], code: str) -> None:
    """Nothing is stored; nor is an offset beyond its queue, or of no queue."""
    with rocketstore.open(root) as store:
        said = answer_offsets(store, json.dumps({"group": "g", "offsets": {}, **fields}).encode())
        assert (said.get("code"), store.groups()) == (code, []), said


@pytest.mark.parametrize("step", ["taken", "done"])
def test_a_server_that_dies(root: Path, step: str) -> None:
    """The store is not opened for the offsets, which would recover it; they are stored once it was."""
    with owner(root, step) as running:
        with pytest.raises(ConnectionResetError):
            commit_group(str(root), "g", {"t": {0: 1}})
        assert running.killed
    with pytest.raises(SparkFaceError, match=r"RS_STORE_LOCKED.*not stopped cleanly"):
        commit_group(str(root), "g", {"t": {0: 1}})
    with rocketstore.open(root) as store:
        assert store.committed("t", "g") == ({0: 1} if step == "done" else {})
    commit_group(str(root), "g", {"t": {0: 1}})
    with rocketstore.open(root) as store:
        assert store.committed("t", "g") == {0: 1}


def test_names_that_no_group_has() -> None:
    for name in ("", "a@b", "größe", "x" * 256):
        with pytest.raises(SparkFaceError, match="RS_BAD_OPTION. consumerGroup"):
            ReadOptions.parse({"path": "p", "consumerGroup": name}, stream=True)
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION. consumerGroup.*only in a stream"):
        ReadOptions.parse({"path": "p", "consumerGroup": "g"}, stream=False)


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore")
def test_hourly_runs_of_a_query(spark: Any, tmp_path: Path, rng: random.Random) -> None:
    """A run stores what it has read, its last micro-batch too; a new checkpoint goes on where it ended."""
    root, checkpoint = tmp_path / "s", tmp_path / "c"
    seen: list[int] = []

    def run(checkpoint: Path, starting: str = "earliest") -> Callable[[], None]:
        frame = spark.readStream.format("rocketstore").options(
            path=str(root), topic="t", startingOffsets=starting, consumerGroup="g", columns="body"
        )
        query = frame.load().writeStream.foreachBatch(
            lambda batch, _: seen.extend(int(row.body) for row in batch.collect())
        )
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        return lambda: query.start().awaitTermination()

    for number in range(2):
        with open_small(root, durability="os", retention=RULE) as store:
            for body in range(40 * number, 40 * number + 40):
                store.writer("t").put(b"%0500d" % body)
            store.retention.run()
            assert store.end_offset - store.begin_offset <= 8 * SEGMENT
        patiently(run(checkpoint))
        assert stored(root) == {("t", 0): 40 * number + 40}
    starting = starting_offsets(root, checkpoint)
    assert json.loads(starting) == {"t": {"0": 80}}
    with open_small(root, durability="os") as store:
        store.writer("t").put(b"80")
    patiently(run(tmp_path / "new", starting))
    assert seen == [*range(81)] and stored(root) == {("t", 0): 81}
