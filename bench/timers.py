"""Measures messages with a time of their own: many that wait, delivery under puts, and a start.

    python -m bench.timers DIRECTORY [--pending 1000000] [--seconds 10] [--rate 200000]

It puts `--pending` messages that are due far ahead, closes the store and opens it again in a process
of its own: how long that takes, and how much memory it has then. Then it puts `--rate` messages a
second for `--seconds`, in columns, while 200 a second become due: how late those are.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import rocketstore

DAY = datetime.timedelta(days=1)
BODY = b"x" * 100
#: A store knows all that waits within this time, seconds, or the measurement ends.
KNOWN_MOST_S = 300


def resident_mib(kind: str = "RssAnon") -> float:
    """Memory of this process: RssAnon is its own, RssFile what it maps, VmHWM the most so far."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{kind}:")[1].split()[0]) / 1024


def fill(path: str, pending: int) -> dict[str, Any]:
    began = time.monotonic()
    with rocketstore.open(path, durability="os") as store:
        writer = store.writer("later")
        for n in range(pending):
            after = DAY + datetime.timedelta(milliseconds=n * 7919 % pending)
            writer.put(BODY, deliver_after=after)
        put_s = time.monotonic() - began
        wait_s = _caught_up(store, pending)
    return {"put_s": put_s, "taken_up_after_s": wait_s, "most_mib": resident_mib("VmHWM")}


def _caught_up(store: rocketstore.Store, pending: int) -> float:
    began = time.monotonic()
    while len(store.delayed) < pending:
        if time.monotonic() > began + KNOWN_MOST_S:
            raise SystemExit(f"{len(store.delayed)} of {pending} known after {KNOWN_MOST_S} s")
        time.sleep(0.05)
    return time.monotonic() - began


def reopen(path: str) -> dict[str, Any]:
    before = resident_mib()
    began = time.monotonic()
    with rocketstore.open(path, durability="os") as store:
        opened_s = time.monotonic() - began
        pending = len(store.delayed)
        known_s = time.monotonic() - began
        return {
            "pending": pending,
            "open_s": opened_s,
            "pending_known_s": known_s,
            "own_mib": resident_mib() - before,
            "resident_mib": resident_mib("VmRSS"),
        }


def deliver(path: str, seconds: float, rate: int) -> dict[str, Any]:
    """200 messages a second become due while others are put."""
    import numpy as np

    rows = max(1, rate // 100)
    bodies, offsets = BODY * rows, np.arange(rows + 1, dtype=np.int64) * len(BODY)
    with rocketstore.open(path, durability="os") as store:
        due, other = store.writer("due"), store.writer("other")
        before = _caught_up(store, 1)
        pending = len(store.delayed)
        start_ms = int(time.time() * 1000) + 1000
        for n in range(int(seconds * 200)):
            due.put(b"%d" % (start_ms + 5 * n), deliver_at=start_ms + 5 * n)
        began, puts = time.monotonic(), 0
        while (passed := time.monotonic() - began) < seconds + 1:
            if rate and puts < passed * rate:
                other.put_columns((offsets, bodies))
                puts += rows
            else:
                time.sleep(0.001)
        end = time.monotonic() + 60
        while len(store.delayed) > pending and time.monotonic() < end:
            time.sleep(0.1)
        memory = {"resident_mib": resident_mib("VmRSS"), "own_mib": resident_mib()}
        late = sorted(m.store_timestamp_ms - int(m.body) for m in store.consumer("due"))
        return {
            "known_after_s": before,
            "puts_per_s": puts / (seconds + 1),
            "delivered": len(late),
            "late_ms_p50": late[len(late) // 2],
            "late_ms_p99": late[len(late) * 99 // 100],
            "late_ms_most": late[-1],
            "early": sum(ms < 0 for ms in late),
            **memory,  # before the messages are read here
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=int, default=200_000)
    parser.add_argument("--step", choices=("fill", "reopen", "deliver"))
    given = parser.parse_args()
    path = str(given.directory / "timers")
    if given.step:
        steps = {
            "fill": lambda: fill(path, given.pending),
            "reopen": lambda: reopen(path),
            "deliver": lambda: deliver(path, given.seconds, given.rate),
        }
        print(json.dumps(steps[given.step]()))
        return
    for step in ("fill", "reopen", "deliver"):
        found = subprocess.run(
            [sys.executable, "-m", "bench.timers", *sys.argv[1:], "--step", step],
            check=True,
            capture_output=True,
            text=True,
        )
        print(step, *(f"{k} = {v:.4g}" for k, v in json.loads(found.stdout).items()), sep="\n  ")


if __name__ == "__main__":
    main()
