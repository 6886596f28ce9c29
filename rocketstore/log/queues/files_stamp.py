"""Digests of the files of all queues and of the index, as a clean close left them (format.md 20.10).

`saved_ends` keeps them. An open that finds the same digest knows that nobody has touched these
files, for a listing. Any other digest only says that they have to be compared with the log: a copy
of the store has other times, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from rocketstore._native.format.codec import crc32c
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.queues.directories import queues_in

__all__ = ["Stamp", "index_stamp", "queues_stamp"]

#: Number and CRC-32C of the names, sizes and times of files and directories.
Stamp = tuple[int, int]
#: Queues whose files are looked at, a count; of more queues only the directories are: then a change
#: inside a file does not show.
QUEUES_MAX: Final = 2_000


def queues_stamp(layout: StoreLayout) -> Stamp:
    """Of the queues. Raises OSError."""
    paths = [path for _, _, path in queues_in(layout.consume_queue)]
    return _stamp(paths, os.fspath(layout.root), inside=len(paths) <= QUEUES_MAX)


def index_stamp(layout: StoreLayout) -> Stamp:
    """Of the index. Raises OSError."""
    paths = filter(os.path.isdir, [os.fspath(layout.index)])
    return _stamp(paths, os.fspath(layout.root), inside=True)


def _stamp(directories: Iterable[str], root: str, *, inside: bool) -> Stamp:
    rows = []
    for path in directories:
        rows.append(_row(path, os.lstat(path)))
        if inside:
            with os.scandir(path) as entries:
                rows += sorted(
                    _row(entry.path, entry.stat(follow_symlinks=False)) for entry in entries
                )
    text = "\n".join(row.removeprefix(root) for row in rows)
    return len(rows), crc32c(text.encode("utf-8", "surrogateescape"))


def _row(path: str, found: os.stat_result) -> str:
    return f"{path} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
