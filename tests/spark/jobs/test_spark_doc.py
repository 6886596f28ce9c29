"""The examples of the documentation, in a real session."""

from __future__ import annotations

import functools
import importlib.util
import json
import re
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import rocketstore
from rocketstore.replication import Master, Replica
from tests.spark.patience import patiently
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


def example_module() -> ModuleType:
    path = ROOT / "examples" / "spark_totals.py"
    spec = importlib.util.spec_from_file_location("spark_totals", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expected(path: Path) -> dict[str, tuple[int, int]]:
    orders, cents = Counter[str](), Counter[str]()
    with rocketstore.open(path, "r") as store:
        for message in store.consumer("orders"):
            order = json.loads(message.body)
            orders[order["user"]] += 1
            cents[order["user"]] += order["cents"]
    return {user: (orders[user], cents[user]) for user in orders}


def test_totals_follow_the_orders(spark: Any, tmp_path: Path) -> None:
    totals, path = example_module(), tmp_path / "shop"
    for seed in range(2):  # the second run takes only what came since
        totals.put_orders(path, 500, seed)
        patiently(functools.partial(totals.add_up, spark, path))
        found = totals.latest_totals(path)
        assert {u: (t["orders"], t["cents"]) for u, t in found.items()} == expected(path)
    with rocketstore.open(path, "r") as store:
        assert store.max_queue_offset("totals", 0) <= 2 * len(totals.USERS)
