"""Processes that bench/processes.py measures: each does what it is told over a pipe, and answers with figures."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import socket
import sqlite3
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import rocketstore
from bench.measure import fetch_memory

__all__ = ["PEERS", "Figures", "NotThereError", "Worker", "private_kb"]

#: Calls and their seconds, and each latency in ns where few calls are made.
Figures = dict[str, Any]
#: Steps that a computing thread does between two looks at the clock.
COMPUTED = 100
MAP_BYTES = 4 << 30
SQLITE_WAIT_S = 60.0


class NotThereError(Exception):
    """A peer that this machine has not."""


def private_kb(pid: int | str = "self") -> int:
    """Memory that only this process has, KiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    rows = (line.split() for line in text.splitlines())
    return sum(int(row[1]) for row in rows if row[0].startswith("Private_"))


# ---- what a process measures ----


class Doing:
    """The state of one process: its store, or its peer's."""

    def __init__(self) -> None:
        self.store: rocketstore.Store | None = None
        self.peers: dict[str, Callable[[], object]] = {}

    def open(self, path: str, **options: Any) -> int:
        """Private memory that the open and a first put have cost, KiB."""
        before = private_kb()
        self.store = rocketstore.open(path, **options)
        if options.get("mode") != "r":
            self.store.writer("bench").put(b"", durability="os")
        return private_kb() - before

    def close(self) -> None:
        if self.store is not None:
            self.store.close()

    def memory(self) -> int:
        return private_kb()

    def pin(self, cores: list[int]) -> None:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), cores)

    def fresh(self) -> None:
        fetch_memory()

    def compute(self, begin: float, seconds: float) -> None:
        """In a thread of its own, in pure Python."""

        def work() -> None:
            _sleep_until(begin)
            number, end = 1, begin + seconds
            while time.monotonic() < end:
                for _ in range(COMPUTED):
                    number = number * 48271 % 2147483647

        threading.Thread(target=work).start()

    def puts(
        self, begin: float, seconds: float, *, threads: int, durability: Any, size: int, batch: int
    ) -> Figures:
        """Each thread puts again and again, one call at a time."""
        assert self.store is not None
        writers = [self.store.writer("bench", queue_id=n) for n in range(threads)]
        for writer in writers:
            writer.put(b"", durability="os")
        body = bytes(size)
        calls: list[Callable[[], object]] = [
            partial(writer.put, body, durability=durability)
            if batch == 1
            else partial(writer.put_batch, [body] * batch, durability=durability)
            for writer in writers
        ]
        return _together(calls, begin, seconds, batch)

    def latencies(self, count: int, durability: Any, size: int) -> list[int]:
        """Of one put after the other, ns."""
        assert self.store is not None
        put, body, clock = self.store.writer("bench").put, bytes(size), time.perf_counter_ns
        found = []
        for _ in range(count):
            before = clock()
            put(body, durability=durability)
            found.append(clock() - before)
        return found

    def submits(
        self, begin: float, seconds: float, *, threads: int, window: int, size: int
    ) -> Figures:
        """Each thread keeps `window` tickets under way."""
        assert self.store is not None
        store, body = self.store, bytes(size)

        def call(number: int) -> Callable[[], object]:
            submit = store.writer("bench", queue_id=number).submit
            flying = deque[rocketstore.Ticket]()

            def one() -> None:
                while len(flying) < window:
                    flying.append(submit(body))
                flying.popleft().result()

            return one

        return _together([call(n) for n in range(threads)], begin, seconds, 1)

    def open_peer(self, name: str, path: str, size: int) -> None:
        self.peers[name] = PEERS[name](path, size)

    def peer_puts(self, begin: float, seconds: float, *, peer: str) -> Figures:
        return _together([self.peers[peer]], begin, seconds, 1)


def _sleep_until(begin: float) -> None:
    time.sleep(max(0.0, begin - time.monotonic()))


