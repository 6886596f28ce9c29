"""A commit log in several directories, or in one outside of its store (format.md 1.3).

Only a broker's settings say which directories a log has. Without them some of its files are
missing, and no rule says which, since RocketMQ skips a full directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from rocketstore.errors import HINTS
from rocketstore.log.layout.listing import list_files
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name, segment_name

__all__ = [
    "NAME_THEM",
    "gap_text",
    "has_segment",
    "linked_segments",
    "list_log",
    "log_directories",
    "vanished_segments",
]

#: Advice of the errors for a log with missing files.
NAME_THEM: Final = HINTS["directories"]


def gap_text(start: int, end: int) -> str:
    """Which segments are missing between two others. Each check that finds the gap says the same,
    so that it is reported once."""
    return f"between {start} and {end}"


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
    """Start, length and path of every file of a log, in order, whatever directory it lies in; of
    one that vanished from it, its second name."""
    found = _listed(layout)
    return sorted([*found, *_vanished(layout, found)])


def vanished_segments(layout: StoreLayout) -> list[tuple[int, int, str]]:
    """Start, length and path of each file that only `rocketstore/live` has: the next open for
    writing links it back (D-05)."""
    return _vanished(layout, _listed(layout))


def _listed(layout: StoreLayout) -> list[tuple[int, int, str]]:
    return [
        (start, size, str(directory / segment_name(start)))
        for directory in layout.logs
        for start, size in list_files(directory, is_log=True)
    ]


def _vanished(
    layout: StoreLayout, found: Iterable[tuple[int, int, str]]
) -> list[tuple[int, int, str]]:
    """A segment loses its second name first where a store removes it. So `found` comes first, and
    what it lacks is looked at once more."""
    known = {start for start, _, _ in found}
    return [
        (start, size, str(layout.live / segment_name(start)))
        for start, size in list_files(layout.live)
        if start not in known and not os.path.lexists(layout.commit_log / segment_name(start))
    ]


def has_segment(layout: StoreLayout, start_offset: int) -> bool:
    """Whether there is a file of this start offset in any of the log's directories."""
    return any((directory / segment_name(start_offset)).exists() for directory in layout.logs)


def linked_segments(layout: StoreLayout) -> list[str]:
    """A sentence for each name of a segment that is a symbolic link: those are not followed, so
    what they lead to counts as missing."""
    found = []
    for directory in layout.logs:
        try:
            entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
        except FileNotFoundError:
            continue
        found += [
            f"{entry.path} is a symbolic link, and no link is followed: put the file itself in its "
            "place, or let the whole directory be the link"
            for entry in entries
            if entry.is_symlink() and parse_segment_name(entry.name) is not None
        ]
    return found
