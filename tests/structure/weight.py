"""How much code the product and the tests have, by room, and the budget of each.

    python -m tests.structure.weight           the table: code, budget and what is left
    python -m tests.structure.weight --lower   lowers budgets to 1 % (at least 5) above the code; raises none

A statement of Python counts one, a docstring nothing; of Cython and C each line that is neither blank nor comment
counts one: a reason costs nothing. `weight.csv` has the budgets. A room does not grow beyond its own, nor the
product or the tests beyond their sum; an issue names what it may add, and only that raises a number, by hand. A
commit that removes code lowers them.
"""

from __future__ import annotations

import argparse
import ast
import csv
import re
from collections import Counter
from pathlib import Path

from tests.structure.source_tree import shown, text_of, tracked_files

BUDGETS = Path(__file__).with_name("weight.csv")
PRODUCT, TESTS = "product", "tests"
COUNTED = (".py", ".pyx", ".pxd", ".c", ".h")
C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
CYTHON_COMMENT = re.compile(r'"""(.|\n)*?"""|#[^\n]*')
#: What `--lower` leaves above the code: a part of it, and some statements in small rooms.
SLACK_PART, SLACK_LEAST = 100, 5


def is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def weight(suffix: str, text: str) -> int:
    """Of a file with this suffix."""
    if suffix == ".py":
        nodes = ast.walk(ast.parse(text))
        return sum(isinstance(node, ast.stmt) and not is_docstring(node) for node in nodes)
    comment = C_COMMENT if suffix in (".c", ".h") else CYTHON_COMMENT
    return sum(1 for line in comment.sub("", text).splitlines() if line.strip())


def room(parts: tuple[str, ...]) -> str:
    """`csrc`, `rocketstore/log` or `tests/api`; files at the top of a folder are in a room of its name."""
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def weigh() -> Counter[str]:
    """Room -> code, and the two sums."""
    found: Counter[str] = Counter()
    for path in tracked_files():
        name = shown(path)
        parts = tuple(name.split("/"))
        suffixes = COUNTED if parts[0] in ("csrc", "rocketstore") else (".py",)
        if parts[0] not in ("csrc", "rocketstore", "tests") or path.suffix not in suffixes:
            continue
        n = weight(path.suffix, text_of(path))
        found[room(parts)] += n
        found[f"all {TESTS if parts[0] == 'tests' else PRODUCT}"] += n
    return found


def budgets() -> dict[str, int]:
    with BUDGETS.open(newline="", encoding="utf-8") as file:
        return {row["room"]: int(row["budget"]) for row in csv.DictReader(file)}


def lower() -> None:
    """Writes the table: each budget at most 1 % above its room, and none higher than it was."""
    now, given = weigh(), budgets()
    with BUDGETS.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["room", "budget"])
        for name in sorted(now):
            fits = now[name] + max(now[name] // SLACK_PART, SLACK_LEAST)
            rows.writerow([name, min(fits, given.get(name, fits))])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.structure.weight",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--lower", action="store_true", help="writes weight.csv")
    if parser.parse_args().lower:
        lower()
    now, given = weigh(), budgets()
    print(f"{'room':28} {'code':>7} {'budget':>7} {'left':>6}")
    for name in sorted(now, key=lambda name: -now[name]):
        budget = given.get(name, 0)
        print(f"{name:28} {now[name]:7,} {budget:7,} {budget - now[name]:6,}")


if __name__ == "__main__":
    main()
