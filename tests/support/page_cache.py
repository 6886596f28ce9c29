"""What of a file is in memory."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

from rocketstore.log.layout.file_system import file_system


def in_cache(path: str | Path) -> int:
    """Pages of a file that are in memory; to ask for them brings none."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        pages = -(-len(mapped) // mmap.PAGESIZE)
        found = (ctypes.c_ubyte * pages)()
        start = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(ctypes.byref(start), ctypes.c_size_t(len(mapped)), found)
        del start  # the mapping closes
    assert not failed, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in found)


def drop(path: str | Path) -> bool:
    """Has the kernel forget the file, but for pages that somebody has mapped; False on tmpfs, where there is no disk
    to read it from."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    return on_disk(path)


def on_disk(path: str | Path) -> bool:
    """Whether there is a disk below the cache, from which pages are read: not on tmpfs."""
    return file_system(Path(path)).name != "tmpfs"
