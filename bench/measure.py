"""The clocked loops of the harness: the same loop for a put and for a raw write."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any, Self

from bench.machine import machine, machine_line
from bench.memory import take

__all__ = [
    "Case",
    "RawFile",
    "Round",
    "fetch_memory",
    "machine",
    "machine_line",
    "run_threads",
]

#: One call of this number is timed by itself, where a call is about as short as reading the clock.
SAMPLE = 64
PREWRITTEN_BYTES = 16 << 20
#: More than a short round of either side takes in page cache.
FETCHED_BYTES = 256 << 20


@dataclass(frozen=True)
class Case:
    """What is measured. `seconds` or `gib` of a round; None: a fixed number of messages.

    `batch`: messages a call; latencies are those of calls.
    """

    size: int
    durability: str
    threads: int = 1
    rounds: int = 5
    seconds: float | None = None
    gib: float | None = None
    cold: bool = False
    given: bool = False
    batch: int = 1


@dataclass
class Round:
    """One side's part of a round. `longest_ns`: the longest stretch between two looks at the clock;
    no call took longer."""

    messages: int = 0
    duration_ns: int = 1
    longest_ns: int = 0
    latencies_ns: list[int] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return self.messages * 1e9 / self.duration_ns


def run_threads(
    calls: Sequence[Callable[[Any], object]], argument: object, case: Case, count: int
) -> Round:
    """Calls each of `calls` again and again, in a thread of its own; all begin together.

    `count`: calls of each, where the case has no `seconds`. What is found counts messages.
    """
    rounds = [Round() for _ in calls]
    failures: list[BaseException] = []
    barrier = threading.Barrier(len(calls) + 1)
    sample = 1 if case.durability == "disk" or case.batch > 1 else SAMPLE

    def work(call: Callable[[Any], object], own: Round) -> None:
        barrier.wait()
        try:
            _loop(call, argument, own, count, case.seconds, sample)
        except BaseException as error:  # shown by the caller's raise
            failures.append(error)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(calls, rounds, strict=True)]
    for thread in threads:
        thread.start()
    barrier.wait()
    began = time.perf_counter_ns()
    for thread in threads:
        thread.join()
    duration_ns = time.perf_counter_ns() - began
    if failures:
        raise failures[0]
    for own in rounds:
        own.messages *= case.batch
    if len(rounds) == 1:
        return rounds[0]
    return Round(
        sum(own.messages for own in rounds),
        duration_ns,
        max(own.longest_ns for own in rounds),
        [latency for own in rounds for latency in own.latencies_ns],
    )


def _loop(
    call: Callable[[Any], object],
    argument: object,
    own: Round,
    count: int,
    seconds: float | None,
    sample: int,
) -> None:
    clock = time.perf_counter_ns
    note = own.latencies_ns.append
    most = count if seconds is None else sys.maxsize
    longest = done = 0
    began = before = clock()
    deadline = began + int((3600.0 if seconds is None else seconds) * 1e9)
    while done < most and before < deadline:
        call(argument)
        between = clock()
        note(between - before)
        for _ in repeat(None, min(sample, most - done) - 1):
            call(argument)
        after = clock()
        longest = max(longest, after - before)
        done += min(sample, most - done)
        before = after
    own.messages = done
    own.duration_ns = max(1, before - began)
    own.longest_ns = longest


def fetch_memory() -> None:
    """Takes memory from the host and gives it back to the kernel, so that the round after it finds pages.

    A virtual machine's free memory goes back to its host within seconds. Populating 32 MiB of a segment
    took 7 ms with memory at hand and 220 ms without; that would be all that a round at 1 KiB shows.
    """
    take(FETCHED_BYTES).close()


class RawFile:
    """What the same bytes cost without a store: appended by `write`, or written over prewritten blocks
    by one call that also syncs. Each thread has a file of its own. A batch is its records in a row."""

    def __init__(self, path: Path, record: bytes, case: Case) -> None:
        self._record = record * case.batch
        self._durable = case.durability == "disk"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._files = [os.open(f"{path}-{n}", flags, 0o600) for n in range(case.threads)]
        if self._durable:
            for file in self._files:
                os.write(file, bytes(PREWRITTEN_BYTES))
                os.fsync(file)

    def round(self, case: Case, count: int) -> Round:
        calls = [self._durable_call(f) if self._durable else self._call(f) for f in self._files]
        found = run_threads(calls, self._record, case, count)
        for file in self._files:
            os.fdatasync(file)
            if not self._durable:
                # The next round meets fresh pages again, as a log does.
                os.ftruncate(file, 0)
                os.lseek(file, 0, os.SEEK_SET)
        return found

    def _call(self, file: int) -> Callable[[bytes], object]:
        # A partial, not a lambda: that would cost half a put by itself.
        return functools.partial(os.write, file)

    def _durable_call(self, file: int) -> Callable[[bytes], object]:
        place = 0
        size = len(self._record)

        def call(record: bytes) -> None:
            nonlocal place
            if place + size > PREWRITTEN_BYTES:
                place = 0
            os.pwritev(file, [record], place, os.RWF_DSYNC)
            place += size

        return call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            os.close(file)
