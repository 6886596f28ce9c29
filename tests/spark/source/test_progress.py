"""What the streaming source decides, without Spark."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import kept
from rocketstore.spark.source.stream_progress import Progress
from tests.spark.reading import make_store
from tests.support.small_store import dispatched
from tests.support.waiting import wait_until


def progress(root: Path, **options: str) -> Progress:
    return Progress(ReadOptions.parse({"path": str(root), **options}, stream=True))


def drained(stream: Progress, start: dict[str, Any]) -> tuple[list[int], list[int]]:
    """(physical offsets, messages of each micro-batch) from `start` until nothing is left."""
    found: list[int] = []
    sizes = []
    while (end := stream.latest(start)) != start:
        scans, _ = stream.parts(start, end)
        rows = [int(o) for scan in scans for columns in scan for o in columns["physical_offset"]]
        found, start = found + rows, end
        sizes.append(len(rows))
    return found, sizes


def test_batches_follow_each_other_without_gap(tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng)
    stream = progress(tmp_path / "s", startingOffsets="earliest", maxBytesPerTrigger="20000")
    found, sizes = drained(stream, stream.initial())
    assert found == [m.physical_offset for m in messages]
    total = messages[-1].physical_offset + messages[-1].size
    assert total / 40_000 < len(sizes) < total / 10_000 + 5
    stream.close()


def test_messages_are_counted(tmp_path: Path, rng: random.Random) -> None:
    messages = [m for m in make_store(tmp_path / "s", rng) if m.topic == "events"]
    stream = progress(
        tmp_path / "s", startingOffsets="earliest", maxOffsetsPerTrigger="50", topic="events"
    )
    found, sizes = drained(stream, stream.initial())
    assert found == [m.physical_offset for m in messages]
    assert sizes[:-1] == [50] * (len(sizes) - 1) or max(sizes) == 50
    assert sum(sizes) == len(messages)


def test_a_new_stream_begins_at_the_end(
    tmp_path: Path, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path / "s", rng, 20)
    stream = progress(tmp_path / "s")
    start = stream.initial()
    assert stream.latest(start) == start
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        put = store.writer("orders").put(b"new")
    monkeypatch.setattr("rocketstore.spark.source.stream_progress.REOPEN_S", -1.0)
    assert drained(stream, start)[0] == [put.physical_offset]


def test_a_new_stream_waits_for_topics_that_can_come(tmp_path: Path, rng: random.Random) -> None:
    make_store(tmp_path / "s", rng, 20)
    start = progress(tmp_path / "s", topic="nope").initial()
    with pytest.raises(SparkFaceError, match="RS_NO_TOPIC_THERE.*no queue can have this name"):
        progress(tmp_path / "s", subscribe="orders.v1").initial()
    stream = progress(tmp_path / "s", subscribe="orders.v1", failOnDataLoss="false")
    assert stream.latest(stream.initial()) == start
    stream.close()


def test_a_new_stream_begins_at_a_time(tmp_path: Path, rng: random.Random) -> None:
    """It began at the end, and the messages since then were never read."""
    messages = make_store(tmp_path / "s", rng)
    since = sorted(m.store_timestamp_ms for m in messages)[len(messages) // 2]
    stream = progress(tmp_path / "s", startingTimestamp=str(since))
    found, _ = drained(stream, stream.initial())
    wanted = [m.physical_offset for m in messages if m.store_timestamp_ms >= since]
    assert found == wanted != []
    counted = progress(tmp_path / "s", startingTimestamp=str(since), maxOffsetsPerTrigger="99")
    assert drained(counted, counted.initial())[0] == wanted  # failed: two arguments named begin
    counted.close()
    latest = progress(tmp_path / "s", startingTimestamp=str(since), startingOffsets="latest")
    assert drained(latest, latest.initial())[0] == []
    latest.close()
    stream.close()


def test_what_is_not_on_the_disk_is_not_given_out(tmp_path: Path) -> None:
    """A power cut must not shorten the log behind a checkpoint."""
    with rocketstore.open(
        tmp_path / "s", durability="os", flush_interval_ms=60_000, flush_least_pages=1000
    ) as store:
        stream = progress(tmp_path / "s", startingOffsets="earliest")
        start = stream.initial()
        put = store.writer("t").put(b"not yet")
        with rocketstore.open(tmp_path / "s", "r") as reader:
            wait_until(lambda: reader.visible_offset >= put.end_offset)
            assert reader.flushed_offset == 0
        assert store.flushed_offset < put.end_offset
        assert stream.latest(start) == start
        store.wait_flushed(put.end_offset, 10)
        assert drained(stream, start)[0] == [put.physical_offset]
        stream.close()


def test_queues_begin_at_what_is_on_the_disk(tmp_path: Path) -> None:
    """A stream from the visible end was in front of the log, and failed as if that had been cut."""
    root = tmp_path / "s"
    with rocketstore.open(
        root, durability="os", flush_interval_ms=60_000, flush_least_pages=1000
    ) as store:
        for body in (b"old", b"older"):
            last = store.writer("t").put(body)
        store.wait_flushed(last.end_offset, 10)
        for body in (b"A0", b"A1", b"A2"):
            last = store.writer("t").put(body)
        with rocketstore.open(root, "r") as reader:
            wait_until(lambda: reader.max_queue_offset("t", 0) == 5)
        starts = {}
        for asked in (-1, 3):
            given = {"topic": "t", "startingOffsets": json.dumps({"t": {"0": asked}})}
            stream = progress(root, **given)
            start = stream.initial()
            assert start["phys"] == store.flushed_offset < last.end_offset
            assert stream.latest(start) == start
            starts[asked] = stream, start
        store.wait_flushed(last.end_offset, 10)
        assert batch(*starts[-1])[1] == [b"A0", b"A1", b"A2"]
        assert batch(*starts[3])[1] == [b"A1", b"A2"]


def test_a_frozen_stream_ends_where_it_was_frozen(tmp_path: Path, rng: random.Random) -> None:
    messages = make_store(tmp_path / "s", rng, 50)
    stream = progress(tmp_path / "s", startingOffsets="earliest")
    stream.freeze()
    with rocketstore.open(tmp_path / "s", durability="os") as store:
        store.writer("orders").put(b"later")
    found, _ = drained(stream, stream.initial())
    assert found == [m.physical_offset for m in messages]
    beyond = {**stream.end(), "phys": stream.end()["phys"] + 10}
    with pytest.raises(SparkFaceError, match="RS_LOG_TRUNCATED"):
        progress(tmp_path / "s").parts(beyond, {**beyond, "phys": 1 << 40})


def test_another_store_or_an_older_one_is_named(tmp_path: Path, rng: random.Random) -> None:
    root, copy = tmp_path / "s", tmp_path / "copy"
    make_store(root, rng, 50)
    shutil.copytree(root, copy)
    with rocketstore.open(root, durability="os") as store:
        store.writer("orders").put(b"more")
    checkpoint = progress(root).initial()
    with pytest.raises(SparkFaceError, match="RS_LOG_TRUNCATED"):
        progress(copy).latest(checkpoint)
    with pytest.raises(SparkFaceError, match="RS_LOG_TRUNCATED"):
        progress(copy).parts({**checkpoint, "phys": 0}, checkpoint)
    make_store(tmp_path / "other", rng, 50)
    with pytest.raises(SparkFaceError, match="RS_STORE_REPLACED"):
        progress(tmp_path / "other").latest(checkpoint)
    with pytest.raises(SparkFaceError, match="RS_BAD_CHECKPOINT"):
        progress(root).latest({**checkpoint, "v": 3})


def test_a_store_gets_its_name_after_the_stream_began(tmp_path: Path, rng: random.Random) -> None:
    """RocketMQ gives it none, rocketstore does when it first writes there."""
    root = tmp_path / "s"
    make_store(root, rng, 20)
    shutil.rmtree(root / "rocketstore")
    start = progress(root, startingOffsets="earliest").initial()
    assert start["store"] == ""
    put(root, "orders", b"more")
    start, found = batch(progress(root), start)
    assert len(found) == 21
    assert start["store"] != ""
    shutil.rmtree(root)
    make_store(root, rng, 60)
    with pytest.raises(SparkFaceError, match="RS_STORE_REPLACED"):
        progress(root).latest(start)


def test_what_was_removed_before_it_was_read(tmp_path: Path, rng: random.Random) -> None:
    root = tmp_path / "s"
    messages = make_store(root, rng)
    stream = progress(root, startingOffsets="earliest")
    start = stream.initial()
    stream.close()
    with rocketstore.open(root) as store:
        begin = store.trim(before_offset=messages[300].physical_offset)
    stream = progress(root)
    with pytest.raises(SparkFaceError, match=rf"RS_DATA_LOST\] \[0, {begin}\)"):
        stream.parts(start, stream.latest(start))
    found, _ = drained(progress(root, failOnDataLoss="false"), start)
    assert found == [m.physical_offset for m in messages if m.physical_offset >= begin]


@pytest.mark.parametrize("live", [False, True], ids=["alone", "beside a writer"])
@pytest.mark.parametrize("limit", ["maxOffsetsPerTrigger", "maxBytesPerTrigger"])
def test_all_that_a_frozen_stream_was_to_read_was_removed(
    tmp_path: Path, rng: random.Random, limit: str, live: bool
) -> None:
    """The log begins behind its end then; who follows nobody does not see that it does."""
    removed = make_store(tmp_path, rng)[-1]
    options = {"startingOffsets": "earliest", limit: "10"}
    streams = {
        loss: progress(tmp_path, failOnDataLoss=loss, **options) for loss in ("false", "true")
    }
    start = streams["true"].initial()
    for stream in streams.values():
        stream.freeze()
    with rocketstore.open(tmp_path, durability="os") as store:
        if live:
            for stream in streams.values():
                stream.close()
        for _ in range(3):
            end = store.writer("orders").put(bytes(60_000)).physical_offset
        store.flush()
        dispatched(store)  # a trim stops where dispatch is
        assert store.trim(before_offset=end) > removed.physical_offset + removed.size
        assert drained(streams["false"], start)[0] == []
        with pytest.raises(SparkFaceError, match=r"RS_DATA_LOST\] \[0, "):
            drained(streams["true"], start)


def put(root: Path, topic: str, *bodies: bytes, queue_id: int = 0) -> None:
    with rocketstore.open(root, durability="os", index_enabled=False) as store:
        for body in bodies:
            store.writer(topic, queue_id=queue_id).put(body)


def batch(stream: Progress, start: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    """(end, wanted bodies) of the micro-batch that begins at `start`; both go through the checkpoint."""
    start = json.loads(json.dumps(start))
    end = stream.latest(start)
    found: list[bytes] = []
    if end != start:
        scans, bounds = stream.parts(start, json.loads(json.dumps(end)))
        for columns in (columns for scan in scans for columns in scan):
            rows = kept(columns, bounds)
            found += [columns["body"][i] for i in range(columns.rows) if rows[i]]
    stream.close()
    return end, found


def test_where_queues_begin_is_settled_once(tmp_path: Path) -> None:
    """Latest was the end of the day of the restart: what came in between was lost."""
    root, given = tmp_path / "s", {"topic": "t", "startingOffsets": '{"t": {"0": -1}}'}
    put(root, "t", b"old", b"older")
    start = progress(root, **given).initial()
    put(root, "t", b"A0", b"A1")
    start, found = batch(progress(root, **given), start)
    assert found == [b"A0", b"A1"]
    put(root, "t", b"B0", b"B1", b"B2")
    start, found = batch(progress(root, **given), start)
    assert found == [b"B0", b"B1", b"B2"]
    assert batch(progress(root, **given), start) == (start, [])


def test_queue_offsets_hold_until_each_queue_has_come_there(tmp_path: Path) -> None:
    root = tmp_path / "s"
    put(root, "t", b"a0", b"a1", b"a2")
    put(root, "t", b"b0", b"b1", b"b2", queue_id=1)
    given = {
        "topic": "t",
        "startingOffsets": '{"t": {"0": 1, "1": 2}}',
        "maxOffsetsPerTrigger": "1",
    }
    offset = progress(root, **given).initial()
    assert (offset["v"], offset["from"]) == (2, {"t": {"1": 2}})
    first = offset
    found = []
    before = None
    while offset != before:
        before = offset
        offset, bodies = batch(progress(root, **given), before)
        found += bodies
    assert found == [b"a1", b"a2", b"b2"]
    assert (offset["v"], offset["from"]) == (2, {})
    # Whatever the option says now, the checkpoint decides.
    for changed in ({}, {"startingOffsets": '{"t": {"0": 0, "1": 0}}'}):
        assert batch(progress(root, topic="t", **changed), first)[1] == found


def test_what_was_trimmed_below_a_checkpoint_is_not_asked_for(
    tmp_path: Path, rng: random.Random
) -> None:
    root = tmp_path / "s"
    messages = make_store(root, rng)
    given = {"topic": "orders", "startingOffsets": '{"orders": {"0": 5}}'}
    stream = progress(root, **given)
    start = stream.initial()
    while (end := stream.latest(start)) != start:
        start = end
    stream.close()
    old = {name: start[name] for name in ("store", "phys")} | {"v": 1}
    with rocketstore.open(root) as store:
        assert (
            store.trim(before_offset=messages[500].physical_offset) > messages[300].physical_offset
        )
    put(root, "orders", b"new")
    for checkpoint in (start, old):
        assert batch(progress(root, **given), checkpoint)[1] == [b"new"]


def test_the_first_messages_of_a_new_queue_are_read(tmp_path: Path) -> None:
    """It was looked for in each batch, and began at an offset that was asked for when it was not there."""
    root = tmp_path / "s"
    put(root, "t", b"t0")
    for asked in (1, -1):
        new = f"n{asked + 1}"
        starting = json.dumps({"t": {"0": -2}, new: {"0": asked}})
        given = {"topic": f"t,{new}", "startingOffsets": starting, "failOnDataLoss": "false"}
        start = progress(root, **given).initial()
        put(root, new, b"n0", b"n1")
        start, found = batch(progress(root, **given), start)
        assert found[-2:] == [b"n0", b"n1"]
        put(root, new, b"n2")
        assert batch(progress(root, **given), start)[1] == [b"n2"]


def test_checkpoints_of_before_go_on(tmp_path: Path) -> None:
    """They do not say where queues begin: numbers still leave out what lies behind them, latest nothing."""
    root = tmp_path / "s"
    put(root, "t", b"a0", b"a1")
    put(root, "t", b"b0", b"b1", queue_id=1)
    put(root, "t", b"c0", queue_id=2)
    given = {"topic": "t", "startingOffsets": '{"t": {"0": -2, "1": 1, "2": -1, "3": 7}}'}
    with pytest.raises(SparkFaceError, match="RS_NO_TOPIC_THERE"):
        progress(root, **given).initial()
    start = {**progress(root, startingOffsets="earliest").initial(), "v": 1}
    start, found = batch(progress(root, **given), start)
    assert found == [b"a0", b"a1", b"b1", b"c0"]
    assert start["v"] == 2
    with pytest.raises(SparkFaceError, match="RS_BAD_CHECKPOINT"):
        batch(progress(root, **given), {**start, "phys": 0, "from": [1]})
