"""Names in a directory that are none of a store's."""

from __future__ import annotations

from collections.abc import Collection, Iterable

__all__ = ["foreign_names", "no_store"]

#: What a file system puts at its mount point.
OF_FILE_SYSTEMS = ("lost+found",)
SHOWN_MOST = 3


def foreign_names(names: Iterable[str], own: Collection[str] = ()) -> list[str]:
    """Those that keep a store from being made there, sorted: neither `own` ones, nor hidden ones,
    as of version control, desktops and snapshots, nor those of a file system."""
    return sorted(
        name
        for name in names
        if name not in own and name not in OF_FILE_SYSTEMS and not name.startswith(".")
    )


def no_store(foreign: list[str]) -> str:
    """What is wrong with a directory that holds these, in words."""
    more = len(foreign) - SHOWN_MOST
    shown = ", ".join(map(repr, foreign[:SHOWN_MOST])) + (f" and {more} more" if more > 0 else "")
    return f"holds other files and no store: {shown}"
