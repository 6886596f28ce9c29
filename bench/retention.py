"""What retention costs a put: `python -m bench.retention --durability os`.

Rounds with a store that is held at 20 segments and rounds with one that grows, in turns. Each put is timed. A round
gives its median and its 99th percentile, and the ratio is that of the medians over all rounds. `rolls`: new segments in
a round, each of which makes retention look and remove one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import rocketstore
from rocketstore import Retention

__all__ = ["main", "measure"]

SEGMENTS = 20
#: What is not on the disk yet is not removed: puts at full rate would be over before the first flush.
PUTS_AT_ONCE, PAUSE_S = 100, 0.005


def measure(
    path: Path, durability: str, segment: int, size: int, count: int, *, held: bool
) -> tuple[float, float]:
    """Median and 99th percentile of a put, microseconds."""
    rule = Retention(max_bytes=SEGMENTS * segment) if held else None
    body = bytes(size)
    with rocketstore.open(
        path,
        retention=rule,
        durability=durability,  # type: ignore[arg-type]
        commit_log_file_size_bytes=segment,
        max_message_size_bytes=size,
    ) as store:
        put = store.writer("orders", queue_id=0).put
        for _ in range(count // 10):
            put(body)
        times = []
        for number in range(count):
            if number % PUTS_AT_ONCE == 0:
                time.sleep(PAUSE_S)
            began = time.perf_counter_ns()
            put(body)
            times.append(time.perf_counter_ns() - began)
        if rule is not None:
            assert store.begin_offset > 0, "nothing was removed"
    times.sort()
    return times[count // 2] / 1000, times[count * 99 // 100] / 1000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.retention", description=__doc__)
    parser.add_argument("--durability", choices=("os", "disk"), default="os")
    parser.add_argument("--segment", type=int, default=1 << 20, help="bytes")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a body")
    parser.add_argument("--count", type=int, default=60_000, help="puts in a round")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(given.rounds):
        for held in (False, True):
            with tempfile.TemporaryDirectory() as where:
                path = Path(where) / "store"
                figures = (given.durability, given.segment, given.size, given.count)
                found[held].append(measure(path, *figures, held=held))
    p50 = {held: statistics.median(one for one, _ in found[held]) for held in found}
    p99 = {held: statistics.median(one for _, one in found[held]) for held in found}
    rolls = given.count * (given.size + 120) // given.segment
    print(f"{given.durability}, {given.size} B, {given.segment} B a segment, {rolls} rolls a round")
    for name, held in (("without", False), ("with", True)):
        print(f"{name:8} p50 {p50[held]:8.1f} µs   p99 {p99[held]:8.1f} µs")
    print(f"ratio    p50 {p50[True] / p50[False]:8.2f}      p99 {p99[True] / p99[False]:8.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
