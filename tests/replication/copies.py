"""Masters and copies in one process."""

from __future__ import annotations

import contextlib
import socket
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from rocketstore import RocketStoreError, Store
from rocketstore.replication import Master, Replica
from rocketstore.replication.master.service import MasterService
from rocketstore.replication.protocol.session import ReplicaSession
from rocketstore.replication.replica.service import ReplicaService
from tests.replication.ends import Log
from tests.support.small_store import SEGMENT, engine_of, log_bytes, open_small
from tests.support.waiting import wait_until

SOON = timedelta(milliseconds=20)
#: No promise and no connection ends by itself while a slow machine is busy with other things.
PATIENT: dict[str, Any] = {
    "replica_timeout": timedelta(minutes=2),
    "silence_limit": timedelta(minutes=9),
}


def open_master(path: Path, options: dict[str, Any] | None = None, **settings: Any) -> Store:
    master = Master(**{"listen": "127.0.0.1:0", **PATIENT, **settings})
    return open_small(path, replication=master, **(options or {}))


def service_of(master: Store) -> MasterService:
    service = master._open().guests.made(MasterService)
    assert service is not None
    return service


def address_of(master: Store) -> str:
    return service_of(master).address


def open_copy(
    path: Path, master: Store | str, options: dict[str, Any] | None = None, **settings: Any
) -> Store:
    address = master if isinstance(master, str) else address_of(master)
    replica = Replica(**{"master": address, "reconnect_every": SOON, **settings})
    return open_small(path, replication=replica, **(options or {}))


def copy_of(store: Store) -> ReplicaService:
    service = engine_of(store).guests.made(ReplicaService)
    assert isinstance(service, ReplicaService)
    return service


def counted(master: Store, replicas: int = 1) -> None:
    """Waits until so many replicas have said how far they are: from then on a put waits for them. The
    master knows a little earlier what they have asked for."""
    wait_until(lambda: counting(service_of(master)) == replicas)


def counting(service: MasterService) -> int:
    """How many replicas count for puts that wait."""
    return len(service._counted)


def caught_up(copy: Store, master: Store) -> None:
    wait_until(lambda: copy.visible_offset == master.visible_offset)


def put_some(master: Store, count: int = 40, **options: Any) -> None:
    """Some segments of messages of two queues."""
    for number in range(count):
        writer = master.writer("orders", queue_id=number % 2)
        writer.put(b"%06d" % number + b"x" * (number * 37 % 300), keys=f"key{number}", **options)


def same_log(one: Path, other: Path) -> None:
    """Byte for byte, up to preallocated zeros."""
    assert log_bytes(one).rstrip(b"\0") == log_bytes(other).rstrip(b"\0")


class Peer:
    """A copy that asks for the log, says that it has nothing, and acknowledges no more."""

    def __init__(self, master: str, log: Log) -> None:
        host, port = master.rsplit(":", 1)
        self._sock = socket.create_connection((host, int(port)))
        log.segment_bytes = SEGMENT
        self._session = ReplicaSession(log)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._sock.close()

    def _run(self) -> None:
        session, asked = self._session, False
        with contextlib.suppress(OSError, RocketStoreError):
            self._send(session.start())
            while data := self._sock.recv(1 << 16):
                session.receive(memoryview(data))
                self._send(session.replies())
                if session.ready and not asked:
                    asked = True
                    self._send([*session.ask(0), *session.acknowledge(0, 0)])

    def _send(self, buffers: Any) -> None:
        self._sock.sendall(b"".join(bytes(one) for one in buffers))
