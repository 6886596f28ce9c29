"""The writes and syncs of a store's log, native ones included: noted, held up, or failed."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Blocks", "DiskCalls", "Gate", "disk_calls"]

NAMES = ("pwritev2", "pwrite", "fdatasync")


class DiskCalls:
    """Every pwritev2, pwrite and fdatasync on a file of a commit log: notes it in `made`, runs what
    `before` has for it, fails it with what `errors` has for it."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.errors: dict[str, OSError] = {}
        self.before: dict[str, Callable[[], object]] = {}

    def hold(self, work: Callable[[], object]) -> None:
        """`work` before each of them: a flush of one page is one call, of several pages two others."""
        for name in NAMES:
            self.before[name] = work

    def __call__(self, name: str, descriptor: int) -> int:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        # A segment was made without a name; its two names tell it from other files.
        if "/commitlog/" not in path and os.fstat(descriptor).st_nlink < 2:
            return 0
        self.made.append(name)
        try:
            if name in self.before:
                self.before[name]()
            if name in self.errors:
                raise self.errors[name]
        except OSError as error:
            return error.errno or errno.EIO
        return 0


class Gate:
    """Holds up who calls it until it is opened."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def __call__(self, *_: object) -> None:
        self.reached.set()
        assert self._open.wait(20)

    def open(self) -> None:
        self._open.set()


class Blocks:
    """Stands in for `allocate_blocks`. `full`: none are given."""

    full = False

    def allocate(self, fd: int, begin: int, end: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def disk_calls() -> Iterator[DiskCalls]:
    from tests.support import native_probe

    probe = native_probe.load()
    calls = DiskCalls()
    probe.tell_of_disk(calls)
    try:
        yield calls
    finally:
        probe.restore()
