"""Makes traces: builds the recorder, runs workloads below it, and recoveries of what they leave."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.power_loss.disk import Disk
from tests.power_loss.expectation import Expectation
from tests.power_loss.images import take_image
from tests.power_loss.trace import Event, Kind, read_trace
from tests.power_loss.workloads import WORKLOADS

__all__ = ["Recorder", "RunFailed", "Trace", "build_recorder"]

HERE = Path(__file__).parent
SOURCES = ("recorder.c", "recorder_calls.c")
FLAGS = ["-std=gnu17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden"]
FLAGS += ["-Wall", "-Wextra", "-Wshadow", "-Werror", "-U_FORTIFY_SOURCE"]


def build_recorder(directory: Path) -> Path:
    """The recorder as a shared library; needs a C compiler."""
    library = directory / "recorder.so"
    sources = [str(HERE / name) for name in SOURCES]
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, *FLAGS, *sources, "-o", str(library), "-ldl", "-lpthread"], check=True
    )
    return library


@dataclass(slots=True)
class Trace:
    """One recorded run: how the disk was before, what was done, what was known before."""

    name: str
    before: Disk
    expected: Expectation
    events: list[Event]

    def states(self) -> Iterator[tuple[Disk, Expectation]]:
        """Disk and promises at each point of the run, first to last; the same two objects, changed."""
        disk, expected = self.before.copy(), self.expected.copy()
        yield disk, expected
        for event in self.events:
            disk.apply(event)
            if event.kind is Kind.MARK:
                expected.note(event.mark)
            yield disk, expected


class RunFailed(Exception):
    """A recorded run ended with an error: the store could not be opened, or used, again."""


class Recorder:
    """A process with the recorder preloaded, which runs one workload after the other."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._library = build_recorder(directory)
        self._process = self._start()
        #: Recoveries that failed while they were recorded: what was recovered, and the error.
        self.failed: list[tuple[str, str]] = []

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.power_loss.writer"],
            env={**os.environ, "LD_PRELOAD": str(self._library)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def _say(self, job: dict[str, Any]) -> None:
        """Has one job done."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the process of the recorder has no pipes")
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        if said != "done\n":
            self._end()
            self._process = self._start()
            raise RunFailed(said.strip() or "the process died")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def forget(self) -> None:
        """Removes what the traces so far were made from."""
        for path in self._directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix == ".trace":
                path.unlink()

    def record(self, workload: str, seed: int, follow: int) -> list[Trace]:
        """A run of a workload from an empty directory; then `follow` recoveries, each of an image of
        one of the traces before, which go on with messages of their own."""
        traces = [self._record(workload, seed, Expectation(WORKLOADS[workload].options))]
        rng = random.Random(seed)
        for n in range(follow):
            base = rng.choice(traces)
            cut = rng.randrange(len(base.events) // 4, len(base.events) + 1)
            states = base.states()
            for _ in range(cut):
                next(states)
            disk, expected = next(states)
            image = take_image(disk, rng)
            expected.lose_power(killed=image.killed)
            if "store" in image.directories:
                name = f"{base.name}, {image.how} at {cut}"
                try:
                    traces.append(self._record(workload, seed + n + 1, expected, image.write, name))
                except RunFailed as error:
                    self.failed.append((name, str(error)))
        return traces

    def _record(
        self,
        workload: str,
        seed: int,
        expected: Expectation,
        write: Callable[[str], None] | None = None,
        name: str = "",
    ) -> Trace:
        self._count += 1
        parent = self._directory / str(self._count)
        parent.mkdir()
        if write is not None:
            write(str(parent))
        before = Disk.of(parent)
        trace = self._directory / f"{self._count}.trace"
        lives = [life for lives in expected.lives.values() for life in lives]
        job = {
            "workload": workload,
            "seed": seed,
            "root": str(parent / "store"),
            "trace": str(trace),
            "fresh": write is None,
            "life": max(lives, default=0) + 100,
        }
        self._say(job)
        return Trace(name or workload, before, expected.copy(), read_trace(trace))
