"""The time of a whole run: one table of its parts, and how the seconds are shared out.

    python -m tests.support.budget                 the table for CI_SECONDS (3,000 by default)
    CI_SECONDS=1500 python -m tests.support.budget  the table of a shorter run

A part has fixed work, which takes what it takes, and random campaigns, which take time. A campaign gets its
seconds of the table, or its part of what is left when that is less. tests/support/whole_run.py runs the parts.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

__all__ = ["CAMPAIGNS", "CI_SECONDS", "PARTS", "Campaign", "Part", "Plan", "ci_seconds", "rehearse"]

#: Seconds of a whole run without CI_SECONDS; the table takes some 85 % of them, the rest is for slow hours.
CI_SECONDS = 3000
CORES = 2
#: The part of two cores that two lanes use: parts end at different times.
PACKED = 0.92


@dataclass(frozen=True)
class Campaign:
    """Random work that can be any length. `least` is done even when no time is left."""

    name: str
    unit: str
    #: What one run of CI did when it counted instead of looking at the clock.
    aim: int
    seconds: int
    least: int


@dataclass(frozen=True)
class Part:
    """A target of the Makefile; it uses so many cores."""

    target: str
    cores: int
    #: Seconds of what is no campaign, on a quiet machine with two cores.
    fixed_s: int
    campaigns: tuple[Campaign, ...] = ()
    #: Runs alone and before all others: where it fails, the rest is not worth its time.
    first: bool = False
    #: Targets that have to end before.
    after: tuple[str, ...] = ()

    @property
    def campaign_s(self) -> int:
        return sum(campaign.seconds for campaign in self.campaigns)


#: In the order in which they begin where cores are free: first long ones of one core, at last those of two.
PARTS = (
    Part("lint", 2, 5, first=True),
    Part("test", 2, 200, first=True),
    Part("extras", 1, 60),
    Part("fuzz", 1, 25, (Campaign("fuzzing", "inputs", 30_000_000, 120, 500_000),)),
    Part("sanitize", 1, 300, after=("extras",)),
    Part(
        "spark",
        1,
        355,
        (Campaign("kills of Spark", "kills", 10, 150, 3),),
        after=("extras",),
    ),
    Part(
        "longer",
        1,
        340,
        (
            Campaign("killed writers", "kills", 102, 40, 24),
            Campaign("killed recoveries", "rounds", 40, 25, 10),
            Campaign("kills of an order service", "kills", 50, 50, 10),
            Campaign("kills of a shared service", "kills", 25, 25, 5),
            Campaign("kills of hosts and guests", "kills", 40, 40, 12),
            Campaign("readers beside lives of writers", "lives", 30, 40, 8),
            Campaign("histories of faults", "histories of 30 s", 12, 120, 10),
        ),
        after=("extras",),  # what is installed meanwhile cannot be imported
    ),
    Part("newest", 1, 130, after=("extras",)),
    Part("model", 1, 5, (Campaign("steps of the model", "steps", 20_000, 110, 2_000),)),
    Part("fs", 1, 60, (Campaign("power cuts", "cuts", 200, 60, 24),)),
    Part(
        "flips",
        1,
        10,
        (
            Campaign("changed bytes", "bytes", 140_000, 60, 5_000),
            Campaign("mutated stores", "stores", 500, 90, 100),
            Campaign("mutated states", "stores", 60, 30, 20),
        ),
    ),
    Part("hidden", 1, 10, (Campaign("hidden messages", "stores", 500, 80, 60),)),
    Part("arrow", 1, 50, after=("extras",)),
    # Three workers, which sleep half of the time; the seconds of a campaign are those of all three.
    Part(
        "interop",
        2,
        340,
        (
            Campaign("alternating writers", "rounds", 100, 80, 40),
            Campaign("kills beside RocketMQ", "kills", 24, 60, 12),
        ),
        after=("extras",),
    ),
    Part(
        "faults",
        2,
        40,
        (
            Campaign("failing calls", "calls", 3_350, 150, 800),
            Campaign("failing calls, from outside", "calls", 150, 30, 40),
        ),
    ),
    Part("planted", 2, 10, (Campaign("planted faults", "faults", 39, 300, 8),)),
    Part("crash", 2, 5, (Campaign("crash images", "images", 10_000, 150, 1_000),)),
)
CAMPAIGNS = {campaign.name: campaign for part in PARTS for campaign in part.campaigns}


def ci_seconds() -> int:
    """CI_SECONDS of the environment."""
    given = os.environ.get("CI_SECONDS", "") or str(CI_SECONDS)
    if not given.isdigit() or int(given) == 0:
        raise SystemExit(f"CI_SECONDS={given}: a number of seconds is needed, such as 3000")
    return int(given)


@dataclass
class Plan:
    """Which part begins next, and how many seconds its campaigns get. Times count from the begin of the run."""

    seconds: float
    parts: tuple[Part, ...] = PARTS
    #: Target → when it began and the seconds of its campaigns.
    running: dict[str, tuple[float, float]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    #: Of fixed work that has ended: what it took, and what the table says.
    took_s: float = 0.0
    planned_s: float = 0.0

    @property
    def slowness(self) -> float:
        """How much longer fixed work takes here than the table says; at least 1."""
        return max(1.0, self.took_s / self.planned_s) if self.planned_s else 1.0

    def waiting(self) -> list[Part]:
        return [
            one
            for one in self.parts
            if one.target not in self.ended and one.target not in self.running
        ]

    def next(self) -> Part | None:
        """The first part that may begin now."""
        busy = [one for one in self.parts if one.target in self.running]
        free = CORES - sum(part.cores for part in busy)
        if any(part.first for part in busy):
            return None
        waiting = self.waiting()
        if any(part.first for part in waiting):
            waiting = [] if busy else [next(part for part in waiting if part.first)]
        known = {part.target for part in self.parts}
        for part in waiting:
            if part.cores <= free and self.ended >= known & {*part.after}:
                return part
        return None

    def begin(self, part: Part, now: float) -> dict[str, float]:
        """Seconds of each of its campaigns."""
        share = self._share(now)
        given = {campaign.name: campaign.seconds * share for campaign in part.campaigns}
        self.running[part.target] = now, sum(given.values())
        return given

    def _share(self, now: float) -> float:
        """The part of its seconds that a campaign gets: 1, or less when fixed work took too long."""
        fixed = campaigns = 0.0
        for part in self.waiting():
            fixed += part.fixed_s * self.slowness * part.cores
            campaigns += part.campaign_s * part.cores
        for part in self.parts:
            if part.target in self.running:
                began, given = self.running[part.target]
                end = began + given + part.fixed_s * self.slowness
                fixed += max(0.0, end - now) * part.cores
        room = (self.seconds - now) * CORES * PACKED - fixed
        return min(1.0, max(0.0, room / campaigns)) if campaigns else 1.0

    def end(self, part: Part, now: float) -> None:
        began, given = self.running.pop(part.target)
        self.ended.add(part.target)
        self.took_s += max(0.0, now - began - given)
        self.planned_s += part.fixed_s


@dataclass(frozen=True)
class Row:
    """A part of a run that is only thought through."""

    part: Part
    began: float
    ended: float
    given: dict[str, float]


def rehearse(seconds: float, spent_s: float = 0.0, slowness: float = 1.0) -> list[Row]:
    """A run whose fixed work takes `slowness` times what the table says."""
    plan = Plan(seconds)
    now = spent_s
    rows: list[Row] = []
    ends: dict[str, tuple[float, Part]] = {}
    while plan.waiting() or ends:
        while (part := plan.next()) is not None:
            given = plan.begin(part, now)
            end = now + part.fixed_s * slowness + sum(given.values())
            ends[part.target] = end, part
            rows.append(Row(part, now, end, given))
        target = min(ends, key=lambda name: ends[name][0])
        now, part = ends.pop(target)
        plan.end(part, now)
    return rows


#: Seconds of `make build`, which comes before the table.
BUILD_S = 100


def lines(rows: Collection[Row], seconds: int) -> Iterator[str]:
    yield f"{'part':10} {'cores':>5} {'begins':>7} {'ends':>6} {'fixed':>6}  campaigns"
    for row in rows:
        fixed = row.ended - row.began - sum(row.given.values())
        said = "; ".join(
            f"{name} {given:.0f} s of {CAMPAIGNS[name].seconds}"
            for name, given in row.given.items()
        )
        times = f"{row.part.cores:5} {row.began:7.0f} {row.ended:6.0f} {fixed:6.0f}"
        yield f"{row.part.target:10} {times}  {said}".rstrip()
    end = max(row.ended for row in rows)
    over = "" if end <= seconds else "; fixed work alone takes longer than that"
    yield f"ends after {end:.0f} of {seconds} s, make build ({BUILD_S} s) among them{over}"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.budget",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--dry", action="store_true", help="shows the table, which is the default")
    parser.add_argument(
        "--slowness", type=float, default=1.0, help="fixed work takes so many times its seconds"
    )
    given = parser.parse_args()
    seconds = ci_seconds()
    for line in lines(rehearse(seconds, BUILD_S, given.slowness), seconds):
        print(line)


if __name__ == "__main__":
    main()
