"""A streaming copy whose processes are all killed, again and again: every message once, in order."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.spark.write.journal import Journal, sink_directory
from tests.spark.patience import BUSY, patiently
from tests.spark.processes import Program, program
from tests.spark.reading import everything

pytestmark = [pytest.mark.spark, pytest.mark.proof]

#: In which a query at work is killed with all its processes.
ROUNDS = int(os.environ.get("ROCKETSTORE_SPARK_KILLS", "10"))
#: About every fourth try is none of those.
TRIES_A_ROUND = 8
#: Of about 400 bytes each; a micro-batch takes 64 KiB of log.
MESSAGES_A_ROUND = 1500
#: Commits of a round that are waited for before the kill, and then so long at most.
COMMITS_MAX, DELAY_S = 5, 0.6
PATIENCE_S = 120


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
    deadline = time.monotonic() + PATIENCE_S
    while last_version(target) < wanted and running.process.poll() is None:
        assert time.monotonic() < deadline, running.log.read_text()[-3000:]
        time.sleep(0.01)


@pytest.mark.timeout(3600)
def test_every_message_once_whatever_is_killed(tmp_path: Path, rng: random.Random) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    words = (source, target, tmp_path / "checkpoint")
    killed, full, tries = 0, 0, 0
    while full < ROUNDS:
        # A round that ends by itself, or is killed while it starts, is one more.
        assert tries < TRIES_A_ROUND * ROUNDS, f"{full} of {tries} were killed at work"
        add(source, rng, MESSAGES_A_ROUND)
        with program("tests.spark.copying", words, tmp_path / f"{tries}.log") as running:
            wait_for_commits(running, target, rng.randrange(COMMITS_MAX))
            time.sleep(rng.uniform(0, DELAY_S))
            ended = running.process.poll()
            dead = running.kill() if ended is None else 0
            assert ended in (None, 0) or BUSY in (text := running.log.read_text()), text[-3000:]
        tries += 1
        killed += dead
        full += dead > 2  # a driver, its JVM, and workers
    assert killed > 2 * ROUNDS

    def finish() -> None:
        with program("tests.spark.copying", words, tmp_path / "last.log") as running:
            running.done(300)

    patiently(finish)
    assert contents(target) == contents(source)
    found = commits(target)
    assert found == list(range(found[0], found[0] + len(found)))
    assert Journal(target).pending() is None
    print(f"\n{tries} rounds, {killed} processes killed, {len(contents(target))} messages once")
