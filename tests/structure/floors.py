"""The floors of the house: which room may import which. `docs/architecture.md` shows them; `test_floors.py` holds them.

A room is a package or a module right under `rocketstore`, or one folder below in `log` and `_native`. A room imports
rooms of lower floors only: never a room of its own floor, never one above.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from tests.structure.source_tree import Import, imports, module_name, sources

__all__ = ["ACCEPTED", "FACES", "FLOORS", "Arrow", "arrows", "circles", "module_graph", "room_of"]

#: Floors from low to high: what each is for, and its rooms.
FLOORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("plain values", ("errors",)),
    ("plain values", ("values",)),
    ("native: memory, system calls, GIL", ("_native",)),
    ("native: memory, system calls, GIL", ("_native.os",)),
    ("native: memory, system calls, GIL", ("_native.format",)),
    ("native: memory, system calls, GIL", ("_native.sync",)),
    ("native: memory, system calls, GIL", ("_native.append", "_native.dispatch")),
    ("native: memory, system calls, GIL", ("_native.put",)),
    ("options, and what a read gives", ("config", "message", "columns", "stats")),
    ("one log: files", ("log",)),
    ("one log: files", ("log.worker", "log.damage", "log.layout")),
    ("one log: files", ("log.mapped_files",)),
    ("one log: append and flush", ("log.commitlog",)),
    ("one log: derived files", ("log.queues", "log.index")),
    ("one log: derived files", ("log.dispatch", "log.read")),
    ("one log: opened, or followed", ("log.recovery", "log.follow")),
    ("parts of a store", ("archive", "consuming", "filters")),
    ("one store, wired", ("engine",)),
    ("uses of a store", ("puts", "scanning")),
    ("the store that users hold", ("writer", "consumer", "shipping")),
    ("the store that users hold", ("store",)),
    ("work upon an open store", ("services", "completion_port")),
    ("work upon an open store", ("replication", "sharing")),
    ("the functions that users call", ("api",)),
    ("tools", ("tools",)),
    ("the package itself", ("__init__",)),
    ("faces", ("arrow",)),
    ("faces", ("aio", "metrics", "spark", "testing")),
    ("faces", ("cli",)),
    ("faces", ("__main__",)),
)
RANK = {room: floor for floor, (_, rooms) in enumerate(FLOORS) for room in rooms}

#: Faces use names that `rocketstore` and the packages below export, nothing else.
FACES = frozenset(("aio", "arrow", "cli", "metrics", "spark", "testing"))
#: Packages whose `__all__` a face may use. Programs use fewer: `rocketstore/__init__.py` lists them.
OPEN_TO_FACES = frozenset(
    f"rocketstore.{name}"
    for name in (
        *("archive", "arrow", "columns", "config", "consuming", "errors", "filters", "message"),
        *(
            "puts",
            "replication",
            "scanning",
            "sharing",
            "spark",
            "stats",
            "store",
            "testing",
            "tools",
        ),
        "values",
    )
)

#: Arrows that point up all the same: (room, imported room) -> why.
ACCEPTED: dict[tuple[str, str], str] = {
    ("errors", "_native.append"): "annotation only: DurabilityTimeoutError says what was stored",
    ("store", "replication"): "Store.replication loads what it leads to",
    ("store", "services"): "Store.retention and the like load what they lead to",
    ("scanning", "arrow"): "Scan.to_arrow loads the face that it is a method for",
    ("spark", "cli"): "spark-submit runs the command line",
    ("sharing", "spark"): "a host appends commits of sinks, which alone know what those are",
}


@dataclass(frozen=True, slots=True)
class Arrow:
    """An import of one room by another."""

    room: str
    imported: str
    found: Import

    @property
    def points_up(self) -> bool:
        return RANK[self.imported] >= RANK[self.room]

    def __str__(self) -> str:
        return f"{self.room} -> {self.imported}: {self.found}"


def room_of(module: str, exported: frozenset[str] = frozenset()) -> str:
    """The room of a module; of a name that `rocketstore` exports: the package itself."""
    parts = module.split(".")[1:]
    if not parts or parts[0] in exported:
        return "__init__"
    if parts[0] in ("log", "_native") and len(parts) > 1:
        inner = f"{parts[0]}.{parts[1]}"
        return inner if inner in RANK else parts[0]
    return parts[0]


@functools.cache
def arrows(exported: frozenset[str]) -> tuple[Arrow, ...]:
    """Every import between two rooms: Python, Cython and stubs alike."""
    return tuple(_arrows(exported))


def _arrows(exported: frozenset[str]) -> Iterator[Arrow]:
    for path in sources("rocketstore", suffixes=(".py", ".pyx", ".pxd", ".pyi")):
        own = room_of(module_name(path)) if module_name(path) != "rocketstore" else "__init__"
        for found in imports(path):
            if found.target.split(".")[0] != "rocketstore":
                continue
            package = found.module == "rocketstore" and found.name in exported
            other = "__init__" if package else room_of(found.target, exported)
            if other != own:
                yield Arrow(own, other, found)


@functools.cache
def module_graph() -> dict[str, set[str]]:
    """Module -> modules that it imports when it is loaded, or for its annotations."""
    modules = {module_name(p) for p in sources("rocketstore", suffixes=(".py", ".pyx"))}
    graph: dict[str, set[str]] = {module: set() for module in modules}
    for path in sources("rocketstore", suffixes=(".py", ".pyx", ".pxd")):
        own = module_name(path)
        for found in imports(path):
            if found.late and path.suffix == ".py":
                continue
            target = found.target
            while target and target not in modules:
                target = target.rpartition(".")[0]
            if target not in ("", "rocketstore", own):
                graph.setdefault(own, set()).add(target)
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that reach each other (Tarjan's algorithm, without recursion)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    waiting: set[str] = set()
    found: list[list[str]] = []
    for root in sorted(graph):
        work = [(root, iter(sorted(graph[root])))] if root not in order else []
        while work:
            node, targets = work[-1]
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
                waiting.add(node)
            for target in targets:
                if target not in order:
                    work.append((target, iter(sorted(graph.get(target, ())))))
                    break
                if target in waiting:
                    low[node] = min(low[node], low[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    group = stack[stack.index(node) :]
                    del stack[stack.index(node) :]
                    waiting -= set(group)
                    if len(group) > 1:
                        found.append(sorted(group))
    return found


def room_arrows(exported: frozenset[str]) -> dict[str, set[str]]:
    """Room -> rooms that it imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for arrow in arrows(exported):
        found[arrow.room].add(arrow.imported)
    return dict(found)
