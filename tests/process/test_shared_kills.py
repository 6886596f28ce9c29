"""Several processes share one store: whatever is killed, nothing acknowledged is lost, and nothing is there twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.process.shared_judge import Event, Found, faults
from tests.process.shared_kills import campaign as killed
from tests.support import campaign


def test_processes_are_killed_a_few_times(tmp_path: Path, random_seed: int) -> None:
    """Hosts and guests, at random."""
    print(killed(tmp_path / "store", range(4), random.Random(random_seed)))


@pytest.mark.proof
def test_nothing_is_lost_and_nothing_is_twice(tmp_path: Path, random_seed: int) -> None:
    kills = campaign.begin("kills of hosts and guests").rounds()
    print(killed(tmp_path / "store", kills, random.Random(random_seed)))


# ---- the judge ----


def tried(number: int, *rows: tuple[str, int, str], **more: Any) -> Event:
    return {"e": "try", "life": "p0", "by": "p0.0", "n": number, "rows": rows, **more}


def ended(number: int, how: str, *places: tuple[int, int], **more: Any) -> Event:
    times = {"t": 100 + number, "began": 90 + number}
    return {"e": how, "life": "p0", "by": "p0.0", "n": number, "places": places, **times, **more}


ONE, TWO, THREE = (f"p0.0/{n}/" for n in (1, 2, 3))
PUTS = [
    tried(1, ("t0", 0, ONE)),
    ended(1, "ok", (0, 0)),
    tried(3, ("t0", 0, TWO), ("t0", 0, THREE), whole=True),
    ended(3, "ok", (0, 1), (0, 2)),
]


def store(*bodies: str, topic: str = "t0", unique_id: str | None = None) -> Found:
    return Found({(topic, 0): [(n, body, unique_id) for n, body in enumerate(bodies)]})


def test_the_judge_takes_what_is_right() -> None:
    assert faults(PUTS, store(ONE, TWO, THREE)) == []
    assert faults(PUTS[:3], store(ONE)) == faults(PUTS[:3], store(ONE, TWO, THREE)) == []
    refused = ended(1, "refused", error="BackpressureError: full")
    assert faults([PUTS[0], refused], store()) == []


@pytest.mark.parametrize(
    ("events", "found", "word"),
    [
        (PUTS, store(ONE, TWO), "lost"),
        (PUTS, store(ONE, TWO, THREE, ONE), "twice"),
        (PUTS, store(ONE, THREE, TWO), "order"),
        (PUTS, store(ONE, THREE, TWO), "elsewhere"),
        (PUTS[:3], store(ONE, TWO), "in part"),
        (PUTS[:2], store(ONE, TWO), "never sent"),
        (PUTS, Found({("t0", 0): [(0, ONE, None), (1, TWO, None), (3, THREE, None)]}), "offset 3"),
        ([PUTS[0], ended(1, "refused", error="E: not")], store(ONE), "refused and stored"),
        ([PUTS[0], ended(1, "unknown")], store(ONE), "nothing was killed"),
        ([tried(1, ("in", 0, ONE)), ended(1, "ok", (0, 0))], store(ONE, topic="in"), "pipe lost"),
        (
            [tried(1, ("t0", 0, ONE), id="id 1"), ended(1, "ok", (0, 0))],
            store(ONE, ONE, unique_id="id 1"),
            "twice: ('t0', 'id 1')",
        ),
        ([tried(1, ("t0", 0, ONE), id="id 1"), ended(1, "ok", (0, 0))], store(), "acknowledged at"),
        ([tried(1, ("counted", 0, ONE), expected=4), ended(1, "ok", (0, 0))], store(ONE), "not as"),
        ([{"e": "broken", "life": "p0", "error": "KeyError"}], store(), "p0 broke"),
        ([{"e": "gap", "life": "p0", "at": 3, "after": 1}], store(), "read 3 after 1"),
    ],
)
def test_the_judge_finds_each_fault(events: list[Event], found: Found, word: str) -> None:
    assert any(word in fault for fault in faults(events, found)), faults(events, found)


def step(what: str, t: int, owner: int, at: int, **more: int) -> Event:
    return {"e": what, "life": f"p{owner}", "t": t, "owner": owner, "at": {"0": at}, **more}


def test_the_judge_finds_groups_that_jump_and_two_owners() -> None:
    first = [
        step("claimed", 1, 1, 0, asked=0),
        step("committing", 2, 1, 5),
        step("committed", 4, 1, 5, asked=2),
    ]
    assert faults([*first, step("claimed", 5, 2, 5, asked=4)], store()) == []
    assert "began queue 0 at 4" in faults([*first, step("claimed", 5, 2, 4, asked=4)], store())[0]
    assert "began queue 0 at 7" in faults([*first, step("claimed", 5, 2, 7, asked=4)], store())[0]
    other = [
        step("claimed", 5, 5, 5, asked=4),
        step("committing", 6, 5, 9),
        step("committed", 7, 5, 9, asked=6),
    ]
    late = [step("committing", 8, 1, 9), step("committed", 9, 1, 9, asked=8)]
    assert faults([*first, *other], store()) == []
    assert "although p5 had the group" in faults([*first, *other, *late], store())[0]
    soon = [step("committing", 6, 1, 9), step("committed", 8, 1, 9, asked=6)]
    there = [*first, step("claimed", 5, 5, 5, asked=4), *soon, step("releasing", 9, 5, 0)]
    assert "while p5 had the group" in faults(there, store())[0]
    struck = store()
    struck.strikes.append((7, 8))
    assert faults(there, struck) == []


def test_an_unknown_outcome_has_its_kill() -> None:
    found = store()
    found.strikes.append((80, 95))
    assert faults([PUTS[0], ended(1, "unknown")], found) == []
