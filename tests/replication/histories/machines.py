"""A machine of a history: a directory, the process that has its store open, and its link to the master."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import rocketstore
from rocketstore import RocketStoreError
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name
from rocketstore.replication import promote
from rocketstore.replication.role.state import load_state
from tests.replication.histories.faulty_link import FaultyLink
from tests.replication.histories.judge import Place, Read
from tests.replication.histories.node import SHAPE
from tests.support.paths import ROOT
from tests.support.small_store import log_bytes
from tests.support.waiting import wait_until

__all__ = ["Machine", "Node", "NodeOverError", "Settings", "places"]

#: Longest wait for a word of a process, seconds: the machine may be busy.
WORD_S = 60.0


class NodeOverError(Exception):
    """A process ended before it said what was waited for."""


@dataclass(frozen=True)
class Settings:
    """Of all processes of a history."""

    promise: str = "replicas(2)"
    key: bytes | None = None

    def environment(self) -> dict[str, str]:
        said = {"promise": self.promise, "key": (self.key or b"").hex()}
        return {**os.environ, "NODE": json.dumps(said)}


class Node:
    """A process of `node`, and what it has said."""

    def __init__(self, settings: Settings, role: str, root: Path, word: object) -> None:
        self.said: list[str] = []
        with root.with_suffix(".err").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.replication.histories.node", role, root, str(word)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT,
                env=settings.environment(),
            )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(line.rstrip("\n"))

    @property
    def over(self) -> bool:
        return self._process.poll() is not None

    def has_said(self, first: str) -> bool:
        return any(line.startswith(first) for line in list(self.said))

    def word(self, first: str) -> str:
        """What follows `first` in the line that begins with it; waits for it.

        Raises:
            NodeOverError: the process ended before.
        """
        wait_until(lambda: self.has_said(first) or self.over, lambda: f"{self.said[-3:]}", WORD_S)
        for line in list(self.said):
            if line.startswith(first):
                return line.removeprefix(first).strip()
        raise NodeOverError(f"no {first!r}: {self.said[-3:]}")

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def signal(self, number: int) -> None:
        if not self.over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def kill(self) -> None:
        """All that it said is in `said` afterwards. Idempotent."""
        self.signal(signal.SIGKILL)
        self.signal(signal.SIGCONT)
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@dataclass
class Machine:
    """One of a history. `node`: what has its store open; None: nothing does."""

    name: str
    root: Path
    settings: Settings
    rng: random.Random
    node: Node | None = None
    #: The bytes of its log whenever its process was dead.
    dead_logs: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.link = FaultyLink(self.rng)

    def reign(self, label: str) -> None:
        self.node = Node(self.settings, "master", self.root, label)

    def follow(self, master: str = "") -> None:
        """Begins to be a copy, of the master that its link leads to."""
        if master:
            self.link.lead_to(master)
        self.node = Node(self.settings, "copy", self.root, self.link.address)

    def kill(self) -> Sequence[str]:
        """What its process has said."""
        node, self.node = self.node, None
        if node is None:
            return ()
        node.kill()
        with contextlib.suppress(FileNotFoundError):
            self.dead_logs.append(log_bytes(self.root).rstrip(b"\0"))
        return node.said

    @property
    def cut_is_ordered(self) -> bool:
        return StoreLayout(self.root).cut.exists()

    @property
    def term(self) -> int:
        try:
            state = load_state(StoreLayout(self.root))
        except OSError:
            return 0
        return 0 if state is None else state.term

    @property
    def has_followed(self) -> bool:
        """Whether it has bytes of a master; also while it is open."""
        return self.term > 0 and bool(log_bytes(self.root).rstrip(b"\0"))

    @property
    def rank(self) -> tuple[int, int, int]:
        """What `promote` says of it; (-1, -1, -1) while it is open, too."""
        try:
            return promote(self.root, dry_run=True).rank
        except (RocketStoreError, FileNotFoundError):
            return (-1, -1, -1)

    def read(self) -> list[Read]:
        """What a reader finds now; nothing where it cannot open the store."""
        try:
            by_queue: dict[int, list[Place]] = {}
            for place in places(self.root):
                by_queue.setdefault(place.queue, []).append(place)
        except (RocketStoreError, OSError):
            return []
        return [Read(self.name, queue, tuple(found)) for queue, found in by_queue.items()]

    def quarantine(self) -> list[tuple[int, bytes]]:
        """Physical offset and bytes of all that was cut off."""
        found = []
        for path in StoreLayout(self.root).quarantine.glob("*/manifest.json"):
            for piece in json.loads(path.read_text())["pieces"]:
                start = parse_segment_name(piece["file"])
                assert start is not None
                data = (path.parent / piece["file"]).read_bytes()
                at = piece["offset"] - start
                found.append((piece["offset"], data[at : at + piece["length"]]))
        return found


def places(root: Path) -> list[Place]:
    """The messages of a log, by physical offset."""
    found = []
    with rocketstore.open(root, "r", **SHAPE) as store:
        for queue in store.queues("orders"):
            with store.consumer("orders", queue_id=queue) as consumer:
                found += [
                    Place(m.physical_offset, queue, bytes(m.body).split(b" ", 1)[0].decode())
                    for m in consumer
                ]
    return sorted(found)
