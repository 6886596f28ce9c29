"""Whether the directory of a store is still the one that a reader has opened.

A path says nothing: `rm -rf` and a new writer put another store where the old one was. The reader
holds the old log directory and `lock` open, so that no new file can have their numbers.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from rocketstore._native.os import syscalls
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import StoreReplacedError
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.values.kept_errors import without_frames

__all__ = ["StoreIdentity", "file_state"]

logger = logging.getLogger(__name__)

#: Longest time for which readers that find messages believe the last look, seconds.
BELIEF_S: Final = 0.02


class StoreIdentity:
    """The directories and `lock` of one store, held open. Any thread may use it."""

    def __init__(self, layout: StoreLayout) -> None:
        self._layout = layout
        self._mutex = SignalSafeLock("the identity of the store", reentrant=False)
        self._replaced: StoreReplacedError | None = None
        self._checked = time.monotonic()
        self._root: Final = os.fspath(layout.root)
        self._held: dict[str, tuple[int, int]] = {}
        self._descriptors: list[int] = []
        self._closing = weakref.finalize(self, _close_all, self._descriptors)
        self._closing.atexit = False
        for directory in (layout.root, *layout.logs):  # links to them are followed
            self._hold(directory, syscalls.open_directory)
        self._hold(layout.lock, _open_file)
        self._lock: Final = os.fspath(layout.lock)
        self._removal: Final = os.fspath(layout.removal)

    def check(self, *, now: bool = True) -> None:
        """Three or four looks at names, some microseconds. Without `now`, believes an older look.
        What it found once it says again.

        Raises:
            StoreReplacedError: the store was removed, or another one has its place.
        """
        if not now and self._replaced is None and time.monotonic() < self._checked + BELIEF_S:
            return
        with self._mutex():
            if self._replaced is None and self._closing.alive:
                try:
                    self._look()
                    self._checked = time.monotonic()
                except StoreReplacedError as error:
                    self._replaced = without_frames(error)
                    logger.error("%s", error)
            if self._replaced is not None:
                raise StoreReplacedError(*self._replaced.args)

    def refuse(self, reason: str) -> NoReturn:
        """Raises StoreReplacedError, now and from each later check."""
        with self._mutex():
            self._replaced = StoreReplacedError(self._root, reason)
            logger.error("%s", self._replaced)
            raise StoreReplacedError(*self._replaced.args)

    def _look(self) -> None:
        for path, number in self._held.items():
            try:
                found = os.stat(path)
            except FileNotFoundError:
                raise StoreReplacedError(
                    self._root, f"the store that was opened here is gone ({path} was removed)"
                ) from None
            if (found.st_dev, found.st_ino) != number:
                raise StoreReplacedError(
                    self._root,
                    f"another store has the place of the one that was opened ({path} is another)",
                )
        if os.path.lexists(self._removal):
            raise StoreReplacedError(self._root, "destroy() of this store has begun")
        if self._lock not in self._held:  # made by the first writer since
            self._hold(self._layout.lock, _open_file)

    def close(self) -> None:
        """Idempotent."""
        with self._mutex():
            self._closing()

    def _hold(self, path: Path, opened: Callable[[str], int]) -> None:
        if not os.path.exists(path):  # also a link that leads nowhere, which recovery names
            return
        with contextlib.suppress(FileNotFoundError):
            fd = opened(os.fspath(path))
            self._descriptors.append(fd)
            found = os.fstat(fd)
            self._held[os.fspath(path)] = found.st_dev, found.st_ino


def file_state(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced or written; None without one. That of `lock` changes when
    a writer opens the store, ours or RocketMQ."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _open_file(path: str) -> int:
    return syscalls.open(path, os.O_RDONLY)


def _close_all(descriptors: list[int]) -> None:
    with contextlib.ExitStack() as closing:  # one that fails keeps none of the others open
        while descriptors:
            closing.callback(syscalls.close, descriptors.pop())
