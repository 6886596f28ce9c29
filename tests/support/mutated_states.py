"""Stores whose state files a hostile author wrote, with right checksums, in every mode and by commands.

    python -m tests.support.mutated_states --stores 1000 --seed 1      a campaign
    python -m tests.support.mutated_states --seed 1 --only 4711        one store again, with every face

The log and its queues stay as they are: a store with timers, delay levels, transactions, groups, replication and
a note of shipments. Counted as a fault: a signal, an error without a type, a thread that ends, more processor
time or memory than the bound, a change of a file outside, and a message that is not served any more; of an
untrusted store also one that waits.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rocketstore
import rocketstore.consumer
import rocketstore.replication.master.service
import rocketstore.replication.replica.service
import rocketstore.services.delay.service
import rocketstore.tools
from rocketstore.replication import Master
from tests.support.copies import copy_if_there
from tests.support.hostile_faces import SIZES, command, run_face
from tests.support.mutated_stores import image, make_victim
from tests.support.mutations import Known
from tests.support.state_mutations import mutate
from tests.support.waiting import wait_until

__all__ = ["StateCampaign"]

#: Processor seconds and bytes of one face, beyond what its process has before.
CPU_S, MEMORY_BYTES = 6, 128 << 20
#: An author may order a cut: what it cuts off is in quarantine.
ORDERS = ("rocketstore/cut.json",)


def make_bases(root: Path) -> dict[str, Image]:
    """Stores below `root`, closed and killed, and what each serves and has waiting."""
    options: dict[str, Any] = {**SIZES, "replication": Master(listen="127.0.0.1:0")}
    far = datetime.datetime(2090, 1, 1, tzinfo=datetime.UTC)
    with rocketstore.open(root / "closed", **options) as store:
        writer = store.writer("orders", queues=2)
        for number in range(60):
            writer.put(b"m%d" % number, keys=f"k{number}", tags="a")
            if number % 6 == 0:
                writer.put(b"later%d" % number, deliver_at=far)
        writer.put(b"level", delay_level=18)
        store.delayed.repeat("orders", b"again", datetime.timedelta(hours=5), unique_id="r")
        with store.consumer("orders", group="g") as consumer:
            consumer.poll(20)
            consumer.commit()
            with store.transaction() as transaction:
                transaction.put("orders", b"in a transaction")
                consumer.poll(5)
                transaction.commit_offsets(consumer)
        assert store.transactions is not None
        store.transactions.prepare("orders", b"half", group="g")
        store.flush()
        wait_until((root / "closed/rocketstore/timers/state").exists)
        wait_until(lambda: store.dispatched_offset >= store.visible_offset)
        shutil.copytree(root / "closed", root / "killed", copy_function=copy_if_there)
    found = {}
    for name in ("closed", "killed"):
        shutil.copytree(root / name, root / "read")
        with rocketstore.open(root / "read", "r", untrusted=True) as store:
            found[name] = Image(served(store), sorted(one.message.body for one in store.delayed))
        shutil.rmtree(root / "read")
    return found


class Image:
    """What a sound store shows."""

    def __init__(self, messages: list[Known], waiting: list[bytes]) -> None:
        self.messages = {one[3]: one for one in messages}
        self.waiting = waiting


def served(store: rocketstore.Store) -> list[Known]:
    return [
        (one.topic, one.queue_id, one.queue_offset, one.physical_offset, bytes(one.body))
        for one in store.consumer("orders")
    ]


# ---- faces ----


class _Ended(logging.Handler):
    """Errors that end threads."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if " failed: " in record.getMessage() or record.exc_info:
            self.said.append(record.getMessage())


def _used(path: Path, mode: Any, **options: Any) -> Iterator[Known]:
    """What the store serves; what waits has no place in the log: queue id -1."""
    ended = _Ended()
    logging.getLogger().addHandler(ended)
    with rocketstore.open(path, mode, **options) as store:
        yield from served(store)
        for waiting in store.delayed:
            yield ("waiting", -1, -1, -1, bytes(waiting.message.body))
        for shown in (
            store.groups(),
            store.replication,
            store.retention,
            store.recovery,
            store.delayed,
        ):
            repr(shown)
        if mode != "r":
            _write(store)
    if ended.said:
        raise RuntimeError(f"a thread ended: {ended.said[0][:300]}")


