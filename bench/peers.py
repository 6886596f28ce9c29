"""rocketstore compared with packages that a Python program could use instead: `make bench-peers`.

Rounds are interleaved: in each round every case appends to a new directory once. A round of a case is a
plain loop over its call: as many calls as fit into a fixed time, found in a first round that is not
counted; closing is outside the clock. What is compared are medians over the rounds, ratios are medians of
the ratios of one round. Bodies are those of bench/peer_bodies.py. Writes the tables as peers.md and every round as
peers.json to `--results`, and the medians as a picture to `--picture`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from bench.measure import fetch_memory, machine, machine_line
from bench.peer_bodies import MIXED, SETS, BodySet
from bench.peer_cases import BATCH, CASES, OURS, PeerCase
from bench.plots import plot_peers

__all__ = ["main"]

#: A round of a case: this long, or this number of bytes. Less than a store lets pile up unflushed.
ROUND_S = 0.25
ROUND_BYTES = 32 << 20
#: Calls that are not counted, at the beginning of each round: files and pages of the first messages.
WARM_SHARE = 0.1
RAW = ("os.write", "os.writev", "pwritev2")


def run(case: PeerCase, kind: BodySet, calls: int, root: Path) -> tuple[float, int]:
    """Messages a second, and the calls it took; `calls` 0: as many as fit into a round."""
    bodies = kind.made()
    if case.batch == 1:
        arguments: list[Any] = bodies
    else:
        arguments = [list(islice(cycle(bodies), case.batch))]
    most = max(1, int(ROUND_BYTES / (kind.mean_bytes * case.batch)))
    directory = Path(tempfile.mkdtemp(prefix="peer-", dir=root))
    fetch_memory()
    try:
        with case.opened(directory) as call:
            if calls == 0:
                calls = _fitting(call, arguments, most)
            for argument in islice(cycle(arguments), max(1, int(calls * WARM_SHARE))):
                call(argument)
            some = list(islice(cycle(arguments), calls))
            began = time.perf_counter_ns()
            for argument in some:
                call(argument)
            duration_ns = time.perf_counter_ns() - began
    finally:
        shutil.rmtree(directory)
    return calls * case.batch * 1e9 / duration_ns, calls


def _fitting(call: Any, arguments: Sequence[Any], most: int) -> int:
    done, began = 0, time.perf_counter()
    for argument in islice(cycle(arguments), most):
        call(argument)
        done += 1
        if time.perf_counter() - began > ROUND_S:
            break
    return done


def measure(
    cases: Sequence[PeerCase], kind: BodySet, rounds: int, root: Path
) -> list[dict[str, Any]]:
    """All cases with one set of bodies, interleaved."""
    calls = {case: run(case, kind, 0, root)[1] for case in cases}
    rates: dict[PeerCase, list[float]] = {case: [] for case in cases}
    for _ in range(rounds):
        for case in cases:
            rates[case].append(run(case, kind, calls[case], root)[0])
    found = []
    for case in cases:
        ours = next(
            rates[other]
            for other in cases
            if other.package == OURS
            and other.batch == case.batch
            and other.durability == ("disk" if case.durability == "disk" else "os")
        )
        pairs = [mine / other for mine, other in zip(ours, rates[case], strict=True)]
        found.append(
            {
                "case": case.name,
                "package": case.package,
                "durability": case.durability,
                "batch": case.batch,
                "bodies": kind.name,
                "mean_bytes": kind.mean_bytes,
                "messages_per_s": statistics.median(rates[case]),
                "rates": rates[case],
                "ratio": statistics.median(pairs),
            }
        )
    return found


def installed(cases: Sequence[PeerCase]) -> tuple[list[PeerCase], dict[str, str]]:
    """Cases whose package is there, and the versions."""
    versions: dict[str, str] = {}
    there = []
    for case in cases:
        try:
            if case.package not in (OURS, "sqlite3", *RAW):
                versions[case.package] = importlib.metadata.version(case.package)
            there.append(case)
        except importlib.metadata.PackageNotFoundError:
            print(f"{case.package} is not installed: left out (make bench-peers installs it)")
    return there, versions


def markdown(results: Sequence[dict[str, Any]], facts: dict[str, Any]) -> str:
    """One table a class; `×` is how many times faster rocketstore is in the same rounds."""
    lines = []
    for durability in ("os", "disk"):
        for batch in (1, BATCH):
            kin = [
                r
                for r in results
                if r["batch"] == batch and (r["durability"] == "disk") == (durability == "disk")
            ]
            if not kin:
                continue
            what = "one message a call" if batch == 1 else f"{batch} messages a call"
            lines += ["", f"**{durability}, {what}** (thousand messages a second, cold)", ""]
            names = list(dict.fromkeys(r["bodies"] for r in results))
            lines += ["| | " + " | ".join(f"{name} | ×" for name in names) + " |"]
            lines += ["| --- |" + " ---: | ---: |" * len(names)]
            for name in dict.fromkeys(r["case"] for r in kin):
                rows = {r["bodies"]: r for r in kin if r["case"] == name}
                note = " (process)" if next(iter(rows.values()))["durability"] == "process" else ""
                cells = [
                    f"{rows[s]['messages_per_s'] / 1000:,.1f} | {rows[s]['ratio']:.1f}"
                    if s in rows
                    else "– | –"
                    for s in names
                ]
                lines.append(f"| {name}{note} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", method(), "", conditions(facts), ""])


def method() -> str:
    """What the clock sees and what it does not."""
    mixed = sorted(MIXED.sizes)
    return (
        "Inside the clock is what the calls write, and what a call waits for: in `disk` its sync. "
        "Outside are opening, closing and, in `os`, the way from the page cache to the disk. "
        "rocketstore's dispatch into queues and its index run beside the calls, in threads of the "
        "store: where a core is idle they are in nobody's clock, and the last messages are "
        f"dispatched after it. A round is {ROUND_S} s of calls, at most {ROUND_BYTES >> 20} MiB "
        "of bodies. `cold`: files are new in every round, and so is every page of them; memory for "
        "them is at hand. `mixed` is a log-normal distribution of our own choice, no trace: median "
        f"{mixed[len(mixed) // 2]} B, mean {MIXED.mean_bytes:,.0f} B, largest {mixed[-1]:,} B, "
        "the same order in every run."
    )


def conditions(facts: dict[str, Any]) -> str:
    """The machine, its load, the versions."""
    packages = ", ".join(f"{name} {version}" for name, version in facts["packages"].items())
    return (
        f"{machine_line(facts)}; {packages or 'no other package'}, sqlite {facts['sqlite']}. "
        f"{facts['rounds']} rounds; "
        + ("busy with other work." if facts["load"] > 0.5 else "nothing else running.")
    )


def introduction() -> str:
    """What the tables compare, written before them."""
    return """# rocketstore beside other packages

