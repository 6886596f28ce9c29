"""Thousands of images: records batches of traces, judges images of each point of them, counts."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import multiprocessing
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.power_loss.disk import Disk
from tests.power_loss.expectation import Expectation
from tests.power_loss.images import Image, take_image
from tests.power_loss.oracle import Wrong, judge, quiet
from tests.power_loss.recording import Recorder, Trace
from tests.power_loss.small_steps import small_steps
from tests.power_loss.trace import Kind
from tests.power_loss.workloads import WORKLOADS

__all__ = ["Batch", "Failure", "Tally", "judge_again", "run_batch", "run_campaign"]

#: Recoveries that are recorded behind each workload, and images of each recorded run.
FOLLOW = 3
IMAGES_EACH = 40
KEPT_MAX = 20


@dataclass(frozen=True)
class Batch:
    """A share of a campaign: `images` of runs of `workloads`, all from one seed."""

    seed: int
    images: int
    workloads: tuple[str, ...]
    keep: str


@dataclass(frozen=True)
class Failure:
    """One image that breaks a promise."""

    where: str
    why: str
    kept: str


@dataclass
class Tally:
    """What came out, by workload."""

    images: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.images += other.images
        self.wrong += other.wrong
        self.runs += other.runs
        self.failures = (self.failures + other.failures)[:KEPT_MAX]


def scratch() -> Path:
    """A directory in memory where there is one: an image lives for milliseconds."""
    memory = Path("/dev/shm")
    place = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    return Path(tempfile.mkdtemp(prefix="rocketstore-crash-", dir=place))


def run_batch(batch: Batch) -> Tally:
    """Records and judges one batch, in this process and one that it starts."""
    with quiet(), small_steps():
        return _run_batch(batch)


def _run_batch(batch: Batch) -> Tally:
    tally = Tally()
    directory = scratch()
    each = max(1, min(IMAGES_EACH, batch.images // (len(batch.workloads) * (FOLLOW + 1))))
    try:
        with Recorder(directory) as recorder:
            left = batch.images
            round_ = 0
            while left > 0:
                for name in batch.workloads:
                    seed = random.Random(f"{batch.seed}:{name}:{round_}").getrandbits(31)
                    for trace in recorder.record(name, seed, FOLLOW):
                        count = min(each, left)
                        left -= count
                        tally.runs += 1
                        _judge_trace(trace, name, seed, count, directory, batch.keep, tally)
                    for where, why in recorder.failed:
                        tally.images[name] += 1
                        tally.wrong[name] += 1
                        tally.failures.append(
                            Failure(where, why, "not kept: it failed when recorded")
                        )
                    recorder.failed.clear()
                    recorder.forget()
                round_ += 1
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return tally


def _judge_trace(
    trace: Trace, name: str, seed: int, count: int, directory: Path, keep: str, tally: Tally
) -> None:
    rng = random.Random(f"{seed}:{trace.name}")
    cuts = _cuts(trace, rng, count)
    for at, (disk, expected) in enumerate(trace.states()):
        for number in range(cuts[at]):
            image_seed = rng.getrandbits(63)
            image = take_image(disk, random.Random(image_seed))
            tally.images[name] += 1
            try:
                _judge_image(image, disk, expected, directory / "image", image_seed)
            except Wrong as error:
                tally.wrong[name] += 1
                where = f"{trace.name}: {image.how}, at event {at} of {len(trace.events)}"
                kept = _keep(image, expected, image_seed, f"{keep}/{seed}-{at}-{number}", where)
                tally.failures.append(Failure(where, str(error), kept))


NAMING = {Kind.CREATE, Kind.MAKE_DIRECTORY, Kind.REMOVE_DIRECTORY, Kind.LINK, Kind.UNLINK}


def _loose_stretches(trace: Trace) -> list[range]:
    """Where several names of one directory are not synced: few points, many orders."""
    directories = dict(trace.before.directories)
    since: dict[str, tuple[int, int]] = {}  # directory → (names changed, where the second was)
    stretches = []
    for at, event in enumerate(trace.events, 1):
        if event.kind is Kind.MAKE_DIRECTORY:
            directories[event.file] = event.path
        if event.kind in NAMING and event.path:
            directory = event.path.rpartition("/")[0]
            count, start = since.get(directory, (0, 0))
            since[directory] = (count + 1, start if count > 1 else at)
        elif event.kind is Kind.SYNC_DIRECTORY:
            count, start = since.pop(directories[event.file], (0, 0))
            if count > 1:
                stretches.append(range(start, at))
    stretches += [range(n, len(trace.events) + 1) for count, n in since.values() if count > 1]
    return stretches


def _cuts(trace: Trace, rng: random.Random, count: int) -> Counter[int]:
    """Any points of the run; those behind an event of any kind, so that rare ones are looked at, too;
    and those where names are loose."""
    events = trace.events
    loose = _loose_stretches(trace)
    behind: dict[Kind, list[int]] = {}
    for at, event in enumerate(events, 1):
        behind.setdefault(event.kind, []).append(at)
    cuts: Counter[int] = Counter()
    for _ in range(count):
        way = rng.random()
        if way < 0.5 or not events:
            cuts[rng.randrange(len(events) + 1)] += 1
        elif way < 0.75 or not loose:
            cuts[rng.choice(behind[rng.choice(sorted(behind))])] += 1
        else:
            cuts[rng.choice(rng.choice(loose))] += 1
    return cuts


def _judge_image(
    image: Image, disk: Disk, expected: Expectation, root: Path, image_seed: int
) -> None:
    if disk.signals:
        raise Wrong(f"{disk.signals} stores to pages without a block, on a full disk: a signal")
    root.mkdir()
    try:
        image.write(str(root))
        judge(root / "store", expected, killed=image.killed, rng=random.Random(image_seed))
    finally:
        shutil.rmtree(root)


# ---- images that are kept ----


def _keep(image: Image, expected: Expectation, seed: int, path: str, where: str) -> str:
    """The image as it was before recovery, and what it was judged by."""
    root = Path(path)
    if root.exists() or (root.parent.exists() and len(os.listdir(root.parent)) >= KEPT_MAX):
        return "not kept"
    (root / "image").mkdir(parents=True)
    image.write(str(root / "image"))
    known = {"where": where, "killed": image.killed, "seed": seed}
    known["expected"] = dataclasses.asdict(expected)
    (root / "expected.json").write_text(json.dumps(known, indent=1))
    return path


def judge_again(kept: Path) -> None:
    """Judges a copy of an image that was kept. Raises Wrong as it did before."""
    known = json.loads((kept / "expected.json").read_text())
    fields = known["expected"]
    fields["places"] = {int(at): tuple(place) for at, place in fields["places"].items()}
    directory = scratch()
    try:
        shutil.copytree(kept / "image", directory / "image")
        root = directory / "image" / "store"
        rng = random.Random(known["seed"])
        with small_steps():
            judge(root, Expectation(**fields), killed=known["killed"], rng=rng)
    finally:
        shutil.rmtree(directory)


# ---- many ----


def run_campaign(
    images: int, seed: int, jobs: int, keep: str, workloads: Sequence[str] = tuple(WORKLOADS)
) -> Iterator[Tally]:
    """Batches until there are so many images; the tally so far after each."""
    whole = len(workloads) * (FOLLOW + 1) * IMAGES_EACH
    count = max(jobs, -(-images // whole))
    shares = [images * (n + 1) // count - images * n // count for n in range(count)]
    batches = [
        Batch(seed + n, share, tuple(workloads), keep) for n, share in enumerate(shares) if share
    ]
    total = Tally()
    if jobs == 1:
        for batch in batches:
            total.add(run_batch(batch))
            yield total
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for tally in pool.map(run_batch, batches):
            total.add(tally)
            yield total
