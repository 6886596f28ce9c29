"""The judge of a history: is the log that is left the one that its puts were promised?

The model is one list to which each put adds its message, in one step, at some moment between its
invocation and its end. A put that was acknowledged has taken that step. One that failed, or whose
process died, may have taken it, or may take it later, or never. The order of the list is known: it
is that of the last master's log. So no search is needed, and a history is linearizable if and only if

- each acknowledged put is in the log, and each message of the log is of a put, once;
- no put that is later in the log had ended before one that is earlier was invoked.

What other machines had must follow from that list as well:

- what a reader saw of a queue of any machine, at any time, is a prefix of that queue in the log, up
  to where this machine was cut: what comes after is in its quarantine;
- so is each byte that a machine had on its disk whenever its process was dead;
- at the end all machines have the same bytes;
- a master in whose place another was promoted acknowledges nothing that was put later.

Times are of one clock that all processes of the machine share (CLOCK_MONOTONIC).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["DeadLog", "Evidence", "Place", "Put", "Read", "wrong"]

#: Of each kind of fault so many are named.
NAMED = 4
#: So many bytes are not the same by chance.
CHANCE = 16


class Put(NamedTuple):
    """One put of a message whose name no other has. `end`: of one that did not return, infinity."""

    name: str
    invoked: float
    end: float = math.inf
    acknowledged: bool = False
    #: Which open of which master took it.
    master: str = ""


class Place(NamedTuple):
    """A message in a log."""

    offset: int
    queue: int
    name: str


class Read(NamedTuple):
    """What a reader found in one queue of a machine, from its begin on."""

    machine: str
    queue: int
    places: tuple[Place, ...]


class DeadLog(NamedTuple):
    """The bytes of a machine's log while no process had it open, without zeros at the end."""

    machine: str
    data: bytes


@dataclass
class Evidence:
    """All that is known of a history when it is over."""

    puts: dict[str, Put] = field(default_factory=dict)
    #: The log of the last master, by physical offset.
    log: list[Place] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    dead_logs: list[DeadLog] = field(default_factory=list)
    #: The bytes of each machine's log at the end, without zeros at the end; the last master first.
    last_logs: dict[str, bytes] = field(default_factory=dict)
    #: By machine: physical offset and bytes of each piece in quarantine.
    quarantine: dict[str, list[tuple[int, bytes]]] = field(default_factory=dict)
    segment_bytes: int = 1 << 16
    #: By open of a master: when another had been promoted in its place.
    deposed: dict[str, float] = field(default_factory=dict)


def wrong(evidence: Evidence) -> list[str]:
    """What the model does not explain, in sentences."""
    checks = (_puts, _order, _deposed, _reads, _dead_logs, _last_logs)
    return [sentence for check in checks for sentence in check(evidence)]


def _puts(evidence: Evidence) -> Iterator[str]:
    names = [place.name for place in evidence.log]
    there = set(names)
    acknowledged = [put.name for put in evidence.puts.values() if put.acknowledged]
    if lost := [name for name in acknowledged if name not in there]:
        yield f"{len(lost)} of {len(acknowledged)} acknowledged are lost: {lost[:NAMED]}"
    if len(names) != len(there):
        seen: set[str] = set()
        twice = [name for name in names if name in seen or seen.add(name)]  # type: ignore[func-returns-value]
        yield f"{len(twice)} are in the log twice: {twice[:NAMED]}"
    if strange := [name for name in names if name not in evidence.puts]:
        yield f"{len(strange)} were put by nobody: {strange[:NAMED]}"


def _order(evidence: Evidence) -> Iterator[str]:
    """In the order of the log, no put ends before one that is earlier there begins."""
    latest: Put | None = None
    found = []
    for place in evidence.log:
        put = evidence.puts.get(place.name)
        if put is None:
            continue
        if latest is not None and put.end < latest.invoked:
            found.append(f"{put.name} had ended before {latest.name} began, and is later")
        if latest is None or put.invoked > latest.invoked:
            latest = put
    if found:
        yield f"{len(found)} puts are in another order than they were made: {found[:NAMED]}"


def _deposed(evidence: Evidence) -> Iterator[str]:
    late = [
        put.name
        for put in evidence.puts.values()
        if put.acknowledged and put.invoked > evidence.deposed.get(put.master, math.inf)
    ]
    if late:
        yield f"{len(late)} acknowledged by a master whose place was taken: {late[:NAMED]}"


def _reads(evidence: Evidence) -> Iterator[str]:
    queues: dict[int, list[Place]] = {}
    for place in evidence.log:
        queues.setdefault(place.queue, []).append(place)
    for read in evidence.reads:
        whole = queues.get(read.queue, [])
        same = _same(read.places, whole)
        kept = evidence.quarantine.get(read.machine, [])
        for place in read.places[same:]:
            if not any(
                start <= place.offset < start + len(data) and _says(data, place, start)
                for start, data in kept
            ):
                yield (
                    f"a reader of {read.machine} saw {place.name} at {place.offset}, which is "
                    "neither in the log there nor in quarantine"
                )
                break


def _says(data: bytes, place: Place, start: int) -> bool:
    """Whether a record near its begin has the name of a message."""
    at = place.offset - start
    size = int.from_bytes(data[at : at + 4], "big")
    return place.name.encode() in data[at : at + size]


def _same(one: Sequence[object], other: Sequence[object]) -> int:
    """How far both are the same."""
    least = min(len(one), len(other))
    return next((at for at in range(least) if one[at] != other[at]), least)


def _last(evidence: Evidence) -> bytes:
    return next(iter(evidence.last_logs.values()), b"")


def _dead_logs(evidence: Evidence) -> Iterator[str]:
    last = _last(evidence)
    for dead in evidence.dead_logs:
        at = _same_bytes(dead.data, last)
        kept = evidence.quarantine.get(dead.machine, [])
        while at < len(dead.data):
            run = max((_run(dead.data, at, start, data) for start, data in kept), default=0)
            if not run:  # quarantine keeps no zeros at the end of a segment
                to = at - at % evidence.segment_bytes + evidence.segment_bytes
                run = 0 if any(dead.data[at:to]) else to - at
            if not run:
                yield (
                    f"{dead.machine} had bytes at {at} of [0, {len(dead.data)}) that are neither "
                    "in the log nor in quarantine"
                )
                break
            at += run


def _same_bytes(one: bytes, other: bytes) -> int:
    """How far both are the same."""
    least = min(len(one), len(other))
    if one[:least] == other[:least]:
        return least
    low, high = 0, least  # the same below low, not the same below high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle)
    return low


def _run(log: bytes, at: int, start: int, kept: bytes) -> int:
    """How many bytes of a log from `at` on a piece of quarantine has; 0 for a few by chance."""
    if not start <= at < start + len(kept):
        return 0
    size = _same_bytes(log[at:], kept[at - start :])
    return size if size >= CHANCE or at + size in (len(log), start + len(kept)) else 0


def _last_logs(evidence: Evidence) -> Iterator[str]:
    last = _last(evidence)
    for machine, data in evidence.last_logs.items():
        if data != last:
            at = _same_bytes(data, last)
            yield (
                f"{machine} ends with another log than the last master, from {at} on: "
                f"{len(data)} and {len(last)} bytes"
            )
