"""What a message costs as things grow: `python -m bench.scaling`.

Five questions, one table each: message size, queues, threads, length of the log, consumers. Every point is
the median of five rounds in new directories, durability `os`; points of one question take turns, so that
a slow minute of the machine falls on all of them. Writes Markdown and JSON to build/bench, with the machine.

`--long`: logs of up to 64 GiB (of which one at a time is on the disk), instead of up to 4. `--queues` and `--gib`
name the points of these questions. Beyond 16 % of `vm.max_map_count` the files of queues are given back in
turns, so that a row of 50,000 queues means that, where the limit was not raised: it is in the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import rocketstore
from bench.measure import Case, fetch_memory, machine, machine_line, run_threads

__all__ = ["main"]

ROUNDS = 5
TOPIC = "bench"
GIB = 1 << 30
#: Of record bytes that a round appends.
ROUND_BYTES = 32 << 20
RECORD_BYTES = 120  # of a record without its body, about
SIZES = (0, 16, 100, 1 << 10, 16 << 10, 128 << 10, 1 << 20)
QUEUES = (1, 10, 100, 1_000, 10_000, 50_000)
THREADS = (1, 2, 4, 8, 16)
LENGTHS_GIB = (1, 2, 4)
LONG_GIB = (1, 4, 16, 64)
#: Bytes on the disk for each of a log of 1 KiB messages: its queue, segments made ahead.
NEEDED = 1.03
AHEAD_BYTES = 2 << 30
CONSUMERS = (1, 4, 16, 64)
QUEUE_MESSAGES = 100_000
FOLLOWED = 20_000
GETS = 20_000

#: Name of a figure → value, for one point and one round.
Figures = dict[str, float]


def count_of(size: int, most: int = 200_000) -> int:
    return max(32, min(most, ROUND_BYTES // (size + RECORD_BYTES)))


def clocked(work: Callable[[], object]) -> float:
    began = time.perf_counter_ns()
    work()
    return float(time.perf_counter_ns() - began)


def by_size(path: Path, size: int) -> Figures:
    """A put, a message of a batch, a message read, by the size of the body."""
    count = count_of(size)
    body = os.urandom(size)
    with rocketstore.open(path, durability="os") as store:
        put = store.writer(TOPIC, queue_id=0).put
        single = clocked(lambda: [put(body) for _ in range(count)])
        batches = store.writer(TOPIC, queue_id=1)
        each = max(1, min(1000, (1 << 20) // max(1, size)))
        batch = [body] * each
        many = clocked(lambda: [batches.put_batch(batch) for _ in range(count // each)])
        store.max_queue_offset(TOPIC, 1)  # dispatched

        def read() -> None:
            with store.consumer(TOPIC, queue_id=0) as consumer:
                assert sum(len(message.body) for message in consumer) == size * count

        found = clocked(read)
    return {
        "put, ns": single / count,
        "put_batch, ns": many / (count // each * each),
        "read, ns": found / count,
    }


def by_queues(path: Path, queues: int) -> Figures:
    """100 B, queues in turns, until all is dispatched: the first message of each, which makes its file; then,
    in a store that was opened again, more of them; then opened again."""
    body = os.urandom(100)
    count = max(QUEUE_MESSAGES, 2 * queues)
    per_topic = min(queues, 1000)
    # Room for all, so that no file is followed by another, and little where there are many.
    file_bytes = 20 * max(1000, 4 * count // queues)

    def put(store: rocketstore.Store, messages: int) -> float:
        puts = [
            store.writer(f"{TOPIC}-{topic}", queues=per_topic).put
            for topic in range(queues // per_topic)
        ]

        def run() -> None:
            for put in islice(cycle(puts), messages):
                put(body)
            store.max_queue_offset(f"{TOPIC}-0", 0)

        return clocked(run) / messages

    with rocketstore.open(path, durability="os", consume_queue_file_size_bytes=file_bytes) as store:
        first = put(store, queues)
    with rocketstore.open(path, durability="os", consume_queue_file_size_bytes=file_bytes) as store:
        put(store, queues)  # maps the files
        later = put(store, count)
    again = clocked(lambda: rocketstore.open(path, "r+", durability="os").close())
    return {
        "first of a queue, µs": first / 1e3,
        "put and dispatch, ns": later,
        "open and close, ms": again / 1e6,
    }


def by_threads(path: Path, threads: int) -> Figures:
    """100 B; each thread has a writer and a queue of its own."""
    count = count_of(100) // threads
    with rocketstore.open(path, durability="os") as store:
        calls = [store.writer(TOPIC, queue_id=n).put for n in range(threads)]
        found = run_threads(calls, os.urandom(100), Case(100, "os", threads), count)
    return {"put, ns of the whole": 1e9 / found.rate}


def by_length(path: Path, gib: int) -> Figures:
    """1 KiB records after `gib` GiB; then an open, and messages by random offsets."""
    body = os.urandom(1024)
    with rocketstore.open(path, durability="os") as store:
        writer = store.writer(TOPIC, queue_id=0)
        batch = [body] * 1000
        offsets: list[int] = []
        while store.end_offset < gib * GIB - (32 << 20):
            offsets.append(writer.put_batch(batch).physical_offset)
        count = count_of(1024)
        single = clocked(lambda: [writer.put(body) for _ in range(count)])
        store.wait_flushed(store.end_offset, timeout_s=600.0)
    opened = clocked(lambda: rocketstore.open(path, "r+", durability="os").close())
    some = random.Random(1).choices(offsets, k=GETS)
    with rocketstore.open(path, "r") as store:
        got = clocked(lambda: [store.get(offset).body for offset in some])
    return {
        "put, ns": single / count,
        "open and close, ms": opened / 1e6,
        "get by random offset, µs": got / GETS / 1e3,
    }


def by_consumers(path: Path, consumers: int) -> Figures:
    """100 B put one by one while `consumers` threads follow the queue: until the last one has the last."""
    body = os.urandom(100)
    with rocketstore.open(path, durability="os") as store:
        put = store.writer(TOPIC, queue_id=0).put
        followers = [store.consumer(TOPIC, queue_id=0) for _ in range(consumers)]

        def follow(consumer: rocketstore.Consumer) -> None:
            left = FOLLOWED
            while left:
                left -= len(consumer.poll(512, timeout_s=60.0))
            consumer.close()

        threads = [threading.Thread(target=follow, args=(consumer,)) for consumer in followers]
        for thread in threads:
            thread.start()

        def run() -> None:
            for _ in range(FOLLOWED):
                put(body)
            for thread in threads:
                thread.join()

        took = clocked(run)
    return {
        "put until all have it, ns": took / FOLLOWED,
        "of each consumer, ns": took / FOLLOWED / consumers,
    }


QUESTIONS: dict[str, tuple[str, Sequence[int], Callable[[Path, int], Figures]]] = {
    "size": ("bytes of a body", SIZES, by_size),
    "queues": ("queues", QUEUES, by_queues),
    "threads": ("threads", THREADS, by_threads),
    "length": ("GiB of log", LENGTHS_GIB, by_length),
    "consumers": ("consumers", CONSUMERS, by_consumers),
}


def ask(name: str, points: Sequence[int], rounds: int, root: Path) -> dict[int, Figures]:
    """Medians of every point; rounds of the points take turns."""
    found: dict[int, list[Figures]] = {point: [] for point in points}
    for _ in range(rounds):
        for point in points:
            path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root))
            fetch_memory()
            found[point].append(QUESTIONS[name][2](path / "store", point))
            shutil.rmtree(path)
    return {
        point: {figure: statistics.median(row[figure] for row in rows) for figure in rows[0]}
        for point, rows in found.items()
    }


def markdown(name: str, found: dict[int, Figures]) -> str:
    figures = list(next(iter(found.values())))
    lines = [f"| {QUESTIONS[name][0]} | " + " | ".join(figures) + " |"]
    lines += ["| ---: |" + " ---: |" * len(figures)]
    for point, row in found.items():
        lines.append(f"| {point:,} | " + " | ".join(f"{row[f]:,.4g}" for f in figures) + " |")
    return "\n".join(lines)


def points_of(name: str, given: argparse.Namespace) -> list[int]:
    """What is asked of `name`: its own points, or those that the options name."""
    points = list(QUESTIONS[name][1])
    if name == "length" and given.long:
        points = list(LONG_GIB)
    named = {"length": given.gib, "queues": given.queues}.get(name)
    if named:
        points = [int(word) for word in named.split(",")]
    return [point for point in points if not given.most or point <= given.most]


def conditions(facts: dict[str, Any]) -> str:
    """The machine, and what else decides about the rows."""
    return (
        f"{machine_line(facts)}; vm.max_map_count {facts['max_map_count']:,}; "
        f"{facts['rounds']} rounds, durability os."
    )


def max_map_count() -> int:
    """How many mappings a process may have; 0 where that is not said."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except OSError:
        return 0


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("--only", default=",".join(QUESTIONS), help="questions, with commas")
    parser.add_argument("--most", type=int, default=0, help="leave out points beyond this")
    parser.add_argument("--long", action="store_true", help="logs of up to 64 GiB")
    parser.add_argument("--gib", default="", help="lengths of the log, with commas")
    parser.add_argument("--queues", default="", help="numbers of queues, with commas")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    given = parser.parse_args(words)
    given.only = given.only.split(",")
    for name in given.only:
        if name not in QUESTIONS:
            parser.error(f"--only: {name!r} is none of {', '.join(QUESTIONS)}")
    given.directory.mkdir(parents=True, exist_ok=True)
    longest = max(points_of("length", given), default=0) if "length" in given.only else 0
    needed = int(longest * GIB * NEEDED) + AHEAD_BYTES
    free = shutil.disk_usage(given.directory).free
    if longest and free < needed:
        parser.error(
            f"a log of {longest} GiB needs {needed >> 30} GiB in {given.directory}, which has "
            f"{free >> 30}: name another --directory, or shorter lengths with --gib"
        )
    return given


def main(words: Sequence[str] | None = None) -> int:
    given = arguments(words)
    facts = {
        **machine(given.directory),
        "max_map_count": max_map_count(),
        "rounds": given.rounds,
    }
    root = Path(tempfile.mkdtemp(prefix="scaling-", dir=given.directory))
    results: dict[str, Any] = {}
    texts = []
    try:
        for name in given.only:
            results[name] = ask(name, points_of(name, given), given.rounds, root)
            texts.append(markdown(name, results[name]))
            print(texts[-1] + "\n", flush=True)
    finally:
        shutil.rmtree(root)
    texts.append(conditions(facts))
    print(texts[-1])
    (given.directory / "scaling.md").write_text("\n\n".join(texts) + "\n")
    found = json.dumps({"machine": facts, "results": results}, indent=1)
    (given.directory / "scaling.json").write_text(found + os.linesep)
    return 0


if __name__ == "__main__":
    sys.exit(main())
