"""What becomes of the arguments of a put: one message, a batch, columns or frames."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rocketstore.puts.frames import crc32
    from rocketstore.puts.put_columns import (
        SCHEDULE_TOPIC,
        SHARD_KEY,
        MessageColumns,
        refuse_reserved,
    )
    from rocketstore.puts.put_message import MessageFields

__all__ = [
    "SCHEDULE_TOPIC",
    "SHARD_KEY",
    "MessageColumns",
    "MessageFields",
    "crc32",
    "refuse_reserved",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this package
    #: Module → the names of `__all__` that it has.
    _NAMES = {
        "frames": "crc32",
        "put_columns": "MessageColumns SCHEDULE_TOPIC SHARD_KEY refuse_reserved",
        "put_message": "MessageFields",
    }

    def __getattr__(name):
        """A name of `__all__`, imported when it is first asked for (PEP 562)."""
        for module, names in _NAMES.items():
            if name in names.split():
                return getattr(importlib.import_module(f"{__name__}.{module}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
