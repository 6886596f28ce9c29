"""One writer a store: who else opens it hears who has it."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import pytest

from rocketstore import StoreLockedError
from rocketstore.log.layout import lock as lock_module
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.paths import StoreLayout
from tests.process.other_process import HOLD, PUT, arriving, numbers, open_small, other_process
from tests.support.live_writer import java_writer


def test_a_second_writer_is_refused_and_hears_the_pid(tmp_path: Path) -> None:
    """D-04 D-35 K-39: the lock is taken before anything is read; the error names the holder."""
    with other_process(HOLD, tmp_path) as holder:
        assert holder.line() == "open"
        with pytest.raises(StoreLockedError, match=f"rocketstore process {holder.pid}") as caught:
            open_small(tmp_path)
        assert caught.value.path == str(tmp_path / "lock")
        holder.hears()
        assert holder.line() == "closed"
        open_small(tmp_path).close()


def test_the_same_process_cannot_open_twice(tmp_path: Path) -> None:
    """D-04: a lock of the open file description excludes its own process too."""
    with open_small(tmp_path) as store:
        with pytest.raises(StoreLockedError, match="this process") as caught:
            open_small(tmp_path)
        for same in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert "until the process ends, which closes it" in str(same)  # who has lost the handle
            assert "close it there" not in str(same)
        assert store.writer("T").put(b"goes on").queue_offset == 0


def test_a_lock_that_was_forgotten_is_as_open_as_before(tmp_path: Path) -> None:
    """A set of weak references did not know it, and was iterated over while other threads opened and closed stores,
    which raised RuntimeError now and then."""
    layout = StoreLayout(tmp_path)
    StoreLock.acquire(layout)
    gc.collect()
    try:
        with pytest.raises(StoreLockedError, match="use the store that is open, or close it"):
            open_small(tmp_path)
    finally:
        for lock in tuple(lock_module._held):
            if lock._layout is layout:
                lock.release()
    open_small(tmp_path).close()


def test_a_rocketmq_that_holds_the_lock_is_named(tmp_path: Path) -> None:
    """D-04: our lock and RocketMQ's POSIX lock exclude each other."""
    open_small(tmp_path).close()
    with (
        java_writer(StoreLayout(tmp_path)),
        pytest.raises(StoreLockedError, match=r"process \d+ \(.+\), with the kind of lock"),
    ):
        open_small(tmp_path)


def test_the_lock_of_a_killed_writer_is_free(tmp_path: Path) -> None:
    """D-03 D-35: no lock outlives its process; `abort` says that it did not stop cleanly."""
    with other_process(PUT, tmp_path, given=[0, 50], durability="os") as writer:
        assert writer.line() == "open"
        writer.hears()
        assert writer.line() == "done"
        writer.kill()
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert store.recovery.mode != "clean"
        assert numbers(store) == list(range(50))


def test_a_refused_open_changes_nothing_for_the_holder(tmp_path: Path) -> None:
    """D-04 D-36: the one who was refused unlocks and closes nothing of the other."""
    with other_process(PUT, tmp_path, given=[0, 10]) as writer:
        assert writer.line() == "open"
        with pytest.raises(StoreLockedError):
            open_small(tmp_path)
        writer.hears()
        assert writer.line() == "done"
        with open_small(tmp_path, "r") as reader:
            assert arriving(reader.consumer("Orders"), 10) == list(range(10))
