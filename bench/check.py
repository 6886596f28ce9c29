"""Whether the store still is as fast as it was, as ratios: `make bench-check`.

Rates differ between machines and hours, so nothing here compares times. Three kinds of figures are held
against `baseline.json`: the harness's ratios of a put to the raw write of the same bytes in one run, the
ratio of a message in a batch to a single put, and, where valgrind is installed, instructions a message.
Bounds are generous: what falls below them has lost a third, or has a tenth more to do.
`--save` writes what was measured as the new baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

import rocketstore
from bench.counted import counts
from bench.harness import measure
from bench.measure import Case, fetch_memory

__all__ = ["main"]

BASELINE = Path(__file__).parent / "baseline.json"
#: A ratio may fall to this share of the baseline, a count may rise to this one.
RATIO_KEPT = 0.65
COUNT_MOST = 1.1
BATCH = 1000
ROUNDS = 5
ROUND_BYTES = 48 << 20


def batch_ratios(size: int, directory: Path) -> dict[str, float]:
    """How many times cheaper a message is in a batch, and in columns, than by itself."""
    body = bytes(size)
    bodies = [body] * BATCH
    data = np.zeros(BATCH * size, dtype=np.uint8)
    offsets = np.arange(BATCH + 1, dtype=np.int64) * size
    found: dict[str, list[float]] = {"put_batch": [], "put_columns": []}
    with (
        tempfile.TemporaryDirectory(prefix="check-", dir=directory) as root,
        rocketstore.open(Path(root, "store"), durability="os") as store,
    ):
        writer = store.writer("bench", queue_id=0)
        calls = ROUND_BYTES // ((size + 128) * BATCH)

        def singles() -> None:
            put = writer.put
            for _ in repeat(None, BATCH):
                put(body)

        ways: dict[str, Callable[[], object]] = {
            "put": singles,
            "put_batch": lambda: writer.put_batch(bodies),
            "put_columns": lambda: writer.put_columns(data, offsets),
        }
        for _ in range(ROUNDS + 1):
            took = {name: _best(way, calls, store) for name, way in ways.items()}
            for name, ratios in found.items():
                ratios.append(took["put"] / took[name])
    return {name: statistics.median(ratios[1:]) for name, ratios in found.items()}


def _best(way: Callable[[], object], calls: int, store: rocketstore.Store) -> int:
    """Nanoseconds of the fastest call: what the code takes when nothing is in its way."""
    fetch_memory()
    best = sys.maxsize
    for _ in repeat(None, calls):
        began = time.perf_counter_ns()
        way()
        best = min(best, time.perf_counter_ns() - began)
    store.wait_flushed(store.end_offset, timeout_s=120.0)
    return best


def measured(directory: Path) -> dict[str, Any]:
    """The figures of this machine, now."""
    ratios: dict[str, float] = {}
    for size in (100, 1024):
        case = Case(size=size, durability="os", rounds=ROUNDS)
        ratios[f"put {size} B / os.write"] = measure(case, directory)["ratio"]
        for name, ratio in batch_ratios(size, directory).items():
            ratios[f"{name} {size} B / put"] = ratio
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "ratios": {name: round(ratio, 2) for name, ratio in ratios.items()},
        "instructions": counts(),
    }


def worse(now: dict[str, Any], baseline: dict[str, Any]) -> list[str]:
    """What is out of bounds. Counts are compared where Python and machine are those of the baseline."""
    found = []
    for name, before in baseline["ratios"].items():
        if now["ratios"][name] < before * RATIO_KEPT:
            found.append(f"{name}: {now['ratios'][name]:.2f}, was {before:.2f}")
    if all(now[key] == baseline[key] for key in ("python", "machine")):
        for name, before in baseline["instructions"].items():
            counted = now["instructions"].get(name, 0)
            if counted > before * COUNT_MOST:
                found.append(f"{name}: {counted} instructions, were {before}")
    return found


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--save", action="store_true", help="what is measured is the new baseline")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    given = parser.parse_args(words)
    given.directory.mkdir(parents=True, exist_ok=True)
    now = measured(given.directory)
    for name, ratio in now["ratios"].items():
        print(f"{name:32} {ratio:8.2f}")
    for name, instructions in now["instructions"].items():
        print(f"{name:32} {instructions:8} instructions")
    if not now["instructions"]:
        print("valgrind is not installed: instructions are not counted")
    if given.save:
        BASELINE.write_text(json.dumps(now, indent=1) + os.linesep)
        return 0
    found = worse(now, json.loads(BASELINE.read_text()))
    for line in found:
        print(f"slower: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
