"""What became of an attack by frames: counts, rates, closes, what has no type; the other processes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final
from unittest import mock

from rocketstore import RocketStoreError
from rocketstore.replication.master.sender import ReplicaSender
from rocketstore.replication.protocol.classic import REPORT, ClassicMasterLink, ClassicReplicaLink
from rocketstore.replication.protocol.frames import FrameReader

__all__ = ["Told", "Watch", "answer_of", "own_bytes", "process"]

#: What the honest copy keeps of its rate at least, and what a close takes at most, seconds.
RATE_LEAST: Final = 0.5
CLOSE_MOST_S: Final = 1.0
#: What the process may grow by under the attack, bytes.
GROWTH_MOST: Final = 256 << 20


@dataclasses.dataclass
class Told:
    """What became of one attack. `rates`: puts a second without and with it, by turns."""

    taken: int = 0
    peers: dict[str, Any] = dataclasses.field(default_factory=dict)
    #: Of puts without any attack, as often.
    quiet: list[float] = dataclasses.field(default_factory=list)
    rates: tuple[list[float], list[float]] = dataclasses.field(default_factory=lambda: ([], []))
    closes_s: list[float] = dataclasses.field(default_factory=list)
    growth: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)

    def note_growth(self, growth: int) -> None:
        """Of the memory of the process, bytes."""
        self.growth = max(self.growth, growth)
        if growth > GROWTH_MOST and not any("grew" in one for one in self.faults):
            self.faults.append(f"the process grew by {growth:,} bytes")

    @property
    def ratio(self) -> float:
        without, beside = (statistics.median(rates or [0.0]) for rates in self.rates)
        return beside / without if without else 0.0

    def judged(self) -> list[str]:
        """What is wrong, also by the clock, which a machine that stands still makes wrong."""
        found = list(self.faults)
        if self.ratio < RATE_LEAST:
            found.append(f"the honest copy kept {self.ratio:.2f} of its rate")
        if max(self.closes_s) > CLOSE_MOST_S:
            found.append(f"a close took {max(self.closes_s):.2f} s")
        return found

    def shown(self) -> str:
        without, beside = (statistics.median(rates or [0.0]) for rates in self.rates)
        quiet = statistics.median(self.quiet)
        closes = statistics.median(self.closes_s), max(self.closes_s)
        said = self.peers.get("frames", 0)
        return (
            f"{self.taken:,} frames taken, {said:,} sent; {quiet:,.0f} puts/s alone, "
            f"{without:,.0f} beside, {beside:,.0f} under the attack: {self.ratio:.2f}; "
            f"{len(self.closes_s)} closes, {closes[0]:.2f} s in the middle, {closes[1]:.2f} s at "
            f"most; +{self.growth >> 20} MiB; {self.peers}"
        )


class Watch(logging.Handler):
    """Counts frames, and notes what has no type, while it is entered."""

    def __init__(self, told: Told) -> None:
        super().__init__(logging.INFO)
        self._told = told
        self.frames = 0
        #: What takes the frames of the honest peer, which are not counted.
        self.honest: object = None

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        untyped = record.levelno >= logging.ERROR or record.name == "asyncio"
        if untyped and "the copy does not go on" not in text:
            self._told.faults.append(f"{record.name}: {text}")

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        took, reported = FrameReader.take, ClassicMasterLink.receive
        came, run = ClassicReplicaLink._take_header, ReplicaSender.run

        def take(reader: Any, piece: memoryview) -> Iterator[Any]:
            try:
                for one in took(reader, piece):
                    self.frames += reader is not self.honest
                    yield one
            except (RocketStoreError, OSError):
                self.frames += 1
                raise

        def receive(link: Any, data: memoryview) -> Any:
            if link is not self.honest:
                self.frames += len(data) // REPORT.size
            return reported(link, data)

        def take_header(link: Any, *arguments: Any) -> int:
            self.frames += link is not self.honest
            return came(link, *arguments)

        async def runs(sender: Any) -> None:
            try:
                await run(sender)
            except (RocketStoreError, OSError):
                raise
            except Exception as error:
                self._told.faults.append(f"a sender: {error!r}")
                raise

        def failed(given: Any) -> None:
            self._told.faults.append(f"a thread: {given.exc_value!r}")

        replaced: tuple[tuple[Any, str, Any], ...] = (
            (FrameReader, "take", take),
            (ClassicMasterLink, "receive", receive),
            (ClassicReplicaLink, "_take_header", take_header),
            (ReplicaSender, "run", runs),
            (threading, "excepthook", failed),
            (sys, "unraisablehook", failed),
        )
        logging.getLogger().addHandler(self)
        with contextlib.ExitStack() as stack:
            stack.callback(logging.getLogger().removeHandler, self)
            for owner, name, made in replaced:
                stack.enter_context(mock.patch.object(owner, name, made))
            yield


@contextlib.contextmanager
def process(*words: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def answer_of(process: subprocess.Popen[str], line: str = "") -> dict[str, Any]:
    """What it answers."""
    if line:
        _pipe(process.stdin).write(line + "\n")
        _pipe(process.stdin).flush()
    found: dict[str, Any] = json.loads(_pipe(process.stdout).readline())
    return found


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def own_bytes() -> int:
    """Memory of this process besides files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))
