"""Peers that send what they may, and never stop: others get their turn, and a close ends the thread."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketstore import ReplicationError, StoreLockedError
from rocketstore.engine.shutdown import StillRunsError
from rocketstore.replication import promote
from rocketstore.replication.master import sender
from rocketstore.replication.master import service as master_service
from rocketstore.replication.protocol.classic import REPORT
from rocketstore.replication.protocol.epochs import Epoch
from rocketstore.replication.protocol.frames import Accept, Kind, frame
from rocketstore.replication.protocol.link import Offsets
from rocketstore.replication.protocol.session import (
    ACK,
    HEARTBEAT,
    LATE_MOST,
    MasterSession,
    ReplicaSession,
)
from rocketstore.replication.replica.received_offsets import ReceivedOffsets
from rocketstore.replication.replica.service import LAST_OFFSETS_S, ReplicaService
from rocketstore.replication.transport import channels, limits, loop
from tests.replication.certificates import contexts
from tests.replication.copies import (
    address_of,
    caught_up,
    copy_of,
    counted,
    open_copy,
    open_master,
    put_some,
    service_of,
)
from tests.replication.ends import Log, joined, master_of
from tests.support.small_store import SEGMENT, engine_of
from tests.support.waiting import PATIENCE_S, wait_until

NOTHING = frame(Kind.ACK, ACK.pack(0, 0))


@contextlib.contextmanager
def flood(sock: socket.socket, piece: bytes) -> Iterator[threading.Event]:
    """Sends `piece` again and again; the event says that the peer has ended it."""
    ended = threading.Event()

    def send() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock.sendall(piece)
        ended.set()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield ended
    finally:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        thread.join()
        sock.close()


def connect(address: str, tls: ssl.SSLContext | None = None) -> socket.socket:
    host, port = address.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)))
    return sock if tls is None else tls.wrap_socket(sock, server_hostname=host)


def ask(sock: socket.socket, *, only_asks: bool) -> None:
    """Asks for the log as a copy that has nothing."""
    log = Log(segment_bytes=SEGMENT)
    session = ReplicaSession(log, only_asks=only_asks)
    sock.sendall(joined(session.start()))
    while not session.ready:
        session.receive(memoryview(sock.recv(4096)))
    sock.sendall(joined(session.ask(0)))


async def _others(stop: asyncio.Event) -> int:
    turns = 0
    while not stop.is_set():
        turns += 1
        await asyncio.sleep(0)
    return turns


async def _turns_beside(channel: channels.Channel, size: int, reads: int) -> int:
    """How often another task came to run while so many bytes were read that were there already."""
    stop, buffer = asyncio.Event(), memoryview(bytearray(size))
    others = asyncio.create_task(_others(stop))
    for _ in range(reads):
        assert await channel.receive_into(buffer) == size
    stop.set()
    return await others


@pytest.mark.parametrize("size", [1, 1024])
def test_reads_that_never_wait_leave_others_their_turn(size: int) -> None:
    async def scene() -> int:
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            there.sendall(bytes(64 * size))
            return await _turns_beside(channels._Plain(here, "peer"), size, 64)

    assert asyncio.run(scene()) > 1


def test_so_do_reads_through_tls() -> None:
    class Writer:
        transport = type("_", (), {"set_write_buffer_limits": staticmethod(lambda high: None)})

    async def scene() -> int:
        reader = asyncio.StreamReader()
        reader.feed_data(bytes(64))
        return await _turns_beside(channels._Encrypted(reader, Writer(), "peer"), 1, 64)  # type: ignore[arg-type]

    assert asyncio.run(scene()) > 1


def test_tls_reads_little_ahead_of_the_loop(certificate: Path) -> None:
    """What it decrypts takes the loop, and memory, before anything is looked at."""
    server, client = contexts(certificate)

    def send(address: tuple[str, int]) -> None:
        sock = socket.create_connection(address)
        with (
            contextlib.suppress(OSError),
            client.wrap_socket(sock, server_hostname="127.0.0.1") as peer,
        ):
            while True:
                peer.sendall(bytes(1 << 16))

    async def scene() -> int:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=send, args=[listener.getsockname()], daemon=True)
            thread.start()
            here, _ = listener.accept()
        channel: Any = await channels.accepted(here, "peer", server)
        reader = channel._reader
        async with asyncio.timeout(PATIENCE_S):
            while not reader._paused:
                await asyncio.sleep(0.01)
        kept = len(reader._buffer)
        channel.close()
        await asyncio.to_thread(thread.join)
        return kept

    assert asyncio.run(scene()) < channels.TLS_PENDING_BYTES


@pytest.mark.parametrize("kind", ["own", "tls", "rocketmq"])
def test_a_copy_that_floods_takes_nothing_from_another_one(
    tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    server, client = None, None
    if kind == "tls":
        server, client = contexts(request.getfixturevalue("certificate"))
    protocol = "rocketmq" if kind == "rocketmq" else "rocketstore"
    with (
        open_master(
            tmp_path / "m", tls=server, protocol=protocol, replica_timeout=timedelta(seconds=20)
        ) as master,
        open_copy(tmp_path / "c", master, tls=client, protocol=protocol),
    ):
        put_some(master, 1)
        counted(master)
        peer = connect(address_of(master), client)
        piece = REPORT.pack(0) if kind == "rocketmq" else NOTHING
        if kind == "rocketmq":
            peer.sendall(REPORT.pack(1))
        else:
            ask(peer, only_asks=False)
        with flood(peer, piece * 8192) as ended:
            counted(master, 2)
            for _ in range(20):
                master.put_message("t", b"body", durability="replicas(2)")
            assert not ended.is_set()
            service = service_of(master)
            master.close()
            assert not service._thread.alive


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[limits.Throttle]:
    """Whose pauses there were; none takes time."""
    found: list[limits.Throttle] = []

    async def noted(throttle: limits.Throttle, began_s: float) -> None:
        found.append(throttle)

    monkeypatch.setattr(limits.Throttle, "pause", noted)
    return found


def test_all_peers_share_the_pauses(tmp_path: Path, pauses: list[limits.Throttle]) -> None:
    """Of each more waits than one read takes; as many as they are, they take one share."""
    with ExitStack() as stack:
        master = stack.enter_context(open_master(tmp_path))
        for _ in range(3):
            peer = stack.enter_context(connect(address_of(master)))
            ask(peer, only_asks=False)
            before = len(pauses)
            peer.sendall(NOTHING * 8192)
            wait_until(lambda before=before: len(pauses) > before)
        assert len(set(pauses)) == 1


def test_the_pauses_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each so often as long as what was read took the processor."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        """It takes no time."""
        slept.append(seconds)

    async def scene() -> None:
        shared = limits.Throttle()
        await shared.pause(0.0)
        await shared.pause(0.5)
        await shared.pause(1.0)

    clock: Any = SimpleNamespace(monotonic=lambda: 100.0, thread_time=lambda: 1.0)
    monkeypatch.setattr(limits, "time", clock)
    monkeypatch.setattr(limits, "asyncio", SimpleNamespace(sleep=sleep))
    asyncio.run(scene())
    assert slept == [16, 24, pytest.approx(24 + 16 * limits.READ_S)]


def test_single_frames_that_nothing_asks_for_are_a_flood(
    tmp_path: Path, pauses: list[limits.Throttle], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As small as they are; what a copy says of what it is sent is none."""
    monkeypatch.setattr(sender, "ANSWERS_MOST", 8)
    with open_master(tmp_path / "m") as master, open_copy(tmp_path / "c", master):
        put_some(master, 1)
        counted(master)
        for _ in range(20):
            master.put_message("t", b"body", durability="replicas(2)")
        assert not pauses
        with connect(address_of(master)) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ask(peer, only_asks=False)
            wait_until(lambda: len(service_of(master)._near()) == 2)
            its = list(service_of(master)._near().values())[-1]
            for _ in range(10):
                before = its._heard
                peer.sendall(NOTHING)
                wait_until(lambda before=before: its._heard > before)
            assert pauses


