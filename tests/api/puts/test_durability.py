"""The three promises: what is true when a put returns, and what a failed disk does to them."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rocketstore import (
    DurabilityTimeoutError,
    Store,
    StoreFailedError,
    StoreReadOnlyError,
    encode_frames,
)
from rocketstore.log.commitlog import flusher as flusher_module
from tests.support.disk_calls import DiskCalls, Gate, disk_calls
from tests.support.small_store import everything, log_bytes, open_small, open_still, parts, until
from tests.support.waiting import wait_until


@pytest.fixture
def calls() -> Iterator[DiskCalls]:
    """What reaches the disk."""
    with disk_calls() as calls:
        yield calls


def test_disk_put_waits_for_its_own_end(store: Store) -> None:
    """S000-44 S002-04 S002-37 S003-40 S001-51 S001-52: it returns once flushed has reached its end."""
    for size in (10, 500, 3000):
        result = store.writer("orders").put(b"x" * size)
        assert store.flushed_offset >= result.end_offset == result.physical_offset + result.size


def test_the_caller_sleeps_until_the_flusher_wakes_it(calls: DiskCalls, store: Store) -> None:
    """S000-110 S002-05 S002-19: the put returns after the sync, not before."""
    gate = Gate()
    calls.before["pwritev2"] = gate
    done = threading.Event()

    def put() -> None:
        store.writer("t").put(b"x")
        done.set()

    thread = threading.Thread(target=put)
    thread.start()
    assert gate.reached.wait(20)
    assert not done.is_set()
    assert store.visible_offset == 0  # nobody reads what a power cut could take back
    gate.open()
    thread.join(20)
    assert done.is_set()
    assert store.flushed_offset == store.end_offset > 0


@pytest.mark.store(sync_flush_timeout_ms=30)
def test_a_flush_that_comes_too_late(calls: DiskCalls, store: Store) -> None:
    """S000-45 S002-07 S002-08: FLUSH_DISK_TIMEOUT: the error says what was stored, where, and what to do."""
    gate = threading.Event()
    calls.before["pwritev2"] = lambda: gate.wait(20)
    with pytest.raises(DurabilityTimeoutError, match="do not put it again") as caught:
        store.writer("orders").put(b"late")
    result = caught.value.result
    assert result is not None
    assert caught.value.status == "FLUSH_DISK_TIMEOUT"
    assert (result.physical_offset, result.end_offset) == (0, store.end_offset)
    gate.set()
    store.wait_flushed(result.end_offset, timeout_s=20)
    assert store.get(result.physical_offset).body == b"late"


@pytest.mark.parametrize("durability", ["os", "disk", "memory"])
def test_flush_covers_all_that_was_put_before(tmp_path: Path, durability: str) -> None:
    with open_still(tmp_path, durability) as store:
        last = [store.writer("orders").put(b"x", durability="memory") for _ in range(3)][-1]
        assert store.flush() == store.flushed_offset == last.end_offset
        assert store.flush(timeout_s=0) == last.end_offset  # there is nothing to wait for
    with open_small(tmp_path, "r") as reader, pytest.raises(StoreReadOnlyError, match="^flush: "):
        reader.flush()


def test_a_flush_that_takes_too_long(calls: DiskCalls, store: Store) -> None:
    gate = threading.Event()
    calls.before["pwritev2"] = lambda: gate.wait(20)
    store.writer("orders").put(b"x", durability="memory")
    with pytest.raises(DurabilityTimeoutError, match="flushed = 0"):
        store.flush(timeout_s=0.01)
    gate.set()
    assert store.flush(timeout_s=20) == store.end_offset


def test_wait_flushed_times_out(calls: DiskCalls, store: Store) -> None:
    gate = threading.Event()
    calls.before["pwritev2"] = lambda: gate.wait(20)
    result = store.writer("orders").put(b"x", durability="memory")
    with pytest.raises(DurabilityTimeoutError, match="flushed = 0"):
        store.wait_flushed(result.end_offset, timeout_s=0.01)
    gate.set()
    with pytest.raises(ValueError, match="the log ends at"):
        store.wait_flushed(result.end_offset + 1)


def test_without_the_wait_flag_the_flusher_is_only_woken(store: Store) -> None:
    """S000-46 S000-112 S002-09 S002-22: WAIT=false returns at once; a flush comes all the same."""
    result = store.put_message("orders", b"x", properties={"WAIT": "false"})
    assert result.durability == "memory"
    until(store, lambda: store.flushed_offset >= result.end_offset)


def test_wait_flag_true_or_absent_waits(store: Store) -> None:
    for properties in ({}, {"WAIT": "true"}):
        assert store.put_message("t", b"x", properties=properties).durability == "disk"


def test_appended_is_not_durable(tmp_path: Path) -> None:
    """S000-43 S003-38 S002-36: a put of an os or memory store says nothing about the disk."""
    for durability in ("os", "memory"):
        with open_still(tmp_path / durability, durability) as store:
            result = store.writer("orders").put(b"x")
            assert result.durability == durability
            assert store.flushed_offset == 0
            store.wait_flushed(result.end_offset)
            assert store.flushed_offset == result.end_offset


@pytest.mark.parametrize("own", ["disk", "os", "memory"])
@pytest.mark.parametrize("asked", ["disk", "os", "memory"])
def test_each_put_may_choose(tmp_path: Path, own: str, asked: str) -> None:
    """S000-115: the user chooses for the store, a writer, or one message."""
    with open_small(tmp_path, durability=own) as store:
        result = store.writer("orders").put(b"x", durability=asked)
        order = ("memory", "os", "disk")
        assert order.index(result.durability) >= order.index(asked)
        if asked == "disk":
            assert store.flushed_offset >= result.end_offset
        again = store.writer("orders", durability=asked).put(b"y")
        assert order.index(again.durability) >= order.index(asked)


def test_a_failed_sync_fails_the_store(tmp_path: Path, calls: DiskCalls) -> None:
    """S000-86 K-01 D-12: flushed stays, nobody is told OK, no second sync pretends."""
    store = open_small(tmp_path)
    writer = store.writer("orders")
    good = writer.put(b"good")
    calls.errors["pwritev2"] = OSError(5, "Input/output error")
    with pytest.raises(StoreFailedError, match="Input/output error") as caught:
        writer.put(b"lost?")
    assert isinstance(caught.value.__cause__, OSError)
    assert store.flushed_offset == good.end_offset
    calls.errors.clear()
    made = len(calls.made)
    with pytest.raises(StoreFailedError, match="nothing was stored"):
        writer.put(b"after")
    with pytest.raises(StoreFailedError):
        store.wait_flushed(store.end_offset)
    assert store.get(good.physical_offset).body == b"good"  # reads go on
    store.close()
    assert len(calls.made) == made  # close did not sync behind its back
    assert (tmp_path / "abort").exists()
    with open_small(tmp_path) as store:
        assert store.recovery.mode == "unclean"
        assert everything(store)[0].body == b"good"
        assert store.writer("orders").put(b"again").durability == "disk"


def test_waiters_of_a_failed_store_are_told(tmp_path: Path, calls: DiskCalls) -> None:
    """S002-19 S000-101: the error of a worker is not only logged (K-01): it reaches who waits."""
    gate = threading.Event()

    def fail() -> None:
        gate.wait(20)
        raise OSError(28, "No space left on device")

    store = open_small(tmp_path, sync_flush_timeout_ms=60_000)
    calls.before["pwritev2"] = fail
    errors: list[BaseException] = []

    def put() -> None:
        try:
            store.writer("t").put(b"x")
        except StoreFailedError as error:
            errors.append(error)

    threads = [threading.Thread(target=put) for _ in range(3)]
    for thread in threads:
        thread.start()
    until(store, lambda: store.end_offset > 0)
    gate.set()
    for thread in threads:
        thread.join(20)
    assert len(errors) == 3
    store.close()


def test_flush_policy_runs_outside_the_append_lock(calls: DiskCalls, store: Store) -> None:
    """S003-27: while a sync hangs, other puts take the lock, append and return."""
    gate = Gate()
    calls.before["pwritev2"] = gate
    first = store.writer("orders").submit(b"first")
    assert gate.reached.wait(20)
    for number in range(1, 6):
        result = store.writer("orders").put(b"next", durability="memory")
        assert result.queue_offset == number
    assert not first.done()
    gate.open()
    assert first.result(20).durability == "disk"


def test_close_makes_everything_durable(tmp_path: Path) -> None:
    """S000-100 S002-35 S000-114 S002-15: until nothing is left, however much that is (K-37)."""
    for durability in ("disk", "os", "memory"):
        root = tmp_path / durability
        with open_still(root, durability) as store:
            writer = store.writer("orders", durability="memory")
            for i in range(60):
                writer.put(b"%d" % i * 100)
            log = parts(store).commit_log
        assert log.positions.flushed == log.positions.wrote
        assert not (root / "abort").exists()
        with open_small(root, "r") as store:
            assert store.recovery.mode == "clean"
            assert [m.body for m in everything(store)] == [b"%d" % i * 100 for i in range(60)]


def test_slow_flush_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """S000-98 S002-34: beyond 500 ms, with how far it went."""
    monkeypatch.setattr(flusher_module, "SLOW_FLUSH_MS", -1)
    with caplog.at_level(logging.WARNING), open_small(tmp_path) as store:
        end = store.writer("orders").put(b"x").end_offset
    assert f"flush up to {end} took" in caplog.text


def test_disk_readers_see_only_what_is_durable(
    tmp_path: Path, calls: DiskCalls, store: Store
) -> None:
    """In a disk store visible is flushed, so nobody reads what a power cut takes back."""
    gate = threading.Event()
    calls.before["pwritev2"] = lambda: gate.wait(20)
    store.writer("orders").put(b"x", durability="memory")
    assert store.visible_offset == 0
    assert log_bytes(tmp_path).strip(b"\0") == b""
    gate.set()
    store.wait_flushed(store.end_offset)
    assert store.visible_offset == store.end_offset


def test_an_unknown_durability_stores_nothing(store: Store) -> None:
    frames, _ = encode_frames((np.array([0, 1], np.int32), b"x"), topics=["t"])
    writer = store.writer("t")
    wrong: dict[str, Any] = {"durability": "certain"}
    for put in (
        lambda: writer.put(b"x", **wrong),
        lambda: writer.submit(b"x", **wrong),
        lambda: writer.put_batch([b"x"], **wrong),
        lambda: writer.put_columns((np.array([0, 1]), b"x"), **wrong),
        lambda: store.put_message("t", b"x", **wrong),
        lambda: store.put_frames(frames, **wrong),
        lambda: store.put_columns(([0, 1], b"x"), topics=["t"], **wrong),
    ):
        with pytest.raises(ValueError, match="durability = 'certain'"):
            put()
    assert store.end_offset == 0


@pytest.mark.parametrize("timeout_s", ["5", float("nan"), [1]])
@pytest.mark.store(durability="os")
def test_a_timeout_that_is_none_is_refused_before_anything_is_stored(
    timeout_s: Any, store: Store
) -> None:
    frames, _ = encode_frames((np.array([0, 1], np.int32), b"x"), topics=["t"])
    writer = store.writer("orders")
    wrong: dict[str, Any] = {"durability": "disk", "timeout_s": timeout_s}
    for put in (
        lambda: writer.put(b"x", **wrong),
        lambda: writer.put_batch([b"x"], **wrong),
        lambda: writer.put_columns((np.array([0, 1]), b"x"), **wrong),
        lambda: store.put_message("orders", b"x", **wrong),
        lambda: store.put_frames(frames, **wrong),
        lambda: store.put_columns(([0, 1], b"x"), topics=["t"], **wrong),
    ):
        with pytest.raises((TypeError, ValueError)):
            put()
    assert store.end_offset == 0


@pytest.mark.parametrize("timeout_s", [float("inf"), 1e10, 9.3e9, 1e300])
@pytest.mark.store(durability="os")
def test_the_longest_timeouts_wait(timeout_s: float, store: Store) -> None:
    result = store.writer("orders").put(b"x", durability="disk", timeout_s=timeout_s)
    assert result.durability == "disk"
    store.wait_flushed(result.end_offset, timeout_s)


@pytest.mark.store(durability="os", flush_interval_ms=24 * 3600 * 1000)
def test_waits_without_time_have_it_flushed(store: Store) -> None:
    """Who looks again and again whether a message is on disk comes to see it there."""
    end = store.writer("orders").put(b"x").end_offset

    def flushed() -> bool:
        with contextlib.suppress(DurabilityTimeoutError):
            store.wait_flushed(end, timeout_s=0)
        return store.flushed_offset >= end

    wait_until(flushed)
