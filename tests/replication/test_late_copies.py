"""Copies whose log begins late, and puts that were under way before."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rocketstore.aio
from rocketstore import ReplicaTimeoutError, ReplicationError, Store
from rocketstore._native.append.copies import Copies
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.recovery.progress import order_cut
from rocketstore.replication.master.quorum import NOT_CONNECTED, Quorum
from rocketstore.replication.replica.copied_log import CopiedLog
from tests.replication.classic_slave import ClassicSlave
from tests.replication.copies import (
    Peer,
    caught_up,
    counted,
    open_copy,
    open_master,
    put_some,
)
from tests.replication.ends import Log
from tests.replication.masters import open_master as open_classic_master
from tests.support.small_store import dispatched, parts
from tests.support.waiting import PATIENCE_S, wait_until

TWO, THREE = 4 - 1, 4  # levels: memory, os, disk, and machines beyond


def be_patient(master: Store) -> None:
    """From here on a put waits for its replicas as long as a slow machine needs."""
    parts(master).commit_log.log.group.copies.timeout_ms = int(PATIENCE_S * 1000)


def test_a_put_is_not_on_a_copy_that_begins_behind_it(tmp_path: Path) -> None:
    """It waits for a replica that is slow, while another one begins with the last file."""
    with open_master(tmp_path / "m", replica_timeout=timedelta(seconds=2)) as master:
        writer = master.writer("orders")
        with Peer(master.replication.address or "", Log()):
            counted(master)
            errors: list[BaseException] = []

            def put() -> None:
                try:
                    writer.put(b"promised", durability="replicas(2)")
                except ReplicaTimeoutError as error:
                    errors.append(error)

            thread = threading.Thread(target=put)
            thread.start()
            wait_until(lambda: master.end_offset > 0)
            for _ in range(30):
                writer.put(b"x" * 300, durability="disk")
            with open_copy(tmp_path / "c", master, begin="last file") as copy:
                wait_until(lambda: copy.begin_offset > 4096 and copy.replication.caught_up)
                thread.join()
                assert len(errors) == 1
                be_patient(master)
                writer.put(b"since", durability="replicas(2)")


def test_machines_have_what_their_logs_begin_before() -> None:
    copies = Copies()
    copies.confirm(2, 100)
    copies.confirm(2, 900, 500)
    met = [copies.met(end, TWO) for end in (100, 101, 500, 501, 900, 901)]
    assert met == [True, False, False, True, True, False]
    copies.confirm(2, 1000, 500)  # nothing more is lacked
    assert copies.met(1000, TWO)
    assert copies.confirmed_offset(2) == 1000


def test_so_many_machines_have_what_all_of_them_have() -> None:
    told: list[tuple[int, int, int]] = []
    quorum = Quorum(lambda copies, offset, begin: told.append((copies, offset, begin)))
    quorum.acknowledged("whole", 300)
    quorum.acknowledged("late", 900, 500)
    assert told == [(2, 300, 0), (2, 900, 500), (3, 300, 500)]
    told.clear()
    quorum.left("late")
    assert told == [(2, 300, 0), (3, NOT_CONNECTED, 0)]


def test_an_empty_copy_with_a_file_says_that_it_cannot_go_on(tmp_path: Path) -> None:
    """As a cut of all leaves one, or a crash before the first record."""
    with open_master(tmp_path / "m") as master:
        put_some(master, 5)
        with open_copy(tmp_path / "c", master) as copy:
            caught_up(copy, master)
        order_cut(StoreLayout(tmp_path / "c"), 0)
        put_some(master, 60)
        dispatched(master).flush()
        assert master.trim(before_offset=9000) > 0
        with open_copy(tmp_path / "c", master) as copy:
            wait_until(lambda: copy.replication.error is not None)
            assert isinstance(copy.replication.error, ReplicationError)
            assert "new copy" in str(copy.replication.error)


def test_a_slave_that_asks_late_has_nothing_from_before(tmp_path: Path) -> None:
    """RocketMQ's protocol does not say where a slave's log begins: it counts for what it is sent."""
    with (
        open_classic_master(tmp_path, replica_timeout=timedelta(seconds=1)) as (store, service),
        ClassicSlave(service.address, acknowledges=False),
    ):
        counted(store)
        ticket = store.writer("t").submit(b"promised", durability="replicas(2)")
        store.flush()
        with ClassicSlave(service.address, store.end_offset):
            wait_until(lambda: any(one.synced == store.end_offset for one in service.replicas))
            with pytest.raises(ReplicaTimeoutError):
                ticket.result()
            be_patient(store)
            assert store.put_message("t", b"since", durability="replicas(2)").queue_offset == 1


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["ticket", "aio"])
def test_no_put_waits_longer_than_replicas_have(tmp_path: Path, kind: str) -> None:
    """Also one that stands in line after a put that never gets its replicas."""
    limit_s = 5.0
    with (
        open_classic_master(tmp_path, replica_timeout=timedelta(seconds=limit_s)) as (
            store,
            service,
        ),
        ClassicSlave(service.address, acknowledges=False),
    ):
        counted(store)
        took: dict[str, float] = {}

        async def put(name: str) -> None:
            began = time.monotonic()
            try:
                if kind == "ticket":
                    ticket = store.writer("t").submit(b"x", durability="replicas(2)")
                    await asyncio.to_thread(ticket.future().result, PATIENCE_S)
                else:
                    async with rocketstore.aio.attach(store) as attached:
                        await attached.writer("t").put(b"x", durability="replicas(2)")
                name += ": met"
            except ReplicaTimeoutError:
                name += ": late"
            took[name] = time.monotonic() - began

        async def both() -> None:
            first = asyncio.create_task(put("first"))
            await asyncio.to_thread(
                wait_until, lambda: 0 < store.end_offset == store.visible_offset
            )
            with ClassicSlave(service.address, store.end_offset):
                await asyncio.to_thread(
                    wait_until, lambda: any(one.synced for one in service.replicas)
                )
                await asyncio.gather(first, *(put(str(number)) for number in range(3)))

        asyncio.run(both())
        assert set(took) == {"first: late", "0: met", "1: met", "2: met"}
        assert max(took.values()) < 2 * limit_s


def test_a_copy_sends_no_digest_of_bytes_that_are_gone() -> None:
    """Retention may take them meanwhile: a wrong digest would stop the copy for good."""
    files = SimpleNamespace(find=lambda offset: None)
    log = SimpleNamespace(log=None, begin_offset=0, queue=files, wait_flushed=lambda *_: True)
    engine: Any = SimpleNamespace(
        commit_log=log,
        positions=SimpleNamespace(wrote=100),
        config=SimpleNamespace(sync_flush_timeout_ms=0),
    )
    with pytest.raises(ReplicationError, match="lacks the file"):
        CopiedLog(engine).log_tail()
