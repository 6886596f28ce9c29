"""`rocketstore/queue_files`: digests of the files of all queues and of the index, as a clean close left
them (format.md 20.10).

An open that finds the same digest knows that nobody has touched these files, for a listing.
Any other digest only says that they have to be compared with the log: a copy of the store has other
times, too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Literal

from rocketstore._native.format.checkpoint_slots import crc32c
from rocketstore.log.layout.atomic_files import read_state_file, write_state_file
from rocketstore.log.queues.directories import queues_in

if TYPE_CHECKING:
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["is_untouched", "save_stamp"]

logger = logging.getLogger(__name__)

MAX_BYTES: Final = 64
#: Queues whose files are looked at, a count; of more queues only the directories are: then a change
#: inside a file does not show.
QUEUES_MAX: Final = 2_000


def _queues(layout: StoreLayout) -> str:
    paths = [path for _, _, path in queues_in(layout.consume_queue)]
    return _line(paths, os.fspath(layout.root), inside=len(paths) <= QUEUES_MAX)


def _index(layout: StoreLayout) -> str:
    paths = filter(os.path.isdir, [os.fspath(layout.index)])
    return _line(paths, os.fspath(layout.root), inside=True)


#: Each line of the file: number and digest of the names, sizes and times of files and directories.
LINES: Final = {"queues": _queues, "index": _index}


def _line(directories: Iterable[str], root: str, *, inside: bool) -> str:
    rows = []
    for path in directories:
        rows.append(_row(path, os.lstat(path)))
        if inside:
            with os.scandir(path) as entries:
                rows += sorted(
                    _row(entry.path, entry.stat(follow_symlinks=False)) for entry in entries
                )
    text = "\n".join(row.removeprefix(root) for row in rows)
    return f"2 {len(rows)} {crc32c(text.encode('utf-8', 'surrogateescape')):08x}\n"


def _row(path: str, found: os.stat_result) -> str:
    return f"{path} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def is_untouched(layout: StoreLayout, part: Literal["queues", "index"] = "queues") -> bool:
    """Whether the files of the queues, or of the index, are as the last clean close left them."""
    try:
        saved = read_state_file(layout.queue_files, MAX_BYTES).decode("ascii").splitlines(True)
        return dict(zip(LINES, saved, strict=False)).get(part) == LINES[part](layout)
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        logger.warning("%s is no use: %s", layout.queue_files, error)
        return False


def save_stamp(layout: StoreLayout) -> None:
    """At a clean close, when all units are durable. Raises OSError."""
    stamp = "".join(line(layout) for line in LINES.values())
    try:
        if read_state_file(layout.queue_files, MAX_BYTES) == stamp.encode():
            return
    except (OSError, ValueError):
        pass
    write_state_file(layout, layout.queue_files, stamp)
