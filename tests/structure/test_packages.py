"""Each package says at its head what it is for, where to begin, and what each of its modules is."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.structure.floors import module_graph
from tests.structure.source_tree import ROOT, shown, sources, text_of

pytestmark = pytest.mark.quick

LINES_MIN, LINES_MAX = 8, 40
PACKAGES = sorted(path.parent for path in (ROOT / "rocketstore").rglob("__init__.py"))


def docstring(package: Path) -> str:
    return ast.get_docstring(ast.parse(text_of(package / "__init__.py"))) or ""


def parts(package: Path) -> set[str]:
    """Modules of a package and packages in it, but for what is private to the import system."""
    modules = {p.stem for p in package.iterdir() if p.suffix in (".py", ".pyx")}
    folders = {p.name for p in package.iterdir() if (p / "__init__.py").exists()}
    return (modules | folders) - {"__init__", "__main__"}


@pytest.mark.parametrize("package", PACKAGES, ids=shown)
def test_the_docstring_names_every_module(package: Path) -> None:
    text = docstring(package)
    assert LINES_MIN <= text.count("\n") + 1 <= LINES_MAX, f"{text.count(chr(10)) + 1} lines"
    words = set(re.findall(r"\w+", text))
    assert parts(package) - words == set()


@pytest.mark.parametrize("package", ["log", "replication"])
def test_a_part_imports_parts_before_it_in_the_list(package: str) -> None:
    """As these docstrings say."""
    text = docstring(ROOT / "rocketstore" / package)
    assert "imports only parts before it" in text
    heads = re.findall(r"(?:^(?:- |    )|(?<=\. )|(?<=`, ))`?(\w+)`?(?=[:,])", text, re.MULTILINE)
    order = {part: heads.index(part) for part in parts(ROOT / "rocketstore" / package)}
    up = [
        f"{module} imports {target}"
        for module, targets in module_graph().items()
        for target in targets
        if module.startswith(start := f"rocketstore.{package}.") and target.startswith(start)
        if order[module.split(".")[2]] < order[target.split(".")[2]]
    ]
    assert not up, "\n" + "\n".join(up)


def test_every_folder_with_code_is_a_package() -> None:
    folders = {p.parent for p in sources("rocketstore", suffixes=(".py", ".pyx"))}
    assert {shown(f) for f in folders if not (f / "__init__.py").exists()} == set()


#: Modules in one folder; more are hard to look through.
WIDEST = 18


#: Files in one folder of the tests.
TESTS_WIDEST = 40


def test_no_folder_of_tests_is_too_wide() -> None:
    width = Counter(shown(path.parent) for path in sources("tests", suffixes=(".py",)))
    assert {name: n for name, n in width.items() if n > TESTS_WIDEST} == {}
    assert max(width.values()) > TESTS_WIDEST // 2


def test_no_folder_is_too_wide() -> None:
    width = {
        shown(p): len([m for m in p.iterdir() if m.suffix in (".py", ".pyx")]) for p in PACKAGES
    }
    assert {name: n for name, n in width.items() if n - 1 > WIDEST} == {}
