"""Columns under the names that they have elsewhere, and topics as Kafka names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.schema import VIEWS, choose
from rocketstore.spark.sink.columns import IGNORED
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.plan import plan_batch, read
from tests.support.small_store import open_small


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_small(tmp_path / "s", durability="os", index_enabled=False) as store:
        store.writer("orders").put(b"one", keys="k")
    return tmp_path / "s"


def rows(root: Path, **options: str) -> list[dict[str, Any]]:
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    given = ReadOptions.parse({"path": str(root), **options}, stream=False)
    scans, bounds = plan_batch(given)
    batches = [batch for scan in scans for batch in read(scan, given, bounds)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_columns_of_other_views(root: Path) -> None:
    [found] = rows(root, subscribe="orders", columns="body,value,queue_id,message_id")
    assert list(found) == ["body", "value", "queue_id", "message_id"]
    assert (found["body"], found["value"], found["queue_id"]) == (b"one", b"one", 0)
    [other] = rows(root, columns="key,keys,msg_id,queueOffset")
    assert (other["key"], other["keys"], other["queueOffset"]) == (b"k", "k", 0)
    assert other["msg_id"] == found["message_id"]


def test_a_view_goes_before_others() -> None:
    for view, fields in VIEWS.items():
        assert choose(view, tuple(fields), frozenset()) == tuple(fields.values())
    with pytest.raises(SparkFaceError, match=r"RS_UNKNOWN_COLUMN.*each once, of key, value, topic"):
        choose("kafka", ("bodies",), frozenset())
    assert "message_id" in IGNORED  # a frame that was read so can be written


def test_names_of_arrow_in_a_scan(root: Path) -> None:
    names = ["store_timestamp", "born_timestamp", "msg_id", "message_id"]
    scan = rocketstore.scan(root, columns=names)
    assert scan.columns == ("store_timestamp_ms", "born_timestamp_ms", "message_id")
    with pytest.raises(ValueError, match="columns = \\['time'\\]: there are"):
        rocketstore.scan(root, columns=["time"])


def test_topics_with_dots(root: Path) -> None:
    from rocketstore.spark.source.topic_check import check_names

    with pytest.raises(SparkFaceError, match=r"'orders.v1'.*dots may have '-' in their place; x"):
        check_names(str(root), ["orders.v1"], "x")
    with pytest.raises(SparkFaceError, match=r"'orders v1'(?!.*dots)"):
        check_names(str(root), ["orders v1"])
    pytest.importorskip("pyarrow", reason="needs pyarrow: make spark")
    from rocketstore.spark.sink.staging import wrong_topic

    assert wrong_topic("orders.v1").endswith("write replace(topic, '.', '-')")
    assert "replace" not in wrong_topic("orders v1")
