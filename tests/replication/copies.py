"""Masters and copies in one process, and what is between them."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from rocketstore import RocketStoreError, Store
from rocketstore.replication import Master, Replica
from rocketstore.replication.master import MasterService, master_of
from rocketstore.replication.protocol.session import ReplicaSession
from rocketstore.replication.replica import ReplicaService
from tests.replication.ends import Log
from tests.support.small_store import log_bytes, open_small
from tests.support.waiting import wait_until

SOON = timedelta(milliseconds=20)


def open_master(path: Path, options: dict[str, Any] | None = None, **settings: Any) -> Store:
    master = Master(**{"listen": "127.0.0.1:0", **settings})
    return open_small(path, replication=master, **(options or {}))


def service_of(master: Store) -> MasterService:
    service = master_of(master)
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
    service = store._engine.guests.made(ReplicaService)  # type: ignore[attr-defined]
    assert isinstance(service, ReplicaService)
    return service


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


class Proxy:
    """A way to a master that ends after a number of bytes of the master, again and again."""

    def __init__(self, master: str, rng: random.Random, most: int) -> None:
        host, port = master.rsplit(":", 1)
        self._master = (host, int(port))
        self._rng, self._most = rng, most
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        self.whole = False
        self._threads = [threading.Thread(target=self._serve, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            with near, contextlib.suppress(OSError), socket.create_connection(self._master) as far:
                back = threading.Thread(target=_pump, args=(near, far, 1 << 60), daemon=True)
                back.start()
                limit = 1 << 60 if self.whole else self._rng.randrange(1, self._most)
                _pump(far, near, limit)
                self.cuts += 1
                for sock in (near, far):
                    with contextlib.suppress(OSError):
                        sock.shutdown(socket.SHUT_RDWR)
                back.join()


def _pump(source: socket.socket, target: socket.socket, limit: int) -> None:
    with contextlib.suppress(OSError):
        while limit > 0:
            data = source.recv(min(limit, 1 << 16))
            if not data:
                return
            target.sendall(data)
            limit -= len(data)


class Peer:
    """A copy that asks for the log, says that it has nothing, and acknowledges no more."""

    def __init__(self, master: str, log: Log) -> None:
        host, port = master.rsplit(":", 1)
        self._sock = socket.create_connection((host, int(port)))
        self._session = ReplicaSession(log)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
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
