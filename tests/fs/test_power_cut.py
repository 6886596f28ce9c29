"""Power cuts of a real file system: everything that was acknowledged before is there afterwards."""

from __future__ import annotations

import os
import random
import select
import time
from pathlib import Path

import pytest

from tests.fs.disks import CUT_KINDS, Disk, disk
from tests.fs.tables import table
from tests.process.other_process import OtherProcess, number_of, open_small, other_process

pytestmark = [pytest.mark.root, pytest.mark.proof]

#: Puts numbers from given[0] on, given[1] a call, each acknowledged as being on disk, until the store
#: says that it has failed; then closes and ends.
ENDLESS = """
from rocketstore import StoreFailedError, RocketStoreError
first, batch = given
store = rocketstore.open(path, **options)
writer = store.writer(TOPIC)
say("open")
try:
    while True:
        bodies = [b"%d:" % n + bytes(n * 37 % 900) for n in range(first, first + batch)]
        if batch == 1:
            writer.put(bodies[0], keys="k%d" % first, durability="disk")
        else:
            writer.put_batch(bodies, durability="disk")
        first += batch
        say(str(first))
except (StoreFailedError, OSError) as error:
    say("failed " + type(error).__name__)
try:
    store.close()
except (RocketStoreError, OSError) as error:
    say("closed " + type(error).__name__)
"""
MODES = [("disk", 1), ("os", 1), ("memory", 1), ("disk", 7), ("os", 7), ("memory", 7)]
CUTS = int(os.environ.get("ROCKETSTORE_POWER_CUTS", "200"))
LONGEST_RUN_S = 0.12
MESSAGES_MAX = 4000


class Cuts:
    """What came out of the cuts on one kind of disk."""

    def __init__(self) -> None:
        self.cuts = 0
        self.acknowledged = 0
        self.lost = 0
        self.signals = 0
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
    made: Disk, path: Path, durability: str, first: int, batch: int, delay_s: float
) -> tuple[int, int, int]:
    """One writer's life until the cut: (the number behind the last one acknowledged before the cut, the
    number behind the last one that may have been sent, how the process ended)."""
    with other_process(ENDLESS, path, given=[first, batch], durability=durability) as writer:
        assert writer.line() == "open"
        said = read_acknowledged(writer, time.monotonic() + delay_s)
        made.cut_power()
        rest = writer.rest()
        ended = writer.process.wait(60)
    before = [int(line) for line in said.split(b"\n")[:-1] if line.isdigit()]
    after = [int(line) for line in (said + rest).split() if line.isdigit()]
    return max(before, default=first), max(after, default=first) + batch, ended


def check(path: Path, durability: str) -> list[int]:
    """The numbers that are there after the power is back, each whole."""
    with open_small(path, durability=durability) as store:
        found = []
        for message in store.consumer("Orders"):
            number = number_of(message.body)
            assert message.body == b"%d:" % number + bytes(number * 37 % 900)
            found.append(number)
    return found


def cut_again_and_again(made: Disk, rng: random.Random, cuts: int) -> Cuts:
    result = Cuts()
    first = 0
    path = made.path / "0"
    for cut in range(cuts):
        if first > MESSAGES_MAX:
            first, path = 0, made.path / str(cut)
        durability, batch = MODES[cut % len(MODES)]
        delay_s = rng.uniform(0.0, LONGEST_RUN_S)
        acknowledged, sent, ended = run_and_cut(made, path, durability, first, batch, delay_s)
        made.remount()
        found = check(path, durability)
        where = f"cut {cut} of {made.kind}, {durability}, batch {batch}, after {delay_s:.4f} s"
        result.cuts += 1
        result.acknowledged += acknowledged - first
        result.lost += max(0, acknowledged - len(found))
        result.signals += ended < 0
        assert found == list(range(len(found))), f"{where}: a hole, or an order that was not put"
        assert len(found) <= sent, f"{where}: more than was sent"
        assert len(found) >= acknowledged, (
            f"{where}: {acknowledged} acknowledged, {len(found)} found"
        )
        assert ended >= 0, f"{where}: the writer died of signal {-ended}"
        first = len(found)
    return result


def test_power_cuts(tmp_path: Path, rng: random.Random) -> None:
    """acknowledged ⊆ recovered ⊆ sent after each cut, in order; the writer hears an error, no signal."""
    rows = []
    for kind in CUT_KINDS:
        with disk(tmp_path, kind) as made:
            result = cut_again_and_again(made, rng, CUTS // len(CUT_KINDS))
        took = f"{time.monotonic() - result.started:.0f} s"
        rows.append((kind, result.cuts, result.acknowledged, result.lost, result.signals, took))
    table(
        "Power cuts by shutdown",
        ("file system", "cuts", "acknowledged", "lost", "signals", "time"),
        rows,
    )
