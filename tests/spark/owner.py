"""A process that has a store open, serves it and puts messages of its own, and dies at one step if told so:
`python -m tests.spark.owner ROOT DURABILITY SHARED [STEP]`. It ends when its input does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import rocketstore
from rocketstore.spark import serve
from tests.spark.asking import at_steps
from tests.support.paths import ROOT

__all__ = ["Owner", "owner"]


class Owner:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def end(self) -> list[int]:
        """Closes it unless it is dead; numbers of its own messages that were acknowledged."""
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        process.stdin.close()
        # Not communicate(): it leaves out what was read ahead together with the first line.
        output, faults = process.stdout.read(), process.stderr.read()
        assert process.wait() in (0, -signal.SIGKILL), faults
        return [int(line) for line in output.splitlines() if line.isdecimal()]

    @property
    def killed(self) -> bool:
        return self.process.wait() == -signal.SIGKILL


@contextlib.contextmanager
def owner(root: Path, step: str = "", durability: str = "os", shared: str = "") -> Iterator[Owner]:
    """Takes commits when this is entered; `shared`: without `serve`."""
    command = [sys.executable, "-m", "tests.spark.owner", str(root), durability, shared, step]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None and process.stderr is not None
        line = process.stdout.readline()
        assert line == "serves\n", line or process.stderr.read()
        yield Owner(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def main(root: str, durability: str, shared: Any, wanted: str) -> None:
    def die(step: str) -> None:
        if step == wanted:
            os.kill(os.getpid(), signal.SIGKILL)

    ended = threading.Event()
    store = rocketstore.open(root, durability=durability, shared=shared or False)
    serving = contextlib.nullcontext() if shared else serve(store)
    with at_steps(die), store, serving:
        putting = threading.Thread(target=put, args=(store, ended, sys.stdout))
        print("serves", flush=True)
        putting.start()
        sys.stdin.read()
        ended.set()
        putting.join()


def put(store: rocketstore.Store, ended: threading.Event, acknowledged: IO[str]) -> None:
    """One message after the other, so that some stand between those of a commit."""
    writer, number = store.writer("own"), 0
    while not ended.wait(0.0005):
        writer.put(b"%d" % number)
        print(number, file=acknowledged, flush=True)
        number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
