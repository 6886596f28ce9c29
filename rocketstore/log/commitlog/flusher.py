"""Flush: from the page cache (or the write buffer) to the disk. Nothing else moves `flushed`.

One flush at a time, one descriptor a file for the file's whole life, and never a second sync after
an error: Linux drops the dirty pages of a failed write-back, the next sync would say OK (K-01,
D-10, D-12). A write buffer's way through one file is native (`_native.append.group_commit`); the
rest is here.
"""

from __future__ import annotations

import errno
import logging
import math
import time
from collections.abc import Callable

from rocketstore._native.append.group_commit import Outcome
from rocketstore._native.os import syscalls
from rocketstore._native.os.durable_write import write_head_last
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.os.ring_buffer import RingBuffer
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.log.commitlog.commit_log import CommitLog
from rocketstore.log.commitlog.committer import Committer, able, check_unfailed
from rocketstore.log.layout.positions_page import PositionsPage
from rocketstore.log.mapped_files.second_names import SecondNames
from rocketstore.log.worker import Worker

logger = logging.getLogger(__name__)

SLOW_FLUSH_MS = 500
#: Range of one msync, bytes, at most: `flushed` moves and waiters wake in between.
FLUSH_STEP_BYTES = 16 << 20
#: Wait of bytes without a waiting put in a `disk` store, ms (semantics 7.2).
SYNC_MODE_MS = 10
#: Interval of the flusher, ms, while everything is on disk and no put arrives, which wakes it.
REST_MS = 5_000


