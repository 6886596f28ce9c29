"""Eight processes put ten million messages of sixteen topics into one store; then each body is there once, in order:

    python -m tests.process.shared_storm --messages 10000000

A body is the number of its process and a number that grows with each of its messages.
"""

from __future__ import annotations

import argparse
import itertools
import random
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import numpy as np

import rocketstore
from tests.support.paths import ROOT

__all__ = ["storm"]

PROCESSES: Final = 8
TOPICS: Final = tuple(f"storm{n}" for n in range(16))
BODY: Final = struct.Struct("<IQ")
BATCHES: Final = (1, 10, 100, 1000)


def put(path: str, number: int, count: int, seed: int) -> None:
    """Puts `count` messages: one topic after the other, in batches of many sizes."""
    rng = random.Random(seed)
    with rocketstore.open(path, shared=True, durability="os") as store:
        writers = [store.writer(topic) for topic in TOPICS]
        numbers = iter(range(count))
        while batch := [*itertools.islice(numbers, rng.choice(BATCHES))]:
            bodies = [BODY.pack(number, n) for n in batch]
            writer = rng.choice(writers)
            if len(bodies) == 1:
                writer.put(bodies[0])
            else:
                writer.put_batch(bodies)


def check(path: Path, count: int) -> None:
    """Each body once, and those of a process in their order in each topic."""
    there = np.zeros((PROCESSES, count), dtype=bool)
    with rocketstore.open(path, "r") as store:
        for topic in TOPICS:
            last = [-1] * PROCESSES
            offset = 0
            for chunk in rocketstore.scan(store, columns=["body", "queue_offset"], topics=topic):
                rows = np.frombuffer(chunk["body"].data, dtype=[("by", "<u4"), ("n", "<u8")])
                offsets = chunk["queue_offset"]
                assert (offsets == np.arange(offset, offset + len(offsets))).all(), topic
                offset += len(offsets)
                for process in range(PROCESSES):
                    own = rows["n"][rows["by"] == process].astype(np.int64)
                    assert (np.diff(own, prepend=last[process]) > 0).all(), (topic, process)
                    assert not there[process][own].any(), f"{topic}: twice, of {process}"
                    there[process][own] = True
                    last[process] = int(own[-1]) if len(own) else last[process]
    assert there.all(), f"{(~there).sum()} are lost"


def storm(path: Path, messages: int, seed: int) -> float:
    """Messages a second of all together."""
    count = messages // PROCESSES
    began = time.monotonic()
    command = [sys.executable, "-m", "tests.process.shared_storm", "--put", str(path)]
    putting = [
        subprocess.Popen([*command, *map(str, (n, count, seed + n))], cwd=ROOT)
        for n in range(PROCESSES)
    ]
    ended = [process.wait() for process in putting]
    took = time.monotonic() - began
    assert ended == [0] * PROCESSES
    check(path, count)
    return messages / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--put", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.put:
        put(given.put[0], *map(int, given.put[1:]))
        return
    with tempfile.TemporaryDirectory() as where:
        rate = storm(Path(where) / "store", given.messages, given.seed)
    print(f"{given.messages:,} messages, each once and in order; {rate:,.0f} a second")


if __name__ == "__main__":
    main()
