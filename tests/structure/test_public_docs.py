"""What users read of a public name: it says what it does, and which errors it raises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.structure.public_api import exported, find, resolve

pytestmark = pytest.mark.quick

#: Words that a first sentence does without: they have an actor without a name, or two meanings.
REFUSED = re.compile(
    r"\b(who|whoever|behind|in front of|anew|told|stands|beside|aside|mend)\b", re.IGNORECASE
)
#: A first sentence that is read once has no more words.
WORDS_MAX = 25
#: Names of values, which help does not show.
VALUES = {"Durability"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def methods(module: str, node: ast.ClassDef) -> dict[str, Function]:
    """Public methods and properties of a class and of its bases in this package."""
    found: dict[str, Function] = {}
    for base in node.bases:
        where = resolve(module, base)
        if where and isinstance(where[1], ast.ClassDef):
            found.update(methods(where[0], where[1]))
    for item in node.body:
        if isinstance(item, Function) and not item.name.startswith("_"):
            found[item.name] = item
    return found


def public_functions() -> Iterator[tuple[str, Function]]:
    for name in exported():
        module, node = find("rocketstore", name)
        if isinstance(node, ast.FunctionDef):
            yield name, node
        elif isinstance(node, ast.ClassDef):
            for method, function in sorted(methods(module, node).items()):
                yield f"{name}.{method}", function


FUNCTIONS = dict(public_functions())


def is_property(node: Function) -> bool:
    return any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)


def docstrings() -> dict[str, str]:
    """Of functions and classes."""
    found = {name: ast.get_docstring(node) or "" for name, node in FUNCTIONS.items()}
    for name in exported():
        _, node = find("rocketstore", name)
        if isinstance(node, ast.ClassDef):
            found[name] = ast.get_docstring(node) or ""
    return found


DOCSTRINGS = docstrings()


def test_every_public_name_is_explained() -> None:
    """By itself; a native attribute, which has no docstring, by that of its class."""
    silent = sorted(name for name, text in DOCSTRINGS.items() if not text.strip())
    by_class = [tuple(name.split(".")) for name in silent]
    assert [pair for pair in by_class if f"`{pair[-1]}`" not in DOCSTRINGS[pair[0]]] == []
    assert len(FUNCTIONS) > 100


@pytest.mark.parametrize("name", [n for n, node in FUNCTIONS.items() if not is_property(node)])
def test_a_function_names_its_errors(name: str) -> None:
    """A section `Raises:`, or the words "Raises nothing."."""
    assert re.search(r"^Raises:$|Raises nothing\b", DOCSTRINGS[name], re.MULTILINE), name


@pytest.mark.parametrize("name", sorted(DOCSTRINGS))
def test_a_first_sentence_is_read_once(name: str) -> None:
    first = re.split(r"(?<=[.;:])\s", DOCSTRINGS[name] + " ", maxsplit=1)[0]
    assert not REFUSED.search(first), first
    assert len(first.split()) <= WORDS_MAX, first
