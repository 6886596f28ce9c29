"""Write buffers as large as a segment, locked into memory: RocketMQ's transient store pool.

Records of the promise `memory` are encoded here and committed to their file later, so that a put
never waits for the page cache (semantics 6).
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock

__all__ = ["WriteBufferPool"]

logger = logging.getLogger(__name__)

#: Share of free buffers; a borrow that leaves fewer is logged, since commits do not keep up with
#: puts.
LOW_SHARE: Final = 0.4
#: `remaining` of a pool without buffers: puts cannot run out of them.
UNLIMITED: Final = 2**31 - 1


class WriteBufferPool:
    """`buffers` pieces of private memory, locked page by page as they are used. Any thread may
    call.

    A buffer is not zeroed between two uses: only bytes of the current use are committed.
    """

    def __init__(self, buffers: int, buffer_size: int) -> None:
        if buffers < 0 or buffer_size <= 0:
            raise ValueError(f"{buffers} buffers of {buffer_size} bytes")
        self.total: Final = buffers
        self.buffer_size: Final = buffer_size
        self._lock = SignalSafeLock("the write buffers", reentrant=False)
        self._closed = False
        self._free = deque(MappedFile.anonymous(0, buffer_size) for _ in range(buffers))
        self._borrowed: dict[int, MappedFile] = {}  # by id; the objects live as long as the entry
        self.locked: Final = sum([buffer.lock_memory(on_fault=True) for buffer in self._free])
        if self.locked < buffers:
            logger.warning(
                "%d of %d write buffers are not locked into memory and may be swapped out "
                "(RLIMIT_MEMLOCK)",
                buffers - self.locked,
                buffers,
            )

    def borrow(self) -> MappedFile | None:
        """A free buffer, the one that came back last; None without waiting when all are out."""
        with self._lock():
            if not self._free:
                return None
            buffer = self._free.popleft()
            self._borrowed[id(buffer)] = buffer
            left = len(self._free)
        if left < self.total * LOW_SHARE:
            logger.warning("only %d of %d write buffers are left", left, self.total)
        return buffer

    def give_back(self, buffer: MappedFile) -> None:
        """Takes a borrowed buffer back, to the front: its pages are warm."""
        with self._lock():
            if self._borrowed.pop(id(buffer), None) is None:
                raise ValueError("this buffer is not borrowed from this pool")
            if not self._closed:
                self._free.appendleft(buffer)
                return
        _release(buffer)

    @property
    def free(self) -> int:
        """Buffers that can be borrowed now."""
        return len(self._free)

    @property
    def remaining(self) -> int:
        """The same as RocketMQ reports it: no limit without a pool."""
        return len(self._free) if self.total else UNLIMITED

    def close(self) -> None:
        """Unlocks and frees the buffers. A borrowed one is freed when it is given back.
        Idempotent."""
        with self._lock():
            self._closed = True
            free, self._free = self._free, deque()
        for buffer in free:
            _release(buffer)


def _release(buffer: MappedFile) -> None:
    if buffer.memory_locked:
        buffer.unlock_memory()
    buffer.close()
