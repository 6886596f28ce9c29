"""Power cuts of a real file system: everything that was acknowledged before is there afterwards."""

from __future__ import annotations

import os
import random
import select
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.filesystems.disks import CUT_KINDS, Disk, disk
from tests.filesystems.tables import table
from tests.process.other_process import OtherProcess, number_of, open_small, other_process
from tests.support import campaign

pytestmark = [pytest.mark.root, pytest.mark.proof]

#: Told a directory, durability, first number and batch, it puts numbers, each acknowledged as being on
#: disk, until the store says that it has failed; then closes, says "closed" and waits to be told again.
ENDLESS = """
import gc, time
from rocketstore import RocketStoreError

def write(path, durability, first, batch):
    store = rocketstore.open(path, durability=durability, **options)
    try:
        writer = store.writer(TOPIC)
        say("open")
        begun = first
        while True:
            if first > begun + 4000:
                time.sleep(0.02)  # the cut comes late: the disk is small
            bodies = [b"%d:" % n + bytes(n * 37 % 900) for n in range(first, first + batch)]
            if batch == 1:
                writer.put(bodies[0], keys="k%d" % first, durability="disk")
            else:
                writer.put_batch(bodies, durability="disk")
            first += batch
            say(str(first))
    finally:
        store.close()

while line := told():
    where, durability, first, batch = line.split()
    try:
        write(where, durability, int(first), int(batch))
    except (RocketStoreError, OSError) as error:
        failed = type(error).__name__
    gc.collect()
    say("closed " + failed)
"""
MODES = [("disk", 1), ("os", 1), ("memory", 1), ("disk", 7), ("os", 7), ("memory", 7)]
#: Of all file systems; "": the seconds of a whole run, or 200.
CUTS = os.environ.get("ROCKETSTORE_POWER_CUTS", "")
LONGEST_RUN_S = 0.12
MESSAGES_MAX = 4000


class Cuts:
    """What came out of the cuts on one kind of disk."""

    def __init__(self) -> None:
        self.cuts = 0
        self.acknowledged = 0
        self.lost = 0
        self.errors: Counter[str] = Counter()
        self.started = time.monotonic()


def read_acknowledged(writer: OtherProcess, until: float) -> bytes:
    """What the writer says until then."""
    assert writer.process.stdout is not None
    fd = writer.process.stdout.fileno()
    said = b""
    while (left := until - time.monotonic()) > 0:
        ready, _, _ = select.select([fd], [], [], left)
        if ready:
            said += os.read(fd, 1 << 16)
    while select.select([fd], [], [], 0)[0] and (more := os.read(fd, 1 << 16)):
        said += more
    return said


def run_and_cut(
    made: Disk, writer: OtherProcess, order: tuple[Path, str, int, int], delay_s: float
) -> tuple[int, int, str]:
    """One store's life until the cut: (the number behind the last one acknowledged before the cut, the
    number behind the last one that may have been sent, what the writer heard of it)."""
    *_, first, batch = order
    writer.hears(" ".join(map(str, order)))
    assert writer.line() == "open", f"the writer ended with {writer.process.poll()}"
    said = read_acknowledged(writer, time.monotonic() + delay_s)
    made.cut_power()
    assert b"closed" not in said, f"the writer ended before the cut: {said[-200:]!r}"
    rest = b""
    while not (line := writer.line()).startswith("closed"):
        assert line, f"the writer ended with {writer.process.wait(60)}: a signal, if negative"
        rest += line.encode() + b"\n"
    before = [int(text) for text in said.split(b"\n")[:-1] if text.isdigit()]
    after = [int(text) for text in (said + rest).split() if text.isdigit()]
    heard = line.partition(" ")[2]
    return max(before, default=first), max(after, default=first) + batch, heard


def check(path: Path, durability: str) -> list[int]:
    """The numbers that are there after the power is back, each whole."""
    with open_small(path, durability=durability) as store:
        found = []
        for message in store.consumer("Orders"):
            number = number_of(message.body)
            assert message.body == b"%d:" % number + bytes(number * 37 % 900)
            found.append(number)
    return found


def cut_again_and_again(made: Disk, rng: random.Random, cuts: Iterable[int]) -> Cuts:
    result = Cuts()
    first = 0
    path = made.path / "0"
    with other_process(ENDLESS, path) as writer:
        for cut in cuts:
            if first > MESSAGES_MAX:
                shutil.rmtree(path)
                first, path = 0, made.path / str(cut)
            durability, batch = MODES[cut % len(MODES)]
            delay_s = rng.uniform(0.0, LONGEST_RUN_S)
            order = (path, durability, first, batch)
            acknowledged, sent, heard = run_and_cut(made, writer, order, delay_s)
            made.remount()
            found = check(path, durability)
            where = f"cut {cut} of {made.kind}, {durability}, batch {batch}, after {delay_s:.4f} s"
            result.cuts += 1
            result.acknowledged += acknowledged - first
            result.errors[heard] += 1
            result.lost += max(0, acknowledged - len(found))
            assert found == list(range(len(found))), f"{where}: a hole, or not the order of puts"
            assert acknowledged <= len(found) <= sent, f"{where}: acknowledged, found, sent"
            first = len(found)
    return result


def test_power_cuts(tmp_path: Path, rng: random.Random) -> None:
    """acknowledged ⊆ recovered ⊆ sent after each cut, in order; the writer hears an error, no signal."""
    rows = []
    for kind in CUT_KINDS:
        with disk(tmp_path, kind) as made:
            asked = str(int(CUTS) // len(CUT_KINDS)) if CUTS else ""
            cuts = campaign.begin("power cuts", asked=asked, share=1 / len(CUT_KINDS))
            result = cut_again_and_again(made, rng, cuts.rounds())
        errors = ", ".join(f"{count} {name}" for name, count in result.errors.most_common())
        took = f"{time.monotonic() - result.started:.0f} s"
        rows.append((kind, result.cuts, result.acknowledged, result.lost, errors, took))
    table(
        "Power cuts by shutdown",
        ("file system", "cuts", "acknowledged", "lost", "the writer heard", "time"),
        rows,
    )