def _together(
    calls: list[Callable[[], object]], begin: float, seconds: float, each: int
) -> Figures:
    counts = [0] * len(calls)
    failures: list[BaseException] = []

    def work(number: int, call: Callable[[], object]) -> None:
        clock, end, done = time.monotonic, begin + seconds, 0
        _sleep_until(begin)
        try:
            while clock() < end:
                call()
                done += 1
        except BaseException as error:
            failures.append(error)
        counts[number] = done

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    took = time.monotonic() - begin
    return {"messages": sum(counts) * each, "seconds": took}


# ---- other packages, a durable call of each ----


def sqlite(path: str, size: int) -> Callable[[], object]:
    database = sqlite3.connect(
        f"{path}.db", isolation_level=None, timeout=SQLITE_WAIT_S, check_same_thread=False
    )
    database.execute("pragma journal_mode = wal")
    database.execute("pragma synchronous = full")
    database.execute("create table if not exists queue (id integer primary key, body blob)")
    body = bytes(size)
    return lambda: database.execute("insert into queue (body) values (?)", (body,))


def lmdb(path: str, size: int) -> Callable[[], object]:
    environment = _package("lmdb").open(f"{path}.lmdb", map_size=MAP_BYTES)
    body = bytes(size)

    def call() -> None:
        with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            last = int.from_bytes(cursor.key(), "big") if cursor.last() else 0
            transaction.put((last + 1).to_bytes(8, "big"), body, append=True)

    return call


def localqueue(path: str, size: int) -> Callable[[], object]:
    module = _package("localqueue")
    queue = module.SimpleQueue(f"{path}.queue", durability=module.DurabilityMode.DURABLE)
    text = "x" * size
    return lambda: queue.put(text)


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise NotThereError(f"{name} is not installed") from None


PEERS: dict[str, Callable[[str, int], Callable[[], object]]] = {
    "sqlite3 (WAL, FULL)": sqlite,
    "lmdb": lmdb,
    "localqueue (DURABLE)": localqueue,
}


# ---- the other end of the pipe ----


def serve(pipe: Connection) -> None:
    """What a process does: calls of `Doing`, one after the other."""
    doing = Doing()
    while True:
        try:
            name, arguments, named = pipe.recv()
        except EOFError:
            os._exit(0)
        try:
            pipe.send((True, getattr(doing, name)(*arguments, **named)))
        except NotThereError as error:
            pipe.send((False, error))
        except BaseException:
            pipe.send((False, RuntimeError(traceback.format_exc())))


class Worker:
    """A process, spawned."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, name: str, *arguments: Any, **named: Any) -> None:
        self._pipe.send((name, arguments, named))

    def end(self) -> Any:
        done, found = self._pipe.recv()
        if not done:
            raise found
        return found

    def do(self, name: str, *arguments: Any, **named: Any) -> Any:
        self.begin(name, *arguments, **named)
        return self.end()

    def close(self) -> None:
        self.do("close")
        self._pipe.close()
        self.process.join()


@contextmanager
def workers(count: int) -> Iterator[list[Worker]]:
    """So many processes; those that fail to close are killed."""
    found = [Worker() for _ in range(count)]
    try:
        yield found
        for worker in reversed(found):
            worker.close()
    finally:
        for worker in found:
            worker.process.kill()
            worker.process.join()


def echo(link: socket.socket) -> None:
    """Answers each 100 bytes with 32."""
    while link.recv(100):
        link.sendall(bytes(32))
    os._exit(0)


def wake_up_ns(count: int, pause_s: float) -> list[int]:
    """Round trips of 100 bytes there and 32 back between two processes, with a pause before each: both
    sleep when it begins."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=echo, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    clock, found = time.perf_counter_ns, []
    request = bytes(100)
    with mine:
        for _ in range(count):
            time.sleep(pause_s)
            before = clock()
            mine.sendall(request)
            mine.recv(32)
            found.append(clock() - before)
    process.join()
    return found
