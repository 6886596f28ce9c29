"""What processes of pools and servers do with a shared store; importable where they are spawned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import rocketstore
from rocketstore import Store
from tests.process.other_process import SMALL

__all__ = ["asgi", "begin_worker", "open_and_put", "put_one", "store", "wsgi"]

_stores: dict[int, Store] = {}


def store(path: str | None = None, shared: Any = True) -> Store:
    """The store of this process, opened at its first use: one that was inherited by a fork is closed."""
    found = _stores.get(os.getpid())
    if found is None:
        path = path or os.environ["SHARED_STORE"]
        found = _stores[os.getpid()] = rocketstore.open(path, shared=shared, **SMALL)
    return found


def begin_worker(path: str, shared: Any = True) -> None:
    """The initializer of a worker of a pool."""
    store(path, shared)


def put_one(body: bytes) -> int:
    """In a worker that has its store."""
    return store().writer("orders").put(body).queue_offset


def open_and_put(path: str, first: int, count: int) -> list[int]:
    """In a process without a store: opens one, puts, closes."""
    with rocketstore.open(Path(path), shared=True, **SMALL) as own:
        writer = own.writer("orders")
        return [writer.put(b"%d" % n).queue_offset for n in range(first, first + count)]


def wsgi(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    """Puts the path of a request; answers its place and the pid."""
    place = put_one(environ["PATH_INFO"][1:].encode())
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d %d" % (place, os.getpid())]


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The same for a server of tasks."""
    assert scope["type"] == "http"
    place = put_one(scope["path"][1:].encode())
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"%d %d" % (place, os.getpid())})


if os.environ.get("SHARED_PRELOAD"):
    store()  # as a program that opens at its import, in the process that forks the workers
