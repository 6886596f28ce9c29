"""What one run of a scene sent, what it was promised, what was raised: said line by line, so that it
survives a run that is killed."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import select
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketstore import (
    CompletionPort,
    Placed,
    PutResult,
    Retention,
    RocketStoreError,
    Store,
)
from tests.support.small_store import open_small, parts

__all__ = [
    "BASED",
    "COMPACTED",
    "KEYED",
    "LATER",
    "PATIENCE",
    "Ack",
    "Journal",
    "Run",
    "is_typed",
    "name_of",
]

#: No wait of a run is long; buffers are small, so that no time goes into locking them.
PATIENCE: dict[str, Any] = {
    "max_wait_ms": 2000,
    "sync_flush_timeout_ms": 2000,
    "max_message_size_bytes": 2000,
    "write_buffer_bytes": 64 * 1024,
    "transient_pool_buffers": 2,
}
#: Name of the store that a compaction makes, next to that of the scene.
COMPACTED = "compacted"
#: Name of the store that a compaction makes with COMPACTED as its base.
BASED = "based"
#: After so many puts that are refused in a row the next act follows.
REFUSED_MAX = 2


#: What is said several times.
LISTS = (
    "sent",
    "commits",
    "transactions",
    "committed",
    "kept",
    "compacted",
    "errors",
    "wrong",
    "logged",
)
#: Of what waits, and of keys whose latest message is kept.
LATER, KEYED = "later", "config"
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Ack:
    """One message that a put returned for."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    level: str
    body: str
    key: str


@dataclass
class Journal:
    """What the other side knows of a run."""

    sent: list[str] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    commits: list[dict[str, int]] = field(default_factory=list)
    #: Bodies of each transaction that was begun, and of those whose commit returned.
    transactions: list[list[str]] = field(default_factory=list)
    committed: list[list[str]] = field(default_factory=list)
    #: Names of messages that wait, or are the latest of their key, whatever is trimmed.
    kept: list[str] = field(default_factory=list)
    #: Names of stores whose compaction returned.
    compacted: list[str] = field(default_factory=list)
    trimmed: int = 0
    errors: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    fired: int = 0
    sync_failed: bool = False
    ended: bool = False
    destroyed: bool = False

    def hear(self, line: str) -> None:
        what, value = json.loads(line)
        if what == "ack":
            self.acks += [Ack(*value)]
        elif what in LISTS:
            getattr(self, what).append(value)
        elif what == "fired":
            self.fired += 1
        else:
            setattr(self, what, value)


def is_typed(error: BaseException) -> bool:
    """Whether a user can tell what happened: an error of ours, or the system's with its errno."""
    if isinstance(error, OSError):
        return error.errno is not None or isinstance(error, RocketStoreError)
    return isinstance(error, RocketStoreError)


