"""Scans: the messages of a store or an archive as columns."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketstore.scanning.delivered import NEEDED, message_counts, messages_in

__all__ = [
    "NEEDED",
    "message_counts",
    "messages_in",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this package
    #: Module → the names of `__all__` that it has.
    _NAMES = {
        "delivered": "NEEDED message_counts messages_in",
    }

    def __getattr__(name):
        """A name of `__all__`, imported when it is first asked for (PEP 562)."""
        for module, names in _NAMES.items():
            if name in names.split():
                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
