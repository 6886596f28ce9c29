"""Deleting a store: its own files by name, nothing that somebody else put beside them."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rocketstore._native import syscalls
from rocketstore.log.layout import parse_segment_name

if TYPE_CHECKING:
    from rocketstore.log.layout import StoreLayout

logger = logging.getLogger(__name__)

__all__ = ["remove_store"]


def remove_store(layout: StoreLayout) -> None:
    """Removes log, queues, index, marks and our own directory; directories go when they are empty.

    Raises:
        OSError: a file could not be removed; it is named, and what is left is still there (K-86).
    """
    _remove_numbered(layout.commit_log)
    for topic in _directories(layout.consume_queue):
        for queue in _directories(topic):
            _remove_numbered(queue)
            _remove_directory(queue)
        _remove_directory(topic)
    _remove_numbered(layout.index)
    for path in (layout.abort, layout.checkpoint, layout.consumer_offsets):
        _remove_file(path)
    _remove_tree(layout.own)
    for path in (layout.commit_log, layout.consume_queue, layout.index, layout.config):
        _remove_directory(path)
    _remove_file(layout.lock)
    _remove_directory(layout.root)


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


def _remove_tree(directory: Path) -> None:
    for child in _directories(directory):
        _remove_tree(child)
    if directory.is_dir():
        for name in os.listdir(directory):
            _remove_file(directory / name)
        _remove_directory(directory)


def _remove_file(path: Path) -> None:
    if os.path.lexists(path):
        syscalls.unlink(str(path))


def _remove_directory(path: Path) -> None:
    if path.is_dir() and not os.listdir(path):
        syscalls.rmdir(str(path))
    elif path.is_dir():
        logger.warning("%s is kept: it holds files that do not belong to the store", path)
