"""A streaming copy whose processes are all killed, again and again: every message once, in order."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.sink.journal import Journal, sink_directory
from tests.spark.patience import BUSY, patiently
from tests.spark.processes import Program, program
from tests.spark.reading import everything
from tests.support import campaign
from tests.support.waiting import pause, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.proof]

#: In which a query at work is killed with all its processes; "": the seconds of a whole run, or 10.
ROUNDS = os.environ.get("ROCKETSTORE_SPARK_KILLS", "")
#: About every fourth try is none of those.
TRIES_A_ROUND = 8
#: Of about 400 bytes each; a micro-batch takes 64 KiB of log.
MESSAGES_A_ROUND = 1500
#: Commits of a round that are waited for before the kill, and then so long at most.
COMMITS_MAX, DELAY_S = 5, 0.6


def add(source: Path, rng: random.Random, count: int) -> None:
    with rocketstore.open(source, durability="os", commit_log_file_size_bytes=1 << 20) as store:
        for _ in range(count):
            writer = store.writer(rng.choice(["orders", "events"]), queue_id=rng.randrange(3))
            writer.put(rng.randbytes(rng.randrange(500)), tags=rng.choice([None, "red"]))


def contents(root: Path) -> list[tuple[Any, ...]]:
    return [(m.topic, m.queue_id, m.queue_offset, m.body, m.tags) for m in everything(root)]


def commits(target: Path) -> list[int]:
    """Versions that the journal holds, as anybody may look at them."""
    for path in (sink_directory(target) / "writers").glob("*.json"):
        return [commit["version"] for commit in json.loads(path.read_text())["commits"]]
    return []


def last_version(target: Path) -> int:
    """The journal remembers a hundred versions: their number stops growing."""
    return max(commits(target), default=-1)


def wait_for_commits(running: Program, target: Path, more: int) -> None:
    wanted = last_version(target) + more
    wait_until(
        lambda: last_version(target) >= wanted or running.process.poll() is not None,
        lambda: running.log.read_text()[-3000:],
    )


@pytest.mark.timeout(3600)
def test_every_message_once_whatever_is_killed(tmp_path: Path, rng: random.Random) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    words = (source, target, tmp_path / "checkpoint")
    killed, tries = 0, 0
    kills = campaign.begin("kills of Spark", asked=ROUNDS)
    while kills.goes_on():
        # A round that ends by itself, or is killed while it starts, is one more.
        assert tries <= TRIES_A_ROUND * (kills.did + 1), (
            f"{kills.did} of {tries} were killed at work"
        )
        add(source, rng, MESSAGES_A_ROUND)
        with program("tests.spark.copying", words, tmp_path / f"{tries}.log") as running:
            wait_for_commits(running, target, rng.randrange(COMMITS_MAX))
            pause(rng.uniform(0, DELAY_S))
            ended = running.process.poll()
            dead = running.kill() if ended is None else 0
            assert ended in (None, 0) or BUSY in (text := running.log.read_text()), text[-3000:]
        tries += 1
        killed += dead
        kills.did += dead > 2  # a driver, its JVM, and workers
    kills.end()
    assert killed > 2 * kills.did

    def finish() -> None:
        with program("tests.spark.copying", words, tmp_path / "last.log") as running:
            running.done(300)

    patiently(finish)
    assert contents(target) == contents(source)
    found = commits(target)
    assert found == list(range(found[0], found[0] + len(found)))
    assert Journal(target).pending() is None
    print(f"\n{tries} rounds, {killed} processes killed, {len(contents(target))} messages once")
