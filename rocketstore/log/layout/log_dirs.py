"""A commit log in several directories, or in one outside of its store (format.md 1.3).

Only a broker's settings say which directories a log has. Without them some of its files are
missing, and no rule says which, since RocketMQ skips a full directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketstore.errors import HINTS
from rocketstore.log.layout.listing import list_files
from rocketstore.log.layout.paths import segment_name

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["NAME_THEM", "has_segment", "list_log", "log_directories"]

#: Advice of the errors for a log with missing files.
NAME_THEM: Final = HINTS["directories"]


def log_directories(root: str | os.PathLike[str], *settings: str) -> tuple[Path, ...]:
    """Directories as the settings name them, each once. Empty when that is the store's own alone.

    As in RocketMQ nothing but a comma separates them. `settings`: those it writes to, then the
    others.
    """
    written, others = settings[0] if settings else "", settings[1:]
    names = [written or "commitlog", *others]
    paths = [name for text in names for name in text.split(",") if name]
    found = {os.path.realpath(os.path.join(root, name)): None for name in paths}
    if list(found) == [os.path.realpath(os.path.join(root, "commitlog"))]:
        return ()
    return tuple(map(Path, found))


def list_log(layout: StoreLayout) -> list[tuple[int, int, str]]:
    """Start, length and path of every file of a log, in order, whatever directory it lies in."""
    return sorted(
        (start, size, str(directory / segment_name(start)))
        for directory in layout.logs
        for start, size in list_files(directory)
    )


def has_segment(layout: StoreLayout, start_offset: int) -> bool:
    """Whether there is a file of this start offset in any of the log's directories."""
    return any((directory / segment_name(start_offset)).exists() for directory in layout.logs)
