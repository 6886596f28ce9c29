"""The ratios that bench/check.py holds against its baseline, each of two figures of one run.

What code takes is compared by the fastest stretch of a thousand messages, when nothing is in its way; what
a disk or another thread takes by the median of rounds in turns.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice, repeat
from pathlib import Path

import numpy as np

import rocketstore
from bench.harness import measure
from bench.measure import Case, fetch_memory

__all__ = ["NAMES", "ratios"]

SIZES = (100, 1024)
BATCH = 1000
ROUNDS = 5
ROUND_BYTES = 48 << 20
#: Bytes of a record without its body, about.
RECORD_BYTES = 128
FLUSH_TIMEOUT_S = 120.0
DISK = "disk put 100 B / pwritev2(RWF_DSYNC)"
DISPATCH = "put_batch 100 B until dispatched / put_batch"

#: Every ratio that `ratios` gives: above 1 the first of the two is faster; more is better in all of them.
NAMES = (
    *(
        name
        for size in SIZES
        for name in (
            f"put {size} B / os.write",
            f"put_batch {size} B / put",
            f"put_columns {size} B / put",
            f"read .body {size} B / put",
            f"scan body {size} B / read .body",
        )
    ),
    DISK,
    DISPATCH,
)


def ratios(directory: Path) -> dict[str, float]:
    """All of them, by their names; some ten seconds."""
    found: dict[str, float] = {}
    for size in SIZES:
        case = Case(size=size, durability="os", rounds=ROUNDS)
        found[f"put {size} B / os.write"] = measure(case, directory)["ratio"]
        found.update(batch_ratios(size, directory))
        found.update(read_ratios(size, directory))
    found[DISK] = measure(Case(size=100, durability="disk", rounds=ROUNDS), directory)["ratio"]
    found[DISPATCH] = dispatch_ratio(directory)
    return {name: found[name] for name in NAMES}


@contextmanager
def opened(directory: Path) -> Iterator[rocketstore.Store]:
    with (
        tempfile.TemporaryDirectory(prefix="check-", dir=directory) as root,
        rocketstore.open(Path(root, "store"), durability="os") as store,
    ):
        yield store


def singles_of(store: rocketstore.Store, body: bytes) -> Callable[[], None]:
    put = store.writer("bench", queue_id=0).put

    def singles() -> None:
        for _ in repeat(None, BATCH):
            put(body)

    return singles


def batch_ratios(size: int, directory: Path) -> dict[str, float]:
    """How many times cheaper a message is in a batch, and in columns, than by itself."""
    body = bytes(size)
    bodies = [body] * BATCH
    data = np.zeros(BATCH * size, dtype=np.uint8)
    offsets = np.arange(BATCH + 1, dtype=np.int64) * size
    found: dict[str, list[float]] = {"put_batch": [], "put_columns": []}
    with opened(directory) as store:
        writer = store.writer("bench", queue_id=0)
        ways: dict[str, Callable[[], object]] = {
            "put": singles_of(store, body),
            "put_batch": lambda: writer.put_batch(bodies),
            "put_columns": lambda: writer.put_columns((offsets, data)),
        }
        calls = calls_of(size)
        for _ in range(ROUNDS + 1):
            took = {name: best_of(way, calls, store) for name, way in ways.items()}
            for name, own in found.items():
                own.append(took["put"] / took[name])
    return {f"{name} {size} B / put": statistics.median(own[1:]) for name, own in found.items()}


def read_ratios(size: int, directory: Path) -> dict[str, float]:
    """How many times cheaper a message is that is read with its body than one that is put, and one of a scan's
    column than one that is read; both checksums are compared."""
    body = bytes(size)
    calls = calls_of(size)
    read: list[float] = []
    scanned: list[float] = []
    with opened(directory) as store:
        singles = singles_of(store, body)
        writer = store.writer("bench", queue_id=1)
        begin = store.end_offset
        for _ in repeat(None, calls):
            writer.put_batch([body] * BATCH)
        end = store.end_offset
        store.max_queue_offset("bench", 1)  # dispatched
        for _ in range(ROUNDS + 1):
            put_ns = best_of(singles, calls // 4, store)
            read_ns = best_read(store)
            read.append(put_ns / read_ns)
            scanned.append(read_ns / best_scan(store, begin, end))
    return {
        f"read .body {size} B / put": statistics.median(read[1:]),
        f"scan body {size} B / read .body": statistics.median(scanned[1:]),
    }


def dispatch_ratio(directory: Path) -> float:
    """The time of batches, which outrun the dispatcher, as a part of the time until their last message is in
    its queue."""
    found = []
    batch = [bytes(100)] * BATCH
    with opened(directory) as store:
        put_batch = store.writer("bench", queue_id=0).put_batch
        for _ in range(2 * ROUNDS + 1):
            fetch_memory()
            began = time.perf_counter_ns()
            for _ in repeat(None, calls_of(100)):
                put_batch(batch)
            put_ns = time.perf_counter_ns() - began
            store.max_queue_offset("bench", 0)
            found.append(put_ns / (time.perf_counter_ns() - began))
            store.wait_flushed(store.end_offset, timeout_s=FLUSH_TIMEOUT_S)
    return statistics.median(found[1:])


def calls_of(size: int) -> int:
    """Stretches of BATCH messages in a round."""
    return ROUND_BYTES // ((size + RECORD_BYTES) * BATCH)


def best_of(way: Callable[[], object], calls: int, store: rocketstore.Store) -> int:
    """Nanoseconds of the fastest call: what the code takes when nothing is in its way."""
    fetch_memory()
    best = sys.maxsize
    for _ in repeat(None, calls):
        began = time.perf_counter_ns()
        way()
        best = min(best, time.perf_counter_ns() - began)
    store.wait_flushed(store.end_offset, timeout_s=FLUSH_TIMEOUT_S)
    return best


def best_read(store: rocketstore.Store) -> float:
    """Nanoseconds of the fastest BATCH messages, bodies and all."""
    best = float(sys.maxsize)
    with store.consumer("bench", queue_id=1) as consumer:
        messages = iter(consumer)
        while True:
            began = time.perf_counter_ns()
            bodies = [message.body for message in islice(messages, BATCH)]
            took = time.perf_counter_ns() - began
            if len(bodies) < BATCH:
                return best
            best = min(best, took)


def best_scan(store: rocketstore.Store, begin: int, end: int) -> float:
    """Nanoseconds of BATCH messages in the fastest chunk of some thousand."""
    best = float(sys.maxsize)
    chunks = iter(
        rocketstore.scan(
            store,
            columns=["body"],
            begin_offset=begin,
            end_offset=end,
            aligned=True,
            chunk_bytes=4 << 20,
            threads=1,
        )
    )
    while True:
        began = time.perf_counter_ns()
        chunk = next(chunks, None)
        took = time.perf_counter_ns() - began
        if chunk is None:
            return best
        if chunk.rows >= BATCH:
            best = min(best, took * BATCH / chunk.rows)
