"""The short examples of docs/spark.md, in a real session."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.replication import Master, Replica
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]

BLOCK = re.compile(r"^```python notest\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DOCUMENT = ROOT / "docs" / "spark.md"


def example(holds: str, root: Path) -> str:
    """The block that holds this text, with its paths below `root`: Spark's workers are elsewhere."""
    [found] = [b for b in BLOCK.findall(DOCUMENT.read_text(encoding="utf-8")) if holds in b]
    return str(found).replace('"data/', f'"{root}/data/')


def put(root: Path, count: int) -> None:
    with rocketstore.open(root) as store:
        writer = store.writer("orders", queues=2)
        for number in range(count):
            writer.put(b"%d" % number, tags="paid", keys=["k", str(number)])


def all_of(root: Path) -> list[tuple[Any, ...]]:
    with rocketstore.open(root, "r") as store:
        return [
            (m.queue_id, m.body, m.tags, m.keys, m.born_timestamp_ms)
            for queue_id in store.queues("orders")
            for m in store.consumer("orders", queue_id=queue_id)
        ]


def test_read_and_write_and_load(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "data" / "orders", 20)
    scope: dict[str, Any] = {}
    exec(example("session = spark.session()", tmp_path), scope)  # what all others go by
    exec(example("select tags, count", tmp_path), scope)
    assert scope["orders"].count() == 20
    exec(example("paid = spark.read(", tmp_path), scope)
    assert scope["paid"].count() == 20
    scope["frame"] = spark.sql("select 'x' as body, 1 as queue_id")
    exec(example('.mode("append").option("path", "data/orders").option(', tmp_path), scope)
    assert len(all_of(tmp_path / "data" / "orders")) == 21
    scope["frame"] = spark.sql("select 'x' as body, 'served' as topic")
    exec(example("spark.serve(store)", tmp_path), scope)
    scope["frame"] = spark.sql("select 'x' as body")
    exec(example("shards=8", tmp_path), scope)
    assert scope["orders"].count() == 1


def test_follow(spark: Any, tmp_path: Path) -> None:
    """Every column of the source goes into the sink."""
    put(tmp_path / "data" / "orders", 3)
    scope: dict[str, Any] = {"session": spark}
    block = example("stream = session.readStream", tmp_path)
    exec(block.replace("readStream.", 'readStream.option("startingOffsets", "earliest").'), scope)
    try:
        put(tmp_path / "data" / "orders", 20)
        scope["query"].processAllAvailable()
    finally:
        scope["query"].stop()
    assert all_of(tmp_path / "data" / "copy") == all_of(tmp_path / "data" / "orders")


def test_stream_from_a_copy(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "data" / "orders", 3)
    master = Master(listen="127.0.0.1:0")
    scope: dict[str, Any] = {"session": spark}
    block = example('path="data/copy"', tmp_path)
    with rocketstore.open(tmp_path / "data" / "orders", replication=master) as store:
        replica = Replica(master=store.replication.address)
        with rocketstore.open(tmp_path / "data" / "copy", replication=replica) as copy:
            wait_until(lambda: copy.dispatched_offset == store.visible_offset > 0)
            wait_until(lambda: copy.flushed_offset == store.flushed_offset)
            exec(block.replace("options(", 'options(startingOffsets="earliest", '), scope)
            try:
                scope["query"].processAllAvailable()
            finally:
                scope["query"].stop()
    assert spark.read.parquet(str(tmp_path / "data" / "lake")).count() == 3
