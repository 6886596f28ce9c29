"""Commits bytes from write buffers into files, where readers and other processes see them.

`Committed` moves only here on the buffered path. A commit is not a sync: it survives the death of
the process, not a power cut (semantics 3.6, 7.4).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rocketstore._native.append.appender import Log
from rocketstore._native.os import syscalls
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.commitlog.commit_log import CommitLog
from rocketstore.log.worker import Worker
from rocketstore.values.kept_errors import without_frames

logger = logging.getLogger(__name__)

SLOW_COMMIT_MS = 500
PAGE_BYTES = 4096


def pages_between(low: int, high: int) -> int:
    """Whole pages from `low` to `high`, as RocketMQ counts them (semantics 3.7)."""
    return high // PAGE_BYTES - low // PAGE_BYTES


def able(low: int, high: int, least_pages: int, segment_size: int) -> bool:
    """Whether a flush or commit of [low, high) is due: a segment is full, enough pages, or
    anything."""
    if high // segment_size > low // segment_size:
        return True
    if least_pages > 0:
        return pages_between(low, high) >= least_pages
    return high > low


def check_unfailed(commit_log: CommitLog) -> None:
    """Raises the error of a write or sync of the log that failed: no other follows it (D-13)."""
    if commit_log.failure is not None:
        raise without_frames(commit_log.failure)


class Committer(Worker):
    """Commits the pool's buffers on RocketMQ's schedule: interval, least pages, thorough
    interval."""

    def __init__(
        self,
        commit_log: CommitLog,
        on_failure: Callable[[BaseException], None],
        *,
        interval_ms: int,
        least_pages: int,
        thorough_interval_ms: int,
        woken: bool,
    ) -> None:
        """`woken`: whether each put wakes it, so that it rests while there is nothing to commit."""
        super().__init__("rocketstore-committer", on_failure)
        self._woken = woken
        self._commit_log = commit_log
        self._log: Log = commit_log.log
        self.interval_ms = interval_ms
        self.least_pages = least_pages
        self.thorough_interval_ms = thorough_interval_ms
        self._last_thorough = time.monotonic()
        # The flusher commits, too, for puts that wait for the disk.
        self._commit_lock = SignalSafeLock("the commit of write buffers", reentrant=False)

    def step(self) -> float | None:
        """One round; the next comes after the interval or a wake."""
        now = time.monotonic()
        least = self.least_pages
        positions = self._commit_log.positions
        if (now - self._last_thorough) * 1000 >= self.thorough_interval_ms:
            self._last_thorough = now
            least = 0
        if self._log.group.wanted > positions.committed:
            least = 0
        size = self._commit_log.queue.file_size or 1
        if able(positions.committed, positions.wrote, least, size):
            self.commit()
            self._last_thorough = time.monotonic()
        rests = self._woken and positions.committed == positions.wrote
        return None if rests else self.interval_ms / 1000

    def commit(self) -> None:
        """Everything written so far goes into its files."""
        with self._commit_lock():
            try:
                self._commit()
            except OSError as error:
                self._commit_log.fail(error)  # at once: the flusher may be about to sync
                raise

    def _commit(self) -> None:
        started = time.monotonic()
        commit_log, positions = self._commit_log, self._commit_log.positions
        target = positions.wrote
        while positions.committed < target:
            check_unfailed(commit_log)
            low = positions.committed
            segment = commit_log.queue.find(low)
            if segment is None:
                raise OSError(f"no segment holds the committed position {low}")
            high = min(target, segment.end_offset)
            self._commit_range(segment, low, high)
            positions.committed = high
            if high == segment.end_offset:
                commit_log.path.committed_whole(segment)
            self._log.moved()
        elapsed = (time.monotonic() - started) * 1000
        if elapsed > SLOW_COMMIT_MS:
            logger.warning(
                "%s: commit up to %d took %.0f ms", commit_log.queue.directory, target, elapsed
            )

    def _commit_range(self, segment: MappedFile, low: int, high: int) -> None:
        buffer = self._commit_log.path.buffer_of(segment)
        if buffer is not None:  # without one the records were written through the mapping
            start = segment.start_offset
            view = buffer.view(low - start, high - low)
            syscalls.pwrite(segment.fd, view, low - start)
            view.release()

    def finish(self) -> None:
        """Nothing stays in a buffer when the store closes."""
        if self._commit_log.failure is None:
            self.commit()
