"""Puts that share syncs, compared with raw synchronous writes one by one: `python -m bench.group_commit`.

Sides take turns in one run: raw `pwritev2(RWF_DSYNC)` over prewritten blocks, 64 threads, 64 tickets in
flight, 64 and 256 asyncio tasks, with `--uvloop` the same tasks in its loop. The store is at its defaults,
or its segments of 64 MiB are prewritten too. A ratio is that of a side's rate to the raw rate of the same
round; what is printed is the median of the rounds.

`--busy`: instead of that, each way to put alone, and while one thread computes
in Python, at several switch intervals of the interpreter; a ratio is that of busy to quiet in one round.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import rocketstore.aio
from bench.measure import Case, RawFile, machine

SEGMENT_BYTES = 64 << 20

#: Switch intervals of the interpreter, seconds: the default, and the one that docs/threads.md advises
#: for a program with a busy thread.
SWITCH_INTERVALS_S = (0.005, 0.0002)
#: Steps that the busy thread computes between two looks at the clock.
COMPUTED = 100

#: Called once all that put are running, with the end of the round (`time.perf_counter`).
Begin = Callable[[float], None]
#: Runs for a number of seconds; gives messages, seconds, latencies in ns.
Side = Callable[[float, Begin], tuple[int, float, list[int]]]


def quiet(end: float) -> None:
    """Nothing else runs."""


@contextmanager
def busy_thread() -> Iterator[Begin]:
    """One thread that computes in Python from the begin of a round to its end, and never waits.

    It rests before, so that it is not in the way of those that start, and ends by itself, so that the
    last puts are counted as they came.
    """
    ends: SimpleQueue[float] = SimpleQueue()

    def compute() -> None:
        end = ends.get()
        number = 1
        while time.perf_counter() < end:
            for _ in range(COMPUTED):
                number = number * 48271 % 2147483647

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield ends.put
    finally:
        ends.put(0.0)  # of a side that failed before its begin
        thread.join()


def threads_side(store: rocketstore.Store, body: bytes, count: int) -> Side:
    writer = store.writer("bench", queue_id=0)

    def run(seconds: float, begin: Begin) -> tuple[int, float, list[int]]:
        latencies: list[list[int]] = [[] for _ in range(count)]
        go = threading.Event()
        end = 0.0

        def work(own: list[int]) -> None:
            clock = time.perf_counter_ns
            go.wait()
            while not own or time.perf_counter() < end:
                before = clock()
                writer.put(body)
                own.append(clock() - before)

        threads = [threading.Thread(target=work, args=(own,)) for own in latencies]
        for thread in threads:
            thread.start()

        def together() -> None:
            nonlocal end
            end = time.perf_counter() + seconds
            go.set()
            begin(end)
            for thread in threads:
                thread.join()

        return _clocked(together, latencies)

    return run


def submit_side(store: rocketstore.Store, body: bytes, window: int) -> Side:
    writer = store.writer("bench", queue_id=1)

    def run(seconds: float, begin: Begin) -> tuple[int, float, list[int]]:
        own: list[int] = []

        def work() -> None:
            clock = time.perf_counter_ns
            end = clock() + int(seconds * 1e9)
            begin(end / 1e9)
            flying: deque[tuple[int, rocketstore.Ticket]] = deque()
            while flying or not own or clock() < end:
                while not flying or (len(flying) < window and clock() < end):
                    flying.append((clock(), writer.submit(body)))
                before, ticket = flying.popleft()
                ticket.result()
                own.append(clock() - before)

        return _clocked(work, [own])

    return run


def tasks_side(
    store: rocketstore.Store,
    body: bytes,
    count: int,
    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Side:
    async def main(seconds: float, begin: Begin, latencies: list[list[int]]) -> None:
        async with rocketstore.aio.attach(store) as mine:
            writer = mine.writer("bench", queue_id=2)
            await writer.put(body)
            end = time.perf_counter() + seconds
            begin(end)

            async def work(own: list[int]) -> None:
                clock = time.perf_counter_ns
                while not own or time.perf_counter() < end:
                    before = clock()
                    await writer.put(body)
                    own.append(clock() - before)

            await asyncio.gather(*map(work, latencies))

    def run(seconds: float, begin: Begin) -> tuple[int, float, list[int]]:
        latencies: list[list[int]] = [[] for _ in range(count)]
        with asyncio.Runner(loop_factory=make_loop) as runner:
            return _clocked(lambda: runner.run(main(seconds, begin, latencies)), latencies)

    return run


def raw_side(file: RawFile, record: bytes) -> Side:
    def run(seconds: float, begin: Begin) -> tuple[int, float, list[int]]:
        begin(time.perf_counter() + seconds)
        found = file.round(Case(len(record), "disk", seconds=seconds), 0)
        return found.messages, found.duration_ns / 1e9, found.latencies_ns

    return run


def _clocked(work: Callable[[], None], latencies: list[list[int]]) -> tuple[int, float, list[int]]:
    began = time.perf_counter()
    work()
    took = time.perf_counter() - began
    found = [latency for own in latencies for latency in own]
    return len(found), took, found


def measure(
    size: int,
    rounds: int,
    seconds: float,
    directory: Path,
    *,
    with_uvloop: bool,
    prewrite: bool = False,
) -> dict[str, Any]:
    root = Path(tempfile.mkdtemp(prefix="group-", dir=directory))
    body = bytes(size)
    found: dict[str, list[tuple[float, list[int]]]] = {}
    options: dict[str, Any] = {}
    if prewrite:
        options = {"commit_log_file_size_bytes": SEGMENT_BYTES, "prewrite": True}
    try:
        with rocketstore.open(root / "store", **options) as store:
            placed = store.writer("bench", queue_id=0).put(body)
            record = bytes(store.get(placed.physical_offset))
            with RawFile(root / "raw", record, Case(size, "disk")) as file:
                sides = {
                    "raw": raw_side(file, record),
                    "1 thread": threads_side(store, body, 1),
                    "64 threads": threads_side(store, body, 64),
                    "submit, 64 in flight": submit_side(store, body, 64),
                    "64 tasks": tasks_side(store, body, 64),
                    "256 tasks": tasks_side(store, body, 256),
                }
                if with_uvloop:
                    import uvloop

                    for count in (64, 256):
                        side = tasks_side(store, body, count, uvloop.new_event_loop)
                        sides[f"{count} tasks, uvloop"] = side
                for number in range(rounds + 1):
                    for name, side in sides.items():
                        messages, took, latencies = side(seconds, quiet)
                        if number:  # the first round warms up
                            found.setdefault(name, []).append((messages / took, latencies))
    finally:
        shutil.rmtree(root)
    raw = [rate for rate, _ in found["raw"]]
    return {name: _summary(rounds_, raw) for name, rounds_ in found.items()}


def _summary(rounds: list[tuple[float, list[int]]], raw: list[float]) -> dict[str, Any]:
    rates = [rate for rate, _ in rounds]
    latencies = sorted(latency for _, own in rounds for latency in own)
    return {
        "messages_per_s": statistics.median(rates),
        "rates": rates,
        "ratio": statistics.median(rate / one for rate, one in zip(rates, raw, strict=True)),
        "p50_us": latencies[len(latencies) // 2] / 1e3,
        "p99_us": latencies[int(len(latencies) * 0.99)] / 1e3,
    }


def measure_busy(
    size: int,
    rounds: int,
    seconds: float,
    directory: Path,
    intervals_s: Sequence[float] = SWITCH_INTERVALS_S,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Side → switch interval in ms, as text → rates `quiet` and `busy`, and the `ratio` of the two."""
    root = Path(tempfile.mkdtemp(prefix="busy-", dir=directory))
    body = bytes(size)
    before_s = sys.getswitchinterval()
    try:
        with rocketstore.open(root / "store") as store:
            sides = {
                "put, 1 thread": threads_side(store, body, 1),
                "submit, 64 in flight": submit_side(store, body, 64),
                "put, 64 threads": threads_side(store, body, 64),
                "put, 64 asyncio tasks": tasks_side(store, body, 64),
            }
            rates: dict[tuple[str, float, bool], list[float]] = {}
            for number in range(rounds + 1):
                for interval_s in intervals_s:
                    sys.setswitchinterval(interval_s)
                    for name, side in sides.items():
                        for busy in (False, True):
                            with busy_thread() if busy else nullcontext(quiet) as begin:
                                messages, took, _ = side(seconds, begin)
                            if number:  # the first round warms up
                                key = (name, interval_s, busy)
                                rates.setdefault(key, []).append(messages / took)
    finally:
        sys.setswitchinterval(before_s)
        shutil.rmtree(root)
    return {
        name: {
            f"{interval_s * 1e3:g}": _both(
                rates[name, interval_s, False], rates[name, interval_s, True]
            )
            for interval_s in intervals_s
        }
        for name in sides
    }


