"""Objects that `__new__` alone made, without their arguments: refused, or harmless."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import rocketstore._native

MODULES = [found.name for found in pkgutil.iter_modules(rocketstore._native.__path__)]

#: Uses everything that an object has, in a process of its own: what it finds is a signal that ends it.
PROGRAM = """
import contextlib, importlib, sys

module = importlib.import_module("rocketstore._native." + sys.argv[1])
for cls in list(vars(module).values()):
    if not isinstance(cls, type) or cls.__module__ != module.__name__:
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
