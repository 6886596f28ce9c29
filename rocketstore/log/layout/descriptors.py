"""A descriptor for a short while: a store may have more files than a process may have descriptors.

A mapping does not need the descriptor it was made with. Files written by calls, or synced as part
of the log, keep theirs (D-12); all others give it back and open one when they need it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rocketstore._native import syscalls

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile

__all__ = ["descriptor_of"]


@contextlib.contextmanager
def descriptor_of(file: MappedFile) -> Iterator[int]:
    """A descriptor of `file` inside the block. OSError: another file has its name by now."""
    descriptor = file.open_descriptor()
    try:
        yield descriptor
    finally:
        syscalls.close(descriptor)
