"""A web service of several processes that share one store: orders come by POST, and are read by GET.

    python examples/shared_service.py data/orders --port 8000 --workers 4
    STORE=data/orders uvicorn --workers 4 examples.shared_service:app

    curl -X POST localhost:8000/orders/o-17 -d 'two books'
    curl localhost:8000/orders/o-17

`Service` is an application for any ASGI server. Each worker opens the store with `shared=True`: the first one holds
it, the others put by way of it, and one of them takes its place when it goes. An order is put with a `unique_id`, so a
client that got no answer sends it again. `docs/several_processes.md` says what each process may do.

The rest of the file is a server for the tests, with as much of HTTP as `curl` needs: use a real one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import rocketstore
import rocketstore.aio

Event = dict[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

TOPIC = "orders"
#: Longest order, bytes.
BODY_MAX = 64 * 1024
#: The client sends the same request again, to this worker or another one. Each is as good for an order that was stored
#: before its answer got lost, since the order has a unique id.
AGAIN = (
    rocketstore.BackpressureError,
    rocketstore.OutcomeUnknownError,
    rocketstore.StoreClosedError,
    rocketstore.StoreLockedError,
)


class Service:
    """An ASGI application: the store is open from the start of its worker to the end of it.

    `options` are those of `rocketstore.aio.open`.
    """

    def __init__(self, path: str, **options: Any) -> None:
        self._path = path
        self._options = options

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            status, said = await self._answer(scope, receive)
            headers = [(b"content-type", b"application/json"), (b"x-worker", b"%d" % os.getpid())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps(said).encode()})

    async def _live(self, receive: Receive, send: Send) -> None:
        """Opens the store in the worker, never before a fork: a forked child's store is closed."""
        await receive()
        try:
            self._store = await rocketstore.aio.open(self._path, shared=True, **self._options)
        except (rocketstore.RocketStoreError, OSError) as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        self._orders = self._store.writer(TOPIC)
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._store.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _answer(self, scope: Event, receive: Receive) -> tuple[int, object]:
        folder, _, order = scope["path"].strip("/").partition("/")
        if folder != TOPIC or not order.isascii() or not order.isprintable() or len(order) > 100:
            return 404, "no such path"
        if scope["method"] == "POST" and order:
            return await self._put(order, receive)
        if scope["method"] != "GET":
            return 405, "POST /orders/ID, GET /orders/ID or GET /orders"
        if order:
            found = await self._store.query(TOPIC, key=order)
            return (200, found[0].body.decode("latin-1")) if found else (404, "no such order")
        return 200, [message.keys[0] async for message in self._store.consumer(TOPIC)]

    async def _put(self, order: str, receive: Receive) -> tuple[int, object]:
        body, more = b"", True
        while more:
            event = await receive()
            if event["type"] == "http.disconnect":
                return 400, "the request ended early"
            body, more = body + event.get("body", b""), event.get("more_body", False)
            if len(body) > BODY_MAX:
                return 413, f"an order has {BODY_MAX} bytes at most"
        try:
            put = await self._orders.put(body, keys=order, unique_id=order)
        except AGAIN as error:
            return 503, str(error)
        return 200 if put.duplicate else 201, {"queue_offset": put.queue_offset}


app = Service(os.environ.get("STORE", "data/orders"))


# ---- a server for the tests ----

#: What a client may take for a request, seconds.
REQUEST_S = 10.0


async def serve(application: Service, listening: socket.socket) -> None:
    """Serves requests, one a connection, until SIGTERM or SIGINT."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    to_app, from_app = asyncio.Queue[Event](), asyncio.Queue[Event]()
    life = asyncio.create_task(application({"type": "lifespan"}, to_app.get, from_app.put))
    await to_app.put({"type": "lifespan.startup"})
    if (event := await from_app.get())["type"] != "lifespan.startup.complete":
        sys.exit(event["message"])
    running = set[asyncio.Task[None]]()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            async with asyncio.timeout(REQUEST_S):
                scope, body = await one_request(reader)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            pass  # of this client; asyncio shows an error of the application
        else:
            await application(scope, body.get, Answer(writer).send)
        finally:
            writer.close()
            running.discard(task)

    async with await asyncio.start_server(answer, sock=listening):
        print(f"worker {os.getpid()}", flush=True)
        await stopped.wait()
    if running:
        await asyncio.wait(running)
    await to_app.put({"type": "lifespan.shutdown"})
    await life


async def one_request(reader: asyncio.StreamReader) -> tuple[Event, asyncio.Queue[Event]]:
    """Its scope, and its body as one event."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    named = {name.lower(): value.strip() for name, _, value in (ln.partition(":") for ln in head)}
    size = int(named.get("content-length", "0"))
    events = asyncio.Queue[Event]()
    body = await reader.readexactly(min(size, BODY_MAX + 1))
    events.put_nowait({"type": "http.request", "body": body})
    return {"type": "http", "method": method, "path": path}, events


class Answer:
    """Writes the events of an answer to a connection that it closes."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(self, event: Event) -> None:
        if event["type"] == "http.response.start":
            self._writer.write(b"HTTP/1.1 %d \r\nconnection: close\r\n" % event["status"])
            self._writer.writelines(b"%s: %s\r\n" % header for header in event["headers"])
        else:
            size = b"content-length: %d\r\n\r\n" % len(event["body"])
            self._writer.write(size + event["body"])


def supervise(words: list[str], listening: socket.socket, workers: int) -> int:
    """Keeps this number of workers until SIGTERM or SIGINT: starts another one in the place of each that was killed.

    One that fails by itself ends all, and its exit code is the result."""
    command = [sys.executable, __file__, *words, "--socket", str(listening.fileno())]
    children: list[subprocess.Popen[bytes]] = []
    ending = signal.SIGTERM, signal.SIGINT
    signal.pthread_sigmask(signal.SIG_BLOCK, {*ending, signal.SIGCHLD})
    while True:
        for _ in range(workers - len(children)):
            child = subprocess.Popen(
                command,
                pass_fds=[listening.fileno()],
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, ()),
            )
            children.append(child)
        stopped = signal.sigwait({*ending, signal.SIGCHLD}) in ending
        failed = max(child.poll() or 0 for child in children)
        if stopped or failed > 0:
            break
        children = [child for child in children if child.returncode is None]
    for child in children:
        child.terminate()
    return max(failed, *(child.wait() for child in children), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="its directory")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--segment-bytes", type=int, default=64 << 20)
    parser.add_argument("--socket", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.socket is not None:
        service = Service(given.store, commit_log_file_size_bytes=given.segment_bytes)
        asyncio.run(serve(service, socket.socket(fileno=given.socket)))
        return
    with socket.create_server(("127.0.0.1", given.port), backlog=128) as listening:
        print(f"listening at {listening.getsockname()[1]}", flush=True)
        words = [given.store, "--segment-bytes", str(given.segment_bytes)]
        sys.exit(supervise(words, listening, given.workers))


if __name__ == "__main__":
    main()
