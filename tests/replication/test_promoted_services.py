"""A copy that is promoted goes on with what its master was about: each delayed message once, timers,
what was cancelled and rescheduled, what comes again, open transactions, offsets of groups."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store
from rocketstore.config import StoreConfig
from rocketstore.engine.open import open_engine
from rocketstore.engine.open_options import Options
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.recovery.progress import order_cut
from rocketstore.replication import promote
from rocketstore.services.transactions.commit_records import PROGRESS_GROUP, TOPIC
from rocketstore.services.transactions.transactions import Transaction
from rocketstore.testing import ManualClock
from tests.replication.copies import caught_up, open_copy, open_master
from tests.replication.serving_master import DELAYS, GROUP, OPTIONS
from tests.support.small_store import everything, open_small
from tests.support.waiting import pause, wait_until


@contextmanager
def process_of(path: Path, seed: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.replication.serving_master", str(path), str(seed)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def bodies(store: Store, topic: str) -> list[str]:
    return [bytes(one.body).decode() for one in everything(store, topic)]


def promised_and_killed(path: Path, rng: random.Random, life_s: float) -> dict[str, Any]:
    """What the master said; its copy at `path / "c"` has all of that, and perhaps more."""
    with process_of(path / "m", rng.randrange(1000)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        with open_copy(path / "c", address, {**OPTIONS, "delay_levels": DELAYS}):
            process.stdin.write("\n")
            process.stdin.flush()
            said: dict[str, Any] = json.loads(process.stdout.readline())
            pause(rng.random() * life_s)
            process.kill()
            process.wait()
    return said


@pytest.mark.parametrize(
    "life_s", [0, 0.2, *(pytest.param(s, marks=pytest.mark.proof) for s in (4, 8))]
)
def test_a_promoted_copy_finishes_what_the_master_began(
    tmp_path: Path, rng: random.Random, life_s: float
) -> None:
    said = promised_and_killed(tmp_path, rng, life_s)
    promote(tmp_path / "c")
    options = {**OPTIONS, "delay_levels": DELAYS}
    with open_small(tmp_path / "c", **options) as store:
        with store.consumer("in", group=GROUP) as consumer:
            assert consumer.positions == {0: said["group"]}
        assert bodies(store, "out") == said["out"]

        assert bodies(store, "paid") == said["paid"]
        assert [one.id for one in store.transactions.open()] == said["open"]
        store.transactions.commit(said["open"][0])
        store.transactions.rollback(said["open"][1])

        beats = len(bodies(store, "beats"))
        wait_until(lambda: len(store.delayed) == 1, lambda: str(list(store.delayed)))  # the beat
        wait_until(lambda: len(bodies(store, "beats")) > beats + 1)
        assert store.delayed.cancel(said["beat"])
        store.flush()
        once_each(store, said)
        assert bodies(store, "paid") == [*said["paid"], "half 2"]
    for _ in range(2):  # whatever is stored of it
        with open_small(tmp_path / "c", **options) as store:
            once_each(store, said)
            assert len(store.delayed) == 0
            assert [one.id for one in store.transactions.open()] == said["open"][2:]


def once_each(store: Store, said: dict[str, Any]) -> None:
    found = Counter(bodies(store, "orders"))
    assert found == Counter(said["once"]), str(found - Counter(said["once"]))
    assert not {*bodies(store, "orders"), *bodies(store, "beats")} & {*said["never"]}
    for topic in ("orders", "beats"):
        sources = [one.properties.get("__DELAYED") for one in everything(store, topic)]
        # What was due by the time that it was put had nothing to wait for.
        sources = [one for one in sources if one is not None]
        assert len(sources) == len(set(sources))


# ---- what the copy has not of its master ----


def test_offsets_of_transactions_count_without_the_commits_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit that did not travel is not what the transaction behind it waits for."""
    monkeypatch.setattr("rocketstore.replication.master.sent_offsets.OFFSETS_EVERY_S", 1e6)
    with open_master(tmp_path / "m", OPTIONS) as master:
        for number in range(9):
            master.writer("in").put(b"%d" % number)
        with master.consumer("in", group=GROUP) as consumer:
            consumer.commit({0: 1})
            with open_copy(tmp_path / "c", master, OPTIONS) as copy:
                wait_until(lambda: copy.groups("in") == [GROUP])
                consumer.commit({0: 5})
                consumer.seek(5, queue_id=0)
                with master.transaction() as tx:
                    tx.put("out", b"of 5")
                    tx.commit_offsets(consumer, {0: 6}, allow_gap=True)
                caught_up(copy, master)
    promote(tmp_path / "c")
    with (
        open_small(tmp_path / "c", **OPTIONS) as store,
        store.consumer("in", group=GROUP) as consumer,
    ):
        assert consumer.positions == {0: 6}
        assert bodies(store, "out") == ["of 5"]