def test_a_connection_that_only_asked_takes_no_more(tmp_path: Path) -> None:
    with open_master(tmp_path) as master:
        peer = connect(address_of(master))
        ask(peer, only_asks=True)
        with flood(peer, NOTHING * 8192) as ended:
            wait_until(ended.is_set)
            wait_until(lambda: master.replication.last_error is not None)
            assert "out of its turn (over)" in str(master.replication.last_error)


def test_what_was_on_its_way_is_passed_over() -> None:
    session, copy = MasterSession(master_of(b"x" * 100)), ReplicaSession(Log(), only_asks=True)
    session.receive(memoryview(joined(copy.start())))
    copy.receive(memoryview(joined(session.replies())))
    session.receive(memoryview(joined(copy.ask(0))))
    assert session.receive(memoryview(NOTHING * LATE_MOST)) == []
    with pytest.raises(ReplicationError, match="out of its turn"):
        session.receive(memoryview(NOTHING))


@contextlib.contextmanager
def flooding_master() -> Iterator[tuple[str, threading.Event]]:
    """Accepts each copy, and sends heartbeats without end; whether one of them has begun."""
    begun, over = threading.Event(), threading.Event()
    epochs = (Epoch(1, 0, 0, b"A" * 8),)
    answer = Accept(b"S" * 16, 0, False, 0, SEGMENT, epochs).pack()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                with sock, contextlib.suppress(OSError):
                    sock.recv(4096)
                    sock.sendall(frame(Kind.CHALLENGE, bytes(34)))
                    sock.recv(4096)
                    sock.sendall(frame(Kind.ACCEPT, answer))
                    while not over.is_set():
                        sock.sendall(frame(Kind.HEARTBEAT, HEARTBEAT.pack(0, 0)) * 10_000)
                        begun.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}", begun
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def test_a_master_that_floods_holds_up_no_close(
    tmp_path: Path, pauses: list[limits.Throttle]
) -> None:
    with flooding_master() as (address, begun):
        copy = open_copy(tmp_path, address)
        service = copy_of(copy)
        wait_until(begun.is_set)
        wait_until(lambda: service.connected)
        wait_until(lambda: len(pauses) > 0)
        copy.close()
        assert not service._thread.alive
    assert promote(tmp_path).term == 2


