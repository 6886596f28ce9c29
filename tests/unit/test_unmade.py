"""Objects that `__new__` alone made, without their arguments: refused, or harmless."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import rocketstore
from rocketstore._native import GROUPS
from rocketstore._native.dispatch.unique_claims import UniqueClaims
from rocketstore._native.put.batch_append import Rows
from rocketstore._native.put.writer import Writer

#: `folder.module` of each native module.
MODULES = [
    f"{group}.{name}"
    for group in GROUPS
    for name in importlib.import_module(f"rocketstore._native.{group}").MODULES
]

#: Uses everything that an object has, in a process of its own: what it finds is a signal that ends it.
PROGRAM = """
import contextlib, importlib, sys

module = importlib.import_module("rocketstore._native." + sys.argv[1])
for cls in list(vars(module).values()):
    ours = (module.__name__, "rocketstore")  # the second are exported
    if not isinstance(cls, type) or cls.__module__ not in ours or issubclass(cls, Exception):
        continue
    try:
        made = cls.__new__(cls)
    except TypeError:
        continue
    for name in dir(made):
        # Who waits for a signal without a timeout waits for ever.
        if name in ("__class__", "__init__", "__init_subclass__", "__new__", "wait"):
            continue
        print(cls.__name__, name, flush=True)
        value = None
        with contextlib.suppress(Exception):
            value = getattr(made, name)
        if callable(value):
            for arguments in ((), (0,), (0, 0), (0, 0, 0), (b"",), ("",)):
                with contextlib.suppress(Exception):
                    value(*arguments)
"""


@pytest.mark.parametrize("module_name", MODULES)
def test_of_every_native_class(module_name: str) -> None:
    command = [sys.executable, "-c", PROGRAM, module_name]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    last = child.stdout.splitlines()[-1:]
    assert child.returncode == 0, f"code {child.returncode} at {last}\n{child.stderr}"


#: Their `__init__` says who makes them; but for the port, which one in Python completes: until then it has ended.
LEFT_TO_INIT = {"CompletionPort", "MappedFile", "Message", "ScanResult", "UniqueClaims"}


def test_no_other_class_is_without_what_it_needs() -> None:
    """Arguments come with `__new__`: `__init__` may not be called, or once more, when others use what it made."""
    found = set()
    for name in MODULES:
        module = importlib.import_module(f"rocketstore._native.{name}")
        for cls in vars(module).values():
            ours = (module.__name__, "rocketstore")
            if isinstance(cls, type) and cls.__module__ in ours and not issubclass(cls, Exception):
                found.update({cls.__name__} if "__init__" in vars(cls) else ())
    assert found == LEFT_TO_INIT


def test_a_writer_has_queues(tmp_path: Path) -> None:
    with rocketstore.open(tmp_path / "store") as store:
        made = store.writer("orders")
        for queues in ((), (None,), (made._queues[0], "")):
            with pytest.raises(TypeError, match="one QueueState, or several"):
                Writer(
                    made._log,
                    "orders",
                    b"orders",
                    queues,  # type: ignore[arg-type]
                    durability="disk",
                    timeout_ms=0,
                    record_crc=True,
                    born_host="127.0.0.1:1",
                    reserved=None,
                    to_ms=lambda name, value: 0,
                )


def test_claims_of_no_store() -> None:
    claims = UniqueClaims.__new__(UniqueClaims)
    for call in (claims.first, claims.may_have, lambda claim: claims.note(claim, None)):
        with pytest.raises((AttributeError, TypeError)):
            call(("topic", "id"))


def test_no_rows_are_no_transaction() -> None:
    with pytest.raises(ValueError, match="no transaction was begun"):
        Rows().seal(b"")
    with pytest.raises(IndexError, match="row 0 of 0"):
        Rows().chosen([0])
