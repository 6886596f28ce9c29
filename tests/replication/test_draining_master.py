"""Ends: a master that closes serves those that are near first, and a copy that was killed goes on."""

from __future__ import annotations

import asyncio
import random
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore
from rocketstore import Store
from rocketstore.replication import promote
from rocketstore.replication.protocol.link import Ended, Offsets
from rocketstore.replication.protocol.session import MasterSession, ReplicaSession
from rocketstore.replication.replica.copied_log import CopiedLog
from rocketstore.replication.replica.received_offsets import ReceivedOffsets
from rocketstore.tools import verify
from tests.replication import ends, masters
from tests.replication.classic_slave import ClassicSlave
from tests.replication.copies import (
    Peer,
    address_of,
    caught_up,
    open_copy,
    open_master,
    put_some,
    same_log,
    service_of,
)
from tests.replication.cutting_proxy import CuttingProxy
from tests.replication.killed_copy import assert_prefix, kill_a_copy
from tests.support.small_store import SMALL, STILL, engine_of, everything, open_small
from tests.support.waiting import PATIENCE_S, wait_until

KEY = b"a key of 16 bytes or more"
#: What no promise wants on the disk stays in memory.
UNFLUSHED = {**STILL, "flush_timed": True, "durability": "memory", "visible": "flushed"}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that no slow machine reaches, and offsets that travel with the last word alone."""
    monkeypatch.setattr("rocketstore.replication.master.service.DRAIN_S", 100.0)
    monkeypatch.setattr("rocketstore.replication.transport.loop.STOP_S", 200.0)
    monkeypatch.setattr("rocketstore.replication.replica.service.LAST_OFFSETS_S", 100.0)
    monkeypatch.setattr("rocketstore.replication.master.sent_offsets.OFFSETS_EVERY_S", 1e6)


def table_of(store: rocketstore.Store) -> dict[str, object]:
    return dict(engine_of(store).offsets.table)


def commit(store: rocketstore.Store, offset: int) -> None:
    with store.consumer("orders", group="a", queue_id=0) as consumer:
        consumer.commit({0: offset})


@pytest.mark.quick
@pytest.mark.parametrize("key", [None, KEY])
def test_a_planned_switch_passes_nothing_on_twice(
    tmp_path: Path, patient: None, caplog: pytest.LogCaptureFixture, key: bytes | None
) -> None:
    """The last commits and puts, those that no disk of the master has included."""
    with open_master(tmp_path / "m", UNFLUSHED, key=key) as master:
        put_some(master, 10)
        master.flush()
        commit(master, 1)
        with open_copy(tmp_path / "c", master, key=key) as copy:
            caught_up(copy, master)
            wait_until(lambda: copy.groups("orders") == ["a"])
            for number in range(3):
                master.writer("orders", queue_id=0).put(b"%d" % number)
            commit(master, 5)
            end = master.end_offset
            master.close()
            assert copy.end_offset == end
            assert table_of(copy) == {"orders@a": {"0": 5}}
            # The replica says why once it has ended the connection.
            wait_until(lambda: "the peer says: the master closes" in caplog.text)
    promote(tmp_path / "c")
    with (
        open_small(tmp_path / "c") as store,
        store.consumer("orders", group="a", queue_id=0) as consumer,
    ):
        assert consumer.positions == {0: 5}
        assert [one.body for one in consumer.poll(20)][-3:] == [b"0", b"1", b"2"]


def test_a_slave_gets_the_end_of_the_log(tmp_path: Path, patient: None) -> None:
    with (
        masters.open_master(tmp_path, UNFLUSHED) as (store, master),
        ClassicSlave(master.address) as slave,
    ):
        store.writer("orders").put(b"on the disk", durability="disk")
        wait_until(lambda: slave.end == store.end_offset)
        store.writer("orders").put(b"in memory")
        end = store.end_offset
        assert slave.end < end
        store.close()
        assert slave.ended.wait(PATIENCE_S)
        assert slave.end == end


def test_a_replica_that_takes_nothing_holds_up_no_other(tmp_path: Path, patient: None) -> None:
    with open_master(tmp_path / "m", silence_limit=timedelta(minutes=9)) as master:
        put_some(master, 10)
        commit(master, 1)
        with (
            open_copy(tmp_path / "c", master) as copy,
            Peer(address_of(master), ends.Log(replica_id=b"p" * 16)) as peer,
        ):
            wait_until(lambda: copy.groups("orders") == ["a"])
            wait_until(lambda: len(master.replication.peers) == 2)
            commit(master, 5)
            closing = threading.Thread(target=master.close)
            closing.start()
            wait_until(lambda: table_of(copy) == {"orders@a": {"0": 5}})
            assert closing.is_alive()
            peer.end()
            closing.join()


def test_a_replica_that_takes_nothing_holds_the_close_for_a_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketstore.replication.master.service.DRAIN_S", 0.05)
    with open_master(tmp_path) as master:
        put_some(master, 10)
        with Peer(address_of(master), ends.Log()):
            wait_until(lambda: len(master.replication.peers) == 1)
            thread = service_of(master)._thread
            master.close()
            assert not thread.alive


def test_offsets_before_the_last_word_count() -> None:
    """Both may come in one piece."""
    log = ends.master_of(b"x" * 100)
    sender, replica = MasterSession(log), ReplicaSession(ends.copy_of(log, 100))
    wire = ends.Wire(sender, replica)
    wire.greet()
    offsets = Offsets(100, True, {"t@a": {0: 1}})
    last = ends.joined(sender.offsets(offsets))
    sender.no_place("the master closes")
    last += ends.joined(sender.replies())
    assert replica.receive(memoryview(last)) == [offsets, Ended("the peer says: the master closes")]


def test_offsets_that_came_are_stored_after_the_connection() -> None:
    """Once the disk has the log that they speak of, and not before."""
    stored: list[Any] = []
    listens: list[bool] = []
    engine: Any = SimpleNamespace(
        positions=SimpleNamespace(wrote=100, flushed=0),
        offsets=SimpleNamespace(take_from_master=lambda groups, whole: stored.append(groups)),
    )

    async def scene() -> None:
        kept = ReceivedOffsets(engine, stored.append, lambda: listens.append(True))
        kept.take(Offsets(100, True, {"t@a": {0: 1}}))
        kept.end()
        task = asyncio.create_task(kept.keep())
        await asyncio.sleep(0.02)
        assert not task.done()
        assert listens and not stored
        engine.positions.flushed = 100
        kept.moved.set()
        async with asyncio.timeout(60):
            await task
        assert stored == [{"t@a": {0: 1}}]

    asyncio.run(scene())


def test_a_broken_connection_leaves_no_offsets_that_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patient: None
) -> None:
    """The copy brings the log that they speak of to its disk first."""
    monkeypatch.setattr("rocketstore.replication.master.service.DRAIN_S", 0.0)
    came, slow = threading.Event(), True
    take, sync_soon, sync_here = ReceivedOffsets.take, CopiedLog.sync_soon, CopiedLog.sync_here

    def taken(kept: ReceivedOffsets, offsets: Offsets) -> None:
        take(kept, offsets)
        came.set()

    def synced(log: CopiedLog, *, now: bool) -> None:
        if not slow:
            sync_soon(log, now=now)

    def synced_here(log: CopiedLog) -> bool:
        return not slow and sync_here(log)

    monkeypatch.setattr(ReceivedOffsets, "take", taken)
    monkeypatch.setattr(CopiedLog, "sync_here", synced_here)
    monkeypatch.setattr(CopiedLog, "sync_soon", synced)
    with open_master(tmp_path / "m") as master:
        put_some(master, 10)
        commit(master, 5)
        with open_copy(tmp_path / "c", master, UNFLUSHED) as copy:
            assert came.wait(100)
            assert not table_of(copy)
            slow = False
            master.close()
            wait_until(lambda: table_of(copy) == {"orders@a": {"0": 5}})


SHAPE = {"index_slots": SMALL["index_slots"], "index_entries": SMALL["index_entries"]}
KILLS = 4


class Puts:
    """Puts without a pause, until the end of the block."""

    def __init__(self, master: Store) -> None:
        self._master = master
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Puts:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(0.001):
            put_some(self._master, 4)


@pytest.mark.proof
@pytest.mark.parametrize("cuts", [0, 40])
@pytest.mark.parametrize("protocol", ["rocketmq", "rocketstore"])
def test_a_killed_copy_goes_on(
    tmp_path: Path, rng: random.Random, protocol: Any, cuts: int
) -> None:
    """Through connections that break within frames as well. At each death it has a prefix of the
    master's log, with all that was on its disk, and the whole log once that has come."""
    ours, theirs = tmp_path / "c", tmp_path / "m"
    with open_master(theirs, protocol=protocol) as master:
        put_some(master, 20)
        with CuttingProxy(address_of(master), rng, cuts, 8000) as proxy:
            for _ in range(KILLS):
                with Puts(master):
                    synced = kill_a_copy(ours, proxy.address, protocol, rng)
                assert_prefix(ours, theirs, synced)
            with open_copy(ours, proxy.address, protocol=protocol) as copy:
                wait_until(
                    lambda: copy.flushed_offset == master.visible_offset,
                    lambda: str(copy.replication),
                )
                assert copy.replication.error is None
                assert [m.body for m in everything(copy)] == [m.body for m in everything(master)]
            assert bool(proxy.cut) == bool(cuts)
    same_log(theirs, ours)
    assert verify(ours, **SHAPE).faults == ()
