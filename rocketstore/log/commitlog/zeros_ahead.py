"""Zeros that small flushes of a mapping bring along for those that follow (decision 0025).

The first write into a block that was only allocated has to bring the change of its state to the
disk, too, for which a sync waits for the file system's journal. What overwrites does not.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Final

from rocketstore._native.os import syscalls

if TYPE_CHECKING:
    from rocketstore._native.sync.positions import Positions
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue

__all__ = ["ZerosAhead"]

#: A larger flush gains less than the zeros cost, bytes.
SMALL_FLUSH_BYTES: Final = 256 << 10
#: Zeros of one flush, at most, bytes: more would make it wait.
ZEROS_BYTES: Final = 512 << 10


class ZerosAhead:
    """Of one log whose records are in the mapping. The flusher calls it with its turn, while nobody
    appends: nobody else writes there, and the log has nothing there (D-11)."""

    def __init__(self, queue: MappedFileQueue, positions: Positions) -> None:
        self._queue = queue
        self._positions = positions
        self._end = 0  # up to where they are on the disk

    def bring(self) -> None:
        """Writes and syncs zeros after the end of the log, where a small flush comes to blocks that
        nobody has written. Raises OSError: the log's file has failed."""
        flushed, end = self._positions.flushed, self._positions.committed
        if end <= self._end or not 0 < end - flushed <= SMALL_FLUSH_BYTES:
            return
        segment = self._queue.find(end)
        if segment is None:
            return
        used = end - segment.start_offset
        count = min(used - used % mmap.PAGESIZE + ZEROS_BYTES, segment.reserved) - used
        if count > 0:
            syscalls.pwrite(segment.fd, bytes(count), used)
            segment.sync(used, used + count)
            self._end = end + count
