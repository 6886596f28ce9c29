"""Messages a second compared with RocketMQ's own store in its JVM: puts one by one, in batches, in flight; reads."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import rocketstore
from bench.jvm import Jvm
from bench.measure import fetch_memory

__all__ = [
    "BATCH",
    "SIZES",
    "TOPIC",
    "WARM_UP",
    "batch_ours",
    "bodies_of",
    "clocked",
    "put_ours",
    "rates",
    "read_ours",
    "row",
]

TOPIC = "bench"
SIZES = (100, 1024)
BATCH = 1000
IN_FLIGHT = 64
BODIES = 256
#: Puts before anything is measured in a JVM.
WARM_UP = 300_000


def bodies_of(size: int) -> list[bytes]:
    return [os.urandom(size) for _ in range(BODIES)]


# ---- what is measured: seconds of one round, ours and theirs ----


@dataclass(frozen=True)
class Part:
    """`ours` and `theirs` give the seconds that `count` messages took. `stays`: also in a store that stays open."""

    name: str
    durability: str
    count: Callable[[int], int]
    ours: Callable[[rocketstore.Store, int, int], float]
    theirs: Callable[[Jvm, int, int], float]
    stays: bool = True


def clocked(work: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began) / 1e9


def put_ours(store: rocketstore.Store, count: int, size: int) -> float:
    put = store.writer(TOPIC, queue_id=0).put
    some = list(islice(cycle(bodies_of(size)), count))

    def run() -> None:
        for body in some:
            put(body)

    return clocked(run)


def batch_ours(store: rocketstore.Store, count: int, size: int) -> float:
    put = store.writer(TOPIC, queue_id=0).put_batch
    batch = list(islice(cycle(bodies_of(size)), BATCH))

    def run() -> None:
        for _ in range(count // BATCH):
            put(batch)

    return clocked(run)


def flight_ours(store: rocketstore.Store, count: int, size: int) -> float:
    submit = store.writer(TOPIC, queue_id=0).submit
    some = list(islice(cycle(bodies_of(size)), count))

    def run() -> None:
        flying: deque[rocketstore.Ticket] = deque()
        for body in some:
            if len(flying) == IN_FLIGHT:
                flying.popleft().result()
            flying.append(submit(body))
        while flying:
            flying.popleft().result()

    return clocked(run)


def read_ours(store: rocketstore.Store, count: int, size: int) -> float:
    store.writer(TOPIC, queue_id=0).put_batch(list(islice(cycle(bodies_of(size)), count)))
    assert store.max_queue_offset(TOPIC, 0) == count

    def run() -> None:
        with store.consumer(TOPIC, queue_id=0) as consumer:
            assert sum(len(message.body) for message in consumer) == count * size

    run()
    return clocked(run)


def read_theirs(jvm: Jvm, count: int, size: int) -> float:
    jvm.ask("put", count, size)
    jvm.ask("settle")
    jvm.ask("read", count)
    return jvm.ask("read", count)[0] / 1e9


PARTS = (
    Part("put", "os", lambda size: (64 << 20) // (size + 100), put_ours,
         lambda jvm, n, size: jvm.ask("put", n, size)[0] / 1e9),
    Part("put_batch of 1000", "os", lambda size: (64 << 20) // (size + 100) // BATCH * BATCH,
         batch_ours, lambda jvm, n, size: jvm.ask("batch", n, size, BATCH)[0] / 1e9),
    Part("put, 64 in flight", "disk", lambda size: 20_000 if size < 1000 else 10_000, flight_ours,
         lambda jvm, n, size: jvm.ask("flight", n, size, IN_FLIGHT)[0] / 1e9),
    Part("read, decoded", "os", lambda size: (64 << 20) // (size + 100), read_ours, read_theirs,
         stays=False),
)  # fmt: skip


def rates(jvm: Jvm, root: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Messages a second of every part and size."""
    for part in PARTS:
        for size in SIZES:
            if part.stays:
                yield rated(part, part.name, size, staying(part, jvm, root, size, rounds))
            name = f"{part.name}, new" if part.stays else part.name
            yield rated(part, name, size, renewed(part, jvm, root, size, rounds))


def rated(part: Part, name: str, size: int, found: Iterator[tuple[float, float]]) -> dict[str, Any]:
    """`found`: seconds of each side, round by round."""
    count = part.count(size)
    ours, theirs = zip(*((count / mine, count / other) for mine, other in found), strict=True)
    return row(name, part.durability, size, "messages/s", ours, theirs)


def staying(
    part: Part, jvm: Jvm, root: Path, size: int, rounds: int
) -> Iterator[tuple[float, float]]:
    """Two stores take all rounds. What is left to do of one, on the disk, too, is done before the next."""
    count = part.count(size)
    path = Path(tempfile.mkdtemp(prefix="stays-", dir=root))
    with (
        rocketstore.open(path / "ours", durability=part.durability) as store,
        jvm.opened(path / "theirs", part.durability),
    ):
        for number in range(rounds + 1):
            fetch_memory()
            mine = part.ours(store, count, size)
            os.sync()
            fetch_memory()
            other = part.theirs(jvm, count, size)
            jvm.ask("settle")
            os.sync()
            if number:
                yield mine, other
    shutil.rmtree(path)


def renewed(
    part: Part, jvm: Jvm, root: Path, size: int, rounds: int
) -> Iterator[tuple[float, float]]:
    """Each round has a new store."""
    count = part.count(size)
    for _ in range(rounds):
        path = Path(tempfile.mkdtemp(prefix="new-", dir=root))
        fetch_memory()
        with rocketstore.open(path / "ours", durability=part.durability) as store:
            mine = part.ours(store, count, size)
        shutil.rmtree(path / "ours")
        fetch_memory()
        with jvm.opened(path / "theirs", part.durability):
            other = part.theirs(jvm, count, size)
        shutil.rmtree(path)
        yield mine, other


def row(
    name: str, durability: str, size: int, unit: str, ours: Sequence[float], theirs: Sequence[float]
) -> dict[str, Any]:
    """`ratio`: how many times better ours is."""
    pairs = [
        mine / other if unit == "messages/s" else other / mine
        for mine, other in zip(ours, theirs, strict=True)
    ]
    return {
        "what": name,
        "durability": durability,
        "size": size,
        "unit": unit,
        "ours": statistics.median(ours),
        "theirs": statistics.median(theirs),
        "ratio": statistics.median(pairs),
        "rounds": {"ours": list(ours), "theirs": list(theirs)},
    }
