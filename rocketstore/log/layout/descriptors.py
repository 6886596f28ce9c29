"""Descriptors, which are few: a store may have more files than a process may have descriptors.

A mapping does not need the descriptor it was made with. Files that are being written by calls, or synced
as part of the log, keep theirs (D-12); all others give it back and get one when they need it. Files that wait
for their names take a small share.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rocketstore._native import syscalls

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile

__all__ = ["descriptor_of", "waiting_max"]

#: Files that wait take one descriptor in so many that the process may have; where it may have fewer, none.
DESCRIPTORS_A_FILE: Final = 64


def waiting_max(most: int) -> int:
    """How many files may wait with a descriptor each, where `most` would be of use."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if limit == resource.RLIM_INFINITY else min(most, limit // DESCRIPTORS_A_FILE)


@contextlib.contextmanager
def descriptor_of(file: MappedFile) -> Iterator[int]:
    """A descriptor of `file` inside the block. OSError: another file has its name by now."""
    descriptor = file.open_descriptor()
    try:
        yield descriptor
    finally:
        syscalls.close(descriptor)
