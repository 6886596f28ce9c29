"""Writes that are short are finished; a sync or write of the log that fails latches the store."""

from __future__ import annotations

import contextlib
import errno
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store, StoreFailedError
from rocketstore.log.commitlog.checkpoint import CheckpointFile
from rocketstore.log.layout.paths import StoreLayout
from tests.process.other_process import numbers, open_small
from tests.support.small_store import engine_of, parts

#: What syncs the log in each mode.
SYNC_CALLS = [("disk", "pwritev2"), ("os", "msync"), ("memory", "fdatasync")]
DAY_MS = 24 * 3600 * 1000

in_each_mode = pytest.mark.parametrize(("durability", "call"), SYNC_CALLS)


def open_quiet(path: Path, durability: str) -> Store:
    """Nothing but a put that waits makes the log sync."""
    return open_small(
        path,
        durability=durability,
        flush_interval_ms=DAY_MS,
        consume_queue_flush_interval_ms=DAY_MS,
        index_enabled=False,
    )


def fail_the_log(store: Store, probe: Any, call: str, error: int = errno.EIO) -> None:
    """Message 0 is durable; the sync of message 1 fails, for ever."""
    writer = store.writer("Orders")
    writer.put(b"0:", durability="disk")
    probe.fail(call, error, times=-1)
    with pytest.raises(StoreFailedError):
        writer.put(b"1:", durability="disk")
    probe.restore()


@in_each_mode
def test_the_waiter_hears_the_cause(tmp_path: Path, probe: Any, durability: str, call: str) -> None:
    """D-10 D-13 K-01 S000-86: the outcome is unknown, which is not "not stored"; the cause is told."""
    with open_quiet(tmp_path, durability) as store:
        writer = store.writer("Orders")
        writer.put(b"0:", durability="disk")
        flushed = store.flushed_offset
        probe.fail(call, errno.EIO, times=-1)
        with pytest.raises(StoreFailedError, match="is not known") as caught:
            writer.put(b"1:", durability="disk")
        assert isinstance(caught.value.__cause__, OSError)
        assert caught.value.__cause__.errno == errno.EIO
        assert store.flushed_offset == flushed
        probe.restore()


@in_each_mode
def test_every_waiter_hears_it(tmp_path: Path, probe: Any, durability: str, call: str) -> None:
    """D-13 K-01 S000-110: puts of other threads, tickets and callbacks are all told."""
    with open_quiet(tmp_path, durability) as store:
        writer = store.writer("Orders")
        writer.put(b"0:", durability="disk")
        ready = threading.Barrier(5)
        heard: list[BaseException] = []

        def put() -> None:
            ready.wait(20)
            try:
                writer.put(b"1:", durability="disk")
            except StoreFailedError as error:
                heard.append(error)

        threads = [threading.Thread(target=put) for _ in range(4)]
        for thread in threads:
            thread.start()
        probe.fail(call, errno.EIO, times=-1)
        ready.wait(20)
        for thread in threads:
            thread.join(30)
        probe.restore()
        assert len(heard) == 4
        with pytest.raises(StoreFailedError):
            store.wait_flushed(store.end_offset)


def test_a_ticket_hears_it(tmp_path: Path, probe: Any) -> None:
    """D-13 K-85: a ticket that is pending fails with the cause, its callback is called."""
    with open_quiet(tmp_path, "os") as store:
        writer = store.writer("Orders")
        writer.put(b"0:", durability="disk")
        probe.fail("msync", errno.EIO, times=-1)
        ticket = writer.submit(b"1:", durability="disk")
        called = threading.Event()
        ticket.add_done_callback(lambda _: called.set())
        assert called.wait(30)
        assert isinstance(ticket.exception(), StoreFailedError)
        assert ticket.done()
        with pytest.raises(StoreFailedError):
            ticket.future().result(30)
        probe.restore()


@in_each_mode
def test_later_puts_are_refused_and_reads_go_on(
    tmp_path: Path, probe: Any, durability: str, call: str
) -> None:
    """D-13 K-01: nothing is appended any more, although the disk would work again."""
    with open_quiet(tmp_path, durability) as store:
        fail_the_log(store, probe, call)
        end = store.end_offset
        writer = store.writer("Orders")
        entries: list[Callable[[], object]] = [
            lambda: writer.put(b"x", durability="memory"),
            lambda: writer.put_batch([b"x", b"y"]),
            lambda: writer.submit(b"x"),
            lambda: store.put_message("Orders", b"x"),
        ]
        for entry in entries:
            with pytest.raises(StoreFailedError, match="nothing was stored"):
                entry()
        assert store.end_offset == end
        assert numbers(store)[0] == 0
        assert bytes(store.get(0).body) == b"0:"


