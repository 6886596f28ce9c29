"""Stores that 0.1 wrote before its modules moved open as they were: clean, killed, and with a sink of Spark."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

import rocketstore
from rocketstore.spark.sink.journal import Journal
from rocketstore.tools import verify
from tests.support.paths import VECTORS

SAMPLES = VECTORS / "stores_0_1"
#: What both stores of messages hold: topic, queue, bodies in order.
ORDERS = 120


def unpacked(name: str, directory: Path) -> Path:
    with tarfile.open(SAMPLES / f"{name}.tar.gz") as sample:
        sample.extractall(directory, filter="data")
    return directory / name


def orders() -> list[bytes]:
    return [b"order %03d" % i + b"." * (i * 7 % 300) for i in range(ORDERS)]


def bodies(store: rocketstore.Store, topic: str) -> list[bytes]:
    return [
        message.body
        for queue_id in store.queues(topic)
        for message in store.consumer(topic, queue_id=queue_id)
    ]


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize(("name", "last"), [("clean", []), ("killed", [b"last"])])
def test_all_messages_are_there(tmp_path: Path, name: str, last: list[bytes], mode: str) -> None:
    root = unpacked(name, tmp_path)
    with rocketstore.open(root, mode) as store:
        assert sorted(bodies(store, "orders")) == sorted([*orders(), *last])
        assert bodies(store, "audit") == [b"audit %03d" % i for i in range(0, ORDERS, 5)]
        (found,) = store.query("orders", key="k17")
        assert (found.body, found.tags, found.properties["n"]) == (orders()[17], "b", "17")
        assert sum(store.committed("orders", "billing").values()) == 30
        assert (store.recovery.mode == "clean") == (name == "clean")
    assert verify(root).ok


def test_a_store_goes_on(tmp_path: Path) -> None:
    root = unpacked("killed", tmp_path)
    with rocketstore.open(root) as store:
        store.writer("orders").put(b"new", keys="new")
    with rocketstore.open(root) as store:
        assert store.query("orders", key="new")[0].body == b"new"
        assert len(bodies(store, "orders")) == ORDERS + 2


def test_the_journal_of_a_sink_is_read(tmp_path: Path) -> None:
    root = unpacked("with_sink", tmp_path)
    commits = Journal(root).commits("etl")
    assert [(commit["version"], commit["rows"]) for commit in commits] == [(1, 40)]
    with rocketstore.open(root, "r") as store:
        assert sorted(bodies(store, "t")) == [b"first", *(b"row %03d" % i for i in range(40))]
