"""A history of kills, pauses, broken connections and promotions, and what must be true after it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from rocketstore import RocketStoreError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.replication import promote
from rocketstore.replication.state import load_state
from tests.replication.copies import Proxy
from tests.support.paths import ROOT
from tests.support.small_store import everything, open_small
from tests.support.waiting import pause, wait_until

#: Machines of a history.
NAMES = "abc"


class Node:
    """A process of `tests.replication.node`, and what it has said."""

    def __init__(self, *words: object) -> None:
        self.said: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.replication.node", *map(str, words)],
            stdout=subprocess.PIPE, text=True, cwd=ROOT,
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

    def word(self, first: str) -> str:
        """What follows `first` in the line that begins with it; waits for it."""
        found: list[str] = []

        def there() -> bool:
            found[:] = [line for line in list(self.said) if line.startswith(first)]
            return bool(found) or self.over

        wait_until(there, patience_s=30)
        assert found, f"the process ended before it said {first!r}: {self.said[-3:]}"
        return found[0].removeprefix(first).strip()

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.signal(signal.SIGCONT)
        self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _acked(node: Node) -> bool:
    return any(line.startswith("acked") for line in list(node.said))


@dataclass
class History:
    """Three machines of one directory each; `promise` of all puts."""

    root: Path
    rng: random.Random
    promise: str = "replicas(2)"
    sent: list[int] = field(default_factory=list)
    acked: list[int] = field(default_factory=list)
    promotions: int = 0
    faults: int = 0

    def run(self, seconds: float) -> None:
        """Lives of masters, one after the other, until the time is over."""
        until, master = time.monotonic() + seconds, "a"
        while True:
            self._life(master)
            if time.monotonic() >= until:
                break
            master = self._choose(master)
        self._settle(master)

    def _life(self, name: str) -> None:
        """One master, its copies, some faults, and its death."""
        first = max(self.sent, default=-1) + 1
        master = Node("master", self.root / name, self.promise, first)
        proxies, copies = [], {}
        try:
            address = master.word("at ")
            for other in NAMES:
                if other != name:
                    proxies.append(Proxy(address, self.rng, 200_000))
                    copies[other] = (
                        proxies[-1],
                        Node("copy", self.root / other, proxies[-1].address),
                    )
            with contextlib.suppress(AssertionError):  # a life without one is a life, too
                wait_until(lambda: _acked(master), patience_s=5)
            for _ in range(self.rng.randrange(1, 5)):
                pause(self.rng.uniform(0.05, 0.5))
                self._hurt(copies)
            pause(self.rng.uniform(0.05, 0.3))
        finally:
            master.kill()
            for proxy, node in copies.values():
                node.kill()
                proxy.close()
        for line in master.said:
            word, _, number = line.partition(" ")
            if word in ("sent", "acked"):
                (self.sent if word == "sent" else self.acked).append(int(number))

    def _hurt(self, copies: dict[str, tuple[Proxy, Node]]) -> None:
        self.faults += 1
        name = self.rng.choice(sorted(copies))
        proxy, node = copies[name]
        what = self.rng.choice(("kill", "pause", "stop"))
        if what == "pause":
            node.signal(signal.SIGSTOP)
            pause(self.rng.uniform(0.05, 0.6))
            node.signal(signal.SIGCONT)
        else:
            node.kill()
            if what == "kill":
                copies[name] = (proxy, Node("copy", self.root / name, proxy.address))

    def _choose(self, master: str) -> str:
        """The master comes back, or is lost: then the copy that is furthest takes its place."""
        if self.rng.random() < 0.4:
            return master
        chosen = max((self._rank(name), name) for name in NAMES if name != master)[1]
        if self._rank(chosen)[0] <= 0:
            return master  # no copy has come so far that it knows whose it is
        self.promotions += 1
        known = [self._term(name) for name in NAMES]
        promote(self.root / chosen, above=max(known))
        return chosen

    def _term(self, name: str) -> int:
        state = load_state(StoreLayout(self.root / name))
        return 0 if state is None else state.term

    def _rank(self, name: str) -> tuple[int, int, int]:
        try:
            return promote(self.root / name, dry_run=True).rank
        except (RocketStoreError, FileNotFoundError):
            return (-1, -1, -1)

    def _settle(self, name: str) -> None:
        self.log = self._numbers(name)

    def _numbers(self, name: str) -> list[int]:
        with open_small(self.root / name, "r") as store:
            return [int(re.match(rb"\d+", bytes(m.body))[0]) for m in everything(store)]  # type: ignore[index]

    def wrong(self) -> list[str]:
        """What a reader of the log could not explain, in sentences. Numbers are put one after the other,
        so the log has them in order, each once; none that was not sent; all that were acknowledged."""
        found = []
        if self.log != sorted(set(self.log)):
            found.append("the log has numbers twice, or out of order")
        if strange := set(self.log) - set(self.sent):
            found.append(f"never sent: {sorted(strange)[:5]}")
        if lost := set(self.acked) - set(self.log):
            found.append(
                f"acknowledged and lost: {len(lost)} of {len(self.acked)}: {sorted(lost)[:5]}"
            )
        return found

    def __str__(self) -> str:
        return (
            f"{len(self.sent)} sent, {len(self.acked)} acknowledged, {len(self.log)} in the log; "
            f"{self.faults} faults, {self.promotions} promotions"
        )
