"""Prints which branches of csrc were taken, by file: python coverage.py [--missing] DIRECTORY...

Each DIRECTORY holds what programs built with `--coverage` left behind. A source file that was built into
several of them counts once: a branch is taken when any of them took it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: (line, number of the branch in it) → how often it was taken.
Branches = dict[tuple[int, int], int]


def notes(directories: list[Path]) -> Iterator[dict[str, Any]]:
    """What gcov says of each object file."""
    for directory in directories:
        for data in sorted(directory.rglob("*.gcda")):
            command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(data)]
            done = subprocess.run(command, capture_output=True, check=False, cwd=data.parent)
            for line in done.stdout.splitlines():
                yield json.loads(line)


def gather(directories: list[Path]) -> tuple[dict[str, Branches], dict[str, dict[int, int]]]:
    """Branches and lines by name of the source file."""
    branches: dict[str, Branches] = defaultdict(lambda: defaultdict(int))
    lines: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for note in notes(directories):
        for file in note["files"]:
            path = Path(file["file"])
            if path.parent.name != "csrc":
                continue
            for line in file["lines"]:
                number = line["line_number"]
                lines[path.name][number] += line["count"]
                for at, branch in enumerate(line["branches"]):
                    branches[path.name][number, at] += branch["count"]
    return branches, lines


def share(counts: list[int]) -> str:
    taken = sum(count > 0 for count in counts)
    return f"{taken:>6} of {len(counts):>5} {100 * taken / max(1, len(counts)):6.1f} %"


def main(arguments: list[str]) -> None:
    missing = "--missing" in arguments
    directories = [Path(name) for name in arguments if not name.startswith("-")]
    branches, lines = gather(directories)
    print(f"{'file':22}{'lines':>23}{'branches':>25}")
    every: tuple[list[int], list[int]] = ([], [])
    for name in sorted(lines):
        found = list(lines[name].values()), list(branches[name].values())
        print(f"{name:22}{share(found[0]):>23}{share(found[1]):>25}")
        every[0].extend(found[0])
        every[1].extend(found[1])
    print(f"{'all':22}{share(every[0]):>23}{share(every[1]):>25}")
    if missing:
        for name, found in sorted(branches.items()):
            never = sorted({line for (line, _), count in found.items() if not count})
            if never:
                print(f"{name}: lines with a branch never taken: {', '.join(map(str, never))}")


if __name__ == "__main__":
    main(sys.argv[1:])
