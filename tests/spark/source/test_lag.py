"""How far a stream is behind, in messages of each topic."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store
from rocketstore.spark import StreamLag, lag_listener
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.lag import LagTable
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress
from tests.support.small_store import open_small


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_small(tmp_path / "s", durability="os", index_enabled=False) as store:
        yield store


def put(store: Store, topic: str, count: int) -> int:
    """The first place after them."""
    end = 0
    for number in range(count):
        end = store.writer(topic, queue_id=number % 3).put(b"x" * 50).end_offset
    store.wait_flushed(end, 60)
    return end


def offset_of(root: Path) -> str:
    """The end of the log as a stream's offset."""
    stream = Progress(ReadOptions.parse({"path": str(root)}, stream=True))
    try:
        return json.dumps(stream.initial())
    finally:
        stream.close()


def shown(table: LagTable) -> list[tuple[str, str, int]]:
    return [(lag.query, lag.topic, lag.messages) for lag in table.lags]


def test_topics_of_services_have_a_lag_where_they_are_named(store: Store, tmp_path: Path) -> None:
    store.writer("orders").put(b"later", delay_level=18)
    put(store, "orders", 1)
    named = "SCHEDULE_TOPIC_XXXX"
    for topics, found in ((None, ["orders"]), ([named], [named])):
        table = LagTable([str(tmp_path / "s")], topics)
        table.progressed("id", "job", [offset_of(tmp_path / "s")])
        assert [topic for _, topic, _ in shown(table)] == found


def test_messages_of_each_topic(store: Store, tmp_path: Path) -> None:
    told: list[StreamLag] = []
    table = LagTable([str(tmp_path / "s")], None, told.append)
    put(store, "orders", 20)
    put(store, "clicks", 9)
    place = offset_of(tmp_path / "s")
    table.progressed("id", "job", [place])
    assert shown(table) == [("job", "clicks", 0), ("job", "orders", 0)]
    assert [(lag.bytes, lag.seconds) for lag in told] == [(0, 0.0)] * 2
    began = time.time()
    end = put(store, "orders", 7)
    table.looked_at("id")
    assert shown(table) == [("job", "clicks", 0), ("job", "orders", 7)]
    clicks, orders = table.lags
    assert clicks.bytes == orders.bytes == end - json.loads(place)["phys"]
    assert clicks.seconds == 0.0
    assert 0 <= orders.seconds <= time.time() - began + 1
    assert told[2:] == table.lags
    table.ended("id")
    assert table.lags == []
    table.looked_at("id")
    assert table.lags == []


def test_topics_that_are_named(store: Store, tmp_path: Path) -> None:
    table = LagTable([str(tmp_path / "s")], ["orders", "none"])
    put(store, "orders", 2)
    start = json.dumps({"v": 1, "store": json.loads(offset_of(tmp_path / "s"))["store"], "phys": 0})
    table.progressed("id", None, [start])
    assert shown(table) == [("id", "orders", 2)]


@pytest.mark.parametrize(
    "other",
    [
        None,
        "{",
        "7",
        '{"orders": {"0": 9}}',
        '{"v": 1, "store": "another", "phys": 0}',
        '{"v": 1, "store": [], "phys": "x"}',
    ],
)
def test_offsets_of_other_sources(store: Store, tmp_path: Path, other: str | None) -> None:
    put(store, "orders", 2)
    table = LagTable([str(tmp_path / "s")], None)
    table.progressed("id", None, [other])
    assert table.lags == []


def test_a_store_that_cannot_be_read_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with open_small(tmp_path / "s", durability="os", index_enabled=False) as store:
        put(store, "orders", 2)
        place = offset_of(tmp_path / "s")
    (tmp_path / "s").rename(tmp_path / "gone")
    table = LagTable([str(tmp_path / "s")], None)
    with caplog.at_level(logging.WARNING):
        table.progressed("id", None, [place])
        assert table.lags == []
        (tmp_path / "gone").rename(tmp_path / "s")
        table.progressed("id", "job", [place])
        assert shown(table) == [("job", "orders", 0)]
        (tmp_path / "s" / "commitlog").rename(tmp_path / "log")
        (tmp_path / "s").rename(tmp_path / "gone")
        table.looked_at("id")
        table.looked_at("id")
    assert table.lags == []
    assert caplog.text.count("the lag of job is not known: [RS_NO_STORE]") == 1


def test_for_prometheus(store: Store, tmp_path: Path) -> None:
    prometheus = pytest.importorskip("prometheus_client", reason="needs prometheus_client")
    registry = prometheus.CollectorRegistry()
    table = LagTable([str(tmp_path / "s")], None)
    registry.register(table)
    place = offset_of(tmp_path / "s")
    end = put(store, "orders", 4)
    table.progressed("id", "job", [place])
    labels = {"query": "job", "store": str(tmp_path / "s"), "topic": "orders"}
    assert registry.get_sample_value("rocketstore_stream_lag_messages", labels) == 4
    assert registry.get_sample_value("rocketstore_stream_lag_bytes", labels) == end
    assert registry.get_sample_value("rocketstore_stream_lag_seconds", labels) >= 0


def test_a_listener_as_spark_calls_it(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs pyspark: make spark")
    from types import SimpleNamespace as Event

    with pytest.raises(SparkFaceError, match=r"RS_BAD_OPTION.*paths"):
        lag_listener()
    told: list[StreamLag] = []
    listener: Any = lag_listener(tmp_path / "s", topics="orders", report=told.append)
    place = offset_of(tmp_path / "s")
    put(store, "orders", 3)
    listener.onQueryStarted(Event(id="q"))
    sources = [Event(endOffset='{"other": 1}'), Event(endOffset=place)]
    listener.onQueryProgress(Event(progress=Event(id="q", name="job", sources=sources)))
    assert [lag.messages for lag in listener.lags] == [3]
    put(store, "orders", 1)
    listener.onQueryIdle(Event(id="q"))
    assert [lag.messages for lag in told] == [3, 4]
    listener.onQueryTerminated(Event(id="q"))
    assert listener.lags == []
