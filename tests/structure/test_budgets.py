"""Budgets for what people read at once: functions, classes, parameters, files; no splinters of modules.

Docstrings count for a file, not for a function or a class: a public one lists arguments, units and errors.

What stands above its budget needs a reason in one of the tables here; a row that is no longer needed fails.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.structure.source_tree import (
    ROOT,
    Function,
    docstring_lines,
    functions,
    imports,
    lines_without_docstring,
    module_name,
    shown,
    sources,
    text_of,
)

pytestmark = pytest.mark.quick

CODE = ("csrc", "rocketstore", "tests", "bench")
SUFFIXES = (".py", ".pyx", ".pxd", ".pyi", ".c", ".h")

FUNCTION_LINES_MAX = 70
CLASS_LINES_MAX = 250
POSITIONAL_PARAMETERS_MAX = 8
FILE_LINES_SOFT = 400
FILE_LINES_HARD = 500
MODULE_LINES_MIN = 40

#: Files of 401 to 500 lines, and why they are one idea.
LONG_FILES: Final[dict[str, str]] = {
    "csrc/rs_index_file.c": "one file format: entries are put, walked and cut by one layout",
    "csrc/rs_log_file.c": "one end of the log: room for a record, the roll, each kind of append",
    "rocketstore/_native/append/appender.pyx": "one class: the append lock, and what it guards",
    "rocketstore/_native/put/batch_append.pyx": "one class: rows of a batch, and how they are made",
    "rocketstore/_native/put/completion_port.pyx": (
        "one class: puts that never wait, and their waiters"
    ),
    "rocketstore/_native/put/writer.pyx": "one class: puts of one topic, each way to the append",
    "rocketstore/_native/os/mapped_file.pyx": "one class: the raw pointer, and who may use it",
    "rocketstore/_native/os/syscalls.pyx": "the one table of calls, and a wrapper of each",
    "rocketstore/aio/store.py": "one class: each call of Store once more, for tasks",
    "rocketstore/consumer.py": "one class, half of it docstrings of its calls",
    "rocketstore/consuming/consumer_offsets.py": "one table of offsets, its file and its journal",
    "rocketstore/engine/engine.py": "the kinds of an open store, and what all of them answer",
    "rocketstore/engine/phases.py": "the phases of an open, one after the other",
    "rocketstore/engine/wiring.py": "the parts of one store, in the order of their needs",
    "rocketstore/errors.py": "one list: each error of its own that rocketstore raises",
    "rocketstore/log/commitlog/checkpoint.py": (
        "the two checkpoints: their bytes, their files, and whether ours still holds"
    ),
    "rocketstore/log/recovery/walk.py": "one walk: its steps, and how it judges what is no record",
    "rocketstore/replication/replica/service.py": "one copy: its service and its connection",
    "rocketstore/replication/protocol/session.py": "both ends of one talk, each word of it",
    "rocketstore/log/follow/follower.py": "one class: what is known of a writer, under one lock",
    "rocketstore/log/recovery/recovery.py": "one attempt: each step needs what those before found",
    "rocketstore/services/delay/pending.py": "one class, half of it docstrings of its calls",
    "rocketstore/services/transactions/commits.py": "one class: a commit, and what a crash left",
    "rocketstore/services/transactions/store_transaction.py": (
        "one class, half of it docstrings of its calls"
    ),
    "rocketstore/sharing/link.py": "one class: the connections of a guest, under one lock",
    "rocketstore/sharing/host.py": "one class: whoever comes, what is served, and the end of it",
    "tests/services/test_lost_logs.py": "one table: each file of a store, and what its loss means",
    "tests/sharing/test_lost_answers.py": "one list: how a host may die",
    "rocketstore/store.py": "one class: what a user calls on a store, most of it docstrings",
    "rocketstore/tools/repair.py": "one command: look, copy, mend, report, in that order",
    "tests/unit/test_scan.py": "one walk and one search, and each byte that may mislead them",
    "tests/log/mapped_files/test_direct_write.py": "one table of cases for one way to write",
    "tests/log/queues/test_queue_preallocator.py": "one story, told with one set of doubles",
    "tests/power_loss/workloads.py": "one table: what each recorded process does",
    "tests/sharing/test_failures.py": "one list: failures of other programs, each as a test",
    "tests/replication/histories/liars.py": "the lies of both ends, and the talk they need",
}
#: Classes of more than 250 lines, and why.
LONG_CLASSES: Final[dict[str, str]] = {
    "rocketstore/consuming/consumer_offsets.py:ConsumerOffsets": (
        "one lock guards the table, its claims and its journal"
    ),
    "rocketstore/_native/append/appender.pyx:Log": "one lock guards every field of the log's end",
    "rocketstore/_native/append/group_commit.pyx:GroupCommit": (
        "one lock guards waiters and flushes"
    ),
    "rocketstore/_native/dispatch/dispatch_loop.pyx:DispatchLoop": (
        "one loop without the GIL, and its state"
    ),
    "rocketstore/_native/format/column_scanner.pyx:ColumnScanner": (
        "one buffer for each column of a scan"
    ),
    "rocketstore/log/follow/follower.py:Follower": (
        "what is known of a writer and its files, under one lock"
    ),
    "rocketstore/log/queues/consume_queue.py:ConsumeQueue": (
        "one queue: its units, bounds, holes and cuts, which change together"
    ),
    "rocketstore/_native/os/mapped_file.pyx:MappedFile": "one mapping, its views and its syncs",
    "rocketstore/_native/put/completion_port.pyx:CompletionPort": (
        "puts that never wait, and their waiters"
    ),
    "rocketstore/_native/put/host_line.pyx:HostLine": (
        "one line: its requests, the answers to them, and what those wait for"
    ),
    "rocketstore/_native/put/writer.pyx:Writer": (
        "the put of one message, kept in one function's reach"
    ),
    "rocketstore/services/transactions/commits.py:Commits": (
        "one lock guards what is appended and not done, and what a crash left of it"
    ),
    "rocketstore/services/transactions/store_transaction.py:StoreTransaction": (
        "what a user calls on a transaction; its messages lie beside it"
    ),
    "rocketstore/sharing/link.py:HostLink": "the connections of a guest, under one lock",
    "rocketstore/aio/store.py:Store": "each call of Store once more, for tasks",
    "rocketstore/services/delay/pending.py:Delayed": "one facade, more than half of it docstrings",
    "rocketstore/store.py:Store": "one facade; what it does lies in the rooms below",
    "rocketstore/consumer.py:Consumer": "what a user calls on a consumer; parts lie in consuming",
    "rocketstore/log/index/store.py:IndexStore": (
        "one list of files: opened, filled, rolled, synced"
    ),
}
#: Functions with more than eight parameters by position, and why.
WIDE_FUNCTIONS: Final[dict[str, str]] = {}
#: Modules below 40 lines that one module imports, and why they are no part of it.
SMALL_MODULES: Final[dict[str, str]] = {}


def lines_of(path: Path) -> int:
    return text_of(path).count("\n")


#: The one facade, which may have as many lines without the docstrings that its calls have to have.
FACADE: Final = "rocketstore/store.py"


def test_no_file_is_too_long() -> None:
    lengths = {shown(p): lines_of(p) for p in sources(*CODE, suffixes=SUFFIXES)}
    assert {name for name, n in lengths.items() if n > FILE_LINES_SOFT} == set(LONG_FILES)
    lengths[FACADE] -= docstring_lines(text_of(ROOT / FACADE).splitlines())
    assert {name: n for name, n in lengths.items() if n > FILE_LINES_HARD} == {}


def test_no_function_is_too_long() -> None:
    found: list[Function] = [f for p in sources(*CODE, suffixes=SUFFIXES) for f in functions(p)]
    assert len(found) > 100, "the finder of functions found nearly none"
    long = [f for f in found if f.length > FUNCTION_LINES_MAX]
    assert [f"{shown(f.path)}:{f.line} {f.name}: {f.length}" for f in long] == []


def classes() -> Iterator[tuple[str, int]]:
    """`file:class` and its lines, of Python and Cython."""
    for path in sources("rocketstore", suffixes=(".py", ".pyx")):
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(text_of(path))):
                if isinstance(node, ast.ClassDef):
                    yield f"{shown(path)}:{node.name}", lines_without_docstring(node)
        else:
            yield from _cython_classes(path)


def _cython_classes(path: Path) -> Iterator[tuple[str, int]]:
    lines = text_of(path).splitlines()
    for number, line in enumerate(lines):
        if match := re.match(r"(?:cdef\s+)?class\s+(\w+)", line):
            end = number + 1
            while end < len(lines) and (not lines[end].strip() or lines[end][:1] in " )"):
                end += 1
            while not lines[end - 1].strip():
                end -= 1
            yield f"{shown(path)}:{match[1]}", end - number - docstring_lines(lines[number:end])


def test_no_class_is_too_long() -> None:
    found = dict(classes())
    assert len(found) > 200, "the finder of classes found nearly none"
    assert {name for name, n in found.items() if n > CLASS_LINES_MAX} == set(LONG_CLASSES)


def wide_functions() -> Iterator[str]:
    """Functions of Python with more parameters than a caller can keep apart by position."""
    for path in sources("rocketstore", suffixes=(".py",)):
        tree = ast.parse(text_of(path))
        methods = {
            id(node)
            for owner in ast.walk(tree)
            if isinstance(owner, ast.ClassDef)
            for node in owner.body
            if not any(
                getattr(d, "id", "") == "staticmethod" for d in getattr(node, "decorator_list", ())
            )
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not of_click(node):
                count = len(node.args.posonlyargs + node.args.args) - (id(node) in methods)
                if count > POSITIONAL_PARAMETERS_MAX:
                    yield f"{shown(path)}:{node.name}"


def of_click(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the command line calls it, which names every argument."""
    return any("click." in ast.unparse(decorator) for decorator in node.decorator_list)


