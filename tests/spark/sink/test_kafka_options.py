"""Options that a job for Kafka's source has: done, or left aside with a warning."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark import option_checks
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.sink.options import WriteOptions
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import kept, plan_batch
from rocketstore.spark.source.stream_progress import Progress

FURTHER = {
    "startingOffsetsByTimestamp": '{"orders": {"0": 0}}',
    "startingOffsetsByTimestampStrategy": "latest",
    "minOffsetsPerTrigger": "5",
    "maxTriggerDelay": "30s",
    "maxOffsetsPerTrigger": "100",
    "minPartitions": "2",
    "groupIdPrefix": "etl",
    "fetchOffset.numRetries": "3",
    "fetchOffset.retryIntervalMs": "10",
    "kafkaConsumer.pollTimeoutMs": "512",
    "maxRecordsPerPartition": "1000",
    "includeHeaders": "true",
    "kafka.bootstrap.servers": "h:9092",
}


def store_of(root: Path) -> list[int]:
    """Ten messages of one queue; their times."""
    with rocketstore.open(root, durability="os", index_enabled=False) as store:
        writer = store.writer("orders")
        return [writer.put(b"%d" % number).store_timestamp_ms for number in range(10)]


def options(root: Path, stream: bool, **given: str) -> ReadOptions:
    return ReadOptions.parse({"path": str(root), "subscribe": "orders", **given}, stream=stream)


def rows(planned: Any) -> list[bytes]:
    scans, bounds = planned
    return [
        body
        for scan in scans
        for chunk in scan
        for body, here in zip(chunk["body"].tolist(), kept(chunk, bounds), strict=True)
        if here
    ]


def test_all_of_them_are_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(option_checks, "_warned", set())
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            found = options(tmp_path, True, **FURTHER)
    assert (found.min_rows, found.max_delay_s, found.late_is_latest) == (5, 30.0, True)
    assert [record.getMessage() for record in caplog.records] == [
        "the source leaves aside options of Kafka's clients: fetchOffset.numRetries, "
        "fetchOffset.retryIntervalMs, groupIdPrefix, kafkaConsumer.pollTimeoutMs, "
        "maxRecordsPerPartition"
    ]
    WriteOptions.parse({"path": "p", "topic": "t", "kafka.acks": "all", "groupIdPrefix": "x"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsetsByTimestamp": "7"}, "JSON"),
        ({"startingOffsetsByTimestamp": "{}"}, "JSON like"),
        ({"startingOffsetsByTimestamp": '{"t": 7}'}, "JSON like"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": "7"}}'}, "JSON like"),
        ({"startingOffsetsByTimestamp": '{"t": {"-1": 7}}'}, "JSON like"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -7}}'}, "JSON like"),
        ({"startingOffsetsByTimestampStrategy": "first"}, "error or latest"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 7}}'}, "only in a batch"),
        ({"minOffsetsPerTrigger": "0"}, "whole number"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"},
            "at most maxOffsetsPerTrigger",
        ),
        ({"maxTriggerDelay": "5m"}, "needs minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon", "minOffsetsPerTrigger": "9"}, "like 15m"),
    ],
)
def test_wrong_values(tmp_path: Path, given: dict[str, str], said: str) -> None:
    with pytest.raises(SparkFaceError, match=f"RS_BAD_OPTION.*{said}"):
        options(tmp_path, True, **given)
    if "minOffsetsPerTrigger" in given:
        with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*only in a stream"):
            options(tmp_path, False, **given)


def test_an_unknown_name_and_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(SparkFaceError, match="perhaps failOnDataLoss is meant; known: ") as caught:
        options(tmp_path, False, failOnDataLos="true")
    assert "askFilters" not in str(caught.value)
    assert "conditions" not in str(caught.value)
    with pytest.raises(SparkFaceError, match="no option zzz; known: "):
        options(tmp_path, False, zzz="1")


def test_offsets_by_time(tmp_path: Path) -> None:
    root = tmp_path / "s"
    times = store_of(root)
    first = '{"orders": {"0": %d}}'
    by = {"startingOffsetsByTimestamp": first % times[4]}
    with rocketstore.open(root, "r") as store:
        begin = store.offset_at("orders", 0, times[4])
        end = store.offset_at("orders", 0, times[7])
        every = [message.body for message in store.consumer("orders")]
    assert rows(plan_batch(options(root, False, **by))) == every[begin:]
    by_both = {**by, "endingOffsetsByTimestamp": first % times[7]}
    assert rows(plan_batch(options(root, False, **by_both))) == every[begin:end]
    late = {"endingOffsetsByTimestamp": first % (times[-1] + 1000)}
    assert rows(plan_batch(options(root, False, **by, **late))) == every[begin:]
    # It wins over startingOffsets, and startingTimestamp wins over it.
    earliest = {**by, "startingOffsets": "earliest"}
    assert rows(plan_batch(options(root, False, **earliest))) == every[begin:]
    whole = {**by, "startingTimestamp": "0"}
    assert rows(plan_batch(options(root, False, **whole))) == every
    stream = Progress(options(root, True, **by))
    start = stream.initial()
    assert rows(stream.parts(start, stream.latest(start))) == every[begin:]
    stream.close()
    after = {"startingOffsetsByTimestamp": first % (times[-1] + 1000)}
    with pytest.raises(SparkFaceError, match="RS_BAD_OPTION.*no message of .*Strategy=latest"):
        plan_batch(options(root, False, **after))
    after["startingOffsetsByTimestampStrategy"] = "latest"
    assert rows(plan_batch(options(root, False, **after))) == []
    with pytest.raises(SparkFaceError, match="RS_NO_TOPIC_THERE"):
        plan_batch(options(root, False, startingOffsetsByTimestamp='{"orders": {"9": 0}}'))


def test_a_micro_batch_that_waits_for_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, clock = tmp_path / "s", [100.0]
    monkeypatch.setattr("rocketstore.spark.source.stream_progress.time.monotonic", lambda: clock[0])
    with rocketstore.open(root, durability="os", index_enabled=False) as store:
        orders, others = store.writer("orders"), store.writer("others")

        def put(writer: rocketstore.Writer, count: int) -> None:
            for _ in range(count):
                end = writer.put(b"x").end_offset
            store.wait_flushed(end, 60)

        put(orders, 1)
        stream = Progress(
            options(
                root,
                True,
                startingOffsets="earliest",
                minOffsetsPerTrigger="3",
                maxTriggerDelay="10s",
            )
        )
        start = stream.latest(stream.initial())
        assert start["phys"] > 0  # the first one does not wait
        put(orders, 2)
        put(others, 50)
        assert stream.latest(start) == start
        put(orders, 1)
        start = stream.latest(start)
        assert start["phys"] == store.flushed_offset
        put(orders, 1)
        assert stream.latest(start) == start
        clock[0] += 10
        assert stream.latest(start) != start
        stream.close()
