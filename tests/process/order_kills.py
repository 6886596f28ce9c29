"""Kills `examples/order_service.py` at random moments, then says what is lost or there twice:

    python -m tests.process.order_kills --kills 200 --seed 7

Each life places orders, again the one whose put was not acknowledged, works them, and has customers who pay about when
the deadline passes. At the end a last life works what is left, and `faults` counts results, tries, payments and
deadlines: how often an order fails and whether it is paid follows from its name.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import os
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from examples.order_service import TRIES_MAX, NotNow, OrderService
from rocketstore import Message, Store, StoreTransaction
from rocketstore.services.delay import offsets, timer_table
from tests.process.other_process import open_small
from tests.support.paths import ROOT
from tests.support.waiting import pause, wait_until

LONGEST_RUN_S = 0.5
#: Every fifth life is killed while it opens the store, or soon after.
OPENING_EVERY = 5
MS = datetime.timedelta(milliseconds=1)
PAYMENT_MS = 300


@dataclass(frozen=True)
class Fate:
    """Of an order: how often it fails; whether its customer pays, and how long after the result."""

    fails: int
    pays: bool
    pays_after_ms: int


def fate_of(order: str) -> Fate:
    drawn = random.Random(zlib.crc32(order.encode()))
    fails = drawn.choice((0, 0, 0, 1, 2, 3, 4))
    return Fate(fails, drawn.random() < 0.7, drawn.randrange(PAYMENT_MS + 20))


def work(message: Message) -> bytes:
    if int(message.properties.get("tries", 0)) < fate_of(message.keys[0]).fails:
        raise NotNow
    return b"made"


def customer(tx: StoreTransaction, message: Message) -> None:
    fate = fate_of(message.keys[0])
    if message.tags == "made" and fate.pays:
        paid = f"payment {message.keys[0]}"
        after = fate.pays_after_ms * MS
        tx.put("payments", b"", keys=message.keys, unique_id=paid, deliver_after=after)


@contextmanager
def running(store: Store) -> Iterator[OrderService]:
    """The service, and its customers."""
    service = OrderService(store, work, back_off=5 * MS, payment_time=PAYMENT_MS * MS)
    threads = [
        threading.Thread(target=service.run),
        threading.Thread(target=service.follow, args=("results", customer)),
    ]
    for thread in threads:
        thread.start()
    try:
        yield service
    finally:
        service.stop()
        for thread in threads:
            thread.join()


def live(path: str, durability: str, first: int) -> None:
    """Places orders for ever; says the number of each that was acknowledged. What waits is in many small
    runs, whose file is stored soon or late."""
    offsets.SAVE_AFTER_S = random.choice((0.0, 0.01, 1.0))  # type: ignore[misc]
    timer_table.RECENT, timer_table.LIKE = 8, 3  # type: ignore[misc]
    with open_small(Path(path), durability=durability) as store, running(store) as service:
        os.write(1, b"open\n")
        for number in itertools.count(first):
            service.place(f"o-{number}", b"%d" % number)
            os.write(1, b"%d\n" % number)
            pause(0.001)


def live_and_be_killed(path: Path, life: int, first: int, rng: random.Random) -> int:
    """The number of the first order that was not acknowledged."""
    durability = rng.choice(("disk", "os"))
    command = [sys.executable, "-m", "tests.process.order_kills", "--live"]
    with subprocess.Popen(
        [*command, str(path), durability, str(first)], stdout=subprocess.PIPE, cwd=ROOT
    ) as child:
        assert child.stdout is not None
        if life % OPENING_EVERY == OPENING_EVERY - 1:
            pause(rng.uniform(0.1, 0.4))
        else:
            assert child.stdout.readline() == b"open\n"
            pause(rng.uniform(0, LONGEST_RUN_S))
        child.kill()
        said = child.stdout.read()
        assert child.wait() == -9
    told = [line for line in said.splitlines(keepends=True) if line.endswith(b"\n")]
    return max([first - 1, *(int(line) for line in told if line != b"open\n")]) + 1


def everything(store: Store) -> Counter[tuple[str, str, str]]:
    """(topic, order, tags or number of the try) → messages."""
    return Counter(
        (one.topic, one.keys[0], one.tags or one.properties.get("tries", ""))
        for topic in ("orders", "payments", "deadlines", "results")
        for one in store.consumer(topic)
    )


def faults(found: Counter[tuple[str, str, str]], acknowledged: int) -> list[str]:
    """What is lost and what is there twice or should not be there; empty once all is worked and right."""
    orders = {order for topic, order, _ in found if topic == "orders"}
    unknown = orders - {f"o-{number}" for number in range(acknowledged + 1)}
    wanted = Counter[tuple[str, str, str]]()
    for order in orders | {f"o-{number}" for number in range(acknowledged)}:
        fate, expired = fate_of(order), ("deadlines", order, "") in found
        made = fate.fails < TRIES_MAX
        tries = range(1, min(fate.fails, TRIES_MAX - 1) + 1)
        results = ["made", "expired" if expired else "paid"] if made else ["dead"]
        results += ["refund"] if made and expired and fate.pays else []
        wanted.update(("orders", order, what) for what in ("", *map(str, tries)))
        wanted.update(("results", order, what) for what in results)
        wanted.update([("payments", order, "")] if made and fate.pays else [])
        wanted.update([("deadlines", order, "")] if made and expired else [])
    wrong = [f"lost: {row} {times}" for row, times in (wanted - found).items()]
    wrong += [f"twice, or too much: {row} {times}" for row, times in (found - wanted).items()]
    return wrong + [f"never placed: {order}" for order in unknown]


def campaign(path: Path, kills: Iterable[int], rng: random.Random) -> dict[str, int]:
    """Lives that are killed, then one that works what is left; gives what was counted."""
    first = 0
    for life in kills:
        first = live_and_be_killed(path, life, first, rng)
    with open_small(path) as store:
        with running(store):
            wait_until(
                lambda: len(store.delayed) == 0 and not faults(everything(store), first),
                lambda: f"{store.delayed}, {faults(everything(store), first)[:5]}",
            )
        found = everything(store)
    assert not faults(found, first), faults(found, first)[:5]
    told = Counter(what if topic == "results" else topic for topic, _, what in found.elements())
    retries = sum(what != "" for topic, _, what in found.elements() if topic == "orders")
    return {"acknowledged": first, "retries": retries, **told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--live", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.live:
        live(given.live[0], given.live[1], int(given.live[2]))
    with tempfile.TemporaryDirectory() as where:
        print(f"seed {given.seed}", flush=True)
        found = campaign(Path(where) / "store", range(given.kills), random.Random(given.seed))
    print(f"{given.kills} kills, 0 lost, 0 twice:", found)


if __name__ == "__main__":
    main()
