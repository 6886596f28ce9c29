"""One process of `tests.process.shared_kills`: puts in several ways, reads and consumes, and says each step in a file.

A line of the file is a JSON object: `e` says what happened, `t` when (CLOCK_MONOTONIC, ns, which all processes share).
`try` comes before a put, with its rows; `ok`, `unknown` or `refused` after it. The kernel keeps the lines of a process
that is killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import rocketstore
from rocketstore import (
    Consumer,
    DurabilityTimeoutError,
    Message,
    NewMessage,
    OutcomeUnknownError,
    PutResult,
    RocketStoreError,
    Store,
    StoreBehindError,
    StoreRecoveringError,
    Writer,
)
from tests.support.waiting import pause

__all__ = ["COUNTED", "QUEUES", "TOPICS", "Life", "pipe"]

TOPICS: Final = ("t0", "t1", "t2")
QUEUES: Final = 2
#: Topic whose puts say where they expect the end of the queue; of delayed messages; of the pipe, both ends.
COUNTED: Final = "counted"
LATE: Final = "late"
IN, OUT = "in", "out"
PUTTERS: Final = 2
#: Ids that several processes put at once: one a twentieth of a second.
RACE_NS: Final = 50_000_000

Row = tuple[str, int, str]
Places = list[tuple[int, int]]


def places_of(result: PutResult) -> Places:
    return list(zip(result.queue_ids, result.queue_offsets, strict=True))


class Life:
    """The store of one process, and the file in which it says what it does."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.stop = threading.Event()
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def note(self, what: str, **details: Any) -> None:
        line = json.dumps({"e": what, "t": time.monotonic_ns(), **details}) + "\n"
        os.write(self._log, line.encode())

    def run(self, path: str, seed: int, shared: Any, options: dict[str, Any]) -> None:
        began = time.monotonic_ns()
        with rocketstore.open(path, shared=shared, **options) as store:
            self.note("open", began=began, pid=os.getpid())
            works: list[Callable[[], None]] = [
                *(Putter(self, store, n, random.Random(seed + n)).run for n in range(PUTTERS)),
                lambda: self.piping(store, random.Random(seed + 10)),
                lambda: self.working(store, random.Random(seed + 11)),
                lambda: self.following(store),
            ]
            threads = [threading.Thread(target=self.guarded, args=(work,)) for work in works]
            for thread in threads:
                thread.start()
            # A signal that another thread has taken is seen at the next look.
            while not self.stop.wait(0.1):
                pass
            for thread in threads:
                thread.join()
            self.note("closing")
        self.note("closed")

    def guarded(self, work: Callable[[], None]) -> None:
        """An error that nobody expects is told, and ends the process."""
        try:
            work()
        except BaseException:
            self.note("broken", error=traceback.format_exc())
            os._exit(1)

    @contextlib.contextmanager
    def though_it_recovers(self) -> Iterator[None]:
        """Notes a read that raised because the next host recovers, or has not come yet. The same read works later."""
        try:
            yield
        except (StoreBehindError, StoreRecoveringError):
            self.note("recovering")

    # ---- reading ----

    def piping(self, store: Store, rng: random.Random) -> None:
        """Moves what is in one topic to another, exactly once, while it has the group."""

        def use(consumer: Consumer, asked: int) -> None:
            for _ in range(rng.randrange(60)):
                pipe(store, consumer)
                if self.stop.is_set():
                    break

        while not self.stop.is_set():
            self.as_group(store, IN, "pipe", use)

    def working(self, store: Store, rng: random.Random) -> None:
        """Consumes as a group; says what it began with, asked to commit and committed."""

        def use(consumer: Consumer, asked: int) -> None:
            owner = time.monotonic_ns()
            self.note("claimed", owner=owner, asked=asked, at=consumer.positions)
            try:
                for _ in range(rng.randrange(40)):
                    consumer.poll(rng.randrange(1, 40), timeout_s=0.05)
                    asked = time.monotonic_ns()
                    self.note("committing", owner=owner, at=consumer.positions)
                    consumer.commit(durability=rng.choice(("disk", "os")))
                    self.note("committed", owner=owner, asked=asked, at=consumer.positions)
                    if self.stop.is_set():
                        break
            finally:
                self.note("releasing", owner=owner)

        while not self.stop.is_set():
            self.as_group(store, TOPICS[0], "work", use)

    def as_group(
        self, store: Store, topic: str, group: str, use: Callable[[Consumer, int], None]
    ) -> None:
        """Uses a consumer of a group where no other has it, until an error of a change of the host. `use` gets the
        time when the group was asked for, too."""
        asked = time.monotonic_ns()
        try:
            with store.consumer(topic, group=group) as consumer:
                use(consumer, asked)
        except RocketStoreError as error:
            self.note("unclaimed", group=group, error=f"{type(error).__name__}: {error}")
        self.stop.wait(0.05)

    def following(self, store: Store) -> None:
        """Reads a topic to its end again and again: each message in its place."""
        consumer: Consumer | None = None
        nexts: dict[int, int] = {}
        while not self.stop.is_set():
            messages: list[Message] = []
            with self.though_it_recovers():
                consumer = consumer or store.consumer(TOPICS[1])
                messages = consumer.poll(200, timeout_s=0.1)
            for message in messages:
                wanted = nexts.get(message.queue_id, 0)
                if message.queue_offset != wanted:
                    self.note("gap", queue=message.queue_id, at=message.queue_offset, after=wanted)
                nexts[message.queue_id] = message.queue_offset + 1
            self.note("read", nexts=nexts)


