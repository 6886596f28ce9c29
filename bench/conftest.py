"""What every suite uses: stores on the disk under test, with files that exist before the clock starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import rocketstore
from rocketstore import Store

OpenStore = Callable[..., Store]

#: Body sizes that every suite measures.
SIZES = (100, 1024)
TOPIC = "bench"


def pytest_configure(config: pytest.Config) -> None:
    # `pytest bench` collects bench_*.py, and `pytest` alone does not.
    config.addinivalue_line("python_files", "bench_*.py")


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[OpenStore]:
    """Opens stores below tmp_path and closes them; options as `rocketstore.open` has them."""
    opened: list[Store] = []

    def open_one(name: str = "store", **options: object) -> Store:
        options.setdefault("durability", "os")
        options.setdefault("commit_log_file_size_bytes", 256 * 1024 * 1024)
        store = rocketstore.open(tmp_path / name, **options)  # type: ignore[arg-type]
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


def fill(store: Store, messages: int, size: int, *, keys: bool = False) -> None:
    """Stores `messages` bodies of `size` bytes in queue 0 of the topic."""
    writer = store.writer(TOPIC, queue_id=0)
    body = bytes(size)
    if keys:
        for number in range(messages):
            writer.put(body, keys=f"k-{number}")
    else:
        for begin in range(0, messages, 1000):
            writer.put_batch([body] * min(1000, messages - begin))


def check(store: Store, count: int) -> None:
    """Whole rounds of `count` messages are there, at least one."""
    store.wait_flushed(store.end_offset, timeout_s=60.0)  # "memory" is not visible before
    rounds, rest = divmod(store.max_queue_offset(TOPIC, 0), count)
    assert rounds > 0
    assert rest == 0


def note(benchmark: object, size: int, batch: int, durability: str, threads: int = 1) -> None:
    """What a number means: it is nothing without these."""
    benchmark.extra_info.update(  # type: ignore[attr-defined]
        {"size": size, "batch": batch, "durability": durability, "threads": threads}
    )
