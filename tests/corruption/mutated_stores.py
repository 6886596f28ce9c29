"""Whole stores that a hostile author wrote, opened by every face in a child process.

    python -m tests.corruption.mutated_stores --stores 20000 --seed 1     a campaign
    python -m tests.corruption.mutated_stores --seed 1 --only 4711        one store again, with every face

A store and what is done to it depend on seed and number only. Each face has its own copy. Counted as a fault:
a signal, an error without a type, more processor time or memory than the bound, a change of a file outside,
and a message served that was not stored so.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

import rocketstore
from tests.corruption.hostile_faces import FACES, SEGMENT, SIZES, run_face, served
from tests.corruption.mutations import STRANGER, Known, mutate
from tests.support.copies import copy_if_there
from tests.support.made_store import MadeStore

__all__ = ["Campaign"]

COMPRESSED = 1
#: Stores that RocketMQ wrote, or began.
FOREIGN = ("foreign", "bare", "opened")


def make_bases(root: Path) -> dict[str, dict[int, Known]]:
    """Stores below `root`: closed and killed ones, RocketMQ's, RocketMQ's that we opened. Gives what each
    holds by physical offset."""
    (root / "sound").mkdir(parents=True)
    with rocketstore.open(root / "closed", durability="os", **SIZES) as store:
        writers = [store.writer("orders", queues=2), store.writer("moves")]
        for number in range(160):
            body = b"%d:" % number + b"x" * (number * 37 % 200)
            writers[number % 2].put(body, keys=f"k{number}", tags=f"t{number % 3}")
        with store.consumer("orders", group="g") as consumer:
            consumer.poll(30)
            consumer.commit()
        shutil.copytree(root / "closed", root / "killed", copy_function=copy_if_there)
    for name, record_crc in (("foreign", True), ("bare", False)):
        made = MadeStore(
            root / name, segment_size=SEGMENT, queue_file_size=640, record_crc=record_crc
        )
        for number in range(120):
            body, flag = b"%d|" % number + b"y" * (number * 37 % 200), 0
            if number % 3 == 0:
                body, flag = zlib.compress(body), COMPRESSED
            made.put(
                ("orders", "moves")[number % 2],
                number % 3,
                body,
                keys=[f"k{number}"],
                sys_flag=flag,
            )
        made.dispatch()
    shutil.copytree(root / "foreign", root / "opened")
    rocketstore.open(root / "opened", deliver_delayed=False, **SIZES).close()
    held = {}
    for name in ("closed", "killed", "foreign", "bare", "opened"):
        (root / name).rename(root / "sound" / name)
        shutil.copytree(root / "sound" / name, root / "read")
        with rocketstore.open(root / "read", "r", **SIZES) as store:
            held[name] = {one[3]: one for one in served(store)}
        shutil.rmtree(root / "read")
    return held


def make_victim(path: Path) -> None:
    """Files that belong to nobody's store, under names that stores have."""
    (path / "0").mkdir(parents=True)
    for name in ("secret", "00000000000000000000", "20261127015449364", "0/00000000000000000000"):
        (path / name).write_bytes(b"precious " * 20)
        if not os.geteuid():
            os.chown(path / name, STRANGER, STRANGER)


def image(path: Path) -> dict[str, str]:
    """Content and permissions of everything below."""
    found = {}
    for one in sorted(path.rglob("*")):
        state = one.lstat()
        content = hashlib.sha1(one.read_bytes()).hexdigest() if one.is_file() else ""
        found[str(one.relative_to(path))] = f"{state.st_mode:o} {state.st_uid} {content}"
    return found


class Campaign:
    """Stores of one seed. `work` is a directory of its own."""

    def __init__(self, work: Path, seed: int) -> None:
        self.seed = seed
        self.work = work
        self.held = make_bases(work)
        self.counts: Counter[str] = Counter()
        self.slowest_s = self.largest_bytes = 0.0

    def store(self, number: int, faces: int | None = 2) -> list[str]:
        """Makes store `number` and shows it to so many faces; all with None. Gives the faults."""
        rng = random.Random(f"{self.seed} {number}")
        base = rng.choice([*self.held])
        hostile, copy, victim = (self.work / name for name in ("hostile", "copy", "victim"))
        _remove(hostile, copy, victim)
        shutil.copytree(self.work / "sound" / base, hostile)
        make_victim(victim)
        stored = dict(self.held[base])
        done = mutate(rng, hostile, victim, stored)
        before = image(victim)
        size = sum(path.lstat().st_blocks * 512 for path in hostile.rglob("*"))
        faults = []
        for face in [*FACES] if faces is None else rng.sample([*FACES], faces):
            _remove(copy)
            _copy(hostile, copy)
            outcome = run_face(face, copy)
            self.counts[face] += 1
            self.slowest_s = max(self.slowest_s, outcome.cpu_s)
            self.largest_bytes = max(self.largest_bytes, outcome.memory_bytes)
            said = list(outcome.faults(stored, size, foreign=base in FOREIGN))
            after = image(victim)
            if after != before:
                said.append(f"changed outside: {sorted(set(after.items()) ^ set(before.items()))}")
                before = after
            told = f"--seed {self.seed} --only {number}: {base}, {'; '.join(done)[:300]}, {face}"
            faults += [
                f"{told}: {one}\n{outcome.traceback if 'untyped' in one else ''}" for one in said
            ]
        return faults


def _remove(*paths: Path) -> None:
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _copy(root: Path, to: Path) -> None:
    """With holes, links, FIFOs and sockets, and second names of what lies outside."""
    to.mkdir()
    for path in sorted(root.rglob("*")):
        target = to / path.relative_to(root)
        state = path.lstat()
        if path.is_symlink():
            target.symlink_to(path.readlink())
            os.lchown(target, state.st_uid, state.st_gid)
        elif path.is_dir():
            target.mkdir()
        elif not path.is_file():
            os.mknod(target, state.st_mode)
        elif state.st_nlink > 1 and not _inside(path):
            os.link(path, target)
        else:
            _copy_file(path, target, state.st_size)


def _inside(path: Path) -> bool:
    return path.read_bytes()[:8] != b"precious"


def _copy_file(path: Path, target: Path, size: int) -> None:
    with path.open("rb") as source, target.open("wb") as new:
        new.write(source.read(min(size, 1 << 20)))
        new.truncate(size)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corruption.mutated_stores")
    parser.add_argument("--stores", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", type=int, help="this store again, with every face")
    parser.add_argument("--faces", type=int, default=2, help="faces that each store is shown to")
    given = parser.parse_args()
    print(f"--seed {given.seed}", flush=True)
    numbers = range(given.stores) if given.only is None else [given.only]
    found = 0
    with tempfile.TemporaryDirectory() as work:
        campaign = Campaign(Path(work), given.seed)
        began = time.monotonic()
        for number in numbers:
            for fault in campaign.store(number, None if given.only is not None else given.faces):
                found += 1
                print(fault, flush=True)
            if number % 500 == 499:
                print(
                    f"{number + 1} stores, {found} faults, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
        print(
            f"{len(numbers)} stores, {sum(campaign.counts.values())} opens, {found} faults; "
            f"at most {campaign.slowest_s:.1f} s of processor time, "
            f"{campaign.largest_bytes / (1 << 20):.0f} MiB",
            flush=True,
        )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
