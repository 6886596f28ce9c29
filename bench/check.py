"""Whether the store still is as fast as it was, as ratios: `make bench-check`.

Rates differ between machines and hours, so nothing here compares times. Two kinds of figures are held against
`baseline.json`: the ratios of bench/ratios.py, each of two figures of one run, and, where valgrind is
installed and Python and the kind of machine are those of the baseline, instructions a message
(bench/counted.py). Bounds are generous: what falls below them has lost a third, or half where a disk or
another thread has a part in it, or has a tenth more to do. A figure that only one side has is a failure,
and what was not looked at is said.
`--save` writes what was measured as the new baseline.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.counted import COUNTED, counts
from bench.ratios import DISK, DISPATCH, ratios

__all__ = ["main", "unseen", "worse"]

BASELINE = Path(__file__).parent / "baseline.json"
#: A ratio may fall to this share of the baseline, a count may rise to this one.
RATIO_KEPT = 0.65
#: Where a disk, or how threads share the processors, decides as well.
KEPT = {DISK: 0.5, DISPATCH: 0.5}
COUNT_MOST = 1.1


def measured(directory: Path) -> dict[str, Any]:
    """The figures of this machine, now; `instructions` None: nothing is there to count them."""
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "machine": platform.machine(),
        "ratios": {name: round(ratio, 2) for name, ratio in ratios(directory).items()},
        "instructions": counts() if shutil.which("valgrind") else None,
    }


def worse(now: dict[str, Any], baseline: dict[str, Any]) -> list[str]:
    """What is out of bounds, or is on one side only."""
    found = list(_lone("ratio", now["ratios"], baseline["ratios"]))
    for name in _common(now["ratios"], baseline["ratios"]):
        before, ratio = baseline["ratios"][name], now["ratios"][name]
        if ratio < before * KEPT.get(name, RATIO_KEPT):
            found.append(f"{name}: {ratio:.2f}, was {before:.2f}")
    if _why_uncounted(now, baseline):
        return found
    found += _lone("count", now["instructions"], baseline["instructions"])
    for name in _common(now["instructions"], baseline["instructions"]):
        before, counted = baseline["instructions"][name], now["instructions"][name]
        if counted > before * COUNT_MOST:
            found.append(f"{name}: {counted} instructions, were {before}")
    return found


def _common(now: dict[str, Any], baseline: dict[str, Any]) -> list[str]:
    return [name for name in baseline if name in now]


def _lone(what: str, now: dict[str, Any], baseline: dict[str, Any]) -> Iterator[str]:
    for name in baseline:
        if name not in now:
            yield f"{name}: the baseline has this {what}, but it was not measured now"
    for name in now:
        if name not in baseline:
            yield f"{name}: this {what} is not in the baseline; bench.check --save writes one"


def _why_uncounted(now: dict[str, Any], baseline: dict[str, Any]) -> str:
    """Why counts are not compared; "" where they are."""
    if now["instructions"] is None:
        return "valgrind is not installed"
    for key in ("python", "machine"):
        if now[key] != baseline[key]:
            return f"{key} is {now[key]} here and {baseline[key]} in the baseline"
    return ""


def unseen(now: dict[str, Any], baseline: dict[str, Any]) -> list[str]:
    """What nobody looked at, and why."""
    why = _why_uncounted(now, baseline)
    return [f"instructions of {what.name}: {why}" for what in COUNTED] if why else []


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=__doc__)
    parser.add_argument("--save", action="store_true", help="what is measured is the new baseline")
    parser.add_argument("--directory", type=Path, default=Path("build/bench"))
    given = parser.parse_args(words)
    if given.save and shutil.which("valgrind") is None:
        parser.error("--save needs valgrind: a baseline without counts would guard nothing")
    given.directory.mkdir(parents=True, exist_ok=True)
    now = measured(given.directory)
    for name, ratio in now["ratios"].items():
        print(f"{name:40} {ratio:8.2f}")
    for name, instructions in (now["instructions"] or {}).items():
        print(f"{name:40} {instructions:8} instructions")
    if given.save:
        BASELINE.write_text(json.dumps(now, indent=1) + os.linesep)
        return 0
    baseline = json.loads(BASELINE.read_text())
    for line in unseen(now, baseline):
        print(f"not looked at: {line}")
    found = worse(now, baseline)
    for line in found:
        print(f"failed: {line}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
