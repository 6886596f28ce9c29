"""What bench/peers.py measures: how each package appends one body, or a thousand, to a new directory.

Each case is used as its own documentation recommends for appending, from Python, in one thread. A case is
a context manager over a directory that gives the call to measure. Durability classes:

    process   lives in this process until it flushes: a killed process loses it
    os        in the page cache: survives the process, not a loss of power
    disk      synced before the call returns

duckdb syncs at every commit and has no way to leave that out, so it is in the class `disk` alone.
"""

from __future__ import annotations

import functools
import importlib
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import rocketstore

__all__ = ["BATCH", "CASES", "OURS", "PeerCase"]

OURS = "rocketstore"
BATCH = 1000
MAP_BYTES = 4 << 30
PREWRITTEN_BYTES = 16 << 20

Call = Callable[[Any], object]
key = struct.Struct(">Q").pack


@dataclass(frozen=True)
class PeerCase:
    """One way of one package. `batch` messages a call; 1: the call takes a body, else a list of them."""

    package: str
    way: str
    durability: str
    batch: int
    opened: Callable[[Path], AbstractContextManager[Call]]

    @property
    def name(self) -> str:
        return f"{self.package}: {self.way}"


def load(name: str) -> Any:
    return importlib.import_module(name)


@contextmanager
def store(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    with rocketstore.open(directory / "store", durability=durability) as opened:
        writer = opened.writer("bench", queue_id=0)
        yield writer.put if batch == 1 else writer.put_batch
        opened.wait_flushed(opened.end_offset, timeout_s=120.0)


@contextmanager
def raw(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    """The bytes of the bodies alone, without any format: what the kernel takes for them."""
    file = os.open(directory / "raw", os.O_WRONLY | os.O_CREAT, 0o600)
    write = functools.partial(os.write if batch == 1 else os.writev, file)

    def synced(data: Any) -> None:
        write(data)
        os.fdatasync(file)

    try:
        yield synced if durability == "disk" else write
    finally:
        os.close(file)


@contextmanager
def dsync(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    """The bodies alone, over blocks that were written before, by a call that also syncs: no block is
    allocated and no length changes, so that the file system's journal has nothing to do."""
    file = os.open(directory / "raw", os.O_RDWR | os.O_CREAT, 0o600)
    os.write(file, bytes(PREWRITTEN_BYTES))
    os.fsync(file)
    place = 0

    def many(bodies: list[bytes]) -> None:
        nonlocal place
        size = sum(map(len, bodies))
        if place + size > PREWRITTEN_BYTES:
            place = 0
        os.pwritev(file, bodies, place, os.RWF_DSYNC)
        place += size

    try:
        yield many if batch > 1 else lambda body: many([body])
    finally:
        os.close(file)


@contextmanager
def sqlite(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    database = sqlite3.connect(directory / "queue.db", isolation_level=None)
    database.execute("pragma journal_mode=WAL")
    database.execute(f"pragma synchronous={'FULL' if durability == 'disk' else 'NORMAL'}")
    database.execute("create table queue (id integer primary key, body blob)")

    def one(body: bytes) -> None:
        database.execute("insert into queue (body) values (?)", (body,))

    def many(bodies: list[bytes]) -> None:
        database.execute("begin")
        database.executemany("insert into queue (body) values (?)", [(b,) for b in bodies])
        database.execute("commit")

    try:
        yield one if batch == 1 else many
    finally:
        database.close()


@contextmanager
def lmdb(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    how = {} if durability == "disk" else {"sync": False, "writemap": True, "map_async": True}
    environment = load("lmdb").open(str(directory / "lmdb"), map_size=MAP_BYTES, **how)
    numbers = count()

    def one(body: bytes) -> None:
        with environment.begin(write=True) as transaction:
            transaction.put(key(next(numbers)), body, append=True)

    def many(bodies: list[bytes]) -> None:
        with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
            cursor.putmulti([(key(next(numbers)), body) for body in bodies], append=True)

    try:
        yield one if batch == 1 else many
    finally:
        environment.close()


@contextmanager
def rocksdict(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    module = load("rocksdict")
    database = module.Rdict(str(directory / "rocks"), module.Options(raw_mode=True))
    how = module.WriteOptions()
    how.sync = durability == "disk"
    numbers = count()

    def one(body: bytes) -> None:
        database.put(key(next(numbers)), body, write_opt=how)

    def many(bodies: list[bytes]) -> None:
        group = module.WriteBatch(raw_mode=True)
        for body in bodies:
            group.put(key(next(numbers)), body)
        database.write(group, write_opt=how)

    try:
        yield one if batch == 1 else many
    finally:
        database.close()


@contextmanager
def plyvel(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    database = load("plyvel").DB(str(directory / "level"), create_if_missing=True)
    sync = durability == "disk"
    numbers = count()

    def one(body: bytes) -> None:
        database.put(key(next(numbers)), body, sync=sync)

    def many(bodies: list[bytes]) -> None:
        with database.write_batch(sync=sync) as group:
            for body in bodies:
                group.put(key(next(numbers)), body)

    try:
        yield one if batch == 1 else many
    finally:
        database.close()


@contextmanager
def duckdb(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    connection = load("duckdb").connect(str(directory / "duck.db"))
    connection.execute("create table queue (body blob)")

    def one(body: bytes) -> None:
        connection.execute("insert into queue values (?)", [body])

    def many(bodies: list[bytes]) -> None:
        connection.execute("insert into queue select unnest(?::blob[])", [bodies])

    try:
        yield one if batch == 1 else many
    finally:
        connection.close()


@contextmanager
def queuelib(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    queue = load("queuelib").FifoDiskQueue(str(directory / "queue"))
    try:
        yield queue.push
    finally:
        queue.close()


@contextmanager
def persistqueue(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    queue = load("persistqueue").SQLiteQueue(str(directory / "queue"), auto_commit=True)
    try:
        yield queue.put
    finally:
        queue.close()


@contextmanager
def diskcache(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    queue = load("diskcache").Deque(directory=str(directory / "queue"))
    try:
        yield queue.append
    finally:
        queue.cache.close()


@contextmanager
def litequeue(directory: Path, durability: str, batch: int) -> Iterator[Call]:
    queue = load("litequeue").LiteQueue(str(directory / "queue.db"))
    try:
        yield queue.put
    finally:
        queue.close()


Opens = Callable[[Path, str, int], AbstractContextManager[Call]]


def case(package: str, way: str, durability: str, batch: int, opens: Opens) -> PeerCase:
    """The durability and the batch of the table are those that the case is opened with."""
    return PeerCase(package, way, durability, batch, lambda path: opens(path, durability, batch))


CASES: tuple[PeerCase, ...] = (
    case(OURS, "put", "os", 1, store),
    case("os.write", "bodies only", "os", 1, raw),
    case("sqlite3", "WAL, NORMAL", "os", 1, sqlite),
    case("lmdb", "no sync, writemap", "os", 1, lmdb),
    case("rocksdict", "put, no sync", "os", 1, rocksdict),
    case("plyvel", "put, no sync", "os", 1, plyvel),
    case("queuelib", "FifoDiskQueue.push", "process", 1, queuelib),
    case("persist-queue", "SQLiteQueue.put", "os", 1, persistqueue),
    case("diskcache", "Deque.append", "os", 1, diskcache),
    case("litequeue", "put", "os", 1, litequeue),
    case(OURS, "put_batch", "os", BATCH, store),
    case("os.writev", "bodies only", "os", BATCH, raw),
    case("sqlite3", "WAL, NORMAL, executemany", "os", BATCH, sqlite),
    case("lmdb", "no sync, writemap, putmulti", "os", BATCH, lmdb),
    case("rocksdict", "WriteBatch, no sync", "os", BATCH, rocksdict),
    case("plyvel", "write_batch, no sync", "os", BATCH, plyvel),
    case(OURS, "put", "disk", 1, store),
    case("os.write", "bodies only, fdatasync", "disk", 1, raw),
    case("pwritev2", "bodies only, RWF_DSYNC", "disk", 1, dsync),
    case("sqlite3", "WAL, FULL", "disk", 1, sqlite),
    case("lmdb", "sync", "disk", 1, lmdb),
    case("rocksdict", "put, sync", "disk", 1, rocksdict),
    case("plyvel", "put, sync", "disk", 1, plyvel),
    case("duckdb", "insert", "disk", 1, duckdb),
    case(OURS, "put_batch", "disk", BATCH, store),
    case("os.writev", "bodies only, fdatasync", "disk", BATCH, raw),
    case("pwritev2", "bodies only, RWF_DSYNC", "disk", BATCH, dsync),
    case("sqlite3", "WAL, FULL, executemany", "disk", BATCH, sqlite),
    case("lmdb", "sync, putmulti", "disk", BATCH, lmdb),
    case("rocksdict", "WriteBatch, sync", "disk", BATCH, rocksdict),
    case("plyvel", "write_batch, sync", "disk", BATCH, plyvel),
    case("duckdb", "insert of a list", "disk", BATCH, duckdb),
)
