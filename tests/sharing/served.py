"""A store that is held in this process, for tests of what its host does."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketstore import Store
from rocketstore.sharing import host as host_module
from rocketstore.sharing import meeting, messages
from rocketstore.sharing.host import Host, host_of
from rocketstore.sharing.host_calls import Call
from rocketstore.sharing.link import HostLink
from tests.process.other_process import open_small
from tests.support.small_store import engine_of

__all__ = ["Served", "calls", "link", "served"]


class Served:
    """A store that this process holds, and calls of tests."""

    def __init__(self, path: Path) -> None:
        self.store: Store = open_small(path, shared="host", durability="os")
        self.engine = engine_of(self.store)
        self.host: Host = host_of(self.engine)
        self.layout = self.engine.layout

    def link(self) -> HostLink:
        """Of a guest that may not become the host."""
        link = HostLink(self.layout)
        assert link.connect(10.0)
        link.start()
        return link

    def raw(self) -> socket.socket:
        found = meeting.connect(self.layout)
        assert found is not None
        found[0].setblocking(True)
        return found[0]

    def hello(self, **fields: Any) -> tuple[socket.socket, dict[str, Any]]:
        hello = {"protocol": messages.PROTOCOL, "release": "0.2.0", "pid": 1, "name": "test"}
        sock = self.raw()
        with contextlib.suppress(BrokenPipeError):  # refused before it was heard
            messages.send_hello(sock, hello | {"guest": "a" * 32, "kind": "guest"} | fields, 5.0)
        try:
            return sock, messages.receive_hello(sock, 10.0)
        except messages.EndedError:
            return sock, {}

    @property
    def idle(self) -> bool:
        """Nobody is there, and nothing is kept for anybody."""
        return not self.host._connections and not self.host._guests


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, Call]:
    """The calls that hosts of this test know; some are there."""
    known: dict[str, Call] = {
        "echo": lambda engine, state, fields, blob: (fields, blob[::-1]),
        "fail": lambda engine, state, fields, blob: (1 // 0, b""),
        "refuse": lambda engine, state, fields, blob: (_ for _ in ()).throw(KeyError("which")),
        "huge": lambda engine, state, fields, blob: ("x" * (2 << 20), b""),
        "odd": lambda engine, state, fields, blob: (float("nan"), b""),
    }
    monkeypatch.setattr(host_module, "CALLS", known)
    return known


@pytest.fixture
def served(root: Path, calls: dict[str, Call]) -> Iterator[Served]:
    made = Served(root)
    yield made
    made.store.close()


@pytest.fixture
def link(served: Served) -> Iterator[HostLink]:
    made = served.link()
    yield made
    made.close()
