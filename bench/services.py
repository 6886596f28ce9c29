"""Transactions, unique ids, timers and optimistic puts, in turns with SQLite, litequeue and Redis:

    python -m bench.services --directory /dev/shm      # what the processor costs: a sync takes no time there
    python -m bench.services --directory build/bench   # with the syncs of a disk

Rounds alternate: each side does the same number of calls in a new directory, five times. A table says calls a second,
the processor time of this process for one, and how many times faster rocketstore is; all are medians. Bodies have 200
bytes. Every side is durable: rocketstore `disk`, SQLite and litequeue WAL with synchronous=FULL, Redis `appendfsync
always`, whose server's processor time is not counted. What is not installed is said and left out.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rocketstore
import rocketstore.aio
from bench.measure import machine, machine_line
from bench.service_sides import BODY, CASES, Call, NotThereError, Side, database, ours_two

__all__ = ["CASES", "main"]

DAY = datetime.timedelta(days=1)
THREADS = 16


def timed(side: Side, root: Path, count: int) -> tuple[float, float]:
    """Calls a second, and microseconds of this process's processors for one. A tenth comes before."""
    warm = count // 10
    with (
        tempfile.TemporaryDirectory(dir=root) as where,
        side(Path(where, "s"), count + warm) as call,
    ):
        for n in range(warm):
            call(n)
        began, used = time.perf_counter(), time.process_time()
        for n in range(warm, warm + count):
            call(n)
        used, took = time.process_time() - used, time.perf_counter() - began
    return count / took, used * 1e6 / count


def compare(what: str, sides: dict[str, Side], root: Path, count: int, rounds: int) -> None:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name in tuple(found):
            try:
                found[name].append(timed(sides[name], root, count))
            except NotThereError as error:
                print(f"{what}: {name} is left out: {error}")
                del found[name]
    first = next(iter(found.values()))
    for name, rows in found.items():
        rate, used = (statistics.median(column) for column in zip(*rows, strict=True))
        times = statistics.median(
            mine[0] / other[0] for mine, other in zip(first, rows, strict=True)
        )
        cells = f"{rate:>10,.0f} | {used:>7.1f} | {times:.2f}"
        print(f"| {what} | {name} | {cells} |", flush=True)


