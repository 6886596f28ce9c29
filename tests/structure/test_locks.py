"""One lock: no signal's handler can leave it behind, on any Python (decision 0048)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.structure.source_tree import shown, sources, text_of

pytestmark = pytest.mark.quick

MODULES = frozenset(("threading", "asyncio", "_thread", "multiprocessing"))
#: What these have that an exception of a signal's handler may leave taken.
LOCKS = frozenset(
    ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "allocate_lock")
)
#: `file: name` of each other lock, and why it may be one.
REASONS = {
    "values/clock.py: Condition": "of the clock that tests move by hand; below the native part",
    "values/clock.py: RLock": "of that condition",
    "values/threads.py: Event": "threading.Thread has one; a thread that it stops has done nothing",
    "spark/frame.py: Lock": "for a setting of a Spark session; a face has no native part",
    "spark/lag.py: Lock": "taken by threads of Spark, which no handler interrupts",
    "replication/replica/received_offsets.py: Event": "of the loop of replication",
    "replication/transport/channels.py: Event": "of the loop of replication",
    "replication/master/sender.py: Event": "of the loop of replication",
    "replication/replica/service.py: Event": "of the loop of replication",
    "replication/replica/service.py: Lock": "of the loop of replication",
}
#: They take a limit by the same timer away, which is pytest-timeout's first method.
ALARMS = re.compile(r"\bSIGALRM\b|\bsetitimer\(|\bsignal\.alarm\(")


def locks_in(source: str, name: str) -> Iterator[str]:
    """`file: name` of each lock that is not ours."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.attr in LOCKS and node.value.id in MODULES:
                yield f"{name}: {node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield from (f"{name}: {one.name}" for one in node.names if one.name in LOCKS)


def kept_turns(source: str, name: str) -> Iterator[str]:
    """Lines that hold the lock of this package in a generator, whose frame an exception's traceback keeps."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        if not any("contextmanager" in ast.unparse(one) for one in function.decorator_list):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.With) and any(
                isinstance(one, ast.Yield) for one in ast.walk(node)
            ):
                for item in node.items:
                    if re.search(
                        r"(lock|guard|turn|mutex)\w*\(\)$", ast.unparse(item.context_expr)
                    ):
                        yield f"{name}:{node.lineno}"


def test_every_lock_is_the_one_that_a_handler_cannot_leave() -> None:
    found = {
        lock.removeprefix("rocketstore/")
        for path in sources("rocketstore", suffixes=(".py",))
        for lock in locks_in(text_of(path), shown(path))
    }
    assert found == REASONS.keys(), "use SignalSafeLock, or say why not"


def test_no_generator_holds_a_lock_while_it_yields() -> None:
    found = [
        place
        for path in sources("rocketstore", suffixes=(".py",))
        for place in kept_turns(text_of(path), shown(path))
    ]
    assert not found


def test_a_lock_and_a_generator_that_holds_one_are_found() -> None:
    source = (
        "import threading\nfrom _thread import allocate_lock\n"
        "@contextmanager\ndef f(self):\n    with self._lock():\n        yield threading.RLock()\n"
    )
    assert {*locks_in(source, "a")} == {"a: RLock", "a: allocate_lock"}
    assert [*kept_turns(source, "a")] == ["a:5"]


def test_a_test_with_an_alarm_has_a_time_limit_that_no_alarm_takes_away() -> None:
    """pytest-timeout uses the same timer by default."""
    mark = re.compile(r"mark\.timeout\([^)]*method=\"thread\"")
    without = [
        shown(path)
        for path in sources("tests", suffixes=(".py",))
        if path.name.startswith("test_") and path.parent.name != "structure"
        if ALARMS.search(text_of(path)) and not mark.search(text_of(path))
    ]
    assert not without, 'give each `pytestmark = pytest.mark.timeout(…, method="thread")`'
