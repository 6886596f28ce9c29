"""Stores whose state files a hostile author wrote, with right checksums, in every mode and by every command.

    python -m tests.corruption.mutated_states --stores 1000 --seed 1      a campaign
    python -m tests.corruption.mutated_states --seed 1 --only 4711        one store again, with every face
    python -m tests.corruption.mutated_states --stores 50 --spark         the commands that need a JVM

The log and its queues stay as they are: a store with timers, delay levels, transactions, groups, replication and
a note of shipments, or a copy of it. The file that is changed, the mode and the command take turns, so that
each file meets each of them. Counted as a fault: a signal, an error without a type, a thread that ends, more
processor time or memory than the bound, a change of a file outside, and a message that is not served any more;
of an untrusted store also one that waits.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import random
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import rocketstore
import rocketstore.consumer
import rocketstore.replication.master.service
import rocketstore.replication.replica.service
import rocketstore.services.delay.service
import rocketstore.tools
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication import Master, Replica
from rocketstore.services.delay.timer_table import Entry, write_run
from rocketstore.spark.sink.cleanup import remove_orphans
from rocketstore.spark.sink.commit import commit
from rocketstore.spark.sink.serve import serve
from tests.corruption.hostile_commands import CALLS, SLOW, command_faces
from tests.corruption.hostile_faces import FACES, SIZES, Faces, run_face
from tests.corruption.mutated_stores import image, make_victim
from tests.corruption.mutations import Known
from tests.corruption.state_files import FILES, ORDERS
from tests.corruption.state_mutations import mutate
from tests.spark.staged import stage_bodies
from tests.support.copies import copy_if_there
from tests.support.waiting import wait_until

__all__ = ["MODES", "OF_COPIES", "OTHERS", "StateCampaign", "plan"]

#: Processor seconds and bytes of one face, beyond what its process has before.
CPU_S, MEMORY_BYTES = 6, 128 << 20
#: The same of a command that starts a JVM.
OF_SPARK = 120, 1 << 30
#: Commands that get a copy.
OF_COPIES = ("follow", "promote")


def make_bases(root: Path) -> dict[str, Image]:
    """Stores below `root`, closed, killed, one that another program had last, and a copy; what each serves and
    has waiting."""
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
    for name in ("closed", "killed"):
        _make_run(StoreLayout(root / name))
    for name in ("master", "foreign"):
        shutil.copytree(root / "closed", root / name)
    (root / "foreign/lock").write_bytes(b"lock")
    with rocketstore.open(root / "master", **options) as master:
        replica = Replica(master=master.replication.address)
        with rocketstore.open(root / "copy", replication=replica, **SIZES) as store:
            wait_until(lambda: store.replication.caught_up)
    shutil.rmtree(root / "master")
    found = {}
    for name in ("closed", "killed", "foreign", "copy"):
        shutil.copytree(root / name, root / "read")
        with rocketstore.open(root / "read", "r", untrusted=True) as store:
            found[name] = Image(served(store), sorted(one.message.body for one in store.delayed))
        shutil.rmtree(root / "read")
    return found


def _make_run(layout: StoreLayout) -> None:
    """Moves half of the recent timers to a run, which a store makes of some thousands."""
    text = layout.timer_state.read_bytes().partition(b"\n")[2]
    document = json.loads(text)
    recent = [Entry(*row) for row in document["recent"]]
    run = write_run(layout, 1, recent[:5])
    document |= {"recent": recent[5:], "runs": [[1, run.count, run.crc, 0]]}
    text = json.dumps(document).encode()
    layout.timer_state.write_bytes(b"%08x\n" % zlib.crc32(text) + text)


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
            store.groups(system=True),
            store.replication,
            (store.retention, str(store.retention.plan(rocketstore.Retention(max_bytes=1)))),
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


def _sink(path: Path) -> Iterator[Known]:
    """A sink of Spark, without Spark: in this process, and by the process that has the store open."""
    commit(str(path), "w", 5, [stage_bodies(path, "2", [b"by a sink"], topic="later")])
    with rocketstore.open(path, "rw") as store, serve(store):
        staged = [stage_bodies(path, "3", [b"by a server"], topic="later")]
        commit(str(path), "q", 0, staged, lock_timeout_s=1)
    remove_orphans(str(path), age_s=0.0)
    yield from ()


MODES: Faces = {
    "r": lambda path: _used(path, "r"),
    "untrusted": lambda path: _used(path, "r", untrusted=True),
    "rw": lambda path: _used(path, "rw"),
    "master": lambda path: _used(path, "rw", replication=Master(listen="127.0.0.1:0")),
}
#: Other ways into a store, which take turns with the commands.
OTHERS: Faces = {"scan": FACES["scan"], "metrics": FACES["metrics"], "sink": _sink}


# ---- the campaign ----


def plan(turn: int, commands: Sequence[str]) -> tuple[str, str, str]:
    """The file that is changed, a mode and a command: in as many rounds of all files as there are modes, or
    commands, each file meets each."""
    rounds, at = divmod(turn, len(FILES))
    return (
        [*FILES][at],
        [*MODES][(rounds + at) % len(MODES)],
        commands[(rounds + at) % len(commands)],
    )


class StateCampaign:
    """Stores of one seed. `work` is a directory of its own. `spark`: with a command that needs a JVM, and only
    with these."""

    def __init__(self, work: Path, seed: int, *, spark: bool = False) -> None:
        self.work, self.seed = work, seed
        self.bases = make_bases(work / "sound")
        quick = [*OTHERS, *(name for name in CALLS if name not in SLOW)]
        self.commands = [*SLOW] if spark else quick
        #: Runs by changed file and face.
        self.counts: Counter[tuple[str, str]] = Counter()
        #: What a run cost at most, and which one.
        self.most: dict[str, tuple[float, str]] = {}

    def faces(self, turn: int) -> Faces:
        """Every face that can run here; a command has its calls in turn."""
        commands = command_faces(self.work / "sound/closed", self.work / "side", turn)
        return {**MODES, **OTHERS, **commands}

    def store(self, number: int, *, every: bool = False) -> list[str]:
        """Makes store `number` and shows it to a mode and a command; to all with `every`. Gives the faults."""
        aim, mode, name = plan(self.seed + number, self.commands)
        choice = random.Random(f"{self.seed} {number} base").choice(("closed", "killed", "foreign"))
        base = "copy" if name in OF_COPIES else choice
        faults, faces = [], self.faces(number)
        for face in [*MODES, *self.commands] if every else (mode, name):
            if face not in faces:
                continue
            rng = random.Random(f"{self.seed} {number}")
            store, victim = self.work / "store", self.work / "victim"
            for path in (store, victim):
                shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self.work / "sound" / base, store)
            make_victim(victim)
            names, done = mutate(rng, store, victim, aim)
            before = image(victim)
            outcome = run_face(face, store, faces)
            self.counts.update((one, face) for one in names)
            told = f"--seed {self.seed} --only {number}: {base}, {done[:400]}, {face}"
            cost = {
                "s of processor time": outcome.cpu_s,
                "s": outcome.wall_s,
                "MiB": outcome.memory_bytes / (1 << 20),
            }
            for what, one in cost.items():
                self.most[what] = max(self.most.get(what, (0.0, "")), (one, told))
            said = list(outcome.costs(*OF_SPARK if face in SLOW else (CPU_S, MEMORY_BYTES)))
            if image(victim) != before:
                said.append("changed outside")
            if face in MODES and not outcome.error:
                trusts = face != "untrusted"
                if not (trusts and names & ORDERS):
                    said += self._hidden(base, outcome.served, waits=not trusts)
            faults += [f"{told}: {one}\n{outcome.traceback * ('untyped' in one)}" for one in said]
        return faults

    def table(self) -> Iterator[str]:
        """Runs by changed file, of each mode and of commands; by command; and the most that one cost."""
        yield f"{'file':72} {' '.join(f'{mode:>9}' for mode in MODES)}  commands"
        for file in FILES:
            modes = " ".join(f"{self.counts[file, mode]:9}" for mode in MODES)
            runs = [self.counts[file, name] for name in self.commands]
            yield f"{file:72} {modes}  {sum(runs)} by {sum(map(bool, runs))} of {len(runs)}"
        for name in self.commands:
            runs = [self.counts[file, name] for file in FILES]
            yield f"{name}: {sum(runs)} with {sum(map(bool, runs))} of {len(runs)} files"
        for what, (most, told) in self.most.items():
            yield f"at most {most:.1f} {what}: {told}"

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
    parser = argparse.ArgumentParser(prog="python -m tests.corruption.mutated_states")
    parser.add_argument("--stores", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", type=int, help="this store again, with every face")
    parser.add_argument("--spark", action="store_true", help="the commands that need a JVM")
    given = parser.parse_args()
    print(f"--seed {given.seed}", flush=True)
    numbers = range(given.stores) if given.only is None else [given.only]
    found, began = 0, time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        campaign = StateCampaign(Path(work), given.seed, spark=given.spark)
        try:
            for number in numbers:
                for fault in campaign.store(number, every=given.only is not None):
                    found += 1
                    print(fault, flush=True)
                if number % 100 == 99:
                    print(f"{number + 1} stores, {found} faults", flush=True)
        finally:  # also of a campaign that Ctrl-C ends
            print(*campaign.table(), sep="\n")
            print(f"{found} faults in {time.monotonic() - began:.0f} s", flush=True)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
