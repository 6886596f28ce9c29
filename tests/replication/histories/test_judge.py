"""The judge finds each kind of fault that is put into the evidence of a sound history."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.replication.histories.judge import DeadLog, Evidence, Place, Put, Read, wrong

RECORD = 20
CUT = 5 * RECORD


def record(name: str) -> bytes:
    """As the judge needs one: its size, and its name somewhere."""
    return RECORD.to_bytes(4, "big") + name.encode().ljust(RECORD - 4, b".")


def sound() -> Evidence:
    """Ten messages of two writers, whose puts overlap; one that failed, one whose process died. `old`
    was the master first, and had three more than the one that was promoted."""
    evidence = Evidence()
    for number in range(10):
        name, begin = f"m{number}", float(number)
        old = number < 5
        evidence.puts[name] = Put(name, begin, begin + 1.5, True, "1old" if old else "2new")
        evidence.log.append(Place(number * RECORD, number % 2, name))
    evidence.puts["m3"] = evidence.puts["m3"]._replace(acknowledged=False, end=99.0)
    for number in range(3):
        name = f"tail{number}"
        evidence.puts[name] = Put(name, 4.5 + number, 5.0 + number, False, "1old")
    evidence.puts["dead"] = Put("dead", 5.0, master="1old")
    evidence.deposed["1old"] = 5.0
    log = b"".join(record(place.name) for place in evidence.log)
    tail = b"".join(record(f"tail{number}") for number in range(3))
    evidence.last_logs = {"new": log, "old": log, "third": log}
    evidence.dead_logs = [
        DeadLog("old", log[:CUT] + tail),
        DeadLog("third", log[:70]),
        DeadLog("new", log),
    ]
    evidence.quarantine = {"old": [(CUT, tail)]}
    for queue in range(2):
        whole = tuple(place for place in evidence.log if place.queue == queue)
        evidence.reads += [Read("third", queue, whole[:3]), Read("new", queue, whole)]
    first = tuple(place for place in evidence.log if place.queue == 1 and place.offset < CUT)
    evidence.reads.append(Read("old", 1, (*first, Place(CUT, 1, "tail0"))))
    return evidence


def test_a_sound_history_is_explained() -> None:
    assert wrong(sound()) == []


def test_a_put_that_failed_may_be_in_the_log_or_not() -> None:
    evidence = sound()
    evidence.puts["m4"] = evidence.puts["m4"]._replace(acknowledged=False)
    evidence.puts["never"] = Put("never", 1.0, 2.0, False, "1old")
    assert wrong(evidence) == []


# ---- planted faults ----


def lost(evidence: Evidence) -> None:
    evidence.puts["gone"] = Put("gone", 2.0, 3.0, True, "1old")


def reordered(evidence: Evidence) -> None:
    """m2 was acknowledged before m7 was invoked."""
    at = [place.name for place in evidence.log]
    at[2], at[7] = at[7], at[2]
    evidence.log = [place._replace(name=name) for place, name in zip(evidence.log, at, strict=True)]
    evidence.reads = []


def late(evidence: Evidence) -> None:
    """The put of m4 came back before that of m3 was made, which is earlier in the log."""
    evidence.puts["m4"] = evidence.puts["m4"]._replace(invoked=1.0, end=2.0)


def doubled(evidence: Evidence) -> None:
    evidence.log.append(Place(10 * RECORD, 0, "m4"))


def invented(evidence: Evidence) -> None:
    evidence.log.append(Place(10 * RECORD, 0, "nobody"))


def two_masters(evidence: Evidence) -> None:
    """Acknowledged, in the log, and put to a master whose place was taken before."""
    evidence.puts["m6"] = evidence.puts["m6"]._replace(master="1old")


def diverged(evidence: Evidence) -> None:
    """A copy whose last record is another one, and which nobody noticed."""
    log = evidence.last_logs["third"]
    evidence.last_logs["third"] = log[:-RECORD] + record("tail0")


def shorter(evidence: Evidence) -> None:
    evidence.last_logs["third"] = evidence.last_logs["third"][:-RECORD]


def cut_in_silence(evidence: Evidence) -> None:
    """Of what the old master had, quarantine lacks the last record."""
    [(start, data)] = evidence.quarantine["old"]
    evidence.quarantine["old"] = [(start, data[:-RECORD])]
    evidence.reads.pop()


def cut_of_another_machine(evidence: Evidence) -> None:
    evidence.quarantine = {"third": evidence.quarantine["old"]}
    evidence.reads.pop()


def read_and_gone(evidence: Evidence) -> None:
    """A reader saw in a copy what is nowhere any more."""
    read = next(one for one in evidence.reads if one.machine == "third")
    evidence.reads.append(read._replace(places=(*read.places, Place(CUT + 40, 0, "tail2"))))


def read_with_a_hole(evidence: Evidence) -> None:
    read = next(one for one in evidence.reads if one.machine == "new")
    evidence.reads.append(read._replace(places=(read.places[0], *read.places[2:])))


PLANTED: list[tuple[Callable[[Evidence], None], str]] = [
    (lost, "1 of 10 acknowledged are lost: ['gone']"),
    (reordered, "m2 had ended before m7 began, and is later"),
    (late, "m4 had ended before m3 began, and is later"),
    (doubled, "1 are in the log twice: ['m4']"),
    (invented, "1 were put by nobody: ['nobody']"),
    (two_masters, "1 acknowledged by a master whose place was taken: ['m6']"),
    (diverged, "third ends with another log than the last master, from 184 on"),
    (shorter, "third ends with another log than the last master, from 180 on"),
    (cut_in_silence, "old had bytes at 140 of [0, 160) that are neither"),
    (cut_of_another_machine, "old had bytes at 104 of [0, 160) that are neither"),
    (read_and_gone, "a reader of third saw tail2 at 140, which is neither"),
    (read_with_a_hole, "a reader of new saw m4 at 80, which is neither"),
]


@pytest.mark.parametrize(("plant", "found"), PLANTED, ids=lambda one: getattr(one, "__name__", ""))
def test_a_planted_fault_is_found(plant: Callable[[Evidence], None], found: str) -> None:
    evidence = sound()
    plant(evidence)
    said = wrong(evidence)
    assert any(found in sentence for sentence in said), said


def test_a_byte_that_differs_anywhere_is_found(rng: random.Random) -> None:
    """Silent divergence of any machine, live or dead."""
    for _ in range(200):
        evidence = sound()
        if rng.random() < 0.5:
            name = rng.choice(["old", "third"])
            log = bytearray(evidence.last_logs[name])
            log[rng.randrange(len(log))] ^= 1 << rng.randrange(8)
            evidence.last_logs[name] = bytes(log)
        else:
            at = rng.randrange(len(evidence.dead_logs))
            dead = evidence.dead_logs[at]
            log = bytearray(dead.data)
            log[rng.randrange(len(log) - 1)] ^= 1 << rng.randrange(8)
            evidence.dead_logs[at] = DeadLog(dead.machine, bytes(log))
        assert wrong(evidence)
