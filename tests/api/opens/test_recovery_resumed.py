"""A recovery that is stopped goes on where it was, and ends as one that was never stopped."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore import Store
from rocketstore.engine import catch_up
from rocketstore.log.commitlog.checkpoint import OwnCheckpoint
from rocketstore.log.recovery import repair as log_repair
from rocketstore.log.recovery import walk as log_walk
from tests.support.checkpoints import own_checkpoint
from tests.support.copies import copy_if_there
from tests.support.small_store import (
    DAY_MS,
    SEGMENT,
    dispatched,
    everything,
    open_small,
    open_still,
    segments,
)

STEP = 2048
MESSAGES = 400


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a log of some GiB has them."""
    monkeypatch.setattr(log_walk, "CHUNK_BYTES", STEP)
    monkeypatch.setattr(log_repair, "ADVANCE_BYTES", STEP)
    monkeypatch.setattr(catch_up, "STEP_BYTES", STEP)


class Stopped(Exception):
    """What stops a recovery."""


class Stopper:
    """Stops the recovery at its step number `at`; counts how much log was checked and dispatched."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.steps = 0

    def __call__(self, what: str, done: int, total: int) -> None:
        assert 0 <= done <= total, what
        self.steps += 1
        self.left -= 1
        if self.left == 0:
            raise Stopped


def fill(path: Path, **options: Any) -> list[int]:
    """Puts to six queues; where each record begins."""
    with open_small(path, durability="os", **options) as store:
        return [
            store.put_message(
                ("orders", "events")[number % 2],
                b"%d" % number,
                queue_id=number % 3,
                properties={"KEYS": f"k{number}"},
            ).physical_offset
            for number in range(MESSAGES)
        ]


def damage(path: Path, start: int) -> None:
    """What begins at `start` is no record any more, and names no queue."""
    with open(segments(path)[start // SEGMENT], "r+b") as file:
        file.seek(start % SEGMENT)
        file.write(b"\xff" * 40)


def of_rocketmq(path: Path, rng: random.Random) -> None:
    """A crashed store of another program: nothing of ours, damage in it, no queues."""
    starts = fill(path, record_crc=False)
    for part in ("rocketstore", "consumequeue", "index"):
        shutil.rmtree(path / part)
    (path / "lock").write_bytes(b"lock")
    (path / "checkpoint").unlink()
    (path / "abort").touch()
    damage(path, rng.choice(starts[30:60]))
    damage(path, rng.choice(starts[120:200]))


def of_ours(path: Path, rng: random.Random) -> None:
    """A crashed store of ours whose queues were deleted."""
    starts = fill(path)
    shutil.rmtree(path / "consumequeue")
    (path / "abort").touch()
    damage(path, rng.choice(starts[60:100]))


def outcome(store: Store) -> Any:
    """What a recovery ends with."""
    bounds = {
        (topic, queue_id): (
            store.min_queue_offset(topic, queue_id),
            store.max_queue_offset(topic, queue_id),
        )
        for topic in store.topics(system=True)
        for queue_id in store.queues(topic)
    }
    messages = [
        (m.physical_offset, m.body)
        for topic in store.topics(system=True)
        for m in everything(store, topic)
    ]
    keyed = [len(store.query("orders", f"k{number}")) for number in range(0, MESSAGES, 2)]
    return store.end_offset, store.recovery.damage, bounds, messages, keyed


@pytest.mark.parametrize("make", [of_rocketmq, of_ours])
def test_every_stop_is_gone_on_from(
    make: Callable[[Path, random.Random], None], tmp_path: Path, rng: random.Random
) -> None:
    """D-23: stopped after each step, the next attempt does the rest and not the whole again."""
    make(tmp_path / "crashed", rng)
    shutil.copytree(tmp_path / "crashed", tmp_path / "whole")
    whole = Stopper(-1)
    with open_small(tmp_path / "whole", on_recovery=whole) as store:
        wanted = outcome(store)
        assert store.recovery.damage
    assert whole.steps > 20
    path = tmp_path / "crashed"
    stops = 0
    while True:
        # An attempt has to come further than the two steps that a stop may cost.
        stopper = Stopper(rng.randrange(4, 8))
        try:
            with open_small(path, on_recovery=stopper) as store:
                assert outcome(store) == wanted
                assert not (path / "rocketstore" / "recovery.json").exists()
                break
        except Stopped:
            stops += 1
            assert stops < whole.steps, "it never comes further"
    assert stops > whole.steps // 8
    with open_small(path) as store:
        assert store.recovery.mode == "clean"
        assert outcome(store)[2:] == wanted[2:]


def test_the_last_attempt_checks_little(rng: random.Random, root: Path) -> None:
    """D-23: what an earlier attempt made durable is not read again."""
    of_rocketmq(root, rng)
    with pytest.raises(Stopped), open_small(root, on_recovery=Stopper(30)):
        pass
    with open_small(root) as store:
        report = store.recovery
        assert report.mode == "foreign-unclean"
        assert report.start > 0
        assert report.scanned_bytes <= report.end - report.start
        assert "an earlier recovery came to" in str(report)
        assert report.foreign == (report.start, report.end)
    state = (root / "rocketstore" / "store.json").read_text()
    assert f"{report.end}" in state


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 1}', '{"version": 2}'])
def test_progress_that_nobody_can_read(text: str, rng: random.Random, root: Path) -> None:
    of_rocketmq(root, rng)
    with pytest.raises(Stopped), open_small(root, on_recovery=Stopper(30)):
        pass
    progress = root / "rocketstore" / "recovery.json"
    assert progress.exists()
    progress.write_text(text)
    with open_small(root) as store:
        assert len(outcome(store)[3]) > MESSAGES * 9 // 10
        assert not progress.exists()


def test_a_rocketmq_between_two_attempts(rng: random.Random, root: Path) -> None:
    """What the first attempt noted counts no more, all is checked again."""
    of_rocketmq(root, rng)
    with pytest.raises(Stopped), open_small(root, on_recovery=Stopper(30)):
        pass
    (root / "lock").write_bytes(b"lock")
    with open_small(root) as store:
        assert store.recovery.start == 0
        assert len(store.recovery.damage) == 2
        assert not (root / "rocketstore" / "recovery.json").exists()


def test_reading_changes_no_progress(rng: random.Random, root: Path) -> None:
    of_rocketmq(root, rng)
    with pytest.raises(Stopped), open_small(root, on_recovery=Stopper(30)):
        pass
    before = (root / "rocketstore" / "recovery.json").read_bytes()
    with rocketstore.open(root, "r") as store:
        assert len(outcome(store)[3]) > MESSAGES * 9 // 10
    assert (root / "rocketstore" / "recovery.json").read_bytes() == before


def test_a_checkpoint_on_the_way_names_no_queue_further_on(tmp_path: Path) -> None:
    """D-18: one that a killed process made has a name that may not be on disk, and no unit yet that is."""
    live, killed = tmp_path / "live", tmp_path / "killed"
    with open_still(live, "os", consume_queue_flush_interval_ms=DAY_MS) as store:
        for number in range(50):
            store.writer("early").put(b"%d" % number)
        late = [store.writer("late").put(b"%d" % number).physical_offset for number in range(10)]
        dispatched(store)
        shutil.copytree(live, killed, copy_function=copy_if_there)
    assert {path.name for path in (killed / "consumequeue").iterdir()} == {"early", "late"}
    counts = set()

    def look(what: str, done: int, total: int) -> None:
        checkpoint = found(killed)
        counts.add((checkpoint.queue_count, checkpoint.dispatched > late[0]))

    with open_small(killed, on_recovery=look) as store:
        assert len(everything(store, "late")) == 10
    assert counts >= {(0, False), (1, False)}
    assert counts <= {(0, False), (1, False), (2, True)}


def found(root: Path) -> OwnCheckpoint:
    checkpoint = own_checkpoint(root)
    assert checkpoint is not None
    return checkpoint
