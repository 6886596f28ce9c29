"""Write buffers of a `memory` store: segment-sized, locked in memory when that is allowed (semantics 6)."""

from __future__ import annotations

import logging
import threading
from collections import deque

from rocketstore._native.mapped_file import MappedFile

logger = logging.getLogger(__name__)

__all__ = ["WriteBufferPool"]

LOW_SHARE = 0.4


class WriteBufferPool:
    """Any thread borrows and gives back. A buffer that comes back is used first again: it is warm."""

    def __init__(self, buffers: int, buffer_size: int) -> None:
        self.total = buffers
        self._lock = threading.Lock()
        self._free = deque(MappedFile.anonymous(0, buffer_size) for _ in range(buffers))
        self.locked = sum(buffer.lock_memory() for buffer in self._free)
        if self.locked < buffers:
            logger.info(
                "%d of %d write buffers could not be locked in memory",
                buffers - self.locked,
                buffers,
            )

    def borrow(self) -> MappedFile | None:
        """A buffer, or None when all are out. Its content is whatever was in it."""
        with self._lock:
            buffer = self._free.popleft() if self._free else None
            left = len(self._free)
        if left < self.total * LOW_SHARE:
            logger.warning("only %d of %d write buffers are left", left, self.total)
        return buffer

    def give_back(self, buffer: MappedFile) -> None:
        """Puts a buffer at the front."""
        with self._lock:
            self._free.appendleft(buffer)

    @property
    def free(self) -> int:
        """How many buffers can be borrowed now."""
        return len(self._free)

    @property
    def deficient(self) -> bool:
        """No buffer is left."""
        return not self._free

    def close(self) -> None:
        """Unlocks and gives up the free buffers; those that are out go with their users."""
        with self._lock:
            buffers, self._free = list(self._free), deque()
        for buffer in buffers:
            buffer.unlock_memory()
            buffer.close()
