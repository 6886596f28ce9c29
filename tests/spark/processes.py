"""Programs that run Spark, with all their processes: driver, JVM, Python workers, executors.

Python's workers put themselves into process groups of their own, so a group is not enough: every process
that inherits the mark in its environment belongs to the program.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT as TREE

__all__ = ["MARK", "Program", "kill_marked", "program"]

MARK = "ROCKETSTORE_TEST_PROGRAM"


def marked(mark: str) -> dict[int, str]:
    """All processes with a mark that run now: pid → command line."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with contextlib.suppress(OSError):
            place = Path("/proc", entry)
            if wanted in (place / "environ").read_bytes().split(b"\0"):
                found[int(entry)] = (place / "cmdline").read_bytes().decode(errors="replace")
    return found


def kill_marked(mark: str, children: Sequence[subprocess.Popen[Any]]) -> int:
    """SIGKILL for all, those that are being started included; how many there were."""
    killed: set[int] = set()
    while running := marked(mark):
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= set(running)
        for child in children:
            if child.pid in running:
                child.wait(60)
        time.sleep(0.01)
    return len(killed)


class Program:
    def __init__(self, mark: str, process: subprocess.Popen[str], log: Path) -> None:
        self.mark = mark
        self.process = process
        self.log = log

    def processes(self) -> dict[int, str]:
        return marked(self.mark)

    def kill(self) -> int:
        return kill_marked(self.mark, [self.process])

    def done(self, timeout_s: float) -> str:
        """What the program printed; it has to end well."""
        code = self.process.wait(timeout_s)
        text = self.log.read_text(errors="replace")
        assert code == 0, text[-4000:]
        return text


@contextlib.contextmanager
def program(
    module: str, words: Sequence[Any], log: Path, mark: str | None = None
) -> Iterator[Program]:
    """`python -m module words…`; nothing of it is left afterwards."""
    mark = mark or uuid.uuid4().hex
    paths = [str(TREE), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        MARK: mark,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "PYTHONWARNINGS": "ignore",
    }
    with log.open("w") as output:
        command = [sys.executable, "-m", module, *map(str, words)]
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, text=True, cwd=TREE
        )
    running = Program(mark, process, log)
    try:
        yield running
    finally:
        running.kill()
        process.wait(60)