class Run:
    """A scene's way to use a store: every act may fail, in a typed way, and the next one follows."""

    def __init__(self, root: Path, channel: int, **options: Any) -> None:
        self.root = root
        self.store: Store | None = None
        self._channel = channel
        self._options = {**PATIENCE, **options}
        self._count = 0

    def say(self, what: str, value: object) -> None:
        os.write(self._channel, (json.dumps([what, value]) + "\n").encode())

    @contextlib.contextmanager
    def act(self, name: str) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:
            self.say("errors", f"{name}: {error!r}")
        except Exception as error:
            text = f"{name}: {error!r}"
            self.say("errors", text)
            if not is_typed(error):
                self.say("wrong", f"not a typed error: {text} {where(error)}")

    def open(self, mode: str = "rw", **options: Any) -> Store | None:
        self.store = None
        with self.act("open"):
            self.store = open_small(self.root, mode, **{**self._options, **options})
        return self.store

    def close(self) -> None:
        if self.store is not None:
            with self.act("close"):
                self.store.close()

    def bodies(self, count: int, size: int, least: int = 0) -> list[str]:
        """New bodies; said before they are sent."""
        found = []
        for _ in range(count):
            self._count += 1
            found.append(f"{os.getpid()}-{self._count}:" + "x" * (least + size * self._count % 251))
            self.say("sent", found[-1])
        return found

    def acked(self, topic: str, result: PutResult, bodies: list[str], key: str = "") -> None:
        assert self.store is not None
        level, flushed = result.durability, self.store.flushed_offset
        if level == "disk" and flushed < result.end_offset:
            self.say("wrong", f"acknowledged up to {result.end_offset}, flushed up to {flushed}")
        for number, body in enumerate(bodies):
            place = [topic, result.queue_id, result.queue_offset + number]
            offset = result.physical_offset if len(bodies) == 1 else -1
            self.say("ack", [*place, offset, level, body, key])

    def put(self, topic: str, count: int, level: str | None = None, size: int = 37) -> None:
        assert self.store is not None
        with self.act("writer"):
            writer = self.store.writer(topic)
            refused = 0
            for _ in range(count):
                [body] = self.bodies(1, size)
                key = body.partition(":")[0]
                refused += 1
                with self.act("put"):
                    result = writer.put(body.encode(), keys=key, tags="t", durability=level)
                    self.acked(topic, result, [body], key)
                    refused = 0
                if refused == REFUSED_MAX:
                    return  # each waits longer than the one before

    def put_batch(self, topic: str, count: int) -> None:
        assert self.store is not None
        bodies = self.bodies(count, 31)
        with self.act("put_batch"):
            writer = self.store.writer(topic, queue_id=1)
            result = writer.put_batch([body.encode() for body in bodies])
            self.acked(topic, result, bodies)

    def put_written(self, topic: str, count: int) -> None:
        """Where records are stored to a mapping: a batch that is written to the file by a call."""
        assert self.store is not None
        if (through := parts(self.store).commit_log.log.through) is None:
            return
        through.least_bytes = 1
        bodies = self.bodies(count, 31, 600)
        with self.act("put_written"):
            writer = self.store.writer(topic, queue_id=1)
            result = writer.put_batch([body.encode() for body in bodies])
            self.acked(topic, result, bodies)

    def submit(self, topic: str) -> None:
        assert self.store is not None
        [body] = self.bodies(1, 29)
        with self.act("submit"):
            ticket = self.store.writer(topic).submit(body.encode(), durability="disk")
            self.acked(topic, ticket.result(10), [body])

    def put_from_a_loop(self, topic: str) -> None:
        """As an event loop puts: looked at again also where its bell was not heard."""
        assert self.store is not None
        [body] = self.bodies(1, 23)
        with self.act("port"):
            writer = self.store.writer(topic)
            port = CompletionPort(self.store)
            waiter: Future[PutResult] = Future()
            try:
                plain = (body.encode(), None, None, None, 0, None, None)
                if port.put(writer, *plain, "disk", waiter) == Placed.NOT_PUT:
                    port.promise(writer.put(body.encode(), durability="memory"), "disk", waiter)
                port.request_flush()
                for _ in range(100):
                    if waiter.done():
                        break
                    select.select([port], [], [], 0.1)
                    port.drain()
                    port.settle()
                    port.expire()
                self.acked(topic, waiter.result(0), [body])
            finally:
                port.close()

    def commit(self, topic: str, group: str, count: int) -> None:
        """Reads as a group does."""
        assert self.store is not None
        with self.act("group"), self.store.consumer(topic, group=group) as consumer:
            consumer.poll(count, timeout_s=0.2)
            places = consumer.commit()
            self.say("commits", {str(queue_id): offset for queue_id, offset in places.items()})

    def transact(self, group: str, count: int = 3) -> None:
        """Reads as a group does, and puts into two topics what came of it, all or nothing. One message
        more waits; that of the transaction before is moved, those of earlier ones are cancelled."""
        assert self.store is not None
        bodies = self.bodies(count, 1)
        self.say("transactions", bodies)
        with (
            self.act("transaction"),
            self.store.consumer("orders", group=group) as consumer,
        ):
            if self.store.config.durability == "memory":
                self.store.flush()  # else what the transaction before left may not be there yet
            with self.store.transaction() as tx:
                tx.consume(consumer, 2, timeout_s=0.2)
                for n, one in enumerate(
                    self.store.delayed.messages(LATER)
                ):  # what was put last is due first
                    assert one.unique_id is not None
                    _ = tx.cancel(one.unique_id) if n else tx.reschedule(one.unique_id, 2 * DAY)
                tx.put(LATER, b"", unique_id=name_of(bodies[0]), deliver_after=DAY)
                for number, body in enumerate(bodies):
                    tx.put(("more", "made")[number % 2], body.encode(), queue_id=number % 3)
                places = tx.commit_offsets(consumer)
            if places or self.store.config.durability != "memory":
                # One without offsets, as the poll found nothing in time, is as durable as the store.
                self.say("committed", bodies)
            self.say("commits", {str(queue_id): offset for queue_id, offset in places.items()})

    def keep(self, topic: str, **options: Any) -> None:
        """A message that stays, whatever is trimmed."""
        assert self.store is not None
        [body] = self.bodies(1, 43)
        with self.act("keep"):
            name = name_of(body)
            self.store.writer(topic).put(body.encode(), keys=name, unique_id=name, **options)
            self.say("kept", name)

    def retain(self) -> None:
        """All goes that can: what waits is put again, and the latest message of each key."""
        assert self.store is not None
        with self.act("retention"):
            self.store.flush()
            self.read("more")  # and so dispatches
            self.say("trimmed", self.store.end_offset)
            self.store.retention.run(Retention(max_bytes=1, keep_latest_of=[KEYED]))

    def compact(self, topic: str, base: str | None = None) -> bool:
        assert self.store is not None
        with self.act("compact"):
            name = COMPACTED if base is None else BASED
            before = base and self.root.with_name(base)
            self.store.compact(topic, into=self.root.with_name(name), base=before)
            self.say("compacted", name)
            return True
        return False

    def read(self, topic: str) -> list[bytes]:
        assert self.store is not None
        found: list[bytes] = []
        with self.act("read"):
            for queue_id in self.store.queues(topic):
                with (
                    self.act(f"read {topic}/{queue_id}"),
                    self.store.consumer(topic, queue_id=queue_id) as consumer,
                ):
                    found += [bytes(message.body) for message in consumer]
        return found

    def query(self, topic: str, key: str) -> None:
        assert self.store is not None
        with self.act("query"):
            self.store.query(topic, key)

    def trim(self, before: int) -> None:
        assert self.store is not None
        with self.act("trim"):
            self.say("trimmed", before)
            self.store.trim(before_offset=min(before, self.store.end_offset))


def name_of(body: str) -> str:
    return body.partition(":")[0]


def where(error: BaseException) -> str:
    """The last places of a traceback, in one line."""
    places = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{os.path.basename(code.co_filename)}:{trace.tb_lineno}")
        trace = trace.tb_next
    return "@ " + " ".join(places[-6:])
