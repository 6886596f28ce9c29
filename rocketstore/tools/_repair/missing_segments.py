"""Files of zeros where segments in the middle of a log are lost for good: a repair treats them as
any damage."""

from __future__ import annotations

import errno
import itertools
import logging
import os

from rocketstore._native.os import syscalls
from rocketstore.errors import DiskFullError
from rocketstore.log.layout.disk_blocks import allocate_blocks
from rocketstore.log.layout.listing import has_place, short_files, usual_size
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.log_dirs import list_log
from rocketstore.log.layout.paths import StoreLayout, parse_segment_name
from rocketstore.log.mapped_files.new_file import NewFile

logger = logging.getLogger(__name__)

__all__ = ["check_places", "make_missing"]


def make_missing(layout: StoreLayout) -> None:
    """Every file that is missing between two others, and the end of each that is too short there,
    with its blocks and on the disk, of a store that is not open: an open for writing has been
    refused. What is missing at an end stays missing.

    Raises:
        StoreLockedError: a process has the store open for writing.
        DiskFullError: no room for all of them.
        FileExistsError: something else has the place of one; nothing was changed.
    """
    lock = StoreLock.acquire(layout)
    try:
        found = list_log(layout)
        size = usual_size(found) or 0
        missing = [
            range(before + size, after, size)
            for (before, _, _), (after, _, _) in itertools.pairwise(found)
            if has_place(before, size)
        ]
        check_places(layout)
        short = short_files(found, size)
        wanted = sum(map(len, missing)) * size + sum(size - length for _, length, _ in short)
        _check_room(layout, wanted)
        for start in itertools.chain(*missing):
            logger.warning("%s: segment %d is made of zeros", layout.commit_log, start)
            file = NewFile.make(layout.commit_log, layout.tmp, start, size, sparse=False)
            file.publish().close()
        for _, length, path in short:
            logger.warning("%s: had %d bytes, the rest is made of zeros", path, length)
            _lengthen(path, length, size)
    finally:
        lock.release()


def check_places(layout: StoreLayout) -> None:
    """FileExistsError where anything lies in the place of a file that `make_missing` would make."""
    starts = [start for start, _, _ in list_log(layout)]
    with os.scandir(layout.commit_log) as entries:
        for entry in entries:
            start = parse_segment_name(entry.name)
            if start is None or entry.is_file(follow_symlinks=False):
                continue
            if min(starts, default=start) < start < max(starts, default=start):
                what = "a directory" if entry.is_dir(follow_symlinks=False) else "no file"
                text = f"{what} is in the place of a missing segment: move it away, then try again"
                raise FileExistsError(errno.EEXIST, text, entry.path)


def _lengthen(path: str, length: int, size: int) -> None:
    descriptor = syscalls.open(path, os.O_RDWR)
    try:
        allocate_blocks(descriptor, length, size)
        syscalls.fdatasync(descriptor)
    finally:
        syscalls.close(descriptor)


def _check_room(layout: StoreLayout, wanted: int) -> None:
    """Before the first: a file with a name far beyond the others would have a disk filled in
    vain."""
    disk = os.statvfs(layout.commit_log)
    if wanted > disk.f_bavail * disk.f_frsize:
        text = f"no room for {wanted} bytes of missing segments; nothing was changed"
        raise DiskFullError(errno.ENOSPC, text, os.fspath(layout.commit_log))
