"""What an open of a copy waits for, and copies whose log begins late."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
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
from rocketstore.replication.replica import service as replica_service
from rocketstore.replication.replica.copied_log import CopiedLog
from rocketstore.replication.transport import channels
from rocketstore.replication.transport.limits import PendingConnections
from tests.replication.classic_slave import ClassicSlave
from tests.replication.copies import (
    Peer,
    caught_up,
    copy_of,
    counted,
    open_copy,
    open_master,
    put_some,
    service_of,
)
from tests.replication.ends import Log
from tests.replication.masters import open_master as open_classic_master
from tests.support.small_store import dispatched, open_small, parts
from tests.support.waiting import PATIENCE_S, wait_until

#: Far below what hangs, far above what a busy machine needs, seconds.
SOON_S = 60.0
HANGS_S = 600.0


@pytest.fixture
def silent_master() -> Iterator[str]:
    """It takes connections, and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def hanging_lookup(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A system that looks up no name for long; set once it is asked."""
    asked, answers = threading.Event(), threading.Event()

    def getaddrinfo(*_: object, **__: object) -> None:
        asked.set()
        answers.wait(HANGS_S)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(channels, "HANDSHAKE_S", 0.3)
    yield asked
    answers.set()


def names_of_threads() -> list[str]:
    return [one.name for one in threading.enumerate()]


def test_an_interrupt_ends_an_open_that_waits_for_the_master(
    tmp_path: Path, silent_master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_service, "ANSWER_S", HANGS_S)
    monkeypatch.setattr(replica_service, "PROOF_S", HANGS_S)
    with open_small(tmp_path / "copy"):
        pass

    def interrupt() -> None:
        wait_until(lambda: "rocketstore-first-contact" in names_of_threads())
        time.sleep(0.2)  # it has asked
        os.kill(os.getpid(), signal.SIGINT)

    user = threading.Thread(target=interrupt)
    user.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        open_copy(tmp_path / "copy", silent_master, silence_limit=timedelta(seconds=HANGS_S))
    user.join()
    assert time.monotonic() - began < SOON_S
    # One that has looked up the address belongs to nobody.
    left = [name for name in names_of_threads() if name != "rocketstore-lookup"]
    assert not [name for name in left if name.startswith("rocketstore")]
    with open_small(tmp_path / "copy", "r"):  # nobody has it open
        pass


def test_a_lookup_that_hangs_holds_up_neither_open_nor_close_nor_exit(
    tmp_path: Path, hanging_lookup: threading.Event
) -> None:
    before, began = set(threading.enumerate()), time.monotonic()
    with open_copy(tmp_path / "copy", "master.example:10912") as copy:
        assert hanging_lookup.is_set()
        assert time.monotonic() - began < SOON_S
        wait_until(lambda: copy.replication.last_error is not None)
        assert names_of_threads().count("rocketstore-lookup") == 1, "each attempt asks again"
        began = time.monotonic()
    assert time.monotonic() - began < SOON_S
    (left,) = set(threading.enumerate()) - before
    assert left.name == "rocketstore-lookup"
    assert left.daemon, "the interpreter would wait for it"


def test_a_master_sends_its_log_once(tmp_path: Path) -> None:
    """The first contact asks, and the log comes by the connection that goes on."""
    with open_master(tmp_path / "master") as master:
        put_some(master)
        with open_copy(tmp_path / "copy", master) as copy:
            caught_up(copy, master)
            assert service_of(master).connections == 2
            assert copy_of(copy).connections == 1
            # It counts what it has sent, which may have come before.
            wait_until(lambda: service_of(master).bytes_sent >= master.visible_offset)
            assert service_of(master).bytes_sent == master.visible_offset


def test_a_master_that_ends_at_once_closes_what_it_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is cancelled before it began runs no line of its own."""
    monkeypatch.setattr(PendingConnections, "add", lambda self, task, peer: task.cancel())
    with open_master(tmp_path) as master:
        host, port = service_of(master).address.split(":")
        gc.collect()  # what others have left
        with warnings.catch_warnings(record=True) as unclosed:
            warnings.simplefilter("always", ResourceWarning)
            with socket.create_connection((host, int(port)), SOON_S) as peer:
                assert peer.recv(1) == b""
            gc.collect()
        assert [one for one in unclosed if port in str(one.message)] == []


def test_master_that_ends_a_connection_without_a_word_may_want_other_settings(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as kept:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    taken = kept.enter_context(listener.accept()[0])
                    taken.shutdown(socket.SHUT_WR)

        ending = threading.Thread(target=hang_up)
        ending.start()
        with open_copy(tmp_path / "c", f"127.0.0.1:{listener.getsockname()[1]}") as copy:
            wait_until(lambda: "same tls= and protocol=" in str(copy_of(copy).last_error))
        listener.shutdown(socket.SHUT_RDWR)
        ending.join()


def test_trouble_without_a_text_has_that_of_its_kind(tmp_path: Path) -> None:
    """As ssl.SSLEOFError and ConnectionResetError may come."""
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master) as copy:
        caught_up(copy, master)
        service = copy_of(copy)
        service._note(ConnectionResetError())
        assert str(service.last_error) == "the connection broke: ConnectionResetError"


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
