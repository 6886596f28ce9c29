"""What `rocketstore bench` runs: calls of a store and raw writes of the same bytes, in the same
loop."""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

import rocketstore

__all__ = ["Group", "Round", "Side", "open_group", "raw_name"]

#: One call in this many is timed by itself, where a call is about as short as reading the clock.
SAMPLE: Final = 64
#: Bytes of records that a round appends at most: less than a store lets pile up before puts wait.
ROUND_BYTES: Final = 64 << 20
PREWRITTEN_BYTES: Final = 16 << 20
#: Bytes of records that are stored to be read.
READ_BYTES: Final = 32 << 20
BATCH: Final = 1000
#: Bytes of records in a batch: fewer messages than BATCH where they are large.
BATCH_BYTES: Final = 4 << 20
IN_FLIGHT: Final = 64
FLUSH_TIMEOUT_S: Final = 120.0
TOPIC: Final = "bench"


@dataclass(slots=True)
class Round:
    """`longest_ns`: the longest stretch between two looks at the clock; no call took longer."""

    messages: int
    seconds: float
    latencies_ns: list[int] = field(default_factory=list)
    longest_ns: int = 0

    @property
    def rate(self) -> float:
        return self.messages / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Side:
    """One way to store or to read. `raw`: the side of the same group that it is compared with.

    `single`: a call is one message, so that its latency is a message's.
    """

    what: str
    run: Callable[[float], Round]
    raw: str | None = None
    single: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Sides that take turns, and what their tables and results say of them all."""

    size: int
    durability: str
    pages: str
    sides: list[Side]


def raw_name(durability: str) -> str:
    """The raw write that promises what the durability promises."""
    return "pwritev2(RWF_DSYNC)" if durability == "disk" else "os.write"


@contextmanager
def open_group(
    root: Path,
    size: int,
    durability: rocketstore.Durability,
    *,
    reads: bool,
    **options: Any,
) -> Iterator[list[Group]]:
    """The sides of one size and durability, in new files below `root`; with `reads` those that
    read, too. `options` are further ones of the store."""
    body = os.urandom(size)
    # Ctrl-C ends the wait for a close, not the close: the second one waits until no thread of the
    # store makes files below `root` any more.
    with (
        closing(rocketstore.open(root / "store", durability=durability, **options)) as store,
        store,
    ):
        placed = store.writer(TOPIC, queue_id=0).put(body)
        store.wait_flushed(placed.end_offset, timeout_s=FLUSH_TIMEOUT_S)
        record = bytes(store.get(placed.physical_offset))
        with RawFile(root / "raw", durable=durability == "disk") as raw:
            groups = [Group(size, durability, "cold", _writes(store, raw, body, record))]
            if reads:
                sides = _reads(store, body, len(record))
                groups.append(Group(size, durability, "warm", sides))
            yield groups


def _writes(store: rocketstore.Store, raw: RawFile, body: bytes, record: bytes) -> list[Side]:
    durability = str(store.config.durability)
    each = max(1, min(BATCH, BATCH_BYTES // len(record)))
    sample = 1 if durability == "disk" else SAMPLE
    one, many = raw_name(durability), f"the same, {each} a call"
    data = np.frombuffer(body * each, dtype=np.uint8)
    offsets = np.arange(each + 1, dtype=np.int64) * len(body)
    writers = [store.writer(TOPIC, queue_id=queue_id) for queue_id in range(4)]

    def settle() -> None:
        store.wait_flushed(store.end_offset, timeout_s=FLUSH_TIMEOUT_S)

    def clocked(
        call: Callable[[Any], object],
        argument: object,
        messages: int,
        settled: Callable[[], object],
    ) -> Callable[[float], Round]:
        """A round of calls of `call`, each of `messages` messages. Its bytes go to the disk outside of
        the measured time."""
        most = max(1, ROUND_BYTES // (len(record) * messages))
        group = sample if messages == 1 else 1

        def run(seconds: float) -> Round:
            found = _calls(call, argument, group, most, seconds)
            found.messages *= messages
            settled()
            return found

        return run

    def flights(seconds: float) -> Round:
        found = _flights(writers[3].submit, body, ROUND_BYTES // len(record), seconds)
        settle()
        return found

    def columns(_: object) -> object:
        return writers[2].put_columns(data, offsets)

    raw_one, raw_many = raw.write_of(record), raw.write_of(record * each)
    batches = clocked(writers[1].put_batch, [body] * each, each, settle)
    return [
        Side("put", clocked(writers[0].put, body, 1, settle), one, single=True),
        Side(f"submit, {IN_FLIGHT} in flight", flights, one, single=True),
        Side(one, clocked(raw_one, record, 1, raw.settle), single=True),
        Side(f"put_batch of {each}", batches, many),
        Side(f"put_columns of {each}", clocked(columns, None, each, settle), many),
        Side(many, clocked(raw_many, record * each, each, raw.settle)),
    ]


def _calls(
    call: Callable[[Any], object], argument: object, sample: int, most: int, seconds: float
) -> Round:
    """Calls until `most` are done or the time is over; the first of each `sample` is timed by
    itself."""
    clock = time.perf_counter_ns
    latencies: list[int] = []
    longest = done = 0
    began = before = clock()
    deadline = began + int(seconds * 1e9)
    while done < most and before < deadline:
        call(argument)
        between = clock()
        latencies.append(between - before)
        for _ in repeat(None, sample - 1):
            call(argument)
        after = clock() if sample > 1 else between
        longest = max(longest, after - before)
        done += sample
        before = after
    return Round(done, (before - began) / 1e9, latencies, longest)


def _flights(
    submit: Callable[[bytes], rocketstore.Ticket], body: bytes, most: int, seconds: float
) -> Round:
    """Submits with at most `most` in flight; a latency is that from `submit` to the end of
    `result`."""
    clock = time.perf_counter_ns
    latencies: list[int] = []
    flying: deque[tuple[int, rocketstore.Ticket]] = deque()
    sent = 0
    began = now = clock()
    deadline = began + int(seconds * 1e9)
    while True:
        if len(flying) < IN_FLIGHT and sent < most and now < deadline:
            flying.append((now, submit(body)))
            sent += 1
        elif flying:
            before, ticket = flying.popleft()
            ticket.result()
            latencies.append(clock() - before)
        else:
            break
        now = clock()
    return Round(sent, (now - began) / 1e9, latencies, max(latencies, default=0))


def _reads(store: rocketstore.Store, body: bytes, record_bytes: int) -> list[Side]:
    """Of messages that were stored right before, so from the page cache; checksums are compared."""
    writer = store.writer(TOPIC, queue_id=4)
    each = max(1, min(BATCH, BATCH_BYTES // record_bytes))
    begin = store.end_offset
    for _ in range(max(1, READ_BYTES // (record_bytes * each))):
        writer.put_batch([body] * each)
    end = store.end_offset
    store.wait_flushed(end, timeout_s=FLUSH_TIMEOUT_S)
    store.max_queue_offset(TOPIC, 4)  # dispatched

    def pass_of_messages() -> Iterator[int]:
        with store.consumer(TOPIC, queue_id=4) as consumer:
            messages = iter(consumer)
            while bodies := [message.body for message in islice(messages, BATCH)]:
                yield len(bodies)

    def pass_of_columns() -> Iterator[int]:
        for chunk in rocketstore.scan(
            store, columns=["body"], begin_offset=begin, end_offset=end, aligned=True
        ):
            yield chunk.rows

    return [
        Side("read with .body", functools.partial(_passes, pass_of_messages)),
        Side("scan, column body", functools.partial(_passes, pass_of_columns)),
    ]


def _passes(one: Callable[[], Iterator[int]], seconds: float) -> Round:
    """Goes through the messages again and again until the time is over; a part of them at least."""
    began = now = time.perf_counter()
    messages = 0
    while now < began + seconds:
        for count in one():
            messages += count
            now = time.perf_counter()
            if now >= began + seconds:
                break
    return Round(messages, now - began)


class RawFile:
    """What the same bytes cost without a store: appended by `os.write`, or written over prewritten
    blocks by one call that also syncs."""

    def __init__(self, path: Path, *, durable: bool) -> None:
        self._durable = durable
        self._place = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if durable:
            os.write(self._file, bytes(PREWRITTEN_BYTES))
            os.fsync(self._file)

    def write_of(self, data: bytes) -> Callable[[bytes], object]:
        """The call that writes `data` after what was written before."""
        if not self._durable:
            # A partial, not a function of ours: that would cost half a put by itself.
            return functools.partial(os.write, self._file)
        size = len(data)

        def write(given: bytes) -> None:
            if self._place + size > PREWRITTEN_BYTES:
                self._place = 0
            os.pwritev(self._file, [given], self._place, os.RWF_DSYNC)
            self._place += size

        return write

    def settle(self) -> None:
        """Brings everything to the disk; the next round meets fresh pages again, as a log does."""
        os.fdatasync(self._file)
        if not self._durable:
            os.ftruncate(self._file, 0)
            os.lseek(self._file, 0, os.SEEK_SET)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