def _write(store: rocketstore.Store) -> None:
    store.writer("later").put(b"later")
    with store.consumer("orders", group="g") as consumer:
        consumer.poll(5)
        consumer.commit()
    store.delayed.cancel("r")
    store.delayed.repeat("orders", b"x", datetime.timedelta(hours=1), unique_id="r2")
    with store.transaction() as transaction:
        transaction.put("orders", b"z")


FACES: dict[str, Callable[[Path], Iterator[Known]]] = {
    "r": lambda path: _used(path, "r"),
    "untrusted": lambda path: _used(path, "r", untrusted=True),
    "rw": lambda path: _used(path, "rw"),
    "master": lambda path: _used(path, "rw", replication=Master(listen="127.0.0.1:0")),
    "stat": command("stat"),
    "verify": command("verify"),
    "promote": command("promote"),
}
READING = ("r", "untrusted", "rw", "master")


# ---- the campaign ----


class StateCampaign:
    """Stores of one seed. `work` is a directory of its own."""

    def __init__(self, work: Path, seed: int) -> None:
        self.work, self.seed = work, seed
        self.bases = make_bases(work / "sound")
        self.counts: Counter[str] = Counter()
        self.slowest_s = self.largest_bytes = 0.0

    def store(self, number: int, faces: int | None = 2) -> list[str]:
        """Makes store `number` and shows it to so many faces; all with None. Gives the faults."""
        base = random.Random(f"{self.seed} {number} base").choice([*self.bases])
        chosen = [*FACES] if faces is None else random.Random(number).sample([*FACES], faces)
        faults = []
        for face in chosen:
            rng = random.Random(f"{self.seed} {number}")
            store, victim = self.work / "store", self.work / "victim"
            for path in (store, victim):
                shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self.work / "sound" / base, store)
            make_victim(victim)
            names, done = mutate(rng, store, victim)
            before = image(victim)
            outcome = run_face(face, store, FACES)
            self.counts[face] += 1
            self.slowest_s = max(self.slowest_s, outcome.cpu_s)
            self.largest_bytes = max(self.largest_bytes, outcome.memory_bytes)
            said = list(outcome.costs(CPU_S, MEMORY_BYTES))
            if image(victim) != before:
                said.append("changed outside")
            if face in READING and not outcome.error:
                trusts = face != "untrusted"
                if not (trusts and names & {*ORDERS}):
                    said += self._hidden(base, outcome.served, waits=not trusts)
            told = f"--seed {self.seed} --only {number}: {base}, {done[:400]}, {face}"
            faults += [f"{told}: {one}\n{outcome.traceback * ('untyped' in one)}" for one in said]
        return faults

    def _hidden(self, base: str, shown: list[list[Any]], *, waits: bool) -> Iterator[str]:
        found = {where: (t, q, o, where, bytes.fromhex(body)) for t, q, o, where, body in shown}
        held = self.bases[base]
        for where, known in held.messages.items():
            if found.get(where) != known:
                yield f"served {found.get(where)}, stored {known}"
                return
        waiting = sorted(bytes.fromhex(one[4]) for one in shown if one[0] == "waiting")
        if waits and waiting != held.waiting:
            yield f"{waiting} wait, and {held.waiting} did"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutated_states")
    parser.add_argument("--stores", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", type=int, help="this store again, with every face")
    given = parser.parse_args()
    print(f"--seed {given.seed}", flush=True)
    numbers = range(given.stores) if given.only is None else [given.only]
    found, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        campaign = StateCampaign(Path(work), given.seed)
        for number in numbers:
            for fault in campaign.store(number, None if given.only is not None else 2):
                found += 1
                print(fault, flush=True)
            if number % 100 == 99:
                print(f"{number + 1} stores, {found} faults", flush=True)
        print(
            f"{len(numbers)} stores, {sum(campaign.counts.values())} opens, {found} faults in "
            f"{time.monotonic() - began:.0f} s; at most {campaign.slowest_s:.1f} s of processor, "
            f"{campaign.largest_bytes / (1 << 20):.0f} MiB",
            flush=True,
        )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
