"""A program whose calls a signal's handler interrupts at random moments: `python -m tests.process.interrupted_calls`.

It counts interrupts, not time. Its own limit is a watchdog thread of C, which no signal takes away.
"""

from __future__ import annotations

import faulthandler
import gc
import itertools
import json
import logging
import random
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import Store
from tests.support.small_store import everything, open_small

GROUP = "g"
#: Messages that polls and commits go through again and again.
READ = 16
#: Longest time until an alarm, seconds: some calls of each kind; the shortest is a hundredth, within a call.
LONGEST_S = {"put": 5e-4, "poll": 2e-4, "commit": 6e-3, "transaction": 1e-3, "others": 1e-3}


class Work:
    """Calls of one kind, and what they have acknowledged."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.writer = store.writer("t", durability="os")
        self.numbers = itertools.count()
        self.acknowledged: list[Any] = []
        self.begun: list[
            Any
        ] = []  # what calls were to store: the last acknowledged, and later ones

    def ready(self) -> None:
        """Before the first interrupt."""
        self.call()

    def call(self) -> None:
        raise NotImplementedError

    def check(self, store: Store) -> None:
        """After the next open: what was acknowledged is there."""
        raise NotImplementedError


class Puts(Work):
    """Each third one needs the next segment."""

    def call(self) -> None:
        number = next(self.numbers)
        self.writer.put(b"%d:" % number + bytes(1200))
        self.acknowledged.append(number)

    def check(self, store: Store) -> None:
        bodies = [bytes(message.body) for message in everything(store, "t")]
        found = [int(body.partition(b":")[0]) for body in bodies]
        assert all(len(body.partition(b":")[2]) == 1200 for body in bodies)
        assert found == sorted(set(found)), "twice, or out of order"
        assert set(self.acknowledged) <= set(found), "acknowledged, and not there"


class Polls(Work):
    def ready(self) -> None:
        self.writer.put_batch([b"%d" % number for number in range(READ)])
        self.consumer = self.store.consumer("t", group=GROUP)
        self.call()

    def call(self) -> None:
        found = self.consumer.poll(1)
        if not found:
            self.consumer.seek("earliest")
        self.acknowledged += [bytes(message.body) for message in found]

    def check(self, store: Store) -> None:
        bodies = [bytes(message.body) for message in everything(store, "t")]
        assert bodies == [b"%d" % number for number in range(READ)]
        assert set(self.acknowledged) <= set(bodies)


class Commits(Polls):
    def call(self) -> None:
        if not self.consumer.poll(1):
            self.consumer.seek("earliest")
        self.begun.append(self.consumer.positions)
        self.consumer.commit()
        self.acknowledged.append(self.consumer.positions)
        self.begun = self.acknowledged[-1:]

    def check(self, store: Store) -> None:
        stored = store.consumer("t", group=GROUP).positions
        assert stored in self.begun, f"{stored}: {self.begun}"


class Transactions(Work):
    TOPICS = ("t", "u")

    def call(self) -> None:
        number = next(self.numbers)
        with self.store.transaction() as transaction:
            for topic in self.TOPICS:
                transaction.put(topic, b"%d" % number)
        self.acknowledged.append(number)

    def check(self, store: Store) -> None:
        found = [
            {int(bytes(message.body)) for message in everything(store, topic)}
            for topic in self.TOPICS
        ]
        assert found[0] == found[1], "half of a transaction"
        assert set(self.acknowledged) <= found[0], "acknowledged, and not there"


class Others(Puts):
    """Statistics, readers, tickets and stored offsets, with puts between them."""

    def call(self) -> None:
        number = next(self.numbers)
        self.writer.submit(b"%d:" % number + bytes(1200)).result(60)
        self.acknowledged.append(number)
        self.store.stats()
        self.store.topics(system=True)
        with self.store.consumer("t", group=GROUP, offset="latest") as consumer:
            consumer.poll(1)
        len(self.store.delayed)


KINDS: dict[str, type[Work]] = {
    "put": Puts, "poll": Polls, "commit": Commits, "transaction": Transactions, "others": Others,
}  # fmt: skip


def interrupted(
    call: Callable[[], None], times: int, chance: random.Random, longest_s: float
) -> None:
    """Calls on until handlers have ended it so often. A handler that comes in what Python calls back, for a weak
    reference say, ends nothing: so each alarm gets its number of calls."""
    ended = 0
    while ended < times:
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, longest_s * 100 ** -chance.random())
                for _ in range(200):
                    call()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            ended += 1


def main(kind: str, path: str, times: str, seed: str, limit_s: str) -> None:
    faulthandler.dump_traceback_later(float(limit_s), exit=True)
    logging.disable()  # its handlers have locks of their own, which an interrupt may keep
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    store = open_small(Path(path), durability="os")
    work = KINDS[kind](store)
    work.ready()
    gc.disable()  # an exception in what the collector calls is ignored
    interrupted(work.call, int(times), random.Random(int(seed)), LONGEST_S[kind])
    gc.enable()
    store.writer("last").put(b"x")
    store.close()
    with rocketstore.open(path, "r") as store:
        assert store.recovery.mode in ("clean", "following"), store.recovery.mode
    with open_small(Path(path)) as store:
        assert store.recovery.mode == "clean", store.recovery.mode
        assert len(everything(store, "last")) == 1
    with open_small(Path(path), "r") as store:
        work.check(store)
    print(json.dumps({"interrupts": int(times), "acknowledged": len(work.acknowledged)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
