"""Whole stores to which something happened, and whether all that is said of them is true.

    python -m tests.corruption.damaged_stores --stores 5000 --seed 1      a campaign
    python -m tests.corruption.damaged_stores --seed 1 --only 4711        one store again

What happens to a store depends on seed and number only. One child process shows it to every face, and does what
`verify` advises. Counted as a fault: a traceback, a hang, a message that is hidden, or lost beyond what is named,
offsets of groups that go back without a word, an advice that does not end, a verdict that is not true.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import RecoveryReport, RocketStoreError
from tests.corruption.advice import Followed, follow_the_advice, run
from tests.corruption.hostile_faces import in_a_child
from tests.corruption.mutations import damage
from tests.corruption.whole_stores import (
    SHAPE,
    SIZES,
    Base,
    Image,
    Place,
    make_whole_stores,
    offsets_of,
    served_by,
)

__all__ = ["DamagedStores"]

#: Faults that are known, and what was done to which store: a store with such a fault is not judged
#: further, but for `--only`.
KNOWN = (
    # All commits since the last merge are in the journal alone: an older one is one of a kill before,
    # and so is one with zeros over all of them.
    (
        r"offsets",
        r"killed-.*(rocketstore/group_offsets is an older|\d{3,} zeros at \d+ of \S+/group_o)",
    ),
    # Older copies of both files, of one moment, or both gone or empty: nothing else says what groups committed.
    (
        r"offsets",
        r"(?=.*group_offsets is an older one)(?=.*consumerOffset\.json is an older one)",
    ),
    (
        r"offsets",
        r"(?=.*group_offsets (is gone|is named|of \d+ has 0 bytes))"
        r"(?=.*consumerOffset\.json (is gone|is named|of \d+ has 0 bytes))",
    ),
)
#: Seconds of one store on the clock: other processes may have the cores.
WALL_S = 120
#: Words of a line in the log that tells of offsets of groups.
OF_OFFSETS = re.compile(r"consumerOffset|group_offsets|commits|offsets? of|group", re.IGNORECASE)


class _Heard(logging.Handler):
    """Warnings since it was asked last."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())

    def taken(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


@dataclass
class Seen:
    """One face of a store. `error`: why it did not open."""

    face: str
    error: str = ""
    served: dict[Place, tuple[int, bytes]] = field(default_factory=dict)
    errors: dict[tuple[str, int], str] = field(default_factory=dict)
    offsets: dict[tuple[str, str, int], int] = field(default_factory=dict)
    delayed: int = -1
    half: int = -1
    report: RecoveryReport | None = None
    heard: list[str] = field(default_factory=list)

    def names(self, place: Place, physical_offset: int) -> bool:
        """Whether something was said of a message that is not served."""
        topic, queue_id, number = place
        report = self.report
        if self.error or (topic, queue_id) in self.errors or report is None:
            return True
        ranges = [(one.start, one.end) for one in (*report.damage, *report.valid_runs)]
        ranges += [report.cut] if report.cut else []
        ranges += [(report.end, report.was_durable)] if report.end < report.was_durable else []
        if any(start <= physical_offset < end for start, end in ranges) or report.missing:
            return True
        # Without trust in checkpoint and queues a log is what its files are.
        outside = not report.begin <= physical_offset < report.end
        if outside and (self.face == "untrusted" or "counts as trimmed" in str(report.notes)):
            return True
        return any(
            (one.topic, one.queue_id) == (topic, queue_id) and one.first <= number <= one.last
            for one in (*report.lost_messages, *report.unplaced_messages)
        )


class _Judge:
    """Shows one store to every face, in a child. `done`: what happened to it. `said`: what is wrong."""

    def __init__(self, base: Base, work: Path, done: Sequence[str] = ()) -> None:
        self.base = base
        self.work = work
        self.several = len(done) > 1 or "swapped" in "".join(done)
        #: The table alone knows the timers whose records were trimmed.
        self.timers = "trimmed" not in base.name or "rocketstore/timers" not in "".join(done)
        self.said: list[str] = []
        self.heard = _Heard()
        logging.getLogger().handlers[:] = [self.heard]

    def run(self, image: Image) -> list[str]:
        copies = {name: self.work / name for name in ("looked-at", "opened", "mended")}
        for path in copies.values():
            image.write(path)
        seen = [
            self._look("r", copies["looked-at"], "r"),
            self._look("untrusted", copies["looked-at"], "r", untrusted=True),
        ]
        self._commands(copies["looked-at"])
        role = {} if "copy" in self.base.name else {"deliver_delayed": False}
        if role:
            seen.append(self._look("rw", copies["opened"], "rw", **SIZES, **role))
            seen.append(self._look("r after rw", copies["opened"], "r"))
        followed = self._followed(copies["mended"])
        end = self._look("r at the end", copies["mended"], "r")
        for one in seen:
            if one.face != "r after rw":
                self._hidden(one, followed)
            self._changed(one)
            self._offsets(one, followed)
        self._changed(end)
        self._truth(seen, followed)
        self._lost(end, followed)
        return self.said

    def _untyped(self, face: str, error: BaseException) -> None:
        text = f"traceback: {face}: {type(error).__name__}: {error}"
        if not any(one.startswith("traceback") for one in self.said):
            text += "\n" + "".join(traceback.format_exception(error))[-1500:]
        self.said.append(text)

    def _look(self, face: str, path: Path, mode: Any, **options: Any) -> Seen:
        seen = Seen(face)
        self.heard.taken()
        try:
            with rocketstore.open(path, mode, **options) as store:
                seen.report = store.recovery
                seen.offsets = offsets_of(store)
                if mode == "rw":
                    seen.delayed, seen.half = len(store.delayed), len(store.transactions.open())
                seen.served, seen.errors = served_by(store)
                for key in ("k0", "k50", "k99"):
                    try:
                        list(store.query("orders", key=key))
                    except (RocketStoreError, OSError) as error:
                        seen.heard.append(str(error))
                if mode == "rw":
                    store.writer("later").put(b"later")
        except (RocketStoreError, OSError) as error:
            seen.error = f"{type(error).__name__}: {error}"
        except Exception as error:
            self._untyped(face, error)
            seen.error = repr(error)
        seen.heard += self.heard.taken()
        return seen

    def _commands(self, path: Path) -> None:
        commands = (
            ("stat",), ("tail", "orders", "-n", 1), ("query", "orders", "k50"),
            ("recover", "--dry-run", *SHAPE), ("repair", "--dry-run", *SHAPE),
        )  # fmt: skip
        for name, *words in commands:
            self._traced(f"{name} {' '.join(map(str, words))}", run(name, path, *words))

    def _traced(self, face: str, result: Any) -> None:
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            self._untyped(face, result.exception)
        elif result.exit_code not in (0, 1, 3):
            self.said.append(f"traceback: {face} ends with {result.exit_code}: {result.output}")

    def _followed(self, path: Path) -> Followed:
        followed = follow_the_advice(path, SHAPE)
        if followed.fault:
            self.said.append(f"advice: {followed.fault}")
        if not followed.verdicts:
            followed.verdicts.append(
                {
                    "ok": False,
                    "faults": [],
                    "notices": [],
                    "lost_messages": [],
                    "hidden_messages": [],
                    "kinds": {},
                }
            )
        return followed

    def _missing(self, seen: Seen) -> Iterator[tuple[Place, int]]:
        """Messages of the sound store that a face does not serve, anywhere."""
        anywhere = set(seen.served.values())
        for place, known in self.base.held.items():
            if seen.served.get(place) != known and known not in anywhere:
                yield place, known[0]

    def _hidden(self, seen: Seen, followed: Followed) -> None:
        if self.several and {"log", "lost"} & {*followed.verdicts[0]["kinds"]}:
            return  # where a queue is damaged, too, nothing but the range of the log is named
        hidden = [place for place, where in self._missing(seen) if not seen.names(place, where)]
        if hidden:
            verdict = "verify is ok" if followed.verdicts[0]["ok"] else "verify names faults"
            self.said.append(f"hidden: {seen.face}: {len(hidden)}, {hidden[0]}; {verdict}")

    def _changed(self, seen: Seen) -> None:
        """Each record has a checksum: what is served is what was stored, where it was stored."""
        by_offset = {known[0]: known for known in self.base.held.values()}
        for place, found in seen.served.items():
            if place[0] != "later" and found != by_offset.get(found[0]):
                self.said.append(f"changed: {seen.face}: {place} at {found}")
                return

    def _offsets(self, seen: Seen, followed: Followed) -> None:
        if seen.error or "after" in seen.face:
            return
        report = seen.report
        assert report is not None
        verdict = followed.verdicts[0]
        named = {(one.group, one.topic, one.queue_id) for one in report.offsets_set_back}
        words = any(OF_OFFSETS.search(line) for line in (*seen.heard, *report.notes))
        words = words or any(
            Path(one["file"]).name.startswith(("consumerOffset", "group_offsets"))
            for one in (*verdict["faults"], *verdict["notices"])
        )
        for key, was in self.base.offsets.items():
            inner = key[0].startswith("CID_RMQ_SYS")
            now = seen.offsets.get(key, 0)
            if now < was and not inner and key not in named and not words:
                self.said.append(f"offsets: {seen.face}: {key} from {was} to {now} without a word")
                return
        told = seen.heard or report.lost or "counts as trimmed" in str(report.notes)
        silent = not told and verdict["ok"]
        fewer = seen.delayed < self.base.delayed or seen.half < self.base.half
        if seen.face == "rw" and silent and fewer and self.timers:
            self.said.append(
                f"state: {seen.delayed} delayed of {self.base.delayed}, {seen.half} half of "
                f"{self.base.half} without a word"
            )

    def _truth(self, seen: list[Seen], followed: Followed) -> None:
        """What `verify` finds no fault in, every face serves, but for what it tells in a notice."""
        if not followed.verdicts[0]["ok"]:
            return
        for one in seen:
            missing = [known for known in self._missing(one) if not followed.tells(*known)]
            if one.error or one.errors or missing:
                what = one.error or one.errors or missing[0]
                self.said.append(f"verdict: ok, but {one.face}: {what}")
                return

    def _lost(self, end: Seen, followed: Followed) -> None:
        """What is gone in the end was named before; what was named is gone."""
        if followed.fault or not followed.steps:
            return
        first, last = followed.verdicts[0], followed.verdicts[-1]
        missing = dict(self._missing(end))
        # Where a queue is damaged, too, nothing but the range of the log is known of its messages.
        ranges = self.several and any(
            {"log", "lost"} & {*verdict["kinds"]} for verdict in followed.verdicts
        )
        unnamed = [
            place
            for place, where in missing.items()
            if not (ranges or followed.tells(place, where))
        ]
        if unnamed and not (end.error or end.errors):
            self.said.append(f"lost: {len(unnamed)} not named, {unnamed[0]}; did {followed.steps}")
        if last["ok"] and (end.error or end.errors):
            self.said.append(f"verdict: ok in the end, but {end.error or end.errors}")
        if any(step[0].startswith("by hand") for step in followed.steps) or not last["ok"]:
            return
        if self.several or any(one["code"] in ("length", "missing") for one in first["faults"]):
            return  # a file that gets its length back may have lost nothing but zeros
        for one in first["lost_messages"]:
            places = [
                (one["topic"], one["queue_id"], n) for n in range(one["first"], one["last"] + 1)
            ]
            known = [place for place in places if place in self.base.held]
            if one["count"] == len(places) == len(known) and not missing.keys() & {*known}:
                self.said.append(f"verdict: {one} named as lost, and there; did {followed.steps}")
                return


class DamagedStores:
    """Stores of one seed. `work` is a directory of its own."""

    def __init__(self, work: Path, seed: int) -> None:
        self.seed = seed
        self.work = work
        self.bases = make_whole_stores(work / "bases")
        shutil.rmtree(work / "bases")
        self.counts: Counter[str] = Counter()
        for base in self.bases.values():  # with it, what the commands import is there in each child
            said = _Judge(base, work / base.name).run(base.image)
            assert not said, (base.name, said)
            shutil.rmtree(work / base.name)

    def store(self, number: int, *, known: bool = False) -> list[str]:
        """Damages store `number`, and judges it. Gives the faults; with `known` those, too."""
        rng = random.Random(f"{self.seed} {number}")
        base = self.bases[rng.choice([*self.bases])]
        place = self.work / "one"
        shutil.rmtree(place, ignore_errors=True)
        base.image.write(place / "damaged")
        done = [
            damage(rng, place / "damaged", base.older.files)
            for _ in range(rng.choice((1, 1, 1, 1, 2, 3)))
        ]
        image = Image.of(place / "damaged")
        judge = _Judge(base, place, done)
        answer, died = in_a_child(lambda: judge.run(image), WALL_S)
        said = [f"traceback: {died}"] if died else answer
        for one in said:
            self.counts[one.partition(":")[0]] += 1
        what = f"{base.name}, {'; '.join(done)}"
        if not known and any(_is_known(one, what) for one in said):
            return []
        return [f"--seed {self.seed} --only {number}: {what}: {one}" for one in said]


def _is_known(said: str, what: str) -> bool:
    return any(re.match(fault, said) and re.match(f".*{done}", what) for fault, done in KNOWN)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corruption.damaged_stores")
    parser.add_argument("--stores", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--only", type=int, help="this store again")
    parser.add_argument("--keep", type=Path, help="where damaged stores with faults are left")
    given = parser.parse_args()
    print(f"--seed {given.seed}", flush=True)
    numbers = range(given.stores) if given.only is None else [given.only]
    began = time.monotonic()
    found = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as work:
        stores = DamagedStores(Path(work), given.seed)
        for number in numbers:
            faults = stores.store(number, known=given.only is not None)
            found += bool(faults)
            if given.keep and (faults or given.only is not None):
                shutil.copytree(
                    Path(work) / "one" / "damaged", given.keep / str(number), symlinks=True
                )
            for one in faults:
                print(one, flush=True)
            if number % 500 == 499:
                print(f"{number + 1} stores, {time.monotonic() - began:.0f} s", flush=True)
    print(json.dumps(stores.counts))
    print(f"{len(numbers)} stores, {found} with faults, {time.monotonic() - began:.0f} s")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