def pipe(store: Store, consumer: Consumer) -> int:
    """One transaction of the pipe; how many messages it moved."""
    with store.transaction() as tx:
        messages = tx.consume(consumer, max_messages=20, timeout_s=0.05)
        for message in messages:
            tx.put(OUT, message.body, queue_id=message.queue_id)
    return len(messages)


class Putter:
    """One thread that puts; its messages are numbered over all topics."""

    def __init__(self, life: Life, store: Store, number: int, rng: random.Random) -> None:
        self.life, self.store, self.rng = life, store, rng
        self.name = f"{life.name}.{number}"
        self.number = 0
        self._writers: dict[tuple[str, int, str | None], Writer] = {}

    def run(self) -> None:
        ways = [
            *[self.put] * 4,
            *(self.put_batch, self.put_many, self.put_columns, self.put_frames),
            *(self.submit, self.transact, self.put_once, self.race, self.put_counted),
            *(self.put_late, self.feed, self.put_message),
        ]
        while not self.life.stop.is_set():
            with self.life.though_it_recovers():
                self.rng.choice(ways)()
            pause(self.rng.uniform(0, 0.004))

    # ---- what every way needs ----

    def attempt(self, how: str, rows: list[Row], call: Callable[[], Places], **more: Any) -> bool:
        """Notes a put before and after; whether it was acknowledged."""
        number = self.number
        self.life.note("try", by=self.name, n=number, how=how, rows=rows, **more)
        began = time.monotonic_ns()
        try:
            places = call()
        except OutcomeUnknownError as error:
            self.life.note("unknown", by=self.name, n=number, began=began, error=str(error))
        except DurabilityTimeoutError as error:
            self.life.note("unknown", by=self.name, n=number, began=began, late=str(error))
        except RocketStoreError as error:
            said = f"{type(error).__name__}: {error}"
            self.life.note("refused", by=self.name, n=number, began=began, error=said)
        else:
            self.life.note("ok", by=self.name, n=number, began=began, places=places)
            return True
        return False

    def body(self) -> str:
        self.number += 1
        return f"{self.name}/{self.number}/" + "x" * self.rng.choice((0, 20, 300))

    def row(self, topic: str | None = None) -> Row:
        return topic or self.rng.choice(TOPICS), self.rng.randrange(QUEUES), self.body()

    def writer(self, topic: str, queue_id: int, durability: str | None) -> Writer:
        key = topic, queue_id, durability
        if key not in self._writers:
            made = self.store.writer(topic, queue_id=queue_id, durability=durability)  # type: ignore[arg-type]
            self._writers[key] = made
        return self._writers[key]

    def some_writer(self, topic: str, queue_id: int) -> Writer:
        return self.writer(topic, queue_id, self.rng.choice((None, "os", "disk")))

    # ---- the ways ----

    def put(self, topic: str | None = None) -> None:
        topic, queue_id, body = row = self.row(topic)
        promise: Any = self.rng.choice((None, "os", "disk", "memory"))
        writer = self.writer(topic, queue_id, None)
        self.attempt(
            "put",
            [row],
            lambda: places_of(writer.put(body.encode(), tags="t", durability=promise)),
            weak=promise == "memory",
        )

    def feed(self) -> None:
        topic, queue_id, body = row = self.row(IN)
        writer = self.some_writer(topic, queue_id)
        self.attempt("feed", [row], lambda: places_of(writer.put(body.encode())))

    def put_message(self) -> None:
        topic, queue_id, body = row = self.row()
        put = self.store.put_message
        self.attempt(
            "message", [row], lambda: places_of(put(topic, body.encode(), queue_id=queue_id))
        )

    def submit(self) -> None:
        topic, queue_id, body = row = self.row()
        writer = self.some_writer(topic, queue_id)
        self.attempt("submit", [row], lambda: places_of(writer.submit(body.encode()).result()))

    def one_queue(self) -> tuple[Writer, list[Row], list[bytes]]:
        topic, queue_id, body = self.row()
        rows = [(topic, queue_id, body)]
        rows += [(topic, queue_id, self.body()) for _ in range(self.rng.randrange(1, 12))]
        return self.some_writer(topic, queue_id), rows, [row[2].encode() for row in rows]

    def put_batch(self) -> None:
        writer, rows, bodies = self.one_queue()
        self.attempt("batch", rows, lambda: places_of(writer.put_batch(bodies)), whole=True)

    def put_columns(self) -> None:
        writer, rows, bodies = self.one_queue()
        offsets = [sum(map(len, bodies[:n])) for n in range(len(bodies) + 1)]
        columns = (offsets, b"".join(bodies))
        self.attempt("columns", rows, lambda: places_of(writer.put_columns(columns)))

    def put_many(self) -> None:
        rows = [self.row() for _ in range(self.rng.randrange(2, 9))]
        made = [NewMessage(topic, body.encode(), queue_id=n) for topic, n, body in rows]
        self.attempt("many", rows, lambda: places_of(self.store.put_batch(made)), whole=True)

    def put_frames(self) -> None:
        rows = [self.row() for _ in range(self.rng.randrange(1, 9))]
        bodies = [row[2].encode() for row in rows]
        offsets = [sum(map(len, bodies[:n])) for n in range(len(bodies) + 1)]
        frames, refused = rocketstore.encode_frames(
            (offsets, b"".join(bodies)),
            topics=[row[0] for row in rows],
            queue_ids=[row[1] for row in rows],
        )
        assert refused == {}

        def call() -> Places:
            assert self.store.put_frames(frames).count == len(rows)
            return []

        self.attempt("frames", rows, call)

    def transact(self) -> None:
        rows = [self.row() for _ in range(self.rng.randrange(1, 6))]

        def call() -> Places:
            with self.store.transaction(durability=self.rng.choice((None, "os", "disk"))) as tx:
                for topic, queue_id, body in rows:
                    tx.put(topic, body.encode(), queue_id=queue_id)
            return [place for result in tx.results for place in places_of(result)]

        self.attempt("transaction", rows, call, whole=True)

    def put_once(self) -> None:
        """With an id of its own: asked again until it is there, and then once more."""
        topic, queue_id, body = self.row()
        self._with_id("once", (topic, queue_id, body), f"id {body.split('/x')[0]}")

    def race(self) -> None:
        """With an id that other processes put as well."""
        _, _, body = self.row()
        self._with_id("race", (TOPICS[2], 0, body), f"race {time.monotonic_ns() // RACE_NS}")

    def _with_id(self, how: str, row: Row, unique_id: str) -> None:
        topic, queue_id, body = row
        writer = self.some_writer(topic, queue_id)

        def call() -> Places:
            return places_of(writer.put(body.encode(), unique_id=unique_id))

        for _ in range(2):
            while not self.attempt(how, [row], call, id=unique_id) and not self.life.stop.is_set():
                pause(0.001)

    def put_counted(self) -> None:
        """Where it expects the end of the queue; another may be first."""
        row = (COUNTED, self.rng.randrange(QUEUES), self.body())
        writer = self.some_writer(*row[:2])
        expected = self._end_of(*row[:2])

        def call() -> Places:
            return places_of(writer.put(row[2].encode(), expected_queue_offset=expected))

        self.attempt("counted", [row], call, expected=expected)

    def _end_of(self, topic: str, queue_id: int) -> int:
        there = topic in self.store.topics() and queue_id in self.store.queues(topic)
        return self.store.max_queue_offset(topic, queue_id) if there else 0

    def put_late(self) -> None:
        topic, queue_id, body = row = self.row(LATE)
        writer = self.some_writer(topic, queue_id)

        def call() -> Places:
            writer.put(body.encode(), deliver_after=self.rng.uniform(0.001, 0.2))
            return []

        self.attempt("late", [row], call)


def main() -> None:
    faulthandler.register(signal.SIGUSR1)  # where each thread is, of a life that hangs
    given = json.loads(sys.argv[1])
    life = Life(given["name"], Path(given["log"]))
    signal.signal(signal.SIGTERM, lambda *_: life.stop.set())
    life.guarded(lambda: life.run(given["path"], given["seed"], given["shared"], given["options"]))


if __name__ == "__main__":
    main()
