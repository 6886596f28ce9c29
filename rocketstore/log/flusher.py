"""Flush: from the page cache (or the write buffer) to the disk. Nothing else moves `flushed`.

One flusher a store, one descriptor a file for the file's whole life, and never a second sync after an
error: Linux drops the dirty pages of a failed write-back, the next sync would say OK (K-01, D-10, D-12).
"""

from __future__ import annotations

import logging
import mmap
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketstore._native import syscalls
from rocketstore.log.committer import Committer, able
from rocketstore.log.worker import Worker

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile
    from rocketstore._native.ring import Ring
    from rocketstore.log.commit_log import CommitLog

logger = logging.getLogger(__name__)

SLOW_FLUSH_MS = 500
#: One msync covers at most this much, so that `flushed` moves and waiters wake on the way.
FLUSH_STEP_BYTES = 64 << 20


class Flusher(Worker):
    """Both of RocketMQ's flush modes: group commit for waiters, and the timed flush of the rest.

    `ring` is the write buffer of a store whose default promise is `disk`: then one call writes and syncs.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        on_failure: Callable[[BaseException], None],
        *,
        ring: Ring | None,
        sync_mode: bool,
        interval_ms: int,
        timed: bool,
        least_pages: int,
        thorough_interval_ms: int,
        before_publish: Callable[[], None],
        after_flush: Callable[[int], None],
        tell_others: Callable[[], None],
        record_latency: Callable[[float], None],
    ) -> None:
        super().__init__("rocketstore-flusher", on_failure, signal=commit_log.log.flush_signal)
        self._commit_log = commit_log
        self._log = commit_log.log
        self._positions = commit_log.positions
        self._ring = ring
        self._sync_mode = sync_mode
        self.interval_ms = interval_ms
        self.timed = timed
        self.least_pages = least_pages
        self.thorough_interval_ms = thorough_interval_ms
        self._before_publish = before_publish
        self._after_flush = after_flush
        self._tell_others = tell_others
        self._record_latency = record_latency
        self._last_thorough = time.monotonic()
        self._next_timed = time.monotonic() + interval_ms / 1000
        self._committer: Committer | None = None
        self.flushes = 0

    def commit_first(self, committer: Committer) -> None:
        """Write buffers are committed before a flush that somebody waits for."""
        self._committer = committer

    # ---- when ----

    def step(self) -> float | None:
        """One round. Waiters are served at once; the rest on the schedule of semantics 7.2 and 7.3."""
        positions = self._positions
        if self._commit_log.failure is not None:
            return None  # D-13: another worker's write failed; what waits has been told
        if self._log.flush_wanted > positions.flushed or self._sync_mode:
            if self._committer is not None and self._log.flush_wanted > positions.committed:
                self._committer.commit()  # K-08: nobody waits for the committer's next round
            self.flush()
            return 0.010 if self._sync_mode else self._timed_left()
        now = time.monotonic()
        if self.timed and now < self._next_timed:
            return self._next_timed - now
        least = self.least_pages
        if (now - self._last_thorough) * 1000 >= self.thorough_interval_ms:
            self._last_thorough = now
            least = 0
        size = self._commit_log.queue.file_size or 1
        if able(positions.flushed, positions.committed, least, size):
            self.flush()
        self._next_timed = time.monotonic() + self.interval_ms / 1000
        return self.interval_ms / 1000

    def _timed_left(self) -> float:
        return max(0.0, self._next_timed - time.monotonic())

    def finish(self) -> None:
        """Until everything is on disk: a clean mark says so afterwards (K-37)."""
        if self._commit_log.failure is None:
            self.flush()

    # ---- what ----

    def flush(self) -> None:
        """Everything written (ring) or committed so far goes to the disk; raises at the first error."""
        target = self._positions.wrote if self._ring is not None else self._positions.committed
        if self._positions.flushed >= target:
            return
        started = time.monotonic()
        if self._ring is not None:
            self._flush_ring(self._ring, target)
        else:
            self._flush_mapped(target)
        elapsed = time.monotonic() - started
        self._record_latency(elapsed)
        self.flushes += 1
        self._after_flush(target)
        if elapsed * 1000 > SLOW_FLUSH_MS:
            logger.warning("flush up to %d took %.0f ms", target, elapsed * 1000)

    def _segment(self, offset: int) -> MappedFile:
        segment = self._commit_log.queue.find(offset)
        if segment is None:
            raise OSError(f"no segment holds the flushed position {offset}")
        return segment

    def _flush_mapped(self, target: int) -> None:
        positions = self._positions
        while positions.flushed < target:
            low = positions.flushed
            segment = self._segment(low)
            high = min(target, segment.end_offset, low + FLUSH_STEP_BYTES)
            start = segment.start_offset
            if self._commit_log.buffer_of(segment) is not None or self._log.pooled:
                syscalls.fdatasync(segment.fd)
            else:
                segment.sync(low - start, high - start)
            self._publish(high)

    def _flush_ring(self, ring: Ring, target: int) -> None:
        """Commit and sync in one: readers see bytes only once they are durable."""
        positions = self._positions
        low = positions.committed
        segment = self._segment(low)
        start = segment.start_offset
        if positions.flushed == low and target <= segment.end_offset:
            with ring.run(low, target - low) as run:
                write_durable_head_last(segment.fd, run, low - start)
        else:
            self._write_then_sync(ring, target)
        positions.committed = target
        self._publish(target)

    def _write_then_sync(self, ring: Ring, target: int) -> None:
        """D-10: a range over several files. All of it is written, then every file is synced in order,
        blanks included; RWF_DSYNC would sync its own range only."""
        low = self._positions.committed
        while low < target:
            segment = self._segment(low)
            high = min(target, segment.end_offset)
            with ring.run(low, high - low) as run:
                write_head_last(segment.fd, run, low - segment.start_offset)
            low = high
        low = self._positions.flushed
        while low < target:
            segment = self._segment(low)
            syscalls.fdatasync(segment.fd)
            low = segment.end_offset

    def _publish(self, flushed: int) -> None:
        self._before_publish()  # D-05: the files still have their names
        self._positions.flushed = flushed
        self._log.move_visible()
        self._tell_others()  # before a put returns: who opens the store now sees the message
        self._log.moved()


def write_head_last(descriptor: int, data: memoryview, offset: int) -> None:
    """All of `data`, its first page last. A kill ends a write between two pages: so it leaves nothing that
    begins where the data does (D-37)."""
    head = mmap.PAGESIZE - offset % mmap.PAGESIZE
    if len(data) > head:
        with data[head:] as tail:
            syscalls.pwrite(descriptor, tail, offset + head)
    with data[:head] as first:
        syscalls.pwrite(descriptor, first, offset)


def write_durable_head_last(descriptor: int, data: memoryview, offset: int) -> None:
    """The same, on disk when this returns: one call where the data lies in one page."""
    if offset % mmap.PAGESIZE + len(data) <= mmap.PAGESIZE:
        syscalls.pwrite_durable(descriptor, data, offset)
    else:
        write_head_last(descriptor, data, offset)
        syscalls.fdatasync(descriptor)
