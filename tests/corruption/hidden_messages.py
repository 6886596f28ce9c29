"""Random pieces of queues and index get lost, and no message may be hidden.

    python -m tests.corruption.hidden_messages --stores 500 [--seed N] [--more DIRECTORY]

Takes stores of RocketMQ (tests/vectors/stores, and archives of `--more`) and our own, clean and crashed. Removes,
zeroes, cuts, lengthens, renames or swaps pieces of files that are derived from the log. Then each message that the
log holds is served, or the open, the read, `recover` and `verify` say that something is missing. `verify` says "no
faults" of no store in which the next open finds a message that was hidden. An open that says nothing leaves no fault
that `verify` names, but tags codes of units, and keys and times of index entries, which it does not compare, and what
lies between the ends of an index file, at which it looks with `check_queues`.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import RocketStoreError, Store
from rocketstore.tools import verify
from rocketstore.tools.report import Fault
from tests.support.paths import ROOT
from tests.support.small_store import open_small

__all__ = ["STORES", "Campaign", "Template", "compared", "templates"]

STORES = ROOT / "tests" / "vectors" / "stores"
#: These are damaged themselves, or have batch queues, which are only read.
LEFT_OUT = ("damaged-533", "torn-533", "batches-498", "batches-533")
SHAPE = {"index_slots": 64, "index_entries": 300}

Queue = tuple[str, int]
Served = dict[Queue, dict[int, bytes]]


@dataclass
class Template:
    """A store as it was before anything got lost."""

    name: str
    root: Path
    shape: dict[str, int]
    messages: Served = field(default_factory=dict)
    keys: list[tuple[str, str]] = field(default_factory=list)
    faults: int = 0

    def look(self) -> None:
        with rocketstore.open(self.root, "r", **self.shape) as store:
            self.messages, errors = served(store)
            assert not errors, f"{self.name}: {errors}"
            for topic in store.topics(system=True):
                for message in store.consumer(topic):
                    self.keys += [
                        (topic, key)
                        for key in message.keys
                        if any(hit.body == message.body for hit in store.query(topic, key=key))
                    ]
        self.faults = verify(self.root, **self.shape).fault_count


def served(store: Store) -> tuple[Served, list[str]]:
    """The bodies of all messages that consumers get, and what they raise."""
    found: Served = {}
    errors = []
    for topic in store.topics(system=True):
        for queue_id in store.queues(topic):
            place = found[topic, queue_id] = {}
            try:
                for message in store.consumer(topic, queue_id=queue_id):
                    place[message.queue_offset if message.topic == topic else len(place)] = (
                        message.body
                    )
            except RocketStoreError as error:
                errors.append(f"{topic}/{queue_id}: {error}")
    return found, errors


def hidden(wanted: Served, found: Served) -> dict[Queue, list[int]]:
    """Queue offsets of the messages that are not there, or are others."""
    missing = {
        place: [n for n, body in bodies.items() if found.get(place, {}).get(n) != body]
        for place, bodies in wanted.items()
    }
    return {place: numbers for place, numbers in missing.items() if numbers}


# ---- the stores ----


def templates(place: Path, source: random.Random, more: Path | None = None) -> list[Template]:
    """Unpacks and makes the stores below `place`."""
    made = [_ours(place / "ours", 60, trimmed=False), _ours(place / "trimmed", 200, trimmed=True)]
    for archive in [
        *sorted(STORES.glob("*.tar.xz")),
        *sorted(more.glob("*.tar.xz") if more else ()),
    ]:
        name = archive.name.removesuffix(".tar.xz")
        if name in LEFT_OUT:
            continue
        with tarfile.open(archive) as packed:
            packed.extractall(place / name, filter="data")
        root = next(path.parent for path in sorted((place / name).rglob("commitlog")))
        shape = SHAPE if archive.parent == STORES else {"index_slots": 50, "index_entries": 200}
        made.append(Template(name, root, shape))
    for one in made:
        one.look()
    return made


def _ours(root: Path, count: int, *, trimmed: bool) -> Template:
    with open_small(root, durability="os") as store:
        for number in range(count):
            writer = store.writer(
                ("orders", "others", "rare")[min(number % 7, 2)], queue_id=number % 2
            )
            writer.put(b"%d" % number, keys=[f"k{number}"])
        if trimmed:
            store.flush()
            store.trim(before_offset=store.end_offset // 2)
    return Template(root.name, root, {"index_slots": 16, "index_entries": 64})


# ---- what gets lost ----


def _files(root: Path) -> list[Path]:
    return [
        path
        for name in ("consumequeue", "index")
        for path in sorted((root / name).rglob("*"))
        if path.is_file()
    ]


def _queue_files(root: Path) -> list[Path]:
    return [path for path in _files(root) if "consumequeue" in path.relative_to(root).parts]


def _queue_directories(root: Path) -> list[Path]:
    return [path for path in sorted((root / "consumequeue").glob("*/*")) if path.is_dir()]


def remove_file(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    path.unlink()
    return f"removed {path.relative_to(root)}"


def remove_directory(root: Path, chance: random.Random) -> str:
    queues = _queue_directories(root)
    choice = [*queues, *{path.parent for path in queues}, root / "consumequeue", root / "index"]
    path = chance.choice([one for one in sorted(choice) if one.is_dir()])
    shutil.rmtree(path)
    return f"removed {path.relative_to(root)}"


def zero(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    size = path.stat().st_size
    unit = chance.choice((1, 20))
    begin = chance.randrange(0, max(1, size), unit)
    count = min(size - begin, unit * chance.randint(1, chance.choice((3, 400))))
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(max(0, count)))
    return f"zeroed [{begin}, {begin + count}) of {path.relative_to(root)}"


def cut(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    size = chance.randrange(path.stat().st_size + 1)
    with path.open("r+b") as file:
        file.truncate(size)
    return f"cut {path.relative_to(root)} to {size}"


def swap(root: Path, chance: random.Random) -> str:
    one, other = chance.choice(_files(root)), chance.choice(_files(root))
    content = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(content)
    return f"swapped {one.relative_to(root)} and {other.relative_to(root)}"


def lengthen(root: Path, chance: random.Random) -> str:
    path = chance.choice(_files(root))
    count = chance.choice((1, 20, 400, max(1, path.stat().st_size)))
    with path.open("ab") as file:
        file.write(chance.choice((b"\0", b"x")) * count)
    return f"{path.relative_to(root)} is {count} longer"


def rename(root: Path, chance: random.Random) -> str:
    """A queue file has another place, or now and then two."""
    files = _queue_files(root)
    if not files:
        return "no queue file to rename"
    path = chance.choice(files)
    step = chance.choice((1, 20, -20, path.stat().st_size, 3 * path.stat().st_size))
    other = path.with_name(f"{max(0, int(path.name) + step):020d}")
    if chance.random() < 0.25:
        other.write_bytes(path.read_bytes())
        return f"copied {path.relative_to(root)} to {other.name}"
    path.rename(other)
    return f"renamed {path.relative_to(root)} to {other.name}"


def swap_directories(root: Path, chance: random.Random) -> str:
    queues = _queue_directories(root)
    one, other = chance.choice(queues), chance.choice(queues)
    if one != other:
        one.rename(root / "between")
        other.rename(one)
        (root / "between").rename(other)
    return f"swapped {one.relative_to(root)} and {other.relative_to(root)}"


LOSSES: tuple[Callable[[Path, random.Random], str], ...] = (
    remove_file, remove_file, remove_directory, zero, zero, zero, cut, swap, swap_directories,
    lengthen, rename, rename,
)  # fmt: skip


def _lose(root: Path, chance: random.Random) -> str:
    said = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        if not _queue_directories(root) or not _files(root):
            break
        said.append(chance.choice(LOSSES)(root, chance))
    return "; ".join(said)


# ---- the judgement ----


def compared(faults: Iterable[Fault]) -> list[Fault]:
    """All but tags codes of units, and keys and times of index entries, which no open holds against
    the log."""
    passed_over = ("has tags code ", " s after ", "a record without such a key")
    return [one for one in faults if not any(text in one.reason for text in passed_over)]


class Campaign:
    """`faults` are the stores in which a message was hidden, or which `verify` called well though an
    open found something missing; `unnamed` those in which an open that said nothing left what
    `verify` names; `tally` counts what was done."""

    def __init__(self, place: Path, seed: int, more: Path | None = None) -> None:
        self.place, self.chance = place, random.Random(seed)
        self.templates = templates(place / "templates", self.chance, more)
        self.tally: Counter[str] = Counter()
        self.faults: list[str] = []
        self.unnamed: list[str] = []

    def one(self, number: int) -> None:
        """One store: what is lost, and what is said of it."""
        template = self.chance.choice(self.templates)
        root = self.place / "store"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(template.root, root)
        crashed = self.chance.random() < 0.5
        if crashed:
            (root / "abort").touch()
        how = "crashed" if (root / "abort").exists() else "clean"
        what = f"store {number}, {template.name}, {how}: {_lose(root, self.chance)}"
        self.tally[how] += 1
        self._judge(what, template, root)

    def _judge(self, what: str, template: Template, root: Path) -> None:
        before = self._verified(root, template)
        told = self._opened(what, template, root, "r")
        told = self._opened(what, template, root, "rw") or told
        if told and before == template.faults:
            self.faults.append(f"{what}: verify found no more than before, the open {told}")
        after = self._verified(root, template)
        if after > template.faults and not told:
            self._left(what, template, root, before)
        self._opened(what + ", again", template, root, "r")
        self.tally["verify names it" if before > template.faults else "verify finds nothing"] += 1

    def _left(self, what: str, template: Template, root: Path, before: int) -> None:
        """An open that said nothing has left faults that `verify` had named: those that no open
        compares, or what lies between the ends of an index file, at which it looks when it is
        asked to."""
        left = compared(verify(root, **template.shape).faults)
        index = root / "index"
        others = [one for one in left if index not in (Path(one.file), *Path(one.file).parents)]
        with rocketstore.open(
            root, "rw", check_queues=True, deliver_delayed=False, **template.shape
        ):
            pass
        again = compared(verify(root, **template.shape).faults)
        self.tally["left by a silent open, named by verify"] += 1
        if before == template.faults or max(len(others), len(again)) > template.faults:
            found = "; ".join(map(str, left))
            self.unnamed.append(f"{what}: a silent open left faults: {found}")

    def _verified(self, root: Path, template: Template) -> int:
        return verify(root, **template.shape).fault_count

    def _opened(self, what: str, template: Template, root: Path, mode: Any) -> str:
        """What the open found missing, or ""."""
        try:
            with rocketstore.open(root, mode, deliver_delayed=False, **template.shape) as store:
                report = store.recovery
                found, errors = served(store)
                lost_keys = self._lost_keys(template, store)
        except (RocketStoreError, OSError) as error:
            self.tally[f"{mode}: refused"] += 1
            return f"refused: {error}"
        missing = hidden(template.messages, found)
        told = "; ".join(map(str, report.refilled_queues)) or "; ".join(errors)
        said = errors or report.lost_messages or "cannot get a place" in str(report)
        if missing and not said:
            self.faults.append(f"{what}: mode {mode} hides {missing}")
        if missing:
            self.tally[f"{mode}: told of messages that are missing"] += 1
        if lost_keys:
            self.tally[f"{mode}: keys not found"] += 1
        self.tally[f"{mode}: {'made good' if report.refilled_queues else 'opened'}"] += 1
        return told

    def _lost_keys(self, template: Template, store: Store) -> int:
        try:
            return sum(not store.query(topic, key=key) for topic, key in template.keys[::5])
        except RocketStoreError:
            return 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--stores", type=int, default=500, help="how many stores")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--more", type=Path, default=None, help="a directory of more archives")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    logging.disable(logging.CRITICAL)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        campaign = Campaign(Path(place), seed, given.more)
        for number in range(given.stores):
            known = len(campaign.faults)
            campaign.one(number)
            for fault in campaign.faults[known:]:
                print(fault, flush=True)
    for one in campaign.unnamed:
        print(f"unnamed: {one}")
    for name, count in sorted(campaign.tally.items()):
        print(f"{count:7} {name}")
    said = f"{len(campaign.faults)} faults, {len(campaign.unnamed)} unnamed"
    print(f"{given.stores} stores, {said}, {time.monotonic() - began:.0f} s")
    raise SystemExit(bool(campaign.faults or campaign.unnamed))


if __name__ == "__main__":
    main()
