"""Stores in another process: small programs that are told what to do over pipes, and killed at will."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import rocketstore
from rocketstore import Consumer, Store

#: Files so small that a hundred messages roll everything.
SMALL: Final[dict[str, Any]] = {
    "commit_log_file_size_bytes": 64 * 1024,
    "consume_queue_file_size_bytes": 64 * 20,
    "index_slots": 100,
    "index_entries": 400,
    "max_message_size_bytes": 16 * 1024,
    "write_buffer_bytes": 64 * 1024,
}
TOPIC: Final = "Orders"
PROLOGUE: Final = """
import json, os, sys, time, rocketstore
path, options, given = json.loads(sys.argv[1])
TOPIC = "Orders"
def say(text):
    os.write(1, text.encode() + b"\\n")
def told():
    return sys.stdin.readline().strip()
"""


class OtherProcess:
    """A Python program with a store's path, options and whatever it was given; it says lines."""

    def __init__(self, program: str, path: Path, options: dict[str, Any], given: Any) -> None:
        environment = dict(os.environ, PYTHONPATH=str(Path(rocketstore.__path__[0]).parent))
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROLOGUE + program, json.dumps([str(path), options, given])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._stdin = self.process.stdin
        self._stdout = self.process.stdout

    @property
    def pid(self) -> int:
        return self.process.pid

    def line(self) -> str:
        """The next line that it says; an empty one after its end."""
        return self._stdout.readline().decode().strip()

    def hears(self, line: str = "") -> None:
        self._stdin.write(line.encode() + b"\n")

    def rest(self) -> bytes:
        return self._stdout.read()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ends(self) -> None:
        assert self.process.wait(60) == 0

    def dispose(self) -> None:
        self.kill()
        self._stdin.close()
        self._stdout.close()


@contextlib.contextmanager
def other_process(
    program: str, path: Path, *, given: Any = None, **options: Any
) -> Iterator[OtherProcess]:
    """Starts `program`; it is killed when the test leaves."""
    process = OtherProcess(program, path, {**SMALL, **options}, given)
    try:
        yield process
    finally:
        process.dispose()


#: Opens, says "open", closes when told.
HOLD: Final = """
store = rocketstore.open(path, **options)
say("open")
told()
store.close()
say("closed")
"""

#: Opens, says "open"; puts messages given[0] ... given[1] - 1 when told; says "done"; closes when told.
PUT: Final = """
store = rocketstore.open(path, **options)
writer = store.writer(TOPIC)
say("open")
told()
for number in range(*given):
    writer.put(b"%d:" % number + bytes(300), keys="k%d" % number)
say("done")
told()
store.close()
"""


def open_small(path: Path, mode: str = "rw", **options: Any) -> Store:
    return rocketstore.open(path, mode, **{**SMALL, **options})  # type: ignore[arg-type]


def number_of(body: bytes | memoryview) -> int:
    """The number that a body of these programs begins with."""
    return int(bytes(body).partition(b":")[0])


def numbers(store: Store, topic: str = TOPIC) -> list[int]:
    """What stands in the topic's first queue, in order."""
    return [number_of(message.body) for message in store.consumer(topic, queue_id=0)]


def arriving(consumer: Consumer, count: int, patience_s: float = 20.0) -> list[int]:
    """The next `count` numbers of a consumer; fewer when nothing comes for too long."""
    seen: list[int] = []
    while len(seen) < count:
        messages = consumer.poll(count - len(seen), timeout_s=patience_s)
        if not messages:
            break
        seen += [number_of(message.body) for message in messages]
    return seen


def fingerprint(root: Path) -> dict[str, tuple[int, str]]:
    """Size and hash of every file."""
    return {
        str(path.relative_to(root)): (
            path.stat().st_size,
            hashlib.blake2b(path.read_bytes()).hexdigest(),
        )
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
