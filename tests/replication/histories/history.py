"""A history: three machines, puts without a pause, and one fault after the other; then the evidence."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rocketstore import RocketStoreError, Store
from tests.replication.copies import address_of, copy_of, open_copy, open_master
from tests.replication.histories.judge import DeadLog, Evidence, Put, wrong
from tests.replication.histories.machines import Machine, Settings, places
from tests.replication.histories.node import SHAPE
from tests.support.small_store import log_bytes
from tests.support.waiting import pause, wait_until

__all__ = ["NAMES", "History"]

NAMES = "abc"
#: Between two looks at what is due, seconds.
LOOK_S = 0.01
#: Longest time in which a copy without faults comes to the end of its master's log, seconds.
CATCH_UP_S = 60.0
#: A history opens each copy so often at its end, at most: an open may find that the copy must be cut.
OPENS_MOST = 5


@dataclass
class History:
    """`root`: an empty directory. What it did is in `evidence` and `counts` afterwards."""

    root: Path
    rng: random.Random
    settings: Settings = field(default_factory=Settings)
    #: Of each kind of fault, and what became of it.
    counts: Counter[str] = field(default_factory=Counter)
    #: The same, with times.
    timeline: list[str] = field(default_factory=list)
    evidence: Evidence = field(default_factory=Evidence)

    def __post_init__(self) -> None:
        self.machines = {
            name: Machine(name, self.root / name, self.settings, self.rng) for name in NAMES
        }
        self.master = self.machines["a"]
        self.address = ""
        #: What every machine can be told of the last promotion.
        self.term = 1
        #: A master in whose place another is, and which goes on: its label.
        self.deposed: dict[str, str] = {}
        self.failures: list[str] = []
        self._labels: dict[str, str] = {}
        self._opens = 0
        self._due: list[tuple[float, Callable[[], None]]] = []
        #: Called at the end, and perhaps before.
        self.closing: list[Callable[[], None]] = []

    # ---- for faults ----

    def others(self) -> list[Machine]:
        """All but the master, in which order ever."""
        return [one for one in self.machines.values() if one is not self.master]

    def copies(self) -> list[Machine]:
        """Those that follow, or try to."""
        return [
            one for one in self.others() if one.node is not None and one.name not in self.deposed
        ]

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Has something done later, if the history goes on so long."""
        self._due.append((time.monotonic() + seconds, what))

    def note(self, what: str, count: int = 1) -> None:
        """Counts a fault, or what became of one."""
        if count:
            self.counts[what] += count
            self.timeline.append(f"{time.monotonic():.3f} {what}")

    def label(self, machine: Machine) -> str:
        return self._labels[machine.name]

    def reign(self, machine: Machine) -> None:
        """Opens a machine as the master, and has the links of all others lead to it."""
        self._opens += 1
        self._labels[machine.name] = f"{self._opens}{machine.name}"
        self.master = machine
        machine.reign(self.label(machine))
        self.timeline.append(f"{time.monotonic():.3f} {machine.name} is the master")
        assert machine.node is not None
        self.address = machine.node.word("at ")
        for other in self.others():
            other.link.lead_to(self.address)

    def kill(self, machine: Machine) -> None:
        """Kills its process, and notes what it said."""
        puts = self.evidence.puts
        for line in machine.kill():
            word, *rest = line.split()
            if word == "sent":
                puts[rest[0]] = Put(rest[0], float(rest[1]), master=self._labels[machine.name])
            elif word in ("acked", "failed", "fenced"):
                acked = word == "acked"
                puts[rest[0]] = puts[rest[0]]._replace(end=float(rest[1]), acknowledged=acked)
                self.note("puts refused by a fence", word == "fenced")
            elif word == "stopped":
                self.note(f"copy stopped: {rest[0]}")
            elif word == "broken":
                self.failures.append(f"a put of {machine.name} failed: {line}")
        self.deposed.pop(machine.name, None)

    def read(self, machine: Machine) -> None:
        self.evidence.reads += machine.read()
        self.note("reads")

    # ---- time ----

    def run(self, seconds: float, strike: Callable[[History], None]) -> None:
        """Strikes again and again until the time is over; then brings all machines to one end."""
        try:
            self.reign(self.master)
            for other in self.others():
                other.follow(self.address)
            assert self.master.node is not None
            self.master.node.word("acked")  # without a fault the promise is kept
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                strike(self)
                self._let_pass(self.rng.uniform(0.02, 0.6))
        finally:
            for machine in self.machines.values():
                self.kill(machine)
                machine.link.close()
            for close in self.closing:
                close()
        self._settle()

    def await_acknowledged(self, seconds: float) -> None:
        """A moment in which the promise is kept, if there is one soon."""
        node, until = self.master.node, time.monotonic() + seconds
        while node is not None and time.monotonic() < until and not node.has_said("acked"):
            self._let_pass(LOOK_S)

    def _let_pass(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            due = [one for one in self._due if one[0] <= now]
            self._due = [one for one in self._due if one[0] > now]
            for _, what in due:
                what()
            if now >= until:
                return
            pause(LOOK_S)

    # ---- the end ----

    def _settle(self) -> None:
        """All others follow the last master, without faults, and have its log in the end."""
        key, evidence = self.settings.key, self.evidence
        with open_master(self.master.root, SHAPE, key=key) as master:
            for other in self.others():
                self._catch_up(other, master)
        evidence.log = places(self.master.root)
        for machine in (self.master, *self.others()):
            evidence.last_logs[machine.name] = log_bytes(machine.root).rstrip(b"\0")
            evidence.quarantine[machine.name] = machine.quarantine()
            evidence.dead_logs += [DeadLog(machine.name, data) for data in machine.dead_logs]
            for what, count in machine.link.counts.items():
                self.counts[what] += count

    def _catch_up(self, machine: Machine, master: Store) -> None:
        stopped: BaseException | None = None
        try:
            for _ in range(OPENS_MOST):
                stopped = self._follow_to_the_end(machine, master)
                if stopped is None:
                    return
        except (RocketStoreError, OSError, AssertionError) as error:
            stopped = error
        self.failures.append(f"{machine.name} does not follow at the end: {stopped!r}")

    def _follow_to_the_end(self, machine: Machine, master: Store) -> BaseException | None:
        """What stopped it; None: it has all."""
        key = self.settings.key
        with open_copy(machine.root, address_of(master), SHAPE, key=key) as copy:
            service = copy_of(copy)
            wait_until(
                lambda: service.stopped is not None or copy.flushed_offset == master.visible_offset,
                lambda: f"{service.last_error!r}",
                CATCH_UP_S,
            )
            return service.stopped

    def wrong(self) -> list[str]:
        """What is wrong, in sentences."""
        return [*self.failures, *wrong(self.evidence)]

    def __str__(self) -> str:
        puts = self.evidence.puts.values()
        acked = sum(put.acknowledged for put in puts)
        said = ", ".join(f"{what} {count}" for what, count in sorted(self.counts.items()) if count)
        return (
            f"{len(puts)} sent, {acked} acknowledged, {len(self.evidence.log)} in the log; "
            f"term {self.term}, {self._opens} opens of masters; {said}"
        )