`make bench-peers` writes this page, [every round](peers.json) and the picture of the medians.

- Each round of each row begins with a new directory. The first tenth of the calls is outside the clock. So every row
  writes fresh files.
- `×` says how many times faster rocketstore is than the row: the median of the ratios of each round.
- The title of a table names the promise. A row with `(process)` promises less: a killed process loses messages.
- `lmdb` without sync may lose the whole file with the power.
- `duckdb` syncs at each commit, so it has rows under `disk` only.
- Rows of raw writes write the bodies alone: no format, no checksum, no queue, no index, half the bytes at 100 B.
  `pwritev2` with `RWF_DSYNC` over written blocks is the least that a durable write costs on this disk. `os.write` with
  `fdatasync` makes a file longer, so it also waits for the journal of the file system.
"""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--only", default="", help="packages, with commas; ours is always there")
    parser.add_argument("--durability", choices=["os", "disk"], default=None)
    parser.add_argument("--rounds", type=int, default=5, help="at least five")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    parser.add_argument(
        "--results", type=Path, default=None, help="for peers.md and peers.json, else --directory"
    )
    parser.add_argument("--picture", type=Path, default=None, help="an SVG file of the medians")
    given = parser.parse_args(words)
    if given.rounds < 5:
        parser.error("--rounds is at least 5")
    only = {name for name in given.only.split(",") if name}
    cases, versions = installed(
        [
            case
            for case in CASES
            if (not only or case.package in only or case.package == OURS)
            and given.durability
            in (None, "os" if case.durability == "process" else case.durability)
        ]
    )
    given.directory.mkdir(parents=True, exist_ok=True)
    facts = {
        **machine(given.directory),
        "packages": versions,
        "sqlite": sqlite3.sqlite_version,
        "rounds": given.rounds,
    }
    root = Path(tempfile.mkdtemp(prefix="peers-", dir=given.directory))
    try:
        results = [row for kind in SETS for row in measure(cases, kind, given.rounds, root)]
    finally:
        shutil.rmtree(root)
    text = markdown(results, facts)
    print(text)
    saved: Path = given.results or given.directory
    saved.mkdir(parents=True, exist_ok=True)
    (saved / "peers.md").write_text(f"{introduction()}{text}")
    found = {"machine": facts, "results": results}
    (saved / "peers.json").write_text(json.dumps(found, indent=1) + os.linesep)
    if given.picture is not None:
        plot_peers(results, given.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