@in_each_mode
def test_there_is_no_second_sync(tmp_path: Path, probe: Any, durability: str, call: str) -> None:
    """D-12 D-13 K-01: after an error the next sync would say OK for pages that Linux has dropped."""
    with open_quiet(tmp_path, durability) as store:
        writer = store.writer("Orders")
        writer.put(b"0:", durability="disk")
        flusher = parts(store).flusher
        flushes = flusher.flushes
        probe.fail(call, errno.EIO, times=-1)
        with pytest.raises(StoreFailedError):
            writer.put(b"1:", durability="disk")
        if call == "pwritev2":  # nothing but the log is written with it
            assert probe.calls_made() == 1
        for _ in range(3):
            with pytest.raises(StoreFailedError):
                store.wait_flushed(store.end_offset)
        parts(store).commit_log.log.group.signal.notify()
        probe.fail(call, errno.EIO, times=0)  # counts only
        flushed = store.flushed_offset
        store.close()
        assert flusher.flushes == flushes
        if call == "pwritev2":
            assert probe.calls_made() == 0
        assert engine_of(store).positions.flushed == flushed


@in_each_mode
def test_close_leaves_no_clean_mark_and_reopening_recovers(
    tmp_path: Path, probe: Any, durability: str, call: str
) -> None:
    """D-03 D-13 K-01 K-37: `abort` stays, our checkpoint does not say clean; what was acknowledged is
    found, puts go on."""
    store = open_quiet(tmp_path, durability)
    fail_the_log(store, probe, call)
    flushed = store.flushed_offset
    store.close()
    assert (tmp_path / "abort").exists()
    own = CheckpointFile(StoreLayout(tmp_path).own_checkpoint).load()
    assert own is not None
    assert not own.clean
    assert own.flushed <= flushed
    with open_quiet(tmp_path, durability) as store:
        assert store.recovery.mode != "clean"
        assert numbers(store) in ([0], [0, 1])
        store.writer("Orders").put(b"2:", durability="disk")
        assert numbers(store)[-1] == 2
    assert not (tmp_path / "abort").exists()


def test_a_failed_sync_over_two_segments(tmp_path: Path, probe: Any) -> None:
    """D-10 D-13: a flush over a roll that fails in the second sync publishes nothing of it."""
    with open_quiet(tmp_path, "disk") as store:
        writer = store.writer("Orders")
        writer.put(b"0:")
        flushed = store.flushed_offset
        probe.fail("fdatasync", errno.EIO, times=-1)
        with contextlib.suppress(StoreFailedError):
            for number in range(1, 1000):
                writer.put(b"%d:" % number + bytes(3000), durability="memory")
        with pytest.raises(StoreFailedError):
            store.wait_flushed(store.end_offset)
        probe.restore()
        assert store.flushed_offset >= flushed
        assert numbers(store) == list(range(len(numbers(store))))
    assert (tmp_path / "abort").exists()


def test_a_full_disk_under_a_write_fails_the_store(tmp_path: Path, probe: Any) -> None:
    """D-13: ENOSPC from a write of the log is a failed write as well, whatever its cause."""
    with open_quiet(tmp_path, "disk") as store:
        fail_the_log(store, probe, "pwritev2", errno.ENOSPC)
        with pytest.raises(StoreFailedError, match="No space left"):
            store.writer("Orders").put(b"x")


def fill(path: Path, durability: str) -> None:
    with open_small(path, durability=durability) as store:
        writer = store.writer("Orders")
        for number in range(200):
            writer.put(b"%d:" % number + bytes(number * 13 % 700), keys=f"k{number}")
        store.wait_flushed(store.end_offset)


def check(path: Path) -> None:
    with open_small(path) as store:
        assert store.recovery.mode == "clean"
        bodies = [bytes(message.body) for message in store.consumer("Orders")]
        assert bodies == [b"%d:" % n + bytes(n * 13 % 700) for n in range(200)]
        assert len(store.query("Orders", "k199")) == 1


@pytest.mark.parametrize("durability", ["disk", "os", "memory"])
@pytest.mark.parametrize("at_most", [1, 100, 4096])
def test_short_writes(tmp_path: Path, probe: Any, durability: str, at_most: int) -> None:
    """D-10: a short count is no error and no success: the rest is written by the next call."""
    probe.fail("pwrite", 0, times=0, at_most=at_most)
    fill(tmp_path, durability)
    assert probe.calls_made() > 0
    probe.restore()
    check(tmp_path)


@pytest.mark.parametrize(
    ("durability", "call"),
    [
        ("disk", "pwritev2"),
        ("disk", "pwrite"),
        ("memory", "fdatasync"),
        ("memory", "pwrite"),
        ("os", "msync"),
        ("os", "mmap"),
    ],
)
def test_calls_that_a_signal_breaks_off(
    tmp_path: Path, probe: Any, durability: str, call: str
) -> None:
    """D-10 D-33: EINTR is tried again, also when a signal's handler ran in between."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: heard.append(number))
    try:
        probe.fail(call, errno.EINTR, times=5, with_signal=signal.SIGUSR1)
        fill(tmp_path, durability)
        assert probe.calls_made() >= 5
    finally:
        probe.restore()
        signal.signal(signal.SIGUSR1, before)
    assert heard
    check(tmp_path)


def test_a_file_system_without_durable_writes(tmp_path: Path, probe: Any) -> None:
    """D-39: without RWF_DSYNC a write and an fdatasync keep the same promise."""
    probe.fail("pwritev2", errno.EOPNOTSUPP, times=-1)
    fill(tmp_path, "disk")
    assert probe.calls_made() > 0
    probe.restore()
    check(tmp_path)
