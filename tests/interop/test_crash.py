"""Processes killed at random points, one image for two recoveries: what RocketMQ keeps, we keep."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from tests.interop.crashes import (
    HoleError,
    Indexed,
    Ledger,
    copy,
    keyed,
    killed,
    last_unit,
    put_theirs,
    put_until_killed,
    recovered_by_us,
    run_ours_and_kill,
    same,
    subset,
)
from tests.interop.damages import DAMAGES, Damage, Image, readable_by_them, readable_by_us, sound
from tests.interop.messages import SMALL, config_of
from tests.interop.oracle import (
    GENERATIONS,
    REFUSAL,
    Oracle,
    OracleError,
    OracleStore,
    empty_files,
    since,
)
from tests.interop.views import Tally, View, of_oracle
from tests.support import campaign

pytestmark = pytest.mark.java

#: Kills of each kind for each version; "": the seconds of a whole run, or 6.
ROUNDS = os.environ.get("ROCKETSTORE_CRASH_ROUNDS", "")
#: A directory with more messages is left for a new one: every round reads all of it.
MESSAGES_MAX = 2000


def kills() -> campaign.Running:
    """One of the two kinds of kills, for one version."""
    share = 1 / (2 * len(GENERATIONS))
    return campaign.begin("kills beside RocketMQ", asked=ROUNDS, share=share)


class Runner:
    """At most one JVM; directories that only a killed one had open go with it."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.jvm: Oracle | None = None
        self.leftovers: list[Path] = []

    def start(self, path: Path) -> OracleStore:
        if self.jvm is None:
            self.jvm = Oracle(self.version)
            self.jvm.ask("version")  # it runs
        return self.jvm.start(path, SMALL)

    def kill(self) -> None:
        if self.jvm is not None:
            self.jvm.halt()

    def bury(self) -> None:
        if self.jvm is not None:
            self.jvm.close()
            self.jvm = None
        for path in self.leftovers:
            shutil.rmtree(path)
        self.leftovers.clear()


@pytest.fixture
def runner(version: str, tmp_path: Path) -> Iterator[Runner]:  # ended before tmp_path goes
    runner = Runner(version)
    yield runner
    runner.bury()


def recovered_by_them(
    runner: Runner, path: Path, ledger: Ledger, tally: Tally, rng: random.Random
) -> tuple[OracleStore, View]:
    """Opens a crashed copy and keeps it open. What its index lost is counted: RocketMQ promises nothing."""
    theirs = runner.start(path)
    view = of_oracle(theirs.dump())
    ledger.check(view, tally)
    indexed = Indexed.of(path)
    gone = [at for at in view.messages() if not indexed.has(at)]
    if gone:
        tally.know("recoveries of RocketMQ that left older messages without an index")
    for message in keyed(view, indexed, rng, 5):
        found = theirs.query(message["topic"], message["properties"]["KEYS"], 0, 2**62)
        if len(found) != 1:
            tally.know(f"keys for which RocketMQ's index answers {len(found)} times after a crash")
    return theirs, view


@pytest.mark.timeout(60 + 15 * int(ROUNDS or 20))
def test_killed_rocketmq(runner: Runner, tally: Tally, rng: random.Random, tmp_path: Path) -> None:
    """While it puts, rolls and, now and then, opens what was killed before."""
    counts: Counter[str] = Counter()
    path, ledger = tmp_path / "0", Ledger(foreign=True)
    theirs = runner.start(path)
    rounds = kills()
    for number in (n + 1 for n in rounds.rounds()):
        delay_s = put_until_killed(theirs, ledger, rng, runner.kill)
        runner.bury()
        if rng.random() < 0.3:
            counts["killed while opening"] += kill_while_opening(runner, path, rng)
        image = copy(path, f"image-{number}")
        ours = recovered_by_us(path, ledger, tally, rng)
        refused = bool(empty_files(image)) and not since(runner.version, "5")
        dispatched = last_unit(image)
        try:
            theirs, view = recovered_by_them(runner, image, ledger, tally, rng)
        except OracleError as error:
            if not (refused and REFUSAL in str(error)):
                raise
            tally.know("RocketMQ refuses to load a file without bytes that its death left")
            view = None
        except HoleError as error:
            # Its recovery begins at a file that its checkpoint names, which may lie behind its queues.
            if not since(runner.version, "5.5") or error.after != dispatched:
                raise
            tally.know("messages that RocketMQ had not dispatched when it died, and never does")
            view = None
        served = view or View(0, 0, {}, {})
        subset(served, ours, tally)
        found = [len(one.messages()) for one in (served, ours)]
        counts["inside a request"] += bool(ledger.pending)
        counts["unanswered kept"] += found[1] > len(ledger.kept)
        counts["only we kept"] += found[1] - found[0]
        print(f"round {number}, after {delay_s:.4f} s: {len(ledger.kept)} acknowledged; {found}")
        going_on, left = image, path
        if view is None or rng.random() < 0.5:
            again = runner.start(path)
            same(of_oracle(again.dump()), ours, tally)
            counts["RocketMQ served what we closed"] += 1
            if view is None or rng.random() < 0.5:
                theirs, view, going_on, left = again, ours, path, image
        runner.leftovers.append(left)
        ledger.go_on(ledger.check(view, tally))
        path = going_on
        if len(ledger.kept) > MESSAGES_MAX:
            runner.leftovers.append(path)
            path, ledger = tmp_path / str(number), Ledger(foreign=True)
            theirs = runner.start(path)
    print(f"{rounds.did} rounds: {dict(counts)}")


