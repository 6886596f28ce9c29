"""Imports point down, Python, Cython, stubs and C alike; nothing imports in a circle."""

from __future__ import annotations

import ast
import re

import pytest

from rocketstore.engine import shutdown
from tests.structure.floors import (
    ACCEPTED,
    FACES,
    FLOORS,
    OPEN_TO_FACES,
    RANK,
    arrows,
    circles,
    module_graph,
)
from tests.structure.public_api import exported
from tests.structure.source_tree import ROOT, module_name, sources, text_of

pytestmark = pytest.mark.quick

EXPORTED = frozenset(exported()) | {"__version__"}


def test_every_room_has_a_floor() -> None:
    found = {room for arrow in arrows(EXPORTED) for room in (arrow.room, arrow.imported)}
    assert found - set(RANK) == set()
    assert len({room for _, rooms in FLOORS for room in rooms}) == len(RANK)


def test_imports_point_down() -> None:
    up = [a for a in arrows(EXPORTED) if a.points_up and (a.room, a.imported) not in ACCEPTED]
    assert not up, "\n" + "\n".join(map(str, up))


def test_no_exception_is_stale() -> None:
    up = {(a.room, a.imported) for a in arrows(EXPORTED) if a.points_up}
    assert set(ACCEPTED) - up == set()


def test_no_modules_import_in_a_circle() -> None:
    assert circles(module_graph()) == []


def test_no_parts_of_a_room_import_in_a_circle() -> None:
    """Packages and modules next to each other: a reader can take one after the other."""
    graph: dict[str, set[str]] = {}
    for module, targets in module_graph().items():
        for target in targets:
            steps = list(zip(module.split("."), target.split("."), strict=False))
            depth = next((n for n, (own, other) in enumerate(steps) if own != other), 0)
            if depth > 1:
                part, used = (".".join(name.split(".")[: depth + 1]) for name in (module, target))
                graph.setdefault(part, set()).add(used)
    assert len(graph) > 100, "the finder of parts found nearly none"
    assert circles(graph) == []


def test_a_circle_would_be_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"d", "e"}}
    assert circles(graph) == [["a", "b", "c"]]


def test_no_files_of_csrc_need_each_other() -> None:
    """A `.c` file stands for its header: what it includes, its idea needs."""
    names = {p.stem for p in sources("csrc", suffixes=(".h", ".c"))}
    graph: dict[str, set[str]] = {name: set() for name in names}
    for path in sources("csrc", suffixes=(".h", ".c")):
        for found in re.findall(r'#\s*include\s*"(\w+)\.h"', text_of(path)):
            if found != path.stem:
                graph[path.stem].add(found)
    assert circles(graph) == []


def exports_of(package: str) -> set[str]:
    """`__all__` of a package or module of ours."""
    base = ROOT.joinpath(*package.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    for node in ast.parse(text_of(path)).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(getattr(target, "id", "") == "__all__" for target in targets):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            assert node.value is not None
            return set(ast.literal_eval(node.value))
    return set()


def test_faces_use_exported_names_only() -> None:
    """A face stands on what any program may use: no part of the store is built for one face alone."""
    wrong = []
    for arrow in arrows(EXPORTED):
        if arrow.room not in FACES or arrow.imported in ("__init__", *FACES):
            continue
        module, name = arrow.found.module, arrow.found.name
        package = ".".join(module.split(".")[:2])
        if package not in OPEN_TO_FACES or (name and name not in exports_of(package)):
            wrong.append(str(arrow))
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_close_knows_who_only_calls_the_store() -> None:
    """`engine.shutdown` tells frames that may hold a lock by their package: a new face is to be named there."""
    packages = {
        module_name(path).split(".")[1]
        for path in sources("rocketstore", suffixes=(".py",))
        if "." in module_name(path)
    }
    assert packages >= shutdown.GUESTS
    assert {room for room in packages if room in (*FACES, "tools", "__main__")} <= shutdown.GUESTS
    holders = {"engine", "log", "stats", "puts", "consuming", "consumer", "writer"}
    assert not holders & shutdown.GUESTS
    assert holders <= packages
