"""Puts of several processes into one store: `python -m bench.processes`.

A host, which is a process that puts nothing itself, and guests; beside them threads of one process, in turns: A, B, A,
B, … Ratios are medians of the ratios of rounds. The cases:

- `disk` with 16 puts in flight in each process, and one put in flight beside the local put and the wake-up between two
  processes: a round trip of 100 bytes there and 32 back over a socket, after a pause in which both sides sleep.
- `os` one by one and by `put_batch(100)`, with a core for each side and with one core for both.
- A host that computes in pure Python.
- Four processes beside sqlite3, lmdb and localqueue.
- The memory of a connection at both ends.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.measure import machine, machine_line
from bench.process_sides import PEERS, Figures, NotThereError, Worker, wake_up_ns, workers

__all__ = ["CASES", "main"]

SIZE = 100
IN_FLIGHT = 16
GUESTS = (1, 2, 4, 8)
PEER_PROCESSES = 4
MEMORY_GUESTS = 8
#: Time that processes need to begin together, seconds.
AHEAD_S = 0.1
#: About as long as a put to a disk, in which both sides of a wake-up sleep.
ASLEEP_S = 0.0005


class Bench:
    """Where stores are, and how long and how often each side is measured."""

    def __init__(self, root: Path, seconds: float, rounds: int) -> None:
        self.root, self.seconds, self.rounds = root, seconds, rounds
        self.found: dict[str, Any] = {}

    @contextmanager
    def store(self, guests: int, **options: Any) -> Iterator[tuple[Worker, list[Worker]]]:
        """A host and its guests, of a new store."""
        path = tempfile.mkdtemp(prefix="processes-", dir=self.root) + "/s"
        try:
            with workers(guests + 1) as (host, *others):
                host.do("open", path, shared="host", **options)
                for other in others:
                    other.do("open", path, shared="guest", **options)
                yield host, others
        finally:
            shutil.rmtree(Path(path).parent)

    @contextmanager
    def local(self, **options: Any) -> Iterator[Worker]:
        """A process with a store of its own."""
        path = tempfile.mkdtemp(prefix="local-", dir=self.root) + "/s"
        try:
            with workers(1) as (one,):
                one.do("open", path, **options)
                yield one
        finally:
            shutil.rmtree(Path(path).parent)

    def rate(self, sides: Sequence[Worker], call: str, **named: Any) -> float:
        """Messages a second of all together."""
        sides[0].do("fresh")
        begin = time.monotonic() + AHEAD_S
        for side in sides:
            side.begin(call, begin, self.seconds, **named)
        figures: list[Figures] = [side.end() for side in sides]
        messages: int = sum(one["messages"] for one in figures)
        return messages / float(max(one["seconds"] for one in figures))

    def turns(self, sides: Mapping[str, Callable[[], float]]) -> dict[str, list[float]]:
        """The figures of each side, in turns; the first round warms up."""
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for number in range(self.rounds + 1):
            for name, side in sides.items():
                figure = side()
                if number:
                    rates[name].append(figure)
        return rates

    def say(self, what: str, rates: dict[str, list[float]], base: str, unit: str = "/s") -> None:
        """A row for each side, with its ratio to one of them in the same rounds."""
        for name, own in rates.items():
            ratio = statistics.median(a / b for a, b in zip(own, rates[base], strict=True))
            print(f"| {what} | {name} | {statistics.median(own):,.0f}{unit} | {ratio:.2f} |")
        self.found[what] = {"base": base, "unit": unit, "rates": rates}


def disk(bench: Bench) -> None:
    """16 in flight for each process; as many threads of one process with as many in flight."""
    for guests in GUESTS:
        with bench.store(guests) as (_, others), bench.local() as one:
            puts: dict[str, Any] = {"durability": "disk", "size": SIZE, "batch": 1}
            tickets = {"threads": guests, "window": IN_FLIGHT, "size": SIZE}
            many, each = guests * IN_FLIGHT, IN_FLIGHT
            sides = {
                f"{guests} threads, {IN_FLIGHT} tickets each": partial(
                    bench.rate, [one], "submits", **tickets
                ),
                f"{many} threads": partial(bench.rate, [one], "puts", threads=many, **puts),
                f"{guests} guests, {IN_FLIGHT} threads each": partial(
                    bench.rate, others, "puts", threads=each, **puts
                ),
            }
            rates = bench.turns(sides)
        bench.say(f"disk, {guests} × {IN_FLIGHT} in flight", rates, next(iter(sides)))


def one_in_flight(bench: Bench) -> None:
    """p50, µs: a guest's put may take the local one and 1.5 wake-ups."""
    count = max(50, int(bench.seconds * 1000))
    with bench.store(1) as (_, (guest,)), bench.local() as one:

        def p50(side: Worker) -> float:
            found: list[int] = side.do("latencies", count, "disk", SIZE)
            return statistics.median(found) / 1e3

        rates = bench.turns(
            {
                "local": lambda: p50(one),
                "guest": lambda: p50(guest),
                "wake-up": lambda: statistics.median(wake_up_ns(count, ASLEEP_S)) / 1e3,
            }
        )
    bench.say("disk, one in flight, p50", rates, "local", " µs")
    rows = zip(rates["local"], rates["guest"], rates["wake-up"], strict=True)
    spent = statistics.median((guest - local) / wake for local, guest, wake in rows)
    print(f"| disk, one in flight | guest - local, in wake-ups (at most 1.5) | {spent:.2f} | |")
    bench.found["wake-ups of a put"] = spent


