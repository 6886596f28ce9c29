"""No part keeps an exception with its frames: their variables keep messages, and files mapped."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.quick

#: Methods that keep what they are given.
KEEPERS = frozenset(
    [
        "append",
        "appendleft",
        "add",
        "insert",
        "put",
        "put_nowait",
        "setdefault",
        "set_exception",
        "update",
    ]
)
#: Places that may, and why.
REASONS = {
    "rocketstore/metrics/store_collector.py:_Samples.ask": "the scrape logs it, then drops them",
}


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _kept(body: list[ast.stmt], name: str) -> Iterator[int]:
    """Lines that keep what `name` is bound to, up to where it is bound to something else."""
    for node in (found for statement in body for found in ast.walk(statement)):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(_is(target, name) for target in targets):
                return
            kept = any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
            if kept and node.value is not None and _is(node.value, name):
                yield node.lineno
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in KEEPERS
            and any(_is(one, name) for one in node.args)
        ):
            yield node.lineno


def _raised(node: ast.AST) -> Iterator[tuple[list[ast.stmt], str]]:
    """Bodies that have an exception with frames under a name: handlers, and functions that take one."""
    if isinstance(node, ast.ExceptHandler) and node.name is not None:
        yield node.body, node.name
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for argument in (*node.args.args, *node.args.kwonlyargs):
            said = ast.unparse(argument.annotation) if argument.annotation else ""
            if ("Exception" in said or "Error" in said) and "Callable" not in said:
                yield node.body, argument.arg


def keepers(source: str, name: str) -> Iterator[str]:
    """`file:class.function:line` of each place that keeps one."""

    def walk(node: ast.AST, inside: tuple[str, ...]) -> Iterator[str]:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            inside = (*inside, node.name)
        for body, bound in _raised(node):
            for line in _kept(body, bound):
                yield f"{name}:{'.'.join(inside)}:{line}"
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    yield from walk(ast.parse(source), ())


def test_no_part_keeps_an_error_with_its_frames() -> None:
    found = {
        place
        for path in sorted((ROOT / "rocketstore").rglob("*.py"))
        for place in keepers(path.read_text("utf-8"), str(path.relative_to(ROOT)))
    }
    assert {place for place in found if place.rpartition(":")[0] not in REASONS} == set()
    assert {place.rpartition(":")[0] for place in found} == set(REASONS)


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("self.error = error", True),
        ("self.errors[3] = error", True),
        ("self.errors.append(error)", True),
        ("future.set_exception(error)", True),
        ("self.error = error = without_frames(error)\n        other.error = error", False),
        ("self.error = without_frames(error)", False),
        ("raise error", False),
    ],
)
def test_the_look_finds_what_it_is_for(body: str, kept: bool) -> None:
    handler = f"try:\n    f()\nexcept OSError as error:\n    if x:\n        {body}\n"
    taker = f"def take(error: OSError) -> None:\n    if x:\n        {body}\n"
    for source in (handler, taker):
        assert bool(list(keepers(source, "m.py"))) == kept, source
