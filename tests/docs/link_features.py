"""The feature table `features.csv`: each behaviour of the store and the test that holds it.

A test says in its docstring which rows it shows: \"\"\"S000-83 S000-88: acts only when …\"\"\".
`python -m tests.docs.link_features` writes these links into the table; rows that no test names keep
`later:…` or `not built: …`, and lose a test that does not name them any more.
"""

from __future__ import annotations

import ast
import csv
import functools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.paths import TESTS

TABLE = TESTS / "docs" / "features.csv"
COLUMNS = ["id", "behaviour", "holder"]
FEATURE = re.compile(r"\bS00[0-4]-\d{2,3}\b")
SIZES = {"S000": 115, "S001": 80, "S002": 40, "S003": 47, "S004": 71}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
LATER = ("later:services", "later:replication", "later:interop")


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    behaviour: str
    holder: str

    @property
    def tested(self) -> bool:
        return "::" in self.holder


def expected_ids() -> list[str]:
    return [f"{text}-{n:02}" for text, size in SIZES.items() for n in range(1, size + 1)]


def read_table() -> list[Row]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert reader.fieldnames == COLUMNS, reader.fieldnames
        return [Row(line["id"], line["behaviour"], line["holder"]) for line in reader]


def write_table(rows: list[Row]) -> None:
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows([row.id, row.behaviour, row.holder] for row in rows)


def tests_of(path: Path) -> Iterator[tuple[str, str]]:
    """Node id and docstring of each test of a file, found without importing it."""
    name = path.relative_to(TESTS.parent).as_posix()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documents = {
        node.name: ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    for node in tree.body:
        if isinstance(node, FUNCTION):
            if node.name.startswith("test"):
                yield f"{name}::{node.name}", ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for inner in node.body:
                name_of = getattr(inner, "name", "")
                if isinstance(inner, FUNCTION) and name_of.startswith("test"):
                    yield f"{name}::{node.name}::{name_of}", ast.get_docstring(inner) or ""
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            # A hypothesis machine: TestStore = StoreMachine.TestCase
            value, target = node.value, node.targets[0].id
            if isinstance(value, ast.Attribute) and value.attr == "TestCase":
                machine = value.value.id if isinstance(value.value, ast.Name) else ""
                yield f"{name}::{target}::runTest", documents.get(machine, "")


@functools.cache
def all_tests() -> dict[str, str]:
    """Docstrings by node id. All tests are parsed for that, once a process."""
    found: dict[str, str] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        found.update(tests_of(path))
    return found


def named_ids(docstring: str) -> list[str]:
    return FEATURE.findall(docstring)


def links() -> dict[str, str]:
    """For each id the test that names it; of several the one that names the fewest."""
    best: dict[str, tuple[int, str]] = {}
    for node, docstring in all_tests().items():
        ids = named_ids(docstring)
        for feature in ids:
            best[feature] = min(best.get(feature, (len(ids), node)), (len(ids), node))
    return {feature: node for feature, (_, node) in best.items()}


def relinked(rows: list[Row]) -> list[Row]:
    found = links()
    return [
        Row(row.id, row.behaviour, found.get(row.id, "" if row.tested else row.holder))
        for row in rows
    ]


def main() -> int:
    rows = relinked(read_table())
    write_table(rows)
    bare = [row.id for row in rows if not row.holder]
    print(f"{sum(row.tested for row in rows)} of {len(rows)} rows are held by a test")
    if bare:
        print(f"{len(bare)} rows have neither a test nor a reason:", *bare)
    return 1 if bare else 0


if __name__ == "__main__":
    sys.exit(main())
