"""How far queues and index lag the log: `python -m bench.lag --seconds 60`.

One thread puts batches at a steady rate, or as fast as it can; another looks each half millisecond where the log
ends and how far it is dispatched. The lag of an end is the time until it is dispatched, at most one look too long.
Durability `os`; batches of a millisecond's worth of messages, of 1000 at full rate.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass, field
from pathlib import Path

import rocketstore
from bench.measure import machine
from bench.memory import given_memory
from rocketstore import StoreConfig

__all__ = ["main", "measure"]

#: (bytes of a body, messages a second; 0: as fast as it goes).
CASES = ((100, 1_000_000), (1024, 500_000), (100, 0), (1024, 0))
LOOK_S = 0.0005
FULL_RATE_BATCH = 1000
#: What a store writes in a second at most, and with the body of a message: its record, its unit.
FULL_RATE_BYTES = 1 << 30
AROUND_BYTES = 130


@dataclass
class Lag:
    """One case. Times in milliseconds, `behind_mib` the most that was not dispatched."""

    size: int
    rate: int
    reached: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    longest_ms: float = 0.0
    behind_mib: float = 0.0
    lags_s: list[float] = field(default_factory=list, repr=False)


class Looker(threading.Thread):
    """Looks at a store until it is stopped, and until what it has seen is dispatched."""

    def __init__(self, store: rocketstore.Store, found: Lag) -> None:
        super().__init__()
        self._store = store
        self._found = found
        self._ends: deque[tuple[float, int]] = deque()
        self.stopped = threading.Event()

    def run(self) -> None:
        store, found, ends = self._store, self._found, self._ends
        while not self.stopped.is_set() or ends:
            time.sleep(LOOK_S)
            now, end, dispatched = time.monotonic(), store.end_offset, store.dispatched_offset
            while ends and ends[0][1] <= dispatched:
                found.lags_s.append(now - ends.popleft()[0])
            found.behind_mib = max(found.behind_mib, (end - dispatched) / 2**20)
            if end > dispatched and not self.stopped.is_set() and (not ends or ends[-1][1] < end):
                ends.append((now, end))


def measure(root: Path, size: int, rate: int, seconds: float, bound_bytes: int) -> Lag:
    """Puts for `seconds` into a new store below `root`, with this `max_undispatched_bytes`."""
    found = Lag(size, rate)
    path = Path(tempfile.mkdtemp(prefix="lag-", dir=root))
    try:
        with rocketstore.open(
            path / "store", durability="os", max_undispatched_bytes=bound_bytes
        ) as store:
            looker = Looker(store, found)
            looker.start()
            began = time.monotonic()
            count = _put(store, size, rate, began + seconds)
            found.reached = count / (time.monotonic() - began)
            looker.stopped.set()
            looker.join()
    finally:
        shutil.rmtree(path)
    lags = sorted(found.lags_s) or [0.0]
    found.p50_ms = statistics.median(lags) * 1e3
    found.p99_ms = lags[len(lags) * 99 // 100] * 1e3
    found.longest_ms = lags[-1] * 1e3
    return found


def _put(store: rocketstore.Store, size: int, rate: int, until: float) -> int:
    """Batches until the time is over; how many messages. A late batch is not made up for."""
    batch = [os.urandom(size)] * (rate // 1000 or FULL_RATE_BATCH)
    put = store.writer("bench", queue_id=0).put_batch
    count, following = 0, time.monotonic()
    while (now := time.monotonic()) < until:
        if rate and now < following:
            time.sleep(following - now)
        put(batch)
        count += len(batch)
        following = max(following + 0.001, now - 0.01)
    return count


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.lag", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each case")
    parser.add_argument("--directory", type=Path, default=None, help="on the disk to measure")
    parser.add_argument(
        "--bound-mib",
        type=int,
        default=StoreConfig().max_undispatched_bytes >> 20,
        help="max_undispatched_bytes, at which puts wait (default: %(default)s)",
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="where JSON goes")
    given = parser.parse_args(arguments)
    root = given.directory or Path(tempfile.gettempdir())
    about, rows = machine(), []
    for size, rate in CASES:
        rate_bytes = rate * (size + AROUND_BYTES) if rate else FULL_RATE_BYTES
        with given_memory(int(rate_bytes * given.seconds)):
            found = measure(root, size, rate, given.seconds, given.bound_mib << 20)
        rows.append({key: value for key, value in asdict(found).items() if key != "lags_s"})
        wanted = f"{rate / 1e6:.1f} M/s" if rate else "full rate"
        print(
            f"{size:5} B, {wanted:9}  {found.reached / 1e6:5.2f} M/s  lag p50 {found.p50_ms:6.2f}"
            f"  p99 {found.p99_ms:7.2f}  longest {found.longest_ms:7.2f} ms"
            f"  at most {found.behind_mib:5.1f} MiB behind",
            flush=True,
        )
    given.output.mkdir(parents=True, exist_ok=True)
    target = given.output / f"lag-{time.strftime('%Y%m%dT%H%M%S')}.json"
    target.write_text(json.dumps({"machine": about, "rows": rows}, indent=1))
    print(f"saved {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
