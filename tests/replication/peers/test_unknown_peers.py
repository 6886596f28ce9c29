"""Peers that have proved nothing: they stop no copy, and take nothing from the replicas of a master."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rocketstore import DivergedError, ReplicationError
from rocketstore.replication.master import sender
from rocketstore.replication.protocol.frames import (
    DATA_MOST,
    HEADER,
    Code,
    Kind,
    data_frame,
    frame,
)
from rocketstore.replication.protocol.handshake import ERROR, FinalError
from rocketstore.replication.protocol.session import MasterSession, ReplicaSession
from rocketstore.replication.replica import service as replica_service
from rocketstore.replication.transport import limits
from tests.replication.copies import (
    address_of,
    caught_up,
    copy_of,
    open_copy,
    open_master,
    put_some,
    service_of,
)
from tests.replication.ends import Log, Wire, joined, master_of
from tests.replication.histories.faulty_link import FaultyLink
from tests.support.waiting import wait_until

KEY = b"a key of 16 bytes or more"


def last_word(code: int, text: str = "go away") -> bytes:
    return frame(Kind.ERROR, ERROR.pack(code, 0) + text.encode())


@contextmanager
def unknown_peer(*answers: bytes, port: int = 0) -> Iterator[tuple[str, list[int]]]:
    """Answers each connection with bytes of its own; its address, and one number a connection."""
    listener = socket.create_server(("127.0.0.1", port))
    came: list[int] = []

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            with sock, contextlib.suppress(OSError):
                sock.recv(1 << 16)
                sock.sendall(answers[len(came) % len(answers)])
                came.append(len(came))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}", came
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


@pytest.mark.parametrize("code", Code)
def test_the_last_word_of_a_stranger_is_not_final(code: Code) -> None:
    session = ReplicaSession(Log(), KEY)
    session.start()
    with pytest.raises(ReplicationError, match="has not proved the key, says: go away") as caught:
        session.receive(memoryview(last_word(code)))
    assert not isinstance(caught.value, FinalError | DivergedError)


def test_the_last_word_of_a_master_is() -> None:
    """Where it has proved the key, and where there is nothing to prove."""
    for key in (KEY, None):
        wire = Wire(MasterSession(master_of(b"x" * 100), key), ReplicaSession(Log(), key))
        wire.greet()
        for code, kind in ((Code.OTHER_STORE, FinalError), (Code.DIVERGED, DivergedError)):
            with pytest.raises(kind):
                wire.replica.receive(memoryview(last_word(code)))


def test_no_stranger_stops_a_copy_that_has_a_key(tmp_path: Path, rng: random.Random) -> None:
    """Its master comes back at the address that an unknown peer had."""
    said = (last_word(Code.OTHER_STORE), last_word(Code.DIVERGED), b"HTTP/1.1 400 \r\n\r\n")
    for number, answers in enumerate((said, said[:1], said[2:])):
        with (
            unknown_peer(*answers) as (address, came),
            FaultyLink(rng, address) as link,
            open_copy(tmp_path / f"c{number}", link.address, key=KEY) as copy,
        ):
            service = copy_of(copy)
            wait_until(lambda came=came: len(came) > 2 * replica_service.SAME_FAILURES_MOST)
            wait_until(lambda it=service: isinstance(it.last_error, ReplicationError))
            assert service.error is None
            with open_master(tmp_path / f"m{number}", key=KEY) as master:
                link.lead_to(address_of(master))
                put_some(master, 5)
                caught_up(copy, master)


def test_a_peer_without_a_key_is_believed_where_nobody_has_one(tmp_path: Path) -> None:
    with (
        unknown_peer(last_word(Code.OTHER_STORE)) as (address, _),
        open_copy(tmp_path, address) as copy,
    ):
        wait_until(lambda: copy_of(copy).error is not None)


def test_a_stranger_that_goes_on_talking_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Single bytes keep no copy from its master."""
    monkeypatch.setattr(replica_service, "PROOF_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def dribble() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    with sock, contextlib.suppress(OSError):
                        for byte in frame(Kind.CHALLENGE, bytes(34)) * 9:
                            sock.sendall(bytes([byte]))
                            threading.Event().wait(0.02)

        threading.Thread(target=dribble, daemon=True).start()
        with open_copy(tmp_path, address, key=KEY) as copy:
            wait_until(lambda: "not who it is" in str(copy.replication.last_error))
        listener.shutdown(socket.SHUT_RDWR)


def test_silent_peers_take_no_place_of_a_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S003-47: as many as they are. The oldest of the busiest address goes."""
    monkeypatch.setattr(sender, "FIRST_WORD_S", 600.0)  # none goes by its silence
    settings: dict[str, Any] = {"max_replicas": 1, "silence_limit": timedelta(minutes=10)}
    with open_master(tmp_path / "m", key=KEY, **settings) as master, ExitStack() as stack:
        put_some(master, 5)
        host, port = address_of(master).split(":")
        for _ in range(limits.PENDING_MOST + 20):
            stack.enter_context(socket.create_connection((host, int(port)), timeout=20))
        wait_until(lambda: service_of(master).connections == limits.PENDING_MOST + 20)
        wait_until(lambda: len(service_of(master).replicas) == limits.PENDING_MOST)
        with open_copy(tmp_path / "c", master, key=KEY) as copy:
            caught_up(copy, master)
            assert service_of(master).refused == 0
            assert len(service_of(master).replicas) <= limits.PENDING_MOST + 1


def test_connections_come_at_a_bounded_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    pending = limits.PendingConnections()
    pauses = [pending.pause_s() for _ in range(200)]
    assert pauses[:99] == [0] * 99
    assert pauses[199] == pytest.approx(1.0)
    now[0] += 100
    assert pending.pause_s() == 0


def test_an_unknown_peer_gets_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for a long frame, of which it sends the header."""
    said = joined(data_frame(1, 0, DATA_MOST, bytes(DATA_MOST)))[: HEADER.size]
    for session in (MasterSession(master_of(b"x")), ReplicaSession(Log(), KEY)):
        session.start()
        with pytest.raises(ReplicationError, match="before anything was proved"):
            session.receive(memoryview(said))


def test_unknown_peers_do_not_fill_the_log_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each says something else, and the master goes on to say what its replicas do."""
    monkeypatch.setattr(limits, "LINES_IN_S", 600.0)  # all come within one minute
    with open_master(tmp_path / "m", key=KEY) as master:
        host, port = address_of(master).split(":")
        with caplog.at_level(logging.INFO, "rocketstore.replication"):
            for number in range(40):
                with socket.create_connection((host, int(port)), timeout=20) as peer:
                    peer.sendall(last_word(Code.FENCED, f"number {number}"))
                    assert peer.recv(1) == b""
            wait_until(lambda: "number 39" in str(master.replication.last_error))
            told = [one for one in caplog.records if "number" in one.getMessage()]
            assert len(told) == limits.LINES_MOST
            assert master.replication.fenced_by is None


def test_what_was_left_out_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(limits.time, "monotonic", lambda: now[0])
    told = limits.WarningLimit()
    lines = [told.line(str(number), f"trouble {number}") for number in range(30)]
    assert lines[limits.LINES_MOST :] == [None] * 20
    now[0] += 61
    assert told.line("again", "trouble") == "trouble (20 others were not logged)"
    assert told.line("again", "trouble") is None
