"""The trace of a recorded run: what was done to the files of a store, in order."""

from __future__ import annotations

import enum
import json
import struct
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Event", "Kind", "read_trace"]

_HEAD = struct.Struct("=5q")


class Kind(enum.IntEnum):
    """As in recorder.h. `file` is an inode number; a path lies below the recorded directory."""

    CREATE = 1  # file; payload: path, empty for a file without a name
    MAKE_DIRECTORY = 2
    REMOVE_DIRECTORY = 3
    LINK = 4
    UNLINK = 5
    RENAME = 6  # twice: the old path, then the new one
    SIZE = 7  # first: bytes
    WRITE = 8  # first: position; payload: bytes
    SYNC_FILE = 9
    SYNC_RANGE = 10  # [first, second)
    SYNC_DIRECTORY = 11
    SYNC_ALL = 12
    SYNC_FAILED = 13  # [first, second): the disk said no, the kernel has given the pages up
    MARK = 14  # payload: JSON of a workload
    NO_BLOCK = 15  # a store through a mapping, to a page for which the disk had no room


class Event(NamedTuple):
    """One line of a trace."""

    kind: Kind
    file: int
    first: int
    second: int
    payload: bytes

    @property
    def path(self) -> str:
        return self.payload.decode()

    @property
    def mark(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.payload)
        return found


def read_trace(path: Path) -> list[Event]:
    """All events of a trace file."""
    data = path.read_bytes()
    events = []
    at = 0
    while at < len(data):
        kind, file, first, second, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        events.append(Event(Kind(kind), file, first, second, data[at : at + size]))
        at += size
    return events