def test_no_function_takes_too_many_by_position() -> None:
    assert set(wide_functions()) == set(WIDE_FUNCTIONS)


def importers() -> dict[str, set[str]]:
    """Module -> modules of the product that import it."""
    found: dict[str, set[str]] = defaultdict(set)
    paths = sources("rocketstore", suffixes=(".py", ".pyx", ".pxd", ".pyi"))
    modules = {module_name(path) for path in paths}
    for path in paths:
        for one in imports(path):
            target = one.target
            while target and target not in modules:
                target = target.rpartition(".")[0]
            if target and target != module_name(path):
                found[target].add(module_name(path))
    return found


def test_no_module_is_a_splinter() -> None:
    """A module below 40 lines with one importer is a piece of that importer."""
    by = importers()
    small = {
        shown(path)
        for path in sources("rocketstore", suffixes=(".py", ".pyx"))
        if path.name not in ("__init__.py", "__main__.py")
        and lines_of(path) < MODULE_LINES_MIN
        and len(by[module_name(path)]) == 1
    }
    assert small == set(SMALL_MODULES)


def test_every_reason_is_one() -> None:
    tables = (LONG_FILES, LONG_CLASSES, WIDE_FUNCTIONS, SMALL_MODULES)
    assert [name for table in tables for name, why in table.items() if len(why.split()) < 4] == []
