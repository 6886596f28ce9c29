"""docs/compatibility.md names every option, error and status that exists.

`python -m tests.test_compatibility_doc` writes the table of options anew.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from rocketstore import errors
from rocketstore.config import StoreConfig
from rocketstore.rocketmq_config import OPTIONS

pytestmark = pytest.mark.quick

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"
BEGIN = "<!-- options: begin (python -m tests.test_compatibility_doc) -->\n"
END = "<!-- options: end -->"


def option_table() -> str:
    lines = ["| rocketstore | RocketMQ | remark |", "| --- | --- | --- |"]
    for option in OPTIONS:
        ours = f"`{option.name}`" if option.name else "–"
        theirs = ", ".join(f"`{name}`" for name in option.rocketmq)
        lines.append(f"| {ours} | {theirs} | {option.note.replace('|', '/')} |")
    return "\n".join(lines) + "\n"


def split() -> tuple[str, str, str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    table, found, after = rest.partition(END)
    assert found, "the marks around the table of options are gone"
    return before, table, after


def test_options_are_the_ones_of_the_importer() -> None:
    assert split()[1] == option_table()


def test_options_without_a_rocketmq_name_are_listed() -> None:
    mapped = {option.name for option in OPTIONS}
    before = split()[0]
    missing = [
        name
        for name in inspect.signature(StoreConfig.__init__).parameters
        if name != "self" and name not in mapped and f"`{name}`" not in before
    ]
    assert missing == []


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_mapped(name: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    kind = getattr(errors, name)
    if kind is errors.RocketStoreError:
        return
    assert f"`{name}`" in text, f"docs/compatibility.md does not mention {name}"
    rows = [line for line in text.splitlines() if line.startswith("|") and f"`{name}`" in line]
    if kind.status != "UNKNOWN_ERROR":
        assert any(kind.status in row for row in rows), f"{name} stands for {kind.status}"


def write() -> None:
    before, _, after = split()
    DOCUMENT.write_text(before + BEGIN + option_table() + END + after, encoding="utf-8")


if __name__ == "__main__":
    write()
