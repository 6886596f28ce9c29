"""Batches of 1000 messages: lists of bodies, and columns without an object for each message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench.conftest import SIZES, TOPIC, OpenStore, check, note

BATCH = 1000
DURABILITIES = ("os", "disk")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("durability", DURABILITIES)
def test_put_batch(benchmark: Any, open_store: OpenStore, durability: str, size: int) -> None:
    store = open_store(durability=durability)
    writer = store.writer(TOPIC, queue_id=0)
    bodies = [bytes(size)] * BATCH
    note(benchmark, size, BATCH, durability)
    benchmark.pedantic(writer.put_batch, args=(bodies,), rounds=50, warmup_rounds=5)
    check(store, BATCH)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("durability", DURABILITIES)
def test_put_columns(benchmark: Any, open_store: OpenStore, durability: str, size: int) -> None:
    store = open_store(durability=durability)
    writer = store.writer(TOPIC, queue_id=0)
    data = np.zeros(BATCH * size, dtype=np.uint8)
    offsets = np.arange(BATCH + 1, dtype=np.int64) * size
    note(benchmark, size, BATCH, durability)
    benchmark.pedantic(writer.put_columns, args=((offsets, data),), rounds=50, warmup_rounds=5)
    check(store, BATCH)