def test_no_close_waits_for_a_log_that_does_not_come() -> None:
    """Nor for offsets that speak of it, nor as long as a second for anything else."""
    positions = SimpleNamespace(wrote=99, flushed=99)
    engine: Any = SimpleNamespace(positions=positions)
    nobody: Any = None

    async def scene() -> None:
        kept = ReceivedOffsets(engine, nobody, lambda: None)
        kept.take(Offsets(100, True, {}))
        kept.end()
        async with asyncio.timeout(PATIENCE_S):
            await kept.keep()

    asyncio.run(scene())
    assert max(LAST_OFFSETS_S, master_service.DRAIN_S) < 1


def test_a_copy_whose_thread_goes_on_stays_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close says so, and nobody promotes the directory meanwhile."""
    release, held = threading.Event(), threading.Event()

    async def hold(_: object, *, until_accepted: bool = False) -> None:
        if not until_accepted:
            held.set()
            release.wait()

    with open_master(tmp_path / "m") as master:
        put_some(master, 3)
        with open_copy(tmp_path / "c", master) as copy:
            caught_up(copy, master)
        with monkeypatch.context() as patched:
            patched.setattr(ReplicaService, "follow", hold)
            patched.setattr(loop, "STOP_S", 0.05)
            copy = open_copy(tmp_path / "c", master)
            service = copy_of(copy)
            wait_until(held.is_set)
            with pytest.raises(StillRunsError, match="rocketstore-replica has not ended in 0.05 s"):
                copy.close()
        engine = engine_of(copy)
        try:
            with pytest.raises(StoreLockedError):
                promote(tmp_path / "c")
        finally:
            release.set()
            wait_until(lambda: not service._thread.alive)
            engine.write.lock.release()  # type: ignore[attr-defined]
    assert promote(tmp_path / "c").term == 2