class Flusher(Worker):
    """Both of RocketMQ's flush modes: group commit for waiters, and the timed flush of the rest.

    `ring` is the write buffer of a store whose default promise is `disk`. One call writes and syncs
    it. With `zeros_ahead` a small one writes zeros after its records, too, for the next flushes.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        on_failure: Callable[[BaseException], None],
        *,
        ring: RingBuffer | None,
        committer: Committer | None,
        sync_mode: bool,
        interval_ms: int,
        timed: bool,
        least_pages: int,
        thorough_interval_ms: int,
        zeros_ahead: bool,
        live: SecondNames,
        page: PositionsPage,
        record_latency: Callable[[int], None],
    ) -> None:
        super().__init__("rocketstore-flusher", on_failure, signal=commit_log.log.group.signal)
        self._commit_log = commit_log
        self._log = commit_log.log
        self._group = commit_log.log.group
        self._positions = commit_log.positions
        self._ring = ring
        self._sync_mode = sync_mode
        self.interval_ms = interval_ms
        self.timed = timed
        self.least_pages = least_pages
        self.thorough_interval_ms = thorough_interval_ms
        self._zeros_ahead = zeros_ahead
        self._live = live
        self._page = page
        self._record_latency = record_latency
        self._collecting = SignalSafeLock("the latencies of flushes")  # a handler may ask inside
        self._last_thorough = time.monotonic()
        self._next_timed = time.monotonic() + interval_ms / 1000
        self._committer = committer
        self._flushes = 0

    @property
    def flushes(self) -> int:
        """How often something was brought to the disk."""
        return self._flushes + self._group.flushes

    # ---- when ----

    def step(self) -> float | None:
        """One round. Waiters are served at once; the rest on the schedule of semantics 7.2 and
        7.3."""
        if self._commit_log.failure is not None:
            return None  # D-13: another worker's write failed; waiting puts have got the error
        if self._ring is not None:
            left_ms = SYNC_MODE_MS if self._sync_mode else math.ceil(self._left_s() * 1000)
            found = self._group.serve(self._seen, left_ms, self._sync_mode, REST_MS)
            self._collect_own()
            if found == Outcome.FAILED:
                raise self._group.failure()
            if found == Outcome.FOR_PYTHON:
                self._page.publish(self._positions)
                self.flush()
            if found != Outcome.IDLE or self._sync_mode:
                return 0
        return self._scheduled()

    def _scheduled(self) -> float:
        positions = self._positions
        if self._group.wanted > positions.flushed:
            if self._committer is not None and self._group.wanted > positions.committed:
                self._committer.commit()  # K-08: no wait for the committer's next round
            self.flush()
            return self._left_s()
        left_s = self._left_s()
        if self.timed and left_s > 0:
            return left_s
        now = time.monotonic()
        least = self.least_pages
        if (now - self._last_thorough) * 1000 >= self.thorough_interval_ms:
            self._last_thorough = now
            least = 0
        size = self._commit_log.queue.file_size or 1
        if able(positions.flushed, positions.committed, least, size):
            self.flush()
        self._next_timed = time.monotonic() + self.interval_ms / 1000
        return self.interval_ms / 1000

    def _left_s(self) -> float:
        return max(0.0, self._next_timed - time.monotonic())

    def _notify(self) -> None:
        """Its native loop flushes what is wanted and sleeps again: it would miss a stop that comes
        with a put."""
        self._group.attend()

    def finish(self) -> None:
        """Until everything is on disk: a clean mark says so afterwards (K-37)."""
        if self._commit_log.failure is None:
            self.flush()

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._retire()

    def _retire(self) -> None:
        """No thread flushes any more: the files may be closed."""
        self._group.take_turn()
        self._group.disarm()
        self._group.give_turn()
        self._collect_own()

    # ---- what ----

    def flush(self, *, alone: bool = False) -> None:
        """Everything written (ring) or committed so far goes to the disk; raises at the first
        error. `alone`: nobody appends meanwhile, so a mapping can get zeros for the next flushes,
        too."""
        self._group.take_turn()
        try:
            if alone and self._zeros_ahead and self._commit_log.path.mapped:
                self._bring_zeros()
            self._flush()
            self._live.settle(self._positions.flushed)
            self._commit_log.queue.release_descriptors(self._positions.flushed)
            self._arm()
        except BaseException as error:
            self._commit_log.fail(error)  # at once: the committer may be about to write
            self._group.fail(getattr(error, "errno", None) or errno.EIO)
            raise
        finally:
            self._group.give_turn()

    def _flush(self) -> None:
        target = self._positions.wrote if self._ring is not None else self._positions.committed
        if self._positions.flushed >= target:
            return
        if self._ring is not None:
            found = self._group.flush()
            if found == Outcome.FOR_PYTHON:
                self._arm()  # the log may just have come into this file
                found = self._group.flush()
            if found == Outcome.FAILED:
                raise self._group.failure()
            if found == Outcome.FLUSHED:
                return
        started = time.monotonic()
        if self._ring is not None:
            self._write_then_sync(self._ring, target)
        else:
            self._flush_mapped(target)
        self._flushes += 1
        self._note(time.monotonic() - started)

    def _bring_zeros(self) -> None:
        """Writes zeros after the end of a mapped log, and syncs them, where a flush of a ring would
        bring some along (decision 0025)."""
        flushed, end = self._positions.flushed, self._positions.committed
        segment = self._commit_log.queue.find(end)
        count = self._group.zeros_after(segment, flushed, end) if segment is not None else 0
        if segment is not None and count > 0:
            used = end - segment.start_offset
            syscalls.pwrite(segment.fd, bytes(count), used)
            segment.sync(used, used + count)
            self._group.zeroed = end + count

    def _arm(self) -> None:
        """Flushes of a ring need no Python until the log leaves the file that it ends in now."""
        segment = None
        if self._ring is not None:
            segment = self._commit_log.queue.find(self._positions.flushed)
        if segment is None:
            self._group.disarm()
        else:
            shared = None if self._page.lost else self._page.positions
            self._group.arm(segment, self._live.descriptors(), shared, ahead=self._zeros_ahead)

    def collect(self) -> None:
        """Takes over what native flushes have noted. Any thread but the flusher's: waits for what
        the flusher has taken and not counted yet."""
        with self._collecting():
            self._take_over()

    def _collect_own(self) -> None:
        """The same in the flusher's thread, which does not wait: the thread that collects may be in
        a signal handler that puts."""
        with self._collecting(wait=False) as mine:
            if mine:
                self._take_over()

    def _take_over(self) -> None:
        for nanoseconds in self._group.take_latencies():
            self._note(nanoseconds / 1e9)

    def _note(self, seconds: float) -> None:
        self._record_latency(int(seconds * 1e9))
        if seconds * 1000 > SLOW_FLUSH_MS:
            logger.warning(
                "%s: a flush up to %d took %.0f ms",
                self._commit_log.queue.directory,
                self._positions.flushed,
                seconds * 1000,
            )

    def _segment(self, offset: int) -> MappedFile:
        segment = self._commit_log.queue.find(offset)
        if segment is None:
            raise OSError(f"no segment holds the flushed position {offset}")
        return segment

    def _flush_mapped(self, target: int) -> None:
        positions = self._positions
        while positions.flushed < target:
            check_unfailed(self._commit_log)
            low = positions.flushed
            segment = self._segment(low)
            high = min(target, segment.end_offset, low + FLUSH_STEP_BYTES)
            start = segment.start_offset
            if self._commit_log.path.buffer_of(segment) is not None or self._log.pooled:
                syscalls.fdatasync(segment.fd)
            else:
                segment.sync(low - start, high - start)
            self._publish(high)

    def _write_then_sync(self, ring: RingBuffer, target: int) -> None:
        """Commit and sync of a range over several files: readers see bytes only once they are
        durable. D-10: all of it is written, then every file is synced in order, blanks included;
        RWF_DSYNC would sync its own range only."""
        positions = self._positions
        low = positions.committed
        while low < target:
            segment = self._segment(low)
            high = min(target, segment.end_offset)
            with ring.run(low, high - low) as run:
                write_head_last(segment.fd, run, low - segment.start_offset)
            low = high
        low = positions.flushed
        while low < target:
            segment = self._segment(low)
            syscalls.fdatasync(segment.fd)
            low = segment.end_offset
        positions.committed = target
        self._publish(target)

    def _publish(self, flushed: int) -> None:
        self._live.check()  # D-05: the files still have their names
        self._positions.flushed = flushed
        self._log.move_visible()
        # Before the put returns: a reader in another process sees the message then.
        self._page.publish(self._positions)
        self._log.moved()
