"""Pre-forking servers: gunicorn, with and without --preload, and uvicorn; graceful stops and hard ones."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketstore
from tests.process.other_process import SMALL
from tests.sharing.hosts import host_pid
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(400)

WORKERS = 3
#: Where a server listens, and its command; {} is the path of the socket.
GUNICORN = "-m gunicorn tests.sharing.workers:wsgi --workers 3 --bind unix:{} --log-level error"
SERVERS = {
    "gunicorn": GUNICORN,
    "gunicorn --preload": f"{GUNICORN} --preload",
    "uvicorn": "-m uvicorn tests.sharing.workers:asgi --workers 3 --uds {} --log-level error",
}


@contextlib.contextmanager
def serving(name: str, root: Path, at: Path) -> Iterator[subprocess.Popen[bytes]]:
    pytest.importorskip(name.split()[0])
    environment = {**os.environ, "SHARED_STORE": str(root), "PYTHONPATH": str(ROOT)}
    if "preload" in name:
        environment["SHARED_PRELOAD"] = "1"
    command = [sys.executable, *SERVERS[name].format(at).split()]
    with subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True) as server:
        try:
            yield server
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGKILL)


def ask(at: Path, body: str) -> tuple[int, int] | None:
    """Puts through the server: the place and the worker; None where no worker answered."""
    with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(OSError):
        link.settimeout(30)
        link.connect(str(at))
        link.sendall(f"GET /{body} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
        said = b""
        while part := link.recv(4096):
            said += part
        head, _, text = said.partition(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] == [b"200"] and text:
            place, pid = map(int, text.split())
            return place, pid
    return None


@pytest.mark.parametrize("name", SERVERS)
def test_workers_of_a_server_share_a_store(tmp_path: Path, name: str) -> None:
    """Some are killed, the host among them; others come. What was answered is there, once, at its place."""
    root, at = tmp_path / "store", tmp_path / "socket"
    answered: dict[str, int] = {}
    with serving(name, root, at) as server:
        wait_until(lambda: ask(at, "first") is not None)
        numbers = itertools.count(1)
        for kills in range(3):
            enough, workers = len(answered) + 20, set[int]()

            def served(enough: int = enough, workers: set[int] = workers) -> bool:
                """One request; whether there are enough answers. A server takes its time for a new worker."""
                body = f"m{next(numbers)}"
                if (answer := ask(at, body)) is not None:
                    answered[body] = answer[0]
                    workers.add(answer[1])
                return len(answered) >= enough and len(workers) >= 2

            wait_until(served, lambda: f"{len(answered)} answers")
            host = host_pid(root)
            of_host = kills == 1 and host in workers
            os.kill(host if host and of_host else next(iter(workers - {host})), signal.SIGKILL)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) in (0, -signal.SIGTERM)
    with rocketstore.open(root, **SMALL) as store:
        found = {m.body.decode(): m.queue_offset for m in store.consumer("orders")}
        assert len(list(store.consumer("orders"))) == len(found)
    assert {body: found.get(body) for body in answered} == answered