def threads(root: Path, count: int, rounds: int) -> None:
    """One sync serves all transactions that wait."""
    ratios, rates = list[float](), list[float]()
    for _ in range(rounds):
        both = []
        for number in (1, THREADS):
            with (
                tempfile.TemporaryDirectory(dir=root) as where,
                ours_two(Path(where, "s"), 0) as call,
            ):

                def work(call: Call = call) -> None:
                    for n in range(count // 10):
                        call(n)

                workers = [threading.Thread(target=work) for _ in range(number)]
                began = time.perf_counter()
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                both.append(number * (count // 10) / (time.perf_counter() - began))
        rates.append(both[1])
        ratios.append(both[1] / both[0])
    rate, ratio = statistics.median(rates), statistics.median(ratios)
    print(f"two puts, commit, {THREADS} threads: {rate:,.0f} a second, {ratio:.1f} × one thread")


def timers(root: Path, waiting: int, rounds: int) -> None:
    """Of two topics, each half: one is counted and listed."""
    rows: dict[str, list[tuple[float, float]]] = {"rocketstore": [], "SQLite": []}
    with (
        tempfile.TemporaryDirectory(dir=root) as where,
        database(Path(where, "d")) as found,
        rocketstore.open(Path(where, "s"), durability="os") as store,
    ):
        for n in range(waiting):
            topic = ("a", "b")[n % 2]
            store.writer(topic).put(BODY, deliver_after=DAY)
        found.execute("begin")
        sql = "insert into later (topic, body, due) values (?, ?, ?)"
        found.executemany(sql, ((("a", "b")[n % 2], BODY, n) for n in range(waiting)))
        found.execute("commit")
        while len(store.delayed) < waiting:
            time.sleep(0.01)

        def ours() -> list[Any]:
            return list(store.delayed.messages("a"))

        def theirs() -> list[Any]:
            return found.execute(
                "select id, due from later where topic = 'a' order by due"
            ).fetchall()

        count = "select count(*) from later where topic = 'a'"
        for _ in range(rounds):
            for name, counts, lists in (
                ("rocketstore", lambda: store.delayed.count("a"), ours),
                ("SQLite", lambda: found.execute(count).fetchone(), theirs),
            ):
                began = time.thread_time()
                counts()
                between = time.thread_time()
                number = len(lists())
                rows[name].append(
                    ((between - began) * 1e3, number / (time.thread_time() - between))
                )
    for name, columns in rows.items():
        took, rate = (statistics.median(column) for column in zip(*columns, strict=True))
        said = f"one topic of two counted in {took:.2f} ms, listed at {rate:,.0f}/s of processor"
        print(f"{waiting:,} wait, {name}: {said}", flush=True)


def losers(root: Path, puts: int) -> None:
    """One puts where it expects the end of the queue, beside one that puts every 2 ms."""
    for kind, work in (("thread", in_threads), ("task", in_tasks)):
        with tempfile.TemporaryDirectory(dir=root) as where:
            tries = sorted(work(Path(where, "s"), puts))
        mean, most = statistics.fmean(tries), tries[-1]
        said = f"{len(tries)} puts, {mean:.2f} tries each, {most} at most"
        print(f"expected_queue_offset beside another {kind}, disk: {said}", flush=True)


def in_threads(path: Path, puts: int) -> list[int]:
    tries = []
    with rocketstore.open(path) as store:
        ledger = store.writer("ledger", queue_id=0)
        ledger.put(b"")

        def put_often() -> None:
            for _ in range(puts):
                ledger.put(b"other")
                time.sleep(0.002)

        other = threading.Thread(target=put_often)
        other.start()
        with store.consumer("ledger", queue_id=0) as consumer:
            while not tries or other.is_alive():
                tries.append(1)
                consumer.poll(max_messages=1000)
                while True:
                    try:
                        ledger.put(b"", expected_queue_offset=consumer.positions[0])
                        break
                    except rocketstore.QueueOffsetMismatchError:
                        tries[-1] += 1
                        consumer.poll(max_messages=1000)
    return tries


def in_tasks(path: Path, puts: int) -> list[int]:
    async def run() -> list[int]:
        tries = []
        async with rocketstore.aio.open(path) as store:
            ledger = store.writer("ledger", queue_id=0)
            await ledger.put(b"")

            async def put_often() -> None:
                for _ in range(puts):
                    await ledger.put(b"other")
                    await asyncio.sleep(0.002)

            other = asyncio.create_task(put_often())
            async with store.consumer("ledger", queue_id=0) as consumer:
                while not tries or not other.done():
                    tries.append(1)
                    await consumer.poll(max_messages=1000, timeout_s=0)
                    while True:
                        try:
                            at = consumer.positions[0]
                            await ledger.put(b"", expected_queue_offset=at)
                            break
                        except rocketstore.QueueOffsetMismatchError:
                            tries[-1] += 1
                            await consumer.poll(max_messages=1000, timeout_s=0)
        return tries

    return asyncio.run(run())


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.services", description=__doc__)
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    parser.add_argument("--count", type=int, default=2000, help="calls of a side in a round")
    parser.add_argument("--waiting", type=int, default=100_000, help="timers")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(words)
    given.directory.mkdir(parents=True, exist_ok=True)
    print(machine_line(machine()))
    print("| what, durable | side | a second | µs of processor | rocketstore × |")
    print("| --- | --- | ---: | ---: | ---: |")
    for what, sides in CASES.items():
        compare(what, sides, given.directory, given.count, given.rounds)
    threads(given.directory, given.count, given.rounds)
    timers(given.directory, given.waiting, given.rounds)
    losers(given.directory, max(1, given.count // 20))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
