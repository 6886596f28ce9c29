"""What a peer may send to a master, and what becomes of connections in a forked child."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketstore.errors import ReplicationError, StoreFailedError
from rocketstore.replication.master import sender
from rocketstore.replication.protocol.classic import REPORT, ClassicMasterLink
from rocketstore.replication.protocol.frames import Kind, frame
from rocketstore.replication.protocol.link import Acknowledged, Asked, Event
from tests.replication import copies
from tests.replication.classic_slave import ClassicSlave
from tests.replication.ends import Log
from tests.replication.masters import open_master
from tests.support.forking import fork
from tests.support.ports import free_address
from tests.support.waiting import PATIENCE_S, wait_until


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20), st.data())
def test_reports_in_any_pieces_say_the_same(offsets: list[int], data: st.DataObject) -> None:
    """The first one asks; the last acknowledgement is the last report."""
    sent = b"".join(map(REPORT.pack, offsets))
    link = ClassicMasterLink()
    events: list[Event] = []
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        events += link.receive(memoryview(sent[:size]))
        sent = sent[size:]
    assert events[0] == Asked(offsets[0], offsets[0])
    assert events[-1] == Acknowledged(offsets[-1], offsets[-1])
    assert sum(isinstance(event, Asked) for event in events) == 1
    told = [event.received for event in events if isinstance(event, Acknowledged)]
    assert set(told) <= set(offsets)


@given(st.binary(max_size=200))
def test_any_bytes_are_reports_or_refused(sent: bytes) -> None:
    link = ClassicMasterLink()
    with contextlib.suppress(ReplicationError):
        for event in link.receive(memoryview(sent)):
            assert isinstance(event, Asked | Acknowledged)
    assert not link.replies()


def test_noise_harms_neither_puts_nor_other_slaves(tmp_path: Path, rng: random.Random) -> None:
    """Connections that send random bytes, or nothing, or end anywhere; none confirms a put."""
    with open_master(tmp_path, max_replicas=64) as (store, master):
        host, port = master.address.split(":")
        with ClassicSlave(master.address) as slave, contextlib.ExitStack() as open_ones:
            for number in range(60):
                noise = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
                with contextlib.suppress(OSError):  # it may have been disconnected by then
                    noise.sendall(rng.randbytes(rng.choice([0, 1, 7, 8, 9, 64, 5000])))
                if rng.random() < 0.5:
                    noise.close()
                else:
                    open_ones.enter_context(noise)
                store.put_message("t", b"%d" % number)
            wait_until(lambda: slave.end == store.end_offset)
            wait_until(lambda: max(one.synced for one in master.replicas) >= slave.end)
            assert max(one.synced for one in master.replicas) == store.end_offset
            assert store.put_message("t", b"body", durability="replicas").durability == (
                "replicas(2)"
            )
        wait_until(lambda: not master.replicas)


def test_single_bytes_keep_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that never asks for the log is disconnected in time, whatever it sends meanwhile."""
    monkeypatch.setattr(sender, "FIRST_WORD_S", 0.4)
    with copies.open_master(tmp_path) as store:
        host, port = copies.address_of(store).split(":")
        hello = frame(Kind.HELLO, bytes(1000))
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as peer:
            for at in range(len(hello)):
                try:
                    peer.sendall(hello[at : at + 1])
                except OSError:
                    break
                time.sleep(0.05)
            assert at < len(hello) - 1
        wait_until(lambda: store.replication.last_error is not None)
        assert "nothing that asks for the log" in str(store.replication.last_error)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_keeps_neither_port_nor_connections(tmp_path: Path) -> None:
    """After the end of the parent's store the port is free, and the slave hears of the end."""
    with open_master(tmp_path, listen=free_address()) as (_, master):
        slave = ClassicSlave(master.address)
        wait_until(lambda: len(master.replicas) == 1)
        child = fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        assert slave.ended.wait(PATIENCE_S)
        slave.close()
        with open_master(tmp_path, listen=master.address) as (_, again):
            assert again.address == master.address
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_fault_in_a_connection_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise StoreFailedError("in a connection")

    with copies.open_master(tmp_path / "m") as store:
        monkeypatch.setattr(sender.ReplicaSender, "_take", fails)
        with copies.open_copy(tmp_path / "c", store):
            wait_until(lambda: store.replication.last_error is not None)
        assert "in a connection" in str(store.replication.last_error)


def test_a_refused_copy_is_told_of_at_both_ends_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with copies.open_master(tmp_path / "m", max_replicas=1) as store:
        with copies.Peer(copies.address_of(store), Log()):
            wait_until(lambda: len(store.replication.peers) == 1)
            with copies.open_copy(tmp_path / "c", store) as copy:
                wait_until(lambda: copies.service_of(store).refused >= 10)
                assert "max_replicas = 1" in str(copy.replication.last_error)
                assert copy.replication.error is None
        assert "max_replicas = 1" in str(store.replication.last_error)
    told = [one.message for one in caplog.records if one.name.startswith("rocketstore.replication")]
    assert sum("max_replicas" in one for one in told) == 2
    assert len(told) <= 4, told
