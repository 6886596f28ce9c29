"""rocketstore compared with Chronicle Queue in its JVM: `python -m bench.chronicle`.

Bodies of 100 B and 1 KiB, durability `os`, 64 MiB a round, sides in turns, each round in a new directory, one thread.
Chronicle Queue appends and reads raw documents: it has neither topics nor keys, checksums or dispatch. rocketstore
does all of that; its batches are of 1000. The JVM stays, warmed up with 300,000 documents. What is printed are
medians of the rounds; a ratio is the median of the ratios of one round. Needs a JDK (11 or newer) and Maven.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import rocketstore
from bench.java_rates import BATCH, SIZES, TOPIC, WARM_UP, batch_ours, clocked, put_ours, read_ours
from bench.jvm import CHRONICLE, Jvm, prepare
from bench.measure import fetch_memory, machine

__all__ = ["main"]

ROUND_BYTES = 64 << 20


def columns_ours(store: rocketstore.Store, count: int, size: int) -> float:
    """`put_columns` of 1000 from one array."""
    put = store.writer(TOPIC, queue_id=0).put_columns
    block = os.urandom(BATCH * size)
    offsets = np.arange(0, (BATCH + 1) * size, size, dtype=np.int64)

    def run() -> None:
        for _ in range(count // BATCH):
            put((offsets, block))

    return clocked(run)


def scan_ours(store: rocketstore.Store, count: int, size: int) -> float:
    """Bodies in columns, both checksums looked at, the second time."""
    put_ours(store, count, size)

    def run() -> None:
        chunks = rocketstore.scan(store, columns=("body",))
        assert sum(chunk.rows for chunk in chunks) == count

    run()
    return clocked(run)


@dataclass(frozen=True)
class Part:
    """`ours` gives the seconds that a number of messages took; theirs is `ask`, a word for the JVM."""

    name: str
    ours: Callable[[rocketstore.Store, int, int], float]
    ask: str


PARTS = (
    Part("put", put_ours, "append"),
    Part("put_batch of 1000", batch_ours, "append"),
    Part("put_columns of 1000", columns_ours, "append"),
    Part("read, decoded", read_ours, "read"),
    Part("scan, bodies in columns", scan_ours, "read"),
)


def theirs(jvm: Jvm, path: Path, ask: str, count: int, size: int) -> float:
    """Seconds; what is read is read the second time."""
    jvm.ask("open", path)
    took = jvm.ask("append", count, size)[0]
    if ask == "read":
        jvm.ask("read", count, size)
        took = jvm.ask("read", count, size)[0]
    jvm.ask("close")
    return took / 1e9


def ours(part: Part, path: Path, count: int, size: int) -> float:
    with rocketstore.open(path, durability="os") as store:
        return part.ours(store, count, size)


def measure(jvm: Jvm, root: Path, rounds: int) -> Iterator[dict[str, Any]]:
    """Messages a second of every part and size."""
    for part in PARTS:
        for size in SIZES:
            count = ROUND_BYTES // (size + 100) // BATCH * BATCH
            pairs = []
            for _ in range(rounds):
                path = Path(tempfile.mkdtemp(prefix="chronicle-", dir=root))
                fetch_memory()
                mine = count / ours(part, path / "ours", count, size)
                fetch_memory()
                other = count / theirs(jvm, path / "theirs", part.ask, count, size)
                pairs.append((mine, other))
                shutil.rmtree(path)
            yield {
                "what": part.name,
                "size": size,
                "ours": statistics.median(mine for mine, _ in pairs),
                "theirs": statistics.median(other for _, other in pairs),
                "ratio": statistics.median(mine / other for mine, other in pairs),
                "rounds": pairs,
            }


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chronicle", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of each side; at least five")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    given = parser.parse_args(words)
    if given.rounds < 5:
        parser.error("--rounds is at least 5")
    output, root = prepare(parser, given.directory, CHRONICLE)
    facts = {**machine(), "chronicle": CHRONICLE.version, "rounds": given.rounds}
    print(json.dumps(facts))
    results = []
    jvm = Jvm(output, CHRONICLE)
    try:
        theirs(jvm, root / "warm", "read", WARM_UP, 100)
        for result in measure(jvm, root, given.rounds):
            results.append(result)
            print(
                f"{result['what']:24} {result['size']:5} B  rocketstore {result['ours']:12,.0f}"
                f"  Chronicle Queue {result['theirs']:12,.0f} messages/s  × {result['ratio']:.2f}",
                flush=True,
            )
    finally:
        jvm.kill()
        shutil.rmtree(root)
    text = json.dumps({"machine": facts, "results": results}, indent=1)
    (given.directory / "chronicle.json").write_text(text + os.linesep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