def _both(alone: Sequence[float], beside: Sequence[float]) -> dict[str, Any]:
    return {
        "quiet": statistics.median(alone),
        "busy": statistics.median(beside),
        "ratio": statistics.median(b / a for a, b in zip(alone, beside, strict=True)),
        "rates": {"quiet": list(alone), "busy": list(beside)},
    }


def busy_table(size: int, found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Messages a second, as Markdown: quiet and busy at each switch interval, and the ratio."""
    intervals = list(next(iter(found.values())))
    heads = [f"quiet, {text} ms | busy, {text} ms | ×" for text in intervals]
    lines = [f"| disk, {size} B | " + " | ".join(heads) + " |"]
    lines += ["| --- |" + " ---: | ---: | ---: |" * len(intervals)]
    for name, row in found.items():
        cells = [
            f"{side['quiet']:,.0f} | {side['busy']:,.0f} | {side['ratio']:.2g}"
            for side in row.values()
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.group_commit", description=__doc__)
    parser.add_argument("--size", type=int, action="append", help="bytes of a body; default 100")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one side in a round")
    parser.add_argument("--switch-interval", type=float, default=None, help="seconds")
    parser.add_argument("--uvloop", action="store_true", help="asyncio tasks in its loop, too")
    parser.add_argument("--prewrite", action="store_true", help="segments of 64 MiB, prewritten")
    parser.add_argument(
        "--busy", action="store_true", help="beside a thread that computes, by switch interval"
    )
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    given = parser.parse_args(words)
    if given.busy and (given.uvloop or given.prewrite):
        parser.error("--busy goes with neither --uvloop nor --prewrite")
    if given.switch_interval is not None:
        sys.setswitchinterval(given.switch_interval)
    given.directory.mkdir(parents=True, exist_ok=True)
    results: dict[int, Any] = {}
    for size in given.size or [100]:
        if given.busy:
            one = given.switch_interval
            results[size] = measure_busy(
                size,
                given.rounds,
                given.seconds,
                given.directory,
                SWITCH_INTERVALS_S if one is None else (one,),
            )
            print(busy_table(size, results[size]), flush=True)
            continue
        results[size] = measure(
            size,
            given.rounds,
            given.seconds,
            given.directory,
            with_uvloop=given.uvloop,
            prewrite=given.prewrite,
        )
        print(f"put {size} B, disk, {given.rounds} rounds of {given.seconds} s each")
        for name, side in results[size].items():
            print(
                f"  {name:22} {side['messages_per_s']:>10,.0f} msgs/s  {side['ratio']:>6.2f} x raw"
                f"  p50 {side['p50_us']:,.0f}  p99 {side['p99_us']:,.0f} µs",
                flush=True,
            )
    path = (
        given.directory
        / f"{'busy' if given.busy else 'group'}-{time.strftime('%Y%m%dT%H%M%S')}.json"
    )
    path.write_text(json.dumps({"machine": machine(), "results": results}, indent=1) + os.linesep)
    print(f"saved {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
