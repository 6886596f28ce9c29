"""When the files that the log goes on in get their next blocks: ahead of the writer, or for a put
that has come to their end."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rocketstore.errors import BackpressureError
from rocketstore.log.commitlog.log_limits import log_slow_wait

if TYPE_CHECKING:
    from rocketstore._native.append.appender import Log
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.mapped_files.segment_blocks import SegmentBlocks

__all__ = ["BlocksAhead"]

NEVER: Final = 2**63 - 1


class BlocksAhead:
    """Asks `SegmentBlocks` for blocks of the segments in `queue`, and reports them to `log`; calls
    `on_more` after some were reserved ahead."""

    def __init__(
        self,
        log: Log,
        queue: MappedFileQueue,
        blocks: SegmentBlocks,
        on_more: Callable[[], None],
    ) -> None:
        self._log = log
        self._queue = queue
        self._blocks = blocks
        self._on_more = on_more
        #: Offset from which on `extend` would help.
        self.due_at = NEVER

    def start(self, segment: MappedFile, end_offset: int) -> None:
        """The log goes on at `end_offset` in a segment of an earlier run."""
        self._blocks.take_over(segment, end_offset)

    def watch(self, segment: MappedFile) -> None:
        """The log goes on in this segment."""
        self.due_at = self._blocks.due_at(segment)

    def ensure(self, wanted: int) -> None:
        """For a put: blocks up to the offset `wanted`, in the segment of the byte before it. Raises
        with nothing changed (D-16)."""
        segment = self._queue.find(wanted - 1)
        if segment is None:
            return  # the put looks again
        began = time.monotonic()
        self._blocks.ensure(segment, wanted)
        self._log.reserve(segment)
        self.watch(segment)
        log_slow_wait(began, f"blocks up to {wanted}", self._queue.directory)

    def extend(self) -> None:
        """Blocks for the segment in use, if it needs some. Where there is no room nothing happens:
        the put that needs them says so."""
        segment = self._queue.find(self._log.positions.wrote)
        if segment is None or not self._blocks.wanted(segment):
            return
        with contextlib.suppress(OSError, BackpressureError):
            self._blocks.extend(segment)
            self._log.reserve(segment)
            self.watch(segment)
            self._on_more()
