"""Every face of a reader that outlives writers, each as one class: `seen` says which messages it has shown."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import rocketstore
from rocketstore import RocketStoreError, StoreRecoveringError, StoreReplacedError, aio
from rocketstore.cli import exit_codes
from rocketstore.metrics import StoreCollector
from rocketstore.spark.errors import SparkFaceError
from rocketstore.spark.source.options import ReadOptions
from rocketstore.spark.source.stream_progress import Progress

__all__ = ["FACES", "TOPIC", "Face", "key_of"]

TOPIC = "orders"
#: Longest wait of one look, seconds.
LOOK_S = 0.2

#: What a face has shown: bodies in their order, or only how many.
Shown = list[bytes] | int


def key_of(body: bytes) -> str:
    return "k" + body.decode()


class Face:
    """A reader that stays open. `seen` raises what the reader raises."""

    def __init__(self, path: Path) -> None:
        self.reader = rocketstore.open(path, "r")
        self.bodies: list[bytes] = []

    def seen(self, expected: list[bytes]) -> Shown:
        raise NotImplementedError

    def close(self) -> None:
        self.reader.close()


class Poll(Face):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.consumer = self.reader.consumer(TOPIC)

    def seen(self, expected: list[bytes]) -> Shown:
        self.bodies += [bytes(m.body) for m in self.consumer.poll(timeout_s=LOOK_S)]
        return self.bodies


class PollWithoutWait(Poll):
    def seen(self, expected: list[bytes]) -> Shown:
        self.bodies += [bytes(m.body) for m in self.consumer.poll()]
        return self.bodies


class Columns(Poll):
    def seen(self, expected: list[bytes]) -> Shown:
        columns = self.consumer.poll_columns(columns=["body"], timeout_s=LOOK_S)
        if columns is not None:
            self.bodies += [bytes(columns["body"][row]) for row in range(columns.rows)]
        return self.bodies


class Follow(Poll):
    def seen(self, expected: list[bytes]) -> Shown:
        missing = max(1, len(expected) - len(self.bodies))
        for message in islice(self.consumer.follow(LOOK_S), missing):
            self.bodies.append(bytes(message.body))
        return self.bodies


class NewConsumer(Face):
    """One reader, a new consumer for each look, which begins at an offset that the application kept."""

    def seen(self, expected: list[bytes]) -> Shown:
        with self.reader.consumer(TOPIC, offset="earliest") as consumer:
            return [bytes(message.body) for message in consumer]


class Scan(Face):
    def seen(self, expected: list[bytes]) -> Shown:
        found: list[bytes] = []
        for columns in rocketstore.scan(self.reader, columns=["body"]):
            found += [bytes(columns["body"][row]) for row in range(columns.rows)]
        return found


class Metrics(Face):
    def seen(self, expected: list[bytes]) -> Shown:
        collected = StoreCollector({"s": self.reader}).collect()
        families = {family.name: family for family in collected}
        for sample in families["rocketstore_unreadable"].samples:
            if sample.labels["error"] == "StoreRecoveringError":
                raise StoreRecoveringError("?", "metrics say that a process")
            raise AssertionError(sample)
        if families["rocketstore_open"].samples[0].value == 0:
            raise StoreReplacedError("?", "metrics say that it is not open")
        return sum(int(sample.value) for sample in families["rocketstore_messages"].samples)


class Bounds(Face):
    def seen(self, expected: list[bytes]) -> Shown:
        return sum(self.reader.max_queue_offset(TOPIC, n) for n in self.reader.queues(TOPIC))


class Query(Face):
    """The newest message by its key: as good as all of them."""

    def seen(self, expected: list[bytes]) -> Shown:
        if not expected:
            return self.reader.max_queue_offset(TOPIC, 0)
        found = [bytes(m.body) for m in self.reader.query(TOPIC, key_of(expected[-1]))]
        return len(expected) if expected[-1] in found else 0


class Aio(Face):
    def __init__(self, path: Path) -> None:
        self.bodies = []
        self.loop = asyncio.new_event_loop()
        try:
            self.loop.run_until_complete(self._open(path))
        except BaseException:
            self.loop.close()
            raise

    async def _open(self, path: Path) -> None:
        self.store = await aio.open(path, "r")
        self.consumer = self.store.consumer(TOPIC)

    def seen(self, expected: list[bytes]) -> Shown:
        found = self.loop.run_until_complete(self.consumer.poll(timeout_s=LOOK_S))
        self.bodies += [bytes(message.body) for message in found]
        return self.bodies

    def close(self) -> None:
        with contextlib.suppress(RocketStoreError):
            self.loop.run_until_complete(self.store.close())
        self.loop.close()


class Stream(Face):
    """What a Spark stream does, without Spark; Spark keeps the offset as JSON."""

    def __init__(self, path: Path) -> None:
        self.bodies = []
        given = {"path": str(path), "startingOffsets": "earliest"}
        self.stream = Progress(ReadOptions.parse(given, stream=True))
        try:
            self.offset = self.stream.initial()
        except BaseException:
            self.stream.close()
            raise

    def seen(self, expected: list[bytes]) -> Shown:
        try:
            end = self.stream.latest(self.offset)
            scans, _ = self.stream.parts(self.offset, end)
        except SparkFaceError as error:
            if error.code in ("RS_STORE_REPLACED", "RS_LOG_TRUNCATED", "RS_NO_STORE"):
                raise StoreReplacedError("?", str(error)) from error
            raise
        found: list[bytes] = []
        for scan in scans:
            for columns in scan:
                found += [bytes(columns["body"][row]) for row in range(columns.rows)]
        self.bodies, self.offset = self.bodies + found, end
        return self.bodies

    def close(self) -> None:
        self.stream.close()


class Tail(Face):
    """`rocketstore tail -f` in a process of its own. It says in a line why it ends."""

    def __init__(self, path: Path) -> None:
        rocketstore.open(path, "r").close()  # the same errors as those of other faces
        self.path = path
        self._begin()

    def _begin(self) -> None:
        self.bodies = []
        command = [sys.executable, "-m", "rocketstore", "tail", str(self.path), TOPIC]
        self.process = subprocess.Popen(
            [*command, "-f", "-n", "1000000", "--format", "%s\\n\\c"], stdout=-1, stderr=-1
        )
        self.ended = threading.Event()
        self.reads = threading.Thread(target=self._read)
        self.reads.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.bodies.append(line.rstrip(b"\n"))
        self.ended.set()

    def seen(self, expected: list[bytes]) -> Shown:
        if self.ended.wait(LOOK_S):
            assert self.process.stderr is not None
            said = self.process.stderr.read().decode()
            code = self.process.wait(10)
            assert code != 0, said
            if code == exit_codes.LOCKED:  # it came to its first look beside a recovery
                self.close()
                self._begin()
                raise StoreRecoveringError(str(self.path), said)
            raise StoreReplacedError("?", said)
        return list(self.bodies)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self.reads.join()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


FACES: tuple[type[Face], ...] = (
    Poll,
    PollWithoutWait,
    Columns,
    Follow,
    NewConsumer,
    Scan,
    Metrics,
    Bounds,
    Query,
    Aio,
    Stream,
    Tail,
)
