"""Where a copy syncs what comes, and what it and its master say of how replication is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from click.testing import CliRunner

from rocketstore import DiskFullError, Store
from rocketstore.cli import exit_codes
from rocketstore.cli.app import cli
from rocketstore.log.commitlog.flusher import Flusher
from rocketstore.log.layout.file_system import file_system
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication.replica import copied_log
from rocketstore.replication.replica.copied_log import CopiedLog
from rocketstore.replication.role.state import load_state
from tests.replication.copies import (
    caught_up,
    open_copy,
    open_master,
    put_some,
    same_log,
)
from tests.support.ports import free_address
from tests.support.small_store import DAY_MS, SEGMENT, open_small, parts
from tests.support.waiting import wait_until

MIB = {"commit_log_file_size_bytes": 1 << 20}
#: No flush but those that are asked for.
ASKED = {**MIB, "flush_interval_ms": DAY_MS, "flush_thorough_interval_ms": DAY_MS}


@contextmanager
def pair(tmp_path: Path, options: dict[str, Any] | None = None) -> Iterator[tuple[Store, Store]]:
    """A master, and a copy that counts."""
    with (
        open_master(tmp_path / "m", options, replica_timeout=timedelta(seconds=20)) as master,
        open_copy(tmp_path / "c", master, options) as copy,
    ):
        master.writer("orders").put(b"before", durability="disk")
        wait_until(lambda: [one.synced for one in master.replication.peers] == [master.end_offset])
        yield master, copy


def flusher_of(store: Store) -> Flusher:
    flusher = parts(store).flusher
    assert isinstance(flusher, Flusher)
    return flusher


def threads_that_flush(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Their names, one a flush."""
    flusher, names = flusher_of(store), list[str]()
    flush = flusher._flush

    def noted() -> None:
        names.append(threading.current_thread().name)
        flush()

    monkeypatch.setattr(flusher, "_flush", noted)
    return names


def written_bytes(directory: Path) -> int:
    """In front of the first hole of the log; an extent that was never written counts as one."""
    fd = os.open(directory / "commitlog" / f"{0:020d}", os.O_RDONLY)
    try:
        return os.lseek(fd, 0, os.SEEK_HOLE)
    finally:
        os.close(fd)


def test_puts_that_wait_are_synced_by_the_thread_that_receives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copied_log, "QUICK_S", 600.0)  # however slow the disk is
    with pair(tmp_path, ASKED) as (master, copy):
        writer = master.writer("orders")
        names = threads_that_flush(copy, monkeypatch)
        for _ in range(20):
            writer.put(b"promised", durability="replicas(2)")
        assert names.count("rocketstore-replica") == 20
        assert copy.flushed_offset == master.end_offset


