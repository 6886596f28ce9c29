"""docs/compatibility.md names every option, error and status that exists, and who holds what.

`python -m tests.docs.test_compatibility_doc` writes its tables anew: the options, from the importer, and
what RocketMQ's own tests check, from tests/rocketmq_tests/rocketmq_cases.csv.
"""

from __future__ import annotations

import csv
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rocketstore import errors
from rocketstore.config import StoreConfig
from rocketstore.config.rocketmq_options import OPTIONS
from tests.docs.link_features import TESTS, all_tests

pytestmark = pytest.mark.quick

DOCUMENT = TESTS.parent / "docs" / "compatibility.md"
CASES = TESTS / "rocketmq_tests" / "rocketmq_cases.csv"
COLUMNS = ["area", "behaviour", "holder"]
DIFFERS, NOT_BUILT = "differs: ", "not built: "


@dataclass(frozen=True, slots=True)
class Case:
    """What a test of RocketMQ's checks, and the test of ours that holds rocketstore to it."""

    area: str
    behaviour: str
    holder: str

    @property
    def node(self) -> str:
        """The test; empty for what is not built."""
        return "" if self.holder.startswith(NOT_BUILT) else self.holder.rpartition("; ")[2]

    @property
    def shown(self) -> str:
        remark = self.holder.removesuffix(self.node)
        return remark + (f"`{self.node}`" if self.node else "")


def read_cases() -> list[Case]:
    with CASES.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        assert reader.fieldnames == COLUMNS, reader.fieldnames
        return [Case(line["area"], line["behaviour"], line["holder"]) for line in reader]


def option_table() -> str:
    lines = ["| rocketstore | RocketMQ | remark |", "| --- | --- | --- |"]
    for option in OPTIONS:
        ours = f"`{option.name}`" if option.name else "–"
        theirs = ", ".join(f"`{name}`" for name in option.rocketmq)
        lines.append(f"| {ours} | {theirs} | {option.note.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def case_tables() -> str:
    lines: list[str] = []
    for area, cases in itertools.groupby(read_cases(), key=lambda case: case.area):
        lines += [f"### {area.capitalize()}", "", "| behaviour | held by |", "| --- | --- |"]
        lines += [f"| {case.behaviour} | {case.shown} |" for case in cases]
        lines.append("")
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {"options": option_table, "cases": case_tables}


def marks(name: str) -> tuple[str, str]:
    begin = f"<!-- {name}: begin (python -m tests.docs.test_compatibility_doc) -->\n"
    return begin, f"<!-- {name}: end -->"


def split(text: str, name: str) -> tuple[str, str, str]:
    begin, end = marks(name)
    before, found, rest = text.partition(begin)
    assert found, f"the mark in front of the table of {name} is gone"
    table, found, after = rest.partition(end)
    assert found, f"the mark behind the table of {name} is gone"
    return before, table, after


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_what_their_sources_say(name: str) -> None:
    assert split(DOCUMENT.read_text(encoding="utf-8"), name)[1] == TABLES[name]()


def test_options_without_a_rocketmq_name_are_listed() -> None:
    mapped = {option.name for option in OPTIONS}
    before = split(DOCUMENT.read_text(encoding="utf-8"), "options")[0]
    missing = [
        name
        for name in inspect.signature(StoreConfig.__init__).parameters
        if name != "self" and name not in mapped and f"`{name}`" not in before
    ]
    assert missing == []


@pytest.mark.parametrize(
    "name", [name for name in errors.__all__ if isinstance(getattr(errors, name), type)]
)
def test_every_error_is_mapped(name: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    kind = getattr(errors, name)
    if kind is errors.RocketStoreError:
        return
    assert f"`{name}`" in text, f"docs/compatibility.md does not mention {name}"
    rows = [line for line in text.splitlines() if line.startswith("|") and f"`{name}`" in line]
    if kind.status != "UNKNOWN_ERROR":
        assert any(kind.status in row for row in rows), f"{name} stands for {kind.status}"


def test_every_case_is_held_by_a_test_that_exists_or_says_why_not() -> None:
    known = all_tests()
    wrong = []
    for case in read_cases():
        reason = case.holder.removeprefix(NOT_BUILT)
        held = case.node in known
        if case.holder.startswith(DIFFERS):
            held = held and len(case.holder) > len(DIFFERS + "; " + case.node)
        if not (held or (not case.node and len(reason) > 10)):
            wrong.append(f"{case.behaviour}: {case.holder!r}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_cases_are_whole_single_and_grouped() -> None:
    cases = read_cases()
    bare = [case for case in cases if not (case.area.strip() and case.behaviour.strip())]
    assert not bare
    places = [(case.area, case.behaviour) for case in cases]
    assert len(set(places)) == len(places)
    areas = [area for area, _ in itertools.groupby(places, key=lambda place: place[0])]
    assert len(set(areas)) == len(areas)
    assert not [case for case in cases if "|" in case.behaviour + case.holder]


def test_new_tests_of_this_kind_are_in_the_table() -> None:
    held = {case.node for case in read_cases()}
    ours = {node for node in all_tests() if node.startswith("tests/rocketmq_tests/")}
    assert ours <= held, sorted(ours - held)


def write() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        before, _, after = split(text, name)
        begin, end = marks(name)
        text = before + begin + table() + end + after
    DOCUMENT.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
