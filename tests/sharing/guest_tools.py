"""A guest whose host is in this process: calls go to the handlers, and puts over a pair of sockets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import rocketstore
from rocketstore import Store
from rocketstore._native.put.host_line import HostLine
from rocketstore.config import StoreConfig
from rocketstore.engine.open_options import Options
from rocketstore.errors import OutcomeUnknownError, StoreClosedError, StoreLockedError
from rocketstore.sharing.guest import GuestEngine, guest_store
from rocketstore.sharing.host import Desk
from rocketstore.sharing.host_calls import CALLS, shared_options
from rocketstore.sharing.messages import error_fields, error_of
from tests.support.small_store import engine_of

MOST = 8 << 20


class State:
    """What a host keeps for a guest, as far as calls see it."""

    pid, name = 1, "guest"

    def __init__(self) -> None:
        self.claims: dict[int, Any] = {}


class LocalLink:
    """Has the calls of `HostLink`, and a host in this process, which a test takes away and gives back."""

    host_pid = 0
    max_request_bytes = MOST

    def __init__(self, host: Store) -> None:
        self.on_connected: list[Callable[[LocalLink], object]] = []
        self.session, self.state = 0, State()
        #: Before and after what a call does at the host: tests raise there.
        self.before: Callable[[str], object] = lambda name: None
        self.after: Callable[[str], object] = lambda name: None
        self.calls: list[str] = []
        self._lines: list[HostLine] = []
        self._threads: list[threading.Thread] = []
        self._socks: list[socket.socket] = []
        self._ready = threading.Event()
        self._maker, self._closed = 0, False
        self._to(host)

    def _to(self, host: Store) -> None:
        self.host = engine_of(host)
        self.session += 1
        self.state = State()
        self.config = json.loads(json.dumps(shared_options(self.host)))
        self.life = self.host.write.page.positions.run_id.hex()
        self.recovered_end = self.host.recovery.end

    def start(self) -> None:
        self._maker = threading.get_ident()
        try:
            for told in self.on_connected:
                told(self)
        finally:
            self._maker = 0
        self._ready.set()

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    def lose(self) -> None:
        """The host is gone: its lines end, and claims with them."""
        self._ready.clear()
        self._end_lines()
        self.state = State()

    def meet(self, host: Store, life: str = "") -> None:
        """The next host is there. `life`: not that of its store."""
        self._to(host)
        self.life = life or self.life
        self.start()

    def line(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        line = HostLine(self.host.commit_log.log, Desk(self.host), MOST)

        def serve() -> None:
            line.serve(theirs)
            theirs.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        self._lines.append(line)
        self._threads.append(thread)
        self._socks.append(theirs)
        return ours

    def call(
        self,
        name: str,
        fields: Mapping[str, Any],
        blob: bytes = b"",
        limit_s: float = 30.0,
        *,
        again: bool = False,
        asks: Callable[[str, int], bool] | None = None,
    ) -> tuple[Any, bytes]:
        deadline = time.monotonic_ns() + int(limit_s * 1e9)
        message = json.loads(json.dumps(fields))
        while True:
            if self._ready.is_set() or self._maker == threading.get_ident():
                self.calls.append(name)
                if asks is not None and not asks(self.life, self.session):
                    continue
                try:
                    self.before(name)
                    value, data = self._answer(name, message, blob)
                    self.after(name)
                    return json.loads(json.dumps(value)), data
                except OutcomeUnknownError:
                    if not again:
                        raise
            self.await_host(deadline)

    def _answer(self, name: str, message: Mapping[str, Any], blob: bytes) -> tuple[Any, bytes]:
        try:
            return CALLS[name](self.host, self.state, message, blob)
        except Exception as error:
            raise error_of(json.loads(json.dumps(error_fields(error)))) from error

    def unknown(self, what: str, *, late: bool) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"{what}: {late}")

    def await_host(self, deadline_ns: int, ended: int | None = None) -> None:
        while not self._closed and (not self._ready.is_set() or self.session == ended):
            left_s = (deadline_ns - time.monotonic_ns()) / 1e9
            if left_s <= 0:
                raise StoreLockedError(self.host.path, self.host_state())
            self._ready.wait(min(left_s, 0.005))
        if self._closed:
            raise StoreClosedError("the store is closed")

    def host_state(self) -> str:
        return f"process {os.getpid()} (tests), which is running"

    def _end_lines(self) -> None:
        for line in self._lines:
            line.end()
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        self._lines, self._threads, self._socks = [], [], []

    def close(self) -> None:
        self._closed = True
        self._end_lines()


def guest_of(host: Store, **options: Any) -> tuple[Store, LocalLink]:
    """A guest of a store that is open here."""
    link = LocalLink(host)
    layout = engine_of(host).layout
    made = guest_store(host.path, layout, Options(StoreConfig(**options)), cast("Any", link))
    link.start()
    return made, link


def guest_engine(store: Store) -> GuestEngine:
    return cast("GuestEngine", engine_of(store))


@contextlib.contextmanager
def shared(path: Path, **options: Any) -> Iterator[tuple[Store, Store, LocalLink]]:
    """A host and its guest."""
    with rocketstore.open(path, **options) as host:
        guest, link = guest_of(host)
        with guest:
            yield host, guest, link
