"""The sides that bench/services.py measures: one durable transaction of each, as its program would write it."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import rocketstore

__all__ = ["BODY", "CASES", "Call", "NotThereError", "Side", "database", "ours_two"]

BODY = b"x" * 200
Call = Callable[[int], object]
Side = Callable[[Path, int], AbstractContextManager[Call]]


class NotThereError(Exception):
    """A side that this machine cannot run."""


# ---- rocketstore ----


@contextmanager
def ours_take(root: Path, count: int) -> Iterator[Call]:
    with rocketstore.open(root) as store:
        store.writer("in").put_batch([BODY] * count)
        with store.consumer("in", group="g") as consumer:

            def call(_: int) -> None:
                with store.transaction() as tx:
                    for message in tx.consume(consumer, max_messages=1):
                        tx.put("out", message.body)

            yield call


@contextmanager
def ours_two(root: Path, _: int) -> Iterator[Call]:
    with rocketstore.open(root) as store:

        def call(_: int) -> None:
            with store.transaction() as tx:
                tx.put("out", BODY)
                tx.put("log", BODY)

        yield call


@contextmanager
def ours_unique(root: Path, _: int) -> Iterator[Call]:
    with rocketstore.open(root) as store:
        put = store.writer("out").put
        yield lambda n: put(BODY, unique_id=f"order {n}")


# ---- SQLite ----

TABLES = """
create table waits (id integer primary key, body blob);
create table box (id integer primary key, topic text, body blob);
create table named (name text primary key, body blob) without rowid;
create table later (id integer primary key, topic text, due integer, body blob);
create index due on later (topic, due);
create table place (topic text primary key, next integer);
insert into place values ('waits', 0);
"""


@contextmanager
def database(root: Path) -> Iterator[sqlite3.Connection]:
    root.mkdir()
    with contextlib.closing(sqlite3.connect(root / "db", isolation_level=None)) as found:
        found.execute("pragma journal_mode = wal")
        found.execute("pragma synchronous = full")
        found.executescript(TABLES)
        yield found


@contextmanager
def sqlite_take(root: Path, count: int) -> Iterator[Call]:
    with database(root) as found:
        found.execute("begin")
        rows = [(BODY,)] * count
        found.executemany("insert into waits (body) values (?)", rows)
        found.execute("commit")
        run = found.execute

        def call(_: int) -> None:
            run("begin immediate")
            ((at,),) = run("select next from place where topic = 'waits'")
            sql = "select id, body from waits where id > ? order by id limit 1"
            ((taken, body),) = run(sql, (at,))
            run("insert into box (topic, body) values ('out', ?)", (body,))
            run("update place set next = ? where topic = 'waits'", (taken,))
            run("commit")

        yield call


@contextmanager
def sqlite_two(root: Path, _: int) -> Iterator[Call]:
    with database(root) as found:

        def call(_: int) -> None:
            found.execute("begin immediate")
            found.execute("insert into box (topic, body) values ('out', ?)", (BODY,))
            found.execute("insert into box (topic, body) values ('log', ?)", (BODY,))
            found.execute("commit")

        yield call


@contextmanager
def sqlite_unique(root: Path, _: int) -> Iterator[Call]:
    sql = "insert or ignore into named values (?, ?)"
    with database(root) as found:
        yield lambda n: found.execute(sql, (f"order {n}", BODY))


# ---- litequeue, whose calls are a transaction each ----


def package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise NotThereError(f"{name} is not installed") from None


@contextmanager
def litequeue(root: Path) -> Iterator[Any]:
    made = package("litequeue").LiteQueue
    root.mkdir()
    queue = made(str(root / "queue.db"))
    queue.conn.execute("pragma synchronous = full")
    try:
        yield queue
    finally:
        queue.close()


@contextmanager
def litequeue_take(root: Path, count: int) -> Iterator[Call]:
    with litequeue(root) as queue:
        for _ in range(count):
            queue.put("x" * len(BODY))

        def call(_: int) -> None:
            taken = queue.pop()
            queue.put(taken.data)
            queue.done(taken.message_id)

        yield call


@contextmanager
def litequeue_two(root: Path, _: int) -> Iterator[Call]:
    with litequeue(root) as queue:
        yield lambda _: (queue.put("x" * len(BODY)), queue.put("x" * len(BODY)))


# ---- Redis streams ----


@contextmanager
def redis(root: Path) -> Iterator[Any]:
    client = package("redis").Redis
    if shutil.which("redis-server") is None:
        raise NotThereError("redis-server is not on PATH")
    root.mkdir()
    words = ["--port", "0", "--unixsocket", root / "s", "--dir", root, "--save", ""]
    words += ["--appendonly", "yes", "--appendfsync", "always"]
    with subprocess.Popen(["redis-server", *words], stdout=subprocess.DEVNULL) as server:
        try:
            while not (root / "s").exists():
                time.sleep(0.01)
            yield client(unix_socket_path=str(root / "s"))
        finally:
            server.terminate()


@contextmanager
def redis_take(root: Path, count: int) -> Iterator[Call]:
    with redis(root) as found:
        with found.pipeline() as many:
            for _ in range(count):
                many.xadd("in", {"b": BODY})
            many.execute()
        found.xgroup_create("in", "g", id="0")

        def call(_: int) -> None:
            ((_, ((taken, fields),)),) = found.xreadgroup("g", "c", {"in": ">"}, count=1)
            with found.pipeline() as both:
                both.xadd("out", fields)
                both.xack("in", "g", taken)
                both.execute()

        yield call


@contextmanager
def redis_two(root: Path, _: int) -> Iterator[Call]:
    with redis(root) as found:

        def call(_: int) -> None:
            with found.pipeline() as both:
                both.xadd("out", {"b": BODY})
                both.xadd("log", {"b": BODY})
                both.execute()

        yield call


CASES: dict[str, dict[str, Side]] = {
    "take 1, put 1, commit": {
        "rocketstore": ours_take,
        "SQLite": sqlite_take,
        "litequeue": litequeue_take,
        "Redis": redis_take,
    },
    "two puts, commit": {
        "rocketstore": ours_two,
        "SQLite": sqlite_two,
        "litequeue": litequeue_two,
        "Redis": redis_two,
    },
    "put with a unique id": {"rocketstore": ours_unique, "SQLite": sqlite_unique},
}
