"""Nothing that two machines had is lost, and no two machines differ, whatever goes wrong.

`ROCKETSTORE_HISTORIES=100 ROCKETSTORE_HISTORY_SECONDS=60` is the named run (tests/README.md).
"""

from __future__ import annotations

import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.replication.histories.faults import FAULTS, striker
from tests.replication.histories.history import History
from tests.replication.histories.machines import Settings
from tests.support import campaign
from tests.support.waiting import pause, wait_until

#: Seconds of one history; a named run has longer ones.
SECONDS = float(os.environ.get("ROCKETSTORE_HISTORY_SECONDS", "30"))
#: Histories of a named run.
ASKED = os.environ.get("ROCKETSTORE_HISTORIES", "")
#: Kinds of faults, with commas; empty: a mixture of all.
ONLY = tuple(filter(None, os.environ.get("ROCKETSTORE_HISTORY_FAULTS", "").split(",")))
#: Histories at a time: their processes wait for disks and for time most of the time.
AT_ONCE = int(os.environ.get("ROCKETSTORE_HISTORIES_AT_ONCE", "4"))

#: A run that hangs ends by it, seconds: of a history each may take so much longer.
TIMEOUT_S = 1200 + int(ASKED or 0) * (SECONDS + 60)


def one_history(root: Path, seed: int) -> tuple[int, History]:
    """Every second one with a key."""
    rng = random.Random(seed)
    key = rng.randbytes(32) if rng.random() < 0.5 else None
    root.mkdir()
    history = History(root, rng, Settings(key=key))
    history.run(SECONDS, striker(rng, ONLY))
    return seed, history


@pytest.mark.proof
@pytest.mark.timeout(TIMEOUT_S)
def test_no_acknowledged_message_is_lost(tmp_path: Path, rng: random.Random) -> None:
    running = campaign.begin("histories of faults", asked=ASKED, alone=1)
    try:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            while running.goes_on():
                count = AT_ONCE
                if running.seconds is None:
                    count = min(count, running.count - running.did)
                seeds = {tmp_path / str(running.did + n): rng.getrandbits(32) for n in range(count)}
                for seed, history in pool.map(one_history, seeds.keys(), seeds.values()):
                    key = "" if history.settings.key is None else ", with a key"
                    print(f"history {seed}{key}: {history}", flush=True)
                    found = history.wrong()
                    assert found == [], "\n".join([*found, *history.timeline])
                    assert any(put.acknowledged for put in history.evidence.puts.values())
                    shutil.rmtree(history.root)
                running.did += count
    finally:
        running.end()


@pytest.mark.proof
def test_the_judge_finds_what_one_machine_alone_had(tmp_path: Path, rng: random.Random) -> None:
    """Planted: puts that wait for one disk are lost with it."""
    for number in range(5):
        root = tmp_path / str(number)
        root.mkdir()
        history = History(root, rng, Settings(promise="disk"))
        history.run(4, lose_what_no_copy_has)
        if any("acknowledged are lost" in one for one in history.wrong()):
            return
    pytest.fail("five histories lost nothing of what one machine alone had")


def lose_what_no_copy_has(history: History) -> None:
    """Once a copy has enough to be promoted, and nothing more comes to it."""
    wait_until(lambda: any(machine.has_followed for machine in history.others()))
    for machine in history.others():
        machine.link.down.hold()
    pause(0.5)
    FAULTS["loss of the master"][1](history)
    history.await_acknowledged(5)
