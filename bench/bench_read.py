"""Reads of messages that were just stored, so from memory: consumer, get, query, verify."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from bench.conftest import SIZES, TOPIC, OpenStore, fill, note
from rocketstore import tools

COUNT = 50_000


@pytest.mark.parametrize("size", SIZES)
def test_consumer(benchmark: Any, open_store: OpenStore, size: int) -> None:
    """Message objects with their bodies; checksums are compared."""
    store = open_store()
    fill(store, COUNT, size)
    note(benchmark, size, 512, "os")

    def run() -> int:
        with store.consumer(TOPIC, queue_id=0) as consumer:
            return sum(len(message.body) for message in consumer)

    assert benchmark.pedantic(run, rounds=10, warmup_rounds=1) == COUNT * size


@pytest.mark.parametrize("size", SIZES)
def test_get(benchmark: Any, open_store: OpenStore, size: int) -> None:
    """By physical offset, in random order."""
    store = open_store()
    result = store.writer(TOPIC, queue_id=0).put_batch([bytes(size)] * 10_000)
    offsets = result.physical_offsets
    random.Random(1).shuffle(offsets)
    note(benchmark, size, 1, "os")

    def run() -> int:
        return sum(len(store.get(offset).body) for offset in offsets)

    assert benchmark.pedantic(run, rounds=10, warmup_rounds=1) == 10_000 * size


def test_query(benchmark: Any, open_store: OpenStore) -> None:
    """By key, each key once."""
    store = open_store()
    fill(store, 10_000, 100, keys=True)
    note(benchmark, 100, 1, "os")

    def run() -> int:
        return sum(len(store.query(TOPIC, f"k-{n}")) for n in range(0, 10_000, 10))

    assert benchmark.pedantic(run, rounds=5, warmup_rounds=1) == 1000


@pytest.mark.parametrize("size", SIZES)
def test_scan(benchmark: Any, open_store: OpenStore, tmp_path: Path, size: int) -> None:
    """Columns of the whole log, without a Python object for each message."""
    scan = getattr(rocketstore, "scan", None)
    if scan is None:
        pytest.skip("this version has no scan")
    with open_store() as store:
        fill(store, COUNT, size)
    note(benchmark, size, 0, "os")

    def run() -> int:
        return sum(len(columns["body"]) for columns in scan(tmp_path / "store", columns=["body"]))

    assert benchmark.pedantic(run, rounds=10, warmup_rounds=1) == COUNT


@pytest.mark.parametrize("size", SIZES)
def test_verify(benchmark: Any, open_store: OpenStore, tmp_path: Path, size: int) -> None:
    """The walk over log, queues and index."""
    with open_store() as store:
        fill(store, COUNT, size)
    note(benchmark, size, 0, "os")
    report = benchmark.pedantic(tools.verify, args=(tmp_path / "store",), rounds=3)
    assert report.ok
    assert report.counts.records == COUNT
