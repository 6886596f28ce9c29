"""Keeps the segments that puts go to in memory, and lets go of full ones: RocketMQ's
`warmMapedFileEnable` (semantics 2.3, 3.9).

RocketMQ locks a whole new file at once, which makes all its pages and takes seconds (K-48). Here a
page is locked when it is first used through the mapping.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import StoreClosedError

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore._native.sync.positions import Positions

__all__ = ["LockedSegments"]

logger = logging.getLogger(__name__)


class LockedSegments:
    """The segments of one log that are locked, or asked to be. The preallocator's thread uses it.

    A segment that is removed or closed loses its lock with its mapping.
    """

    def __init__(self, positions: Positions, *, wanted: bool) -> None:
        self._positions = positions
        self._wanted = wanted
        self._guard = SignalSafeLock("the locked segments", reentrant=False)
        self._files: list[MappedFile] = []
        self._refused = False

    def add(self, file: MappedFile) -> None:
        """Locks one that puts come to; a refusal is logged once, and the store goes on."""
        if not self._wanted:
            return
        if file.lock_memory(on_fault=True):
            with self._guard():
                self._files.append(file)
        elif not self._refused:
            self._refused = True
            logger.warning(
                "%s is not locked into memory, as lock_segments asks: raise RLIMIT_MEMLOCK above "
                "the sizes of two segments, or give CAP_IPC_LOCK", file.path,
            )  # fmt: skip

    def release_full(self) -> None:
        """Unlocks those that the appender has left."""
        if self._files:
            self._release(self._positions.wrote)

    def close(self) -> None:
        """Unlocks all: readers may keep a mapping for longer."""
        self._release(None)

    def _release(self, up_to: int | None) -> None:
        with self._guard():
            left = [
                f
                for f in self._files
                if not f.closed and up_to is not None and f.end_offset > up_to
            ]
            files, self._files = self._files, left
        for file in files:
            if file not in left:
                with contextlib.suppress(StoreClosedError):  # its mapping is gone, and the lock too
                    file.unlock_memory()
