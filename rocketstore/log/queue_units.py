"""Units of a consume queue (format 6.1) and the files that hold units of any kind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy

from rocketstore.log.layout import parse_segment_name

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["PRE_BLANK_SIZE", "UNIT", "UNIT_SIZE", "list_files"]

UNIT_SIZE: Final = 20
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
UNIT: Final = numpy.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


def list_files(directory: Path) -> list[tuple[int, int]]:
    """Start offsets and sizes of the log-like files of a directory, in order; other names are
    passed over."""
    found = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                start = parse_segment_name(entry.name)
                if start is not None and entry.is_file(follow_symlinks=False):
                    found.append((start, entry.stat(follow_symlinks=False).st_size))
    except FileNotFoundError:
        return []
    return sorted(found)
