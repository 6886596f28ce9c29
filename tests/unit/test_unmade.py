"""Objects that `__new__` alone made, without their arguments: refused, or harmless."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
import signal
from typing import Any

import pytest

import rocketstore._native
from tests.forking import fork

MODULES = [found.name for found in pkgutil.iter_modules(rocketstore._native.__path__)]
ARGUMENTS: list[tuple[Any, ...]] = [(), (0,), (0, 0), (0, 0, 0), (b"",), ("",)]
#: Seconds that one class may take; one that waits for ever is a fault, too.
LIMIT_S = 10


def classes(module_name: str) -> list[type]:
    module = importlib.import_module(f"rocketstore._native.{module_name}")
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]


def use(made: Any) -> None:
    for name in set(dir(made)) - {"__class__", "__init__", "__init_subclass__", "__new__"}:
        value = None
        with contextlib.suppress(Exception):
            value = getattr(made, name)
        for arguments in ARGUMENTS if callable(value) else []:
            with contextlib.suppress(Exception):
                value(*arguments)


@pytest.mark.parametrize("module_name", MODULES)
def test_of_every_native_class(module_name: str) -> None:
    for cls in classes(module_name):
        try:
            made = cls.__new__(cls)
        except TypeError:
            continue
        child = fork()
        if child == 0:
            signal.alarm(LIMIT_S)
            os.closerange(0, 3)
            use(made)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"{cls}: ended by signal {os.WTERMSIG(status)}"
