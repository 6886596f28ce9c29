"""What a master, a copy and the files of a copy say of how replication is."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
from click.testing import CliRunner

from rocketstore import DiskFullError
from rocketstore.cli import exit_codes
from rocketstore.cli.app import cli
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication.replica.copied_log import CopiedLog
from rocketstore.replication.role.state import load_state
from tests.replication.copies import caught_up, open_copy, open_master, put_some
from tests.support.ports import free_address
from tests.support.small_store import open_small
from tests.support.waiting import wait_until


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
