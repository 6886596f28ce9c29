"""Keeps the segments that puts go to in memory, and lets go of full ones: RocketMQ's
`warmMapedFileEnable` (semantics 2.3, 3.9).

RocketMQ locks a whole new file at once, which makes all its pages and takes seconds (K-48). Here a
page is locked when it is first used through the mapping.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from rocketstore.errors import StoreClosedError
from rocketstore.log.mapped_files.segment_blocks import NEVER

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore._native.sync.positions import Positions
    from rocketstore.log.mapped_files.mapped_files import MappedFiles

__all__ = ["LockedSegments"]

logger = logging.getLogger(__name__)


class LockedSegments:
    """Locks segments of one log. The preallocator's thread uses it.

    A segment that is removed or closed loses its lock with its mapping.
    """

    def __init__(self, files: MappedFiles, positions: Positions, *, wanted: bool) -> None:
        self._files = files
        self._positions = positions
        self._wanted = wanted
        self._refused = False

    def add(self, file: MappedFile) -> None:
        """Locks one that puts come to; a refusal is logged once, and the store goes on."""
        if self._wanted and not file.lock_memory(on_fault=True) and not self._refused:
            self._refused = True
            logger.warning(
                "%s is not locked into memory, as lock_segments asks: raise RLIMIT_MEMLOCK above "
                "the sizes of two segments, or give CAP_IPC_LOCK", file.path,
            )  # fmt: skip

    def release_full(self) -> None:
        """Unlocks those that the appender has left."""
        self._release(self._positions.wrote)

    def close(self) -> None:
        """Unlocks all: readers may keep a mapping for longer."""
        self._release(NEVER)

    def _release(self, up_to: int) -> None:
        for file in self._files.files if self._wanted else ():
            if file.memory_locked and file.end_offset <= up_to:
                with contextlib.suppress(StoreClosedError):  # its mapping is gone, and the lock too
                    file.unlock_memory()
