"""Removes a store: its own files by name, and no file that another program put there.

A mark is written first and removed last. If a removal is stopped in between, the next open for
writing continues it. So the rest of a store, such as a checkpoint without its log, is never opened.
"""

from __future__ import annotations

import itertools
import logging
import os
from pathlib import Path

from rocketstore._native.os import syscalls
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name
from rocketstore.log.layout.state_files import sync_file_system, write_state_file

logger = logging.getLogger(__name__)

#: Bytes of a path below the tree that is removed; the system takes 4,095 in all.
DEEP_BYTES = 1024

#: What rocketstore makes in its own directory, but for the mark of a removal.
OWN_NAMES = (
    "blocked_queues",
    "checkpoint",
    "compacted.json",
    "cut.json",
    "group_offsets",
    "holds.json",
    "host.sock",
    "journal",
    "live",
    "positions",
    "quarantine",
    "queue_ends",
    "queue_files",
    "rebuild",
    "recovery.json",
    "replication.json",
    "retention.json",
    "shipped.json",
    "sink",
    "store.json",
    "timers",
    "tmp",
)

_counter = itertools.count()

__all__ = ["finish_removal", "remove_store", "remove_tree"]


def remove_store(layout: StoreLayout) -> None:
    """Removes log, queues, index, marks and our own directory; directories go when they are empty.

    Raises:
        OSError: a file could not be removed; it is named (K-86). The next call, or the next open
            for writing, removes the rest.
    """
    _mark(layout)
    _remove_contents(layout)
    _remove_file(layout.lock)
    if not layout.root.is_symlink():
        _remove_directory(layout.root)


def finish_removal(layout: StoreLayout) -> None:
    """Completes a removal that was stopped, and makes the directories of a new store. The caller
    holds the store's lock."""
    if layout.removal.exists():
        logger.warning("%s: destroy() was stopped half-way, what it left is removed", layout.root)
        _remove_contents(layout)
        make_directories(layout)


def _mark(layout: StoreLayout) -> None:
    """Marks by a rename if it can: a full disk must not prevent the removal."""
    if layout.own_checkpoint.exists():
        syscalls.rename(str(layout.own_checkpoint), str(layout.removal))
        syscalls.sync_directory(str(layout.own))
    else:
        write_state_file(layout, layout.removal, "")


def _remove_contents(layout: StoreLayout) -> None:
    for directory in layout.logs:
        _remove_numbered(directory)
    for topic in _directories(layout.consume_queue):
        for queue in _directories(topic):
            _remove_numbered(queue)
            _remove_directory(queue)
        _remove_directory(topic)
    _remove_numbered(layout.index)
    for path in (layout.consumer_offsets, layout.delay_offsets):
        _remove_file(path)
        _remove_file(path.with_name(path.name + ".bak"))  # counts where the file itself is missing
    for path in (layout.abort, layout.checkpoint):
        _remove_file(path)
    for path in (*layout.logs, layout.consume_queue, layout.index, layout.config):
        _remove_directory(path)
    _remove_own(layout)
    sync_file_system(layout.root)  # after a power cut no removed file comes back without the mark
    _remove_file(layout.removal)
    _remove_directory(layout.own)


def _remove_own(layout: StoreLayout) -> None:
    if not layout.own.is_symlink():
        remove_tree(layout.own, but=layout.removal)
        return
    for name in OWN_NAMES:  # where the link leads others may keep files
        path = layout.own / name
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
            _remove_directory(path)
        else:
            _remove_file(path)


def _directories(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    return [Path(entry.path) for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]


def _remove_numbered(directory: Path) -> None:
    """Files whose names are numbers: segments, queue files, index files."""
    if not directory.is_dir():
        return
    for name in sorted(os.listdir(directory)):
        if parse_segment_name(name) is not None or name.isdecimal():
            _remove_file(directory / name)


def remove_tree(directory: Path, but: Path | None = None) -> None:
    """Removes everything below `directory`, except for one file. What lies too deep for a path is
    moved up first; a removal that is stopped has it below `directory` all the same."""
    moved: dict[Path, None] = {}
    _remove_below(directory, directory, but, moved)
    while moved:
        tree, _ = moved.popitem()
        _remove_below(tree, directory, but, moved)
        _remove_directory(tree)


def _remove_below(tree: Path, top: Path, but: Path | None, moved: dict[Path, None]) -> None:
    """Removes everything below `tree`, but for directories that it moves up to `top` and adds to
    `moved`."""
    longest = len(os.fsencode(top)) + DEEP_BYTES
    entered = [(tree, _directories(tree))]
    while entered:
        place, children = entered[-1]
        if children:
            child = children.pop()
            if len(os.fsencode(child)) > longest:
                moved[_moved_up(child, top)] = None
            else:
                entered.append((child, _directories(child)))
            continue
        entered.pop()
        if place.is_dir():
            for name in os.listdir(place):
                if place / name != but and place / name not in moved:
                    _remove_file(place / name)
        if place != tree:
            _remove_directory(place)


def _moved_up(directory: Path, top: Path) -> Path:
    while os.path.lexists(place := top / f"deep-{next(_counter)}"):
        pass
    syscalls.rename(str(directory), str(place))
    return place


def _remove_file(path: Path) -> None:
    if os.path.lexists(path):
        syscalls.unlink(str(path))


def _remove_directory(path: Path) -> None:
    if path.is_dir() and not os.listdir(path):
        if path.is_symlink():  # where it leads is outside of the store
            syscalls.unlink(str(path))
        else:
            syscalls.rmdir(str(path))
    elif path.is_dir():
        logger.warning("%s is kept: it holds files that do not belong to the store", path)
