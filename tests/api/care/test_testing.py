"""`rocketstore.testing`: what tests of programs get."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rocketstore
from rocketstore.errors import ConfigError, StoreClosedError, StoreReadOnlyError
from rocketstore.testing import ManualClock, crash_and_reopen, small_config, temporary_store
from rocketstore.tools import verify
from tests.support.paths import ROOT
from tests.support.small_store import open_small


def test_a_temporary_store_is_small_and_gone_at_the_end() -> None:
    with temporary_store() as store:
        path = Path(store.path)
        store.writer("t").put(b"x", keys="k")
        size = sum(f.stat().st_blocks * 512 for f in path.rglob("*") if f.is_file())
        assert size < 1 << 20
        assert store.config.durability == "os"
    assert store.closed
    assert not path.parent.exists()


def test_it_is_gone_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), temporary_store(durability="disk") as store:
        path = Path(store.path)
        assert store.config.durability == "disk"
        _ = 1 / 0
    assert not path.parent.exists()


def test_it_can_be_opened_again_until_the_end() -> None:
    with temporary_store() as store:
        assert Path(store.path).parent.stat().st_mode & 0o777 == 0o700
        store.writer("t").put(b"x")
        store.close()
        rocketstore.open(":memory:", config=small_config()).close()  # whose sweep leaves it
        with rocketstore.open(store.path) as again:
            assert [message.body for message in again.consumer("t")] == [b"x"]
    assert not os.path.exists(os.path.dirname(store.path))


def test_options_win() -> None:
    assert small_config(index_slots=7).index_slots == 7
    with temporary_store(commit_log_file_size_bytes=1 << 17) as store:
        assert store.config.commit_log_file_size_bytes == 1 << 17
    rule = rocketstore.Retention(max_bytes=1 << 17)
    with temporary_store(retention=rule) as store:
        assert store.retention.plan().segments == ()
    wrong: Any = {"no_such": 1}
    with pytest.raises(ConfigError, match="no_such"), temporary_store(**wrong):
        pass


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_crash_keeps_what_was_promised(durability: Any) -> None:
    clock = ManualClock(1_000_000)
    with temporary_store(durability=durability, clock=clock) as store:
        writer = store.writer("t", queues=3)
        bodies = [b"%d" % number for number in range(300)]
        for body in bodies:
            writer.put(body, keys=body.decode())
        consumer = store.consumer("t", group="g")
        taken = consumer.poll(max_messages=100)
        consumer.commit()
        again = crash_and_reopen(store)
        assert store.closed
        assert again.recovery.mode == "unclean"
        assert (again.path, again.config, again.clock) == (store.path, store.config, clock)
        assert sorted(m.body for m in again.consumer("t")) == sorted(bodies)
        assert sum(again.committed("t", "g").values()) == len(taken)
        assert [m.body for m in again.query("t", "17")] == [b"17"]
        assert verify(again.path).faults == ()
        third = crash_and_reopen(again)
        assert sorted(m.body for m in third.consumer("t")) == sorted(bodies)
    assert not Path(store.path).parent.exists()
    assert third.closed


def test_a_crash_takes_what_was_not_committed() -> None:
    """As a kill does, with durability "memory"."""
    with temporary_store(
        durability="memory", commit_interval_ms=3_600_000, wake_commit_on_put=False
    ) as store:
        store.writer("t").put(b"x")
        again = crash_and_reopen(store)
        assert again.topics() == []


def test_stores_that_cannot_crash_are_left_as_they_are(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        store.writer("t").put(b"x")
        with open_small(tmp_path / "store", "r") as reader:
            with pytest.raises(StoreReadOnlyError):
                crash_and_reopen(reader)
            assert not reader.closed
        assert not store.closed
    with pytest.raises(StoreClosedError):
        crash_and_reopen(store)
    assert os.listdir(tmp_path) == ["store"]


def test_it_asks_for_no_pytest() -> None:
    program = (
        "import sys, rocketstore.testing as t; t.temporary_store; "
        "print([m for m in ('pytest', 'numpy', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        check=True,
        text=True,
        env={"PYTHONPATH": ":".join([str(ROOT), *sys.path])},
    )
    assert done.stdout == "[]\n"
    assert "testing" in rocketstore._MODULES
