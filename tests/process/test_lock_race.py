"""Processes that open one store for writing at the same moment: one has it at a time, all others hear so."""

from __future__ import annotations

import contextlib
from pathlib import Path

from tests.process.other_process import numbers, open_small, other_process

#: Tries to open until it was the writer given[0] times; each time it puts one message.
RACE = """
say("ready")
told()
times, had, refused = given[0], 0, 0
number = given[1] * 1000
while had < times:
    try:
        store = rocketstore.open(path, **options)
    except rocketstore.StoreLockedError:
        refused += 1
        continue
    with store:
        had += 1
        # Nobody else may write now: what stands there stays until this process leaves.
        end = store.end_offset
        result = store.writer(TOPIC).put(b"%d:" % (number + had))
        if result.physical_offset != end:
            say(f"somebody else wrote: {end} {result.physical_offset}")
say(f"done {refused}")
"""
RACERS = 4
TIMES = 6


def test_writers_that_race_for_the_lock(tmp_path: Path) -> None:
    """D-04 D-35: a new store and one that exists are never written by two; nobody's message is lost."""
    with contextlib.ExitStack() as stack:
        racers = [
            stack.enter_context(other_process(RACE, tmp_path / "store", given=[TIMES, racer]))
            for racer in range(RACERS)
        ]
        for racer in racers:
            assert racer.line() == "ready"
        for racer in racers:
            racer.hears()
        for racer in racers:
            assert racer.line().startswith("done")
            racer.ends()
    with open_small(tmp_path / "store") as store:
        assert store.recovery.mode == "clean"
        found = numbers(store)
    assert sorted(found) == sorted(
        racer * 1000 + time for racer in range(RACERS) for time in range(1, TIMES + 1)
    )