def kill_while_opening(runner: Runner, path: Path, rng: random.Random) -> bool:
    """Whether it was not open yet."""
    refused = bool(empty_files(path)) and not since(runner.version, "5")
    runner.jvm = Oracle(runner.version)
    runner.jvm.ask("version")
    try:
        opening = killed(lambda: runner.start(path), rng.uniform(0.0, 0.3), runner.kill)
    except OracleError as error:
        if not (refused and REFUSAL in str(error)):
            raise
        opening = False
    runner.bury()
    return opening


#: Each leaves the files and threads of a store behind in its JVM, which are closed by its death.
RECOVERIES_A_JVM = 8


@pytest.mark.timeout(60 + 15 * int(ROUNDS or 20))
def test_killed_rocketstore(
    runner: Runner, tally: Tally, rng: random.Random, tmp_path: Path
) -> None:
    """While it opens, puts and rolls with `durability="os"`: RocketMQ recovers what we recover, a
    batch whole or not at all."""
    counts: Counter[str] = Counter()
    path, ledger = tmp_path / "0", Ledger()
    rounds = kills()
    for number in (n + 1 for n in rounds.rounds()):
        delay_s = run_ours_and_kill(path, ledger, rng)
        if not (path / "commitlog").is_dir():
            counts["killed before there was a store"] += 1
            continue
        image = copy(path, f"image-{number}")
        if number % RECOVERIES_A_JVM == 0:
            runner.bury()
        _, view = recovered_by_them(runner, image, ledger, tally, rng)
        ours = recovered_by_us(path, ledger, tally, rng)
        same(view, ours, tally)
        found = len(ours.messages())
        print(f"round {number}, after {delay_s:.4f} s", len(ledger.kept), "acknowledged", found)
        assert found - len(ledger.kept) in (0, len(ledger.pending)), "part of a batch"
        counts["unanswered kept"] += found > len(ledger.kept)
        counts["killed in a batch"] += len(ledger.pending) > 1
        ledger.go_on(ledger.check(view, tally))
        if rng.random() < 0.5:
            runner.bury()  # RocketMQ's recovery has the same end as its death
            counts["went on from RocketMQ's recovery"] += 1
            ledger.foreign = True
            path, image = image, path
        runner.leftovers.append(image)
        if len(ledger.kept) > MESSAGES_MAX:
            runner.bury()
            shutil.rmtree(path)
            path, ledger = tmp_path / str(number), Ledger()
    print(f"{rounds.did} rounds: {dict(counts)}")


#: The last file has some of them.
DAMAGED_MESSAGES = 430


@pytest.fixture(scope="module")
def crashed(version: str, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """A directory whose RocketMQ died right after its last answer."""
    path, ledger = tmp_path_factory.mktemp("crashed") / "store", Ledger()
    with Oracle(version) as writer:
        theirs = writer.start(path, SMALL)
        while ledger.next < DAMAGED_MESSAGES:
            put_theirs(theirs, ledger, DAMAGED_MESSAGES - ledger.next)
        theirs.settle()
        view = of_oracle(theirs.dump())
        writer.halt()
    for file in empty_files(path):
        file.unlink()
    assert ledger.check(view, Tally()) == list(range(DAMAGED_MESSAGES))
    return Image.of(path, view)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.id)
@pytest.mark.parametrize("again", range(1 + int(ROUNDS or 0) // 20))
def test_damage_by_hand(
    crashed: Image,
    runner: Runner,
    damage: Damage,
    again: int,
    tally: Tally,
    rng: random.Random,
    tmp_path: Path,
) -> None:
    """We lose what is hurt and nothing else; RocketMQ never keeps more than we do."""
    tally.scenarios += 1
    image = crashed.copy(tmp_path / "ours")
    hurt = {record.start for record in damage.make(image, rng)}
    copied = image.copy(tmp_path / "theirs")
    try:
        theirs, wrong = readable_by_them(runner.start(copied.path).dump())
    except OracleError as error:
        if not (
            damage.stops_java and ("OutOfMemory" in str(error) or "NegativeArray" in str(error))
        ):
            raise
        tally.know(f"{damage.id}: RocketMQ does not start")
        theirs, wrong = {}, 0
    with rocketstore.open(image.path, config=config_of(SMALL)) as store:
        ours = readable_by_us(store)
        print(store.recovery)
    assert all(map(sound, ours.values()))
    everything = {record.start for record in crashed.records}
    assert set(ours) == everything - hurt
    for physical_offset, message in theirs.items():
        tally.same_message(message, ours[physical_offset], f"at {physical_offset}")
    later, wrong_later = readable_by_them(runner.start(image.path).dump())
    for physical_offset, message in later.items():
        tally.same_message(message, ours[physical_offset], f"at {physical_offset}")
    print(
        f"{damage.id}: of {len(everything)} {len(hurt)} hurt; kept by us {len(ours)}, by RocketMQ "
        f"{len(theirs)} and {wrong} not as sent, after our close {len(later)} and {wrong_later}"
    )
    if damage.harmless:
        assert set(theirs) == set(later) == set(ours)
        assert wrong == wrong_later == 0
    for what, count in (
        ("lost by RocketMQ alone", len(ours) - len(theirs)),
        ("lost by RocketMQ after our close", len(ours) - len(later)),
        ("in RocketMQ's queues not as sent", wrong),
    ):
        if count:
            tally.known[f"{damage.id}: {what}"] += count
