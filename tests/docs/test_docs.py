"""What the documents say is true: examples run, links lead somewhere, named tests exist."""

from __future__ import annotations

import ast
import asyncio
import doctest
import inspect
import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.link_features import all_tests
from tests.support.paths import ROOT, TESTS

BLOCK = re.compile(r"^```python *(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)#\s]+)")
TEST = re.compile(r"\btests/[\w/]+\.py::[\w:]+")


def documents() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def examples(path: Path) -> Iterator[tuple[int, str]]:
    """Line and text of each block of Python that is meant to run."""
    text = path.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        if match[1] != "notest":
            yield text.count("\n", 0, match.start()) + 2, match[2]


WITH_EXAMPLES = [named(path) for path in documents() if any(examples(path))]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one document share their names and an empty directory, from top to bottom."""
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {"__name__": "example"}
    for line, code in examples(ROOT / name):
        if ">>>" in code:
            run_doctest(name, line, code, scope)
        else:
            run_block(name, line, code, scope)


def run_block(name: str, line: int, code: str, scope: dict[str, Any]) -> None:
    padded = "\n" * (line - 1) + code
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = compile(padded, str(ROOT / name), "exec", flags=flags)
    if compiled.co_flags & inspect.CO_COROUTINE:
        function = types.FunctionType(compiled, scope)
        asyncio.run(function())
    else:
        exec(compiled, scope)


def run_doctest(name: str, line: int, code: str, scope: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(code, scope, name, name, line)
    shown: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=shown.append, clear_globs=False)
    assert runner.failures == 0, "".join(shown)
    scope.update(test.globs)


def test_the_readme_has_an_example() -> None:
    assert "README.md" in WITH_EXAMPLES


@pytest.mark.quick
def test_links_lead_to_files() -> None:
    broken = []
    for path in documents():
        for target in LINK.findall(path.read_text(encoding="utf-8")):
            if not (path.parent / target).exists():
                broken.append(f"{named(path)}: {target}")
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.quick
def test_named_folders_of_tests_exist() -> None:
    missing = []
    for path in documents():
        for folder in re.findall(r"`tests/(\w+)`", path.read_text(encoding="utf-8")):
            if not any((ROOT / "tests" / folder).glob("*")):
                missing.append(f"{named(path)}: tests/{folder}")
    assert not missing, "\n" + "\n".join(missing)


@pytest.mark.quick
def test_every_folder_of_the_tests_is_in_their_table() -> None:
    """tests/README.md says which question each folder answers."""
    table = re.findall(r"^\| `([\w/]+)/` \|", (TESTS / "README.md").read_text(), re.MULTILINE)
    folders = {path.parent for path in TESTS.rglob("*.py")} - {TESTS}
    names = {folder.relative_to(TESTS).as_posix() for folder in folders}
    log = {name for name in names if name.startswith("log/")}
    expected = {name for name in names if "/" not in name} - ({"log"} if log else set()) | log
    assert set(table) == expected


@pytest.mark.quick
def test_named_files_of_tests_exist() -> None:
    missing = []
    for path in documents():
        for name in re.findall(r"\btests/[\w/]+\.py\b", path.read_text(encoding="utf-8")):
            if not (ROOT / name).exists():
                missing.append(f"{named(path)}: {name}")
    assert not missing, "\n" + "\n".join(missing)


@pytest.mark.quick
def test_threads_are_the_ones_of_the_table() -> None:
    named_in_code = set()
    for path in (ROOT / "rocketstore").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        named_in_code |= set(re.findall(r'(?:name=|__init__\()\s*"(rocketstore-[a-z]+)"', text))
    table = (ROOT / "docs" / "threads.md").read_text(encoding="utf-8")
    assert named_in_code == set(re.findall(r"`(rocketstore-[a-z]+)`", table))


@pytest.mark.quick
def test_named_tests_exist() -> None:
    known = all_tests()
    missing = []
    for path in documents():
        for test in TEST.findall(path.read_text(encoding="utf-8")):
            if test not in known:
                missing.append(f"{named(path)}: {test}")
    assert not missing, "\n" + "\n".join(missing)


def test_fragments_have_a_known_kind() -> None:
    """changes/README.md lists the kinds; nothing else lies there."""
    folder = ROOT / "changes"
    kinds = re.findall(
        r"^\| `(\w+)` \|", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(kinds) == 6
    fragment = re.compile(rf"[a-z0-9-]+\.(?:{'|'.join(kinds)})\.md")
    names = {path.name for path in folder.iterdir()} - {"README.md"}
    assert [name for name in sorted(names) if not fragment.fullmatch(name)] == []
