"""From the log into queues and index: what a reader waits for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bench.conftest import SIZES, TOPIC, OpenStore, fill, note

COUNT = 50_000


@pytest.mark.parametrize("keys", [False, True], ids=["queues", "queues and index"])
@pytest.mark.parametrize("size", SIZES)
def test_put_and_catch_up(benchmark: Any, open_store: OpenStore, size: int, keys: bool) -> None:
    """Puts, then one read that runs the dispatcher to the end; the puts alone are in bench_put."""
    store = open_store()
    note(benchmark, size, 1, "os")
    ends = []

    def run() -> None:
        fill(store, COUNT, size, keys=keys)
        ends.append(store.max_queue_offset(TOPIC, 0))

    benchmark.pedantic(run, rounds=5, warmup_rounds=1)
    assert ends == [COUNT * (n + 1) for n in range(len(ends))]
    assert store.dispatched_offset == store.end_offset


def test_put_until_another_thread_has_it(benchmark: Any, open_store: OpenStore) -> None:
    """One round: put, the consumer of another thread gets it, its answer comes back."""
    store = open_store()
    writer = store.writer(TOPIC, queue_id=0)
    writer.put(b"first")
    got = threading.Semaphore(0)
    consumer = store.consumer(TOPIC, queue_id=0, offset="latest")

    def consume() -> None:
        for message in consumer.follow(timeout_s=5.0):
            if message.body == b"last":
                return
            got.release()

    thread = threading.Thread(target=consume)
    thread.start()

    def run() -> None:
        writer.put(b"x" * 100)
        assert got.acquire(timeout=5.0)

    note(benchmark, 100, 1, "os", threads=2)
    benchmark.pedantic(run, rounds=2000, warmup_rounds=100)
    writer.put(b"last")
    thread.join()
    consumer.close()
