"""A random campaign of a test: how long it goes on, and what it says of itself at its end.

A switch asks for a count (`IMAGES=100000`). In a whole run a campaign has seconds instead, which
tests/support/whole_run.py gives it. Without either it does the count of tests/support/budget.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.budget import CAMPAIGNS

__all__ = [
    "GIVEN",
    "TOLD",
    "Running",
    "begin",
    "one_of_many",
    "reported",
    "seconds_given",
    "without",
]

#: Of the environment: {"seconds": {name of a campaign: seconds}, "report": path, "began": time.time()}.
GIVEN = "ROCKETSTORE_CAMPAIGNS"
#: What the campaigns of this process said; pytest shows it again at its end.
TOLD: list[str] = []


def _given() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(os.environ.get(GIVEN, "") or "{}")
    return found


def seconds_given(name: str) -> float | None:
    """Seconds of a campaign in this run; None outside of a whole run."""
    seconds = _given().get("seconds", {}).get(name)
    return None if seconds is None else float(seconds)


def without(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for tests inside of a test: their campaigns are none of this run."""
    return {name: value for name, value in environment.items() if name != GIVEN}


class Running:
    """A campaign at work. `did` is raised by the test, or by `rounds`."""

    def __init__(self, name: str, asked: str, share: float, alone: int | None, least: int | None):
        self.row = CAMPAIGNS[name]
        self.did = 0
        self.seconds = None if asked else seconds_given(name)
        if self.seconds is not None:
            self.seconds *= share
        self.aim = max(1, round(self.row.aim * share))
        self.count = int(asked) if asked else self.aim if alone is None else alone
        self.least = round(self.row.least * share) if least is None else least
        self._began = time.monotonic()

    def goes_on(self) -> bool:
        if self.seconds is None:
            return self.did < self.count
        return self.did < self.least or time.monotonic() - self._began < self.seconds

    def rounds(self) -> Iterator[int]:
        """A number for each round, from 0 on; tells what was done when they end."""
        try:
            while self.goes_on():
                yield self.did
                self.did += 1
        finally:
            self.end()

    def end(self) -> None:
        """Prints what was done beside the aim, and reports it to the whole run."""
        took_s = time.monotonic() - self._began
        aim = self.count if self.seconds is None else self.aim
        name, unit = self.row.name, self.row.unit
        TOLD.append(f"{name}: {self.did:,} {unit} in {took_s:.0f} s (aim {aim:,})")
        print(TOLD[-1], flush=True)
        if self.seconds is not None:
            report(name, self.did, took_s)


def begin(
    name: str,
    *,
    asked: str = "",
    share: float = 1.0,
    alone: int | None = None,
    least: int | None = None,
) -> Running:
    """Begins a campaign of the table.

    `asked`: the count of a switch, or ""; `share`: the part of the campaign that is this test's; `alone`: the
    count outside of a whole run, instead of the aim; `least`: instead of that of the table.
    """
    return Running(name, asked, share, alone, least)


@contextlib.contextmanager
def one_of_many(name: str) -> Iterator[bool]:
    """One piece of a campaign whose pieces are tests of several processes: whether it may begin."""
    given = _given()
    seconds = seconds_given(name)
    if seconds is None:
        yield True
        return
    done, _ = reported(Path(given["report"])).get(name, (0, 0.0))
    goes_on = done < CAMPAIGNS[name].least or time.time() - given["began"] < seconds
    began = time.monotonic()
    yield goes_on
    if goes_on:
        report(name, 1, time.monotonic() - began)


def report(name: str, did: int, took_s: float) -> None:
    """Adds one line to the report of the whole run, if there is one. Several processes may do so."""
    path = _given().get("report")
    if path:
        line = json.dumps({"name": name, "did": did, "seconds": took_s}) + "\n"
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)


def reported(path: Path) -> dict[str, tuple[int, float]]:
    """What campaigns did: name → sum of what was done and of seconds."""
    found: dict[str, tuple[int, float]] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            did, seconds = found.get(row["name"], (0, 0.0))
            found[row["name"]] = did + row["did"], seconds + row["seconds"]
    return found
