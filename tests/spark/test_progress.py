"""What the streaming source decides, without Spark."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.failures import SparkFaceError
from rocketstore.spark.progress import Progress
from rocketstore.spark.read_options import ReadOptions
from tests.spark.reading import make_store
from tests.waiting import wait_until


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
    monkeypatch.setattr("rocketstore.spark.progress.REOPEN_S", -1.0)
    assert drained(stream, start)[0] == [put.physical_offset]


def test_a_new_stream_begins_at_a_time(tmp_path: Path, rng: random.Random) -> None:
    """It began at the end, and the messages since then were never read."""
    messages = make_store(tmp_path / "s", rng)
    since = sorted(m.store_timestamp_ms for m in messages)[len(messages) // 2]
    stream = progress(tmp_path / "s", startingTimestamp=str(since))
    found, _ = drained(stream, stream.initial())
    wanted = [m.physical_offset for m in messages if m.store_timestamp_ms >= since]
    assert found == wanted != []
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
        progress(root).latest({**checkpoint, "v": 2})


def test_what_was_removed_before_it_was_read(tmp_path: Path, rng: random.Random) -> None:
    root = tmp_path / "s"
    messages = make_store(root, rng)
    stream = progress(root, startingOffsets="earliest")
    start = stream.initial()
    stream.close()
    with rocketstore.open(root) as store:
        begin = store.trim(messages[300].physical_offset)
    stream = progress(root)
    with pytest.raises(SparkFaceError, match=rf"RS_DATA_LOST\] \[0, {begin}\)"):
        stream.parts(start, stream.latest(start))
    found, _ = drained(progress(root, failOnDataLoss="false"), start)
    assert found == [m.physical_offset for m in messages if m.physical_offset >= begin]