def test_after_a_slow_sync_the_next_ones_are_the_flushers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that takes long is not waited for where heartbeats are sent."""
    monkeypatch.setattr(copied_log, "QUICK_S", 0.0)
    monkeypatch.setattr(copied_log, "SLOW_FOR_S", 600.0)
    with pair(tmp_path, MIB) as (master, copy):
        writer = master.writer("orders")
        writer.put(b"slow", durability="replicas(2)")
        names = threads_that_flush(copy, monkeypatch)
        for _ in range(20):
            writer.put(b"promised", durability="replicas(2)")
        assert set(names) == {"rocketstore-flusher"}


@pytest.mark.parametrize("slow", [False, True])
def test_no_byte_is_acknowledged_before_its_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: bool
) -> None:
    if slow:
        monkeypatch.setattr(copied_log, "QUICK_S", 0.0)
        monkeypatch.setattr(copied_log, "SLOW_FOR_S", 600.0)
    with pair(tmp_path, MIB) as (master, copy):
        writer = master.writer("orders")
        flusher, held = flusher_of(copy), threading.Event()
        flush = flusher._flush_mapped

        def late(target: int) -> None:
            assert held.wait(30)
            flush(target)

        monkeypatch.setattr(flusher, "_flush_mapped", late)
        before = master.end_offset
        writer.put(b"second", durability="disk")
        wait_until(lambda: copy.end_offset == master.end_offset)
        time.sleep(0.05)
        assert [one.synced for one in master.replication.peers] == [before]
        held.set()
        wait_until(lambda: [one.synced for one in master.replication.peers] == [master.end_offset])


def test_a_small_flush_brings_zeros_for_those_that_follow(tmp_path: Path) -> None:
    if not file_system(tmp_path).mapped_writes:
        pytest.skip(
            "this file system writes new blocks each time, or may: no zeros are written ahead"
        )
    with pair(tmp_path, MIB) as (master, copy):
        writer = master.writer("orders")
        writer.put(b"first", durability="replicas(2)")
        ahead = written_bytes(tmp_path / "c")
        assert ahead >= 256 << 10
        for _ in range(20):
            writer.put(bytes(1024), durability="replicas(2)")
        assert written_bytes(tmp_path / "c") == ahead
        caught_up(copy, master)
    same_log(tmp_path / "m", tmp_path / "c")


def test_zeros_end_with_the_file_and_go_on_in_the_next(tmp_path: Path) -> None:
    """Files of 4 KiB: each flush comes near an end."""
    with pair(tmp_path) as (master, copy):
        put_some(master, 60, durability="replicas(2)")
        assert copy.flushed_offset == master.end_offset > 3 * SEGMENT
    same_log(tmp_path / "m", tmp_path / "c")
    sizes: set[Any] = {path.stat().st_size for path in (tmp_path / "c" / "commitlog").iterdir()}
    assert sizes == {SEGMENT}


def test_a_copy_that_stopped_says_so_on_its_disk(tmp_path: Path) -> None:
    """To who opens it for reading, and after a restart, until it goes on."""
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        put_some(master, 5)
        caught_up(copy, master)
        assert copy.replication.stopped == ""
    with open_master(tmp_path / "n") as other, open_copy(tmp_path / "c", other) as copy:
        wait_until(lambda: copy.replication.error is not None)
    with open_small(tmp_path / "c", "r") as reader:
        assert "different stores" in reader.replication.stopped
    assert CliRunner().invoke(cli, ["stat", str(tmp_path / "c")]).exit_code == exit_codes.DAMAGED
    with open_copy(tmp_path / "c", free_address()) as copy:
        assert "different stores" in copy.replication.stopped
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        caught_up(copy, master)
        wait_until(lambda: copy.replication.stopped == "")
    with open_small(tmp_path / "c", "r") as reader:
        assert reader.replication.stopped == ""


def test_a_copy_that_cannot_write_says_so_on_its_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = DiskFullError("no room for a file")
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        put_some(master, 5)
        caught_up(copy, master)
        with monkeypatch.context() as patched:
            patched.setattr(CopiedLog, "take", AsyncMock(side_effect=full))
            put_some(master, 1)
            wait_until(lambda: "no room" in copy.replication.stopped)
            wait_until(lambda: "no room" in load_state(StoreLayout(tmp_path / "c")).stopped)  # type: ignore[union-attr]
        caught_up(copy, master)
        wait_until(lambda: copy.replication.stopped == "")


def test_who_is_among_the_peers_counts(tmp_path: Path) -> None:
    """A put right after a look at `peers` finds the replica."""
    with open_master(tmp_path / "m") as master:
        put_some(master, 5)
        for _ in range(12):
            with open_copy(tmp_path / "c", master):
                wait_until(lambda: master.replication.peers)
                assert [peer.counts for peer in master.replication.peers] == [True]
                master.writer("orders").put(b"x", durability="replicas(2)")
            wait_until(lambda: not master.replication.peers)


def test_a_copy_that_hears_nothing_is_not_caught_up(tmp_path: Path) -> None:
    """Its master is there, and says nothing for longer than a heartbeat takes."""
    rare, often = timedelta(minutes=5), timedelta(milliseconds=20)
    with (
        open_master(tmp_path / "m", heartbeat_every=rare) as master,
        open_copy(
            tmp_path / "c", master, heartbeat_every=often, silence_limit=timedelta(minutes=9)
        ) as copy,
    ):
        put_some(master, 5)
        wait_until(lambda: copy.flushed_offset == master.end_offset)
        wait_until(lambda: not copy.replication.caught_up and copy.replication.peers)
        wait_until(lambda: [peer.lag_s > 0.1 for peer in copy.replication.peers] == [True])
        assert [peer.lag_bytes for peer in copy.replication.peers] == [0]
        assert [peer.lag_bytes for peer in master.replication.peers] == [0]