@contextmanager
def cut_and_promoted(path: Path, begin: Any, alone: Any, **options: Any) -> Iterator[Store]:
    """A master that did more, `alone`, than its copy has, follows that one, and takes the place
    back at once."""
    with open_master(path / "m", options) as master:
        with open_copy(path / "c", master, options) as copy:
            begun = begin(master)
            caught_up(copy, master)
        alone(master, begun)
    promote(path / "c")
    with (
        open_master(path / "c", {**options, "deliver_delayed": False}) as other,
        open_copy(path / "m", other, options) as copy,
    ):
        assert copy.recovery.cut
        caught_up(copy, other)
    promote(path / "m")
    with open_small(path / "m", **options) as store:
        yield store


@pytest.mark.parametrize("named", [{"delay_level": 1}, {"deliver_after": timedelta(seconds=1)}])
def test_what_was_delivered_and_cut_off_is_delivered(tmp_path: Path, named: Any) -> None:
    clock = ManualClock()

    def begin(master: Store) -> None:
        for number in range(3):
            master.writer("orders").put(b"%d" % number, **named)

    def alone(master: Store, _: None) -> None:
        clock.advance(1)  # not while the copy still follows
        wait_until(lambda: len(bodies(master, "orders")) == 3)
        master.flush()

    with cut_and_promoted(tmp_path, begin, alone, delay_levels="1s", clock=clock) as store:
        wait_until(lambda: len(store.delayed) == 0)
        store.flush()
        assert sorted(bodies(store, "orders")) == ["0", "1", "2"]


def test_what_was_committed_and_cut_off_is_open(tmp_path: Path) -> None:
    def begin(master: Store) -> Transaction:
        return master.transactions.prepare("paid", b"half", group="billing")

    def alone(master: Store, prepared: Transaction) -> None:
        prepared.commit()

    with cut_and_promoted(tmp_path, begin, alone) as store:
        assert bodies(store, "paid") == []
        [one] = store.transactions.open()
        store.transactions.commit(one.id)
        assert bodies(store, "paid") == ["half"]


def test_a_cut_amid_a_transaction_leaves_its_record_to_be_finished(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", **OPTIONS) as store:
        ends = []
        for _ in range(3):
            with store.transaction() as tx:
                tx.put("out", b"one")
            ends.append(store.end_offset)
    with open_small(tmp_path / "store", **OPTIONS) as store:
        records = [one.physical_offset for one in everything(store, TOPIC)]
    for cut, progress in ((ends[2], 2), (records[2], 1), (ends[0], 0), (records[0], 0)):
        copy = tmp_path / f"cut at {cut}"
        shutil.copytree(tmp_path / "store", copy)
        order_cut(StoreLayout(copy), cut)
        engine = open_engine(os.fspath(copy), "r+", Options(StoreConfig(**OPTIONS)))
        try:
            assert engine.offsets.get(TOPIC, PROGRESS_GROUP) == {0: progress}
        finally:
            engine.close()


@pytest.mark.parametrize("accepted", [True, False])
def test_a_master_that_follows_forgets_what_it_delivered(tmp_path: Path, accepted: bool) -> None:
    """The next one delivers from there on. A wrong address changes nothing."""
    files = [
        tmp_path / "m" / "config/delayOffset.json",
        tmp_path / "m" / "rocketstore/timers/state",
    ]
    options = {"delay_levels": "1s"}
    with open_master(tmp_path / "m", options) as master:
        master.writer("orders").put(b"level", delay_level=1)
        master.writer("orders").put(b"timer", deliver_after=timedelta(seconds=0.1))
        wait_until(lambda: len(bodies(master, "orders")) == 2)
        with open_copy(tmp_path / "c", master, options) as copy:
            wait_until(lambda: copy.visible_offset == master.visible_offset)
    assert all(file.exists() for file in files)
    promote(tmp_path / "c")
    with open_master(tmp_path / "c") as other:
        address = other.replication.address if accepted else "127.0.0.1:1"
        with open_copy(tmp_path / "m", address) as copy:
            if accepted:
                caught_up(copy, other)
    assert [file.exists() for file in files] == [not accepted] * 2
