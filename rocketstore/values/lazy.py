"""Names of a package that are imported when they are first asked for (PEP 562)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["first_use"]


def first_use(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package; `names`: module of it -> the names that the module has, with
    blanks between. The function raises AttributeError for any other name."""
    modules = {name: module for module, text in names.items() for name in text.split()}

    def find(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)

    return find
