"""Thousands of images: records batches of traces, judges images of each point of them, counts.

A campaign has a number of images, or seconds: then batches of `WHOLE` images follow each other until the time is
used. The same seed makes the same batches either way, where the number is a multiple of theirs.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import itertools
import json
import math
import multiprocessing
import os
import random
import shutil
import tempfile
import time
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

__all__ = ["Batch", "Failure", "Tally", "judge_again", "run_batch", "run_campaign", "run_for"]

#: Recoveries that are recorded behind each workload, and images of each recorded run.
FOLLOW = 3
IMAGES_EACH = 40
KEPT_MAX = 20


@dataclass(frozen=True)
class Batch:
    """A share of a campaign: `images` of runs of `workloads`, all from one seed.

    After `until` of the monotonic clock it ends between two workloads, with `least` images or more.
    """

    seed: int
    images: int
    workloads: tuple[str, ...]
    keep: str
    until: float = math.inf
    least: int = 0

    def goes_on(self, images: int) -> bool:
        """With so many images taken."""
        return images < self.images and (images < self.least or time.monotonic() < self.until)


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
            while batch.goes_on(batch.images - left):
                for name in batch.workloads:
                    if not batch.goes_on(batch.images - left):
                        break
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
    count = max(jobs, -(-images // whole_batch(workloads)))
    shares = [images * (n + 1) // count - images * n // count for n in range(count)]
    yield from run_batches(
        (Batch(seed + n, share, tuple(workloads), keep) for n, share in enumerate(shares) if share),
        jobs,
    )


def run_for(
    seconds: float, least: int, seed: int, jobs: int, keep: str, workloads: Sequence[str]
) -> Iterator[Tally]:
    """Batches until the time is used and there are `least` images; the tally so far after each."""
    until = time.monotonic() + seconds
    whole = whole_batch(workloads)

    def batches() -> Iterator[Batch]:
        number = 0
        while number < jobs or time.monotonic() < until:
            # Each begins with another workload: the last ones are not the same each time.
            first = number * len(workloads) // jobs % len(workloads)
            order = (*workloads[first:], *workloads[:first])
            needed = -(-least // jobs) if number < jobs else 0
            yield Batch(seed + number, max(whole, needed), order, keep, until, needed)
            number += 1

    yield from run_batches(batches(), jobs)


def whole_batch(workloads: Sequence[str]) -> int:
    """Images of a batch in which each workload is recorded once."""
    return len(workloads) * (FOLLOW + 1) * IMAGES_EACH


def run_batches(batches: Iterator[Batch], jobs: int) -> Iterator[Tally]:
    """The tally so far after each batch. The next one is asked for when a process is free."""
    total = Tally()
    if jobs == 1:
        for batch in batches:
            total.add(run_batch(batch))
            yield total
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        running = {pool.submit(run_batch, batch) for batch in itertools.islice(batches, jobs)}
        while running:
            done, running = concurrent.futures.wait(
                running, return_when=concurrent.futures.FIRST_COMPLETED
            )
            for ended in done:
                total.add(ended.result())
                yield total
                running |= {pool.submit(run_batch, one) for one in itertools.islice(batches, 1)}