def system(bench: Bench) -> None:
    """`os`, one guest alone; where both sides have one core, neither may spin."""
    cores = sorted(os.sched_getaffinity(0))
    for what, batch in (("one by one", 1), ("put_batch(100)", 100)):
        with (
            bench.store(1, durability="os") as (host, (guest,)),
            bench.local(durability="os") as one,
        ):
            puts: dict[str, Any] = {
                "durability": "os", "size": SIZE, "batch": batch, "threads": 1,
            }  # fmt: skip

            def pinned(of_host: list[int], of_guest: list[int], puts: Any = puts) -> float:
                host.do("pin", of_host)
                guest.do("pin", of_guest)
                return bench.rate([guest], "puts", **puts)

            rates = bench.turns(
                {
                    "local": partial(bench.rate, [one], "puts", **puts),
                    "guest, not pinned": lambda: pinned(cores, cores),
                    "guest, a core for each": lambda: pinned(cores[:1], cores[-1:]),
                    "guest, one core for both": lambda: pinned(cores[:1], cores[:1]),
                }
            )
        bench.say(f"os, {what}", rates, "local")


def computing(bench: Bench) -> None:
    """Beside a thread of the host that computes; beside one of a process that has no store; a local put."""
    for durability, threads in (("disk", IN_FLIGHT), ("os", 1)):
        puts: dict[str, Any] = {
            "durability": durability, "size": SIZE, "batch": 1, "threads": threads,
        }  # fmt: skip
        with (
            bench.store(1, durability=durability) as (host, (guest,)),
            bench.local(durability=durability) as one,
            workers(1) as (other,),
        ):

            def beside(busy: Worker | None, side: Worker, puts: Any = puts) -> float:
                if busy is not None:
                    busy.do("compute", time.monotonic(), bench.seconds + 2 * AHEAD_S)
                return bench.rate([side], "puts", **puts)

            rates = bench.turns(
                {
                    "guest, quiet": lambda: beside(None, guest),
                    "guest, host computes": lambda: beside(host, guest),
                    "guest, another process computes": lambda: beside(other, guest),
                    "local, quiet": lambda: beside(None, one),
                    "local, its process computes": lambda: beside(one, one),
                }
            )
        bench.say(f"{durability}, {threads} in flight, computing", rates, "guest, quiet")


def peers(bench: Bench) -> None:
    """Four processes, each put durable."""
    with bench.store(PEER_PROCESSES) as (_, others):
        puts: dict[str, Any] = {"durability": "disk", "size": SIZE, "batch": 1}
        sides: dict[str, Callable[[], float]] = {
            f"rocketstore, {threads} in flight each": partial(
                bench.rate, others, "puts", threads=threads, **puts
            )
            for threads in (1, IN_FLIGHT)
        }
        with workers(PEER_PROCESSES) as theirs:
            for name in PEERS:
                path = tempfile.mkdtemp(prefix="peer-", dir=bench.root) + "/s"
                try:
                    for worker in theirs:
                        worker.do("open_peer", name, path, SIZE)
                except NotThereError as error:
                    print(f"{name} is left out: {error}")
                    continue

                sides[name] = partial(bench.rate, theirs, "peer_puts", peer=name)
            rates = bench.turns(sides)
    bench.say(f"{PEER_PROCESSES} processes, durable", rates, next(iter(sides)))


def memory(bench: Bench) -> None:
    """Private memory, KiB: of a guest's process, and of the host for each."""
    with bench.store(0) as (host, _), workers(MEMORY_GUESTS + 1) as (reader, *guests):
        path = next(bench.root.glob("processes-*")) / "s"
        before = host.do("memory")
        of_guests = [guest.do("open", str(path), shared="guest") for guest in guests]
        of_host = (host.do("memory") - before) / MEMORY_GUESTS
        of_reader = reader.do("open", str(path), mode="r")
    figures = {
        "host, for each guest": [of_host],
        "guest, by its open and first put": [statistics.median(of_guests)],
        "reader, by its open": [float(of_reader)],
    }
    bench.say("private memory", figures, "reader, by its open", " KiB")


CASES: dict[str, Callable[[Bench], None]] = {
    case.__name__: case for case in (disk, one_in_flight, system, computing, peers, memory)
}


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.processes", description=__doc__)
    parser.add_argument("--only", choices=CASES, action="append", help="a case; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one side in a round")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    given = parser.parse_args(words)
    given.directory.mkdir(parents=True, exist_ok=True)
    facts = machine(given.directory)
    print(machine_line(facts))
    print("| what | side | median | × of the first |")
    print("| --- | --- | ---: | ---: |")
    root = Path(tempfile.mkdtemp(prefix="processes-", dir=given.directory))
    bench = Bench(root, given.seconds, given.rounds)
    try:
        for name in given.only or CASES:
            CASES[name](bench)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    path = given.directory / f"processes-{time.strftime('%Y%m%dT%H%M%S')}.json"
    path.write_text(json.dumps({"machine": facts, "results": bench.found}, indent=1) + "\n")
    print(f"saved {path}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
