"""Single puts, one thread. One round is `COUNT` puts; pytest-benchmark shows the time of a round."""

from __future__ import annotations

from typing import Any

import pytest

from bench.conftest import SIZES, TOPIC, OpenStore, check, note

COUNT = {"os": 10_000, "memory": 10_000, "disk": 100}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("durability", ["memory", "os", "disk"])
def test_put(benchmark: Any, open_store: OpenStore, durability: str, size: int) -> None:
    store = open_store(durability=durability)
    put = store.writer(TOPIC, queue_id=0).put
    body = bytes(size)
    count = COUNT[durability]
    note(benchmark, size, 1, durability)

    def run() -> None:
        for _ in range(count):
            put(body)

    benchmark.pedantic(run, rounds=10, warmup_rounds=1)
    check(store, count)


@pytest.mark.parametrize("size", SIZES)
def test_put_with_tags_keys_and_properties(
    benchmark: Any, open_store: OpenStore, size: int
) -> None:
    store = open_store()
    put = store.writer(TOPIC, queue_id=0).put
    body = bytes(size)
    note(benchmark, size, 1, "os")

    def run() -> None:
        for number in range(10_000):
            put(body, tags="paid", keys=f"o-{number}", properties={"region": "eu"})

    benchmark.pedantic(run, rounds=10, warmup_rounds=1)
    check(store, 10_000)


@pytest.mark.parametrize("size", SIZES)
def test_submit_64_in_flight(benchmark: Any, open_store: OpenStore, size: int) -> None:
    """Tickets: 64 messages share their syncs."""
    store = open_store(durability="disk")
    writer = store.writer(TOPIC, queue_id=0)
    body = bytes(size)
    note(benchmark, size, 1, "disk, 64 in flight")

    def run() -> None:
        for _ in range(10):
            for ticket in [writer.submit(body) for _ in range(64)]:
                ticket.result()

    benchmark.pedantic(run, rounds=10, warmup_rounds=1)
    check(store, 640)
