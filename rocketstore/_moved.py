"""Modules of 0.1 by their old names, for pickles, which hold the names of modules.

A program that kept a result, a message or the parts of a scan goes on with them. The package asks
`find` for a name only when Python has found no module of that name.
"""

from __future__ import annotations

from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

__all__ = ["MOVED", "find"]

#: Old module, then the one that has its names now. "rocketstore" finds what is exported, and what
#: restores it, wherever that lies.
MOVED: Final = {
    "rocketstore._native.message": "rocketstore",
    "rocketstore._native.put_result": "rocketstore",
    "rocketstore.archive.objects": "rocketstore.archive.segments",
    "rocketstore.archive.shipping": "rocketstore",
    "rocketstore.column_scan": "rocketstore",
    "rocketstore.frames": "rocketstore",
    "rocketstore.log.checkpoint": "rocketstore.log.commitlog.checkpoint",
    "rocketstore.log.column_walk": "rocketstore.log.read.column_reader",
    "rocketstore.log.consumer_offsets": "rocketstore",
    "rocketstore.log.recovery_report": "rocketstore.log.recovery.report",
    "rocketstore.log.running_flags": "rocketstore.log.commitlog.running_flags",
    "rocketstore.new_message": "rocketstore",
    "rocketstore.option_values": "rocketstore.values.durability",
    "rocketstore.scan_filter": "rocketstore.values.record_filter",
    "rocketstore.services.histogram": "rocketstore.stats.histogram",
    "rocketstore.services.statistics": "rocketstore.stats.statistics",
    "rocketstore.tools.findings": "rocketstore.tools.report",
}
#: Old module and name, then the new ones, where a class has another name or a module of its own.
RENAMED: Final = {
    ("rocketstore.log.recovery_report", "Damage"): ("rocketstore.log.damage", "Damage"),
    ("rocketstore.log.recovery_report", "Island"): ("rocketstore.log.damage", "ValidRun"),
    ("rocketstore.option_values", "Durability"): ("builtins", "str"),  # a plain text now
}


class OldModule:
    """Makes a module of `MOVED`: it has what the new one has."""

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        """Makes an empty module, as usual."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        def old_name(name: str) -> Any:
            same = (MOVED[module.__name__], name)
            new_module, new_name = RENAMED.get((module.__name__, name), same)
            return getattr(import_module(new_module), new_name)

        if module.__name__ in MOVED:
            module.__getattr__ = old_name  # type: ignore[method-assign]


def find(name: str) -> ModuleSpec | None:
    """The module of an old name; None for any other name."""
    return ModuleSpec(name, OldModule) if name in MOVED else None  # type: ignore[arg-type]
