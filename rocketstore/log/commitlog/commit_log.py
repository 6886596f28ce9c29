"""The commit log of a store that is open for writing: segments, roll, room, refusals.

The native `Log` appends records. `CommitLog` owns it: the appender asks it for the next segment,
for room, and why a put is refused. It holds no append lock while it asks.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from rocketstore._native.append.appender import Log
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.positions import Positions
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.errors import (
    BackpressureError,
    FencedError,
    MissingSegmentsError,
    ReplicaStoreError,
    RocketStoreError,
    StoreClosedError,
    StoreFailedError,
)
from rocketstore.log.commitlog.log_limits import LogLimits, log_slow_wait
from rocketstore.log.commitlog.running_flags import FlagReason, RunningFlags
from rocketstore.log.commitlog.write_path import WritePath
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.mapped_files.populator import Populator
from rocketstore.log.mapped_files.preallocator import Preallocator
from rocketstore.log.mapped_files.segment_blocks import NEVER, SegmentBlocks
from rocketstore.values.kept_errors import without_frames

logger = logging.getLogger(__name__)

#: Used share of the current segment at which the next one is asked for, by default.
NEXT_SEGMENT_AT = 0.5
#: A mark is a physical offset at which the log wakes the populator and asks for a flush that is
#: due. The distance from one to the next, bytes, is what was appended so far, within these bounds:
#: so the pages of a burst are ready soon.
MARK_FIRST_BYTES = 64 << 10
MARK_EVERY_BYTES = 4 << 20
#: Distance to the next mark, bytes, after a batch written by one call. The call made no pages
#: ready, and puts need some soon. A mark at the populator's last page would slow single puts.
MARK_WRITTEN_BYTES = 512 << 10
#: Divisor of the bound on unflushed bytes; from that part on a flush begins before its interval.
FLUSH_SHARE = 4
#: Refused puts from one log line to the next, count (semantics 0).
REFUSALS_LOGGED = 50_000
REFUSAL = "%s: put refused (%d so far): %s"


class CommitLog:
    """Segments and the end of the log. `log` is its native half, `path` its write path."""

    def __init__(
        self,
        queue: MappedFileQueue,
        positions: Positions,
        preallocator: Preallocator,
        flags: RunningFlags,
        arrival: EventCount,
        *,
        path: WritePath,
        populator: Populator | None,
        blocks: SegmentBlocks,
        limits: LogLimits,
        next_segment_at: float = NEXT_SEGMENT_AT,
        visible_when_flushed: bool,
        store_host: str,
        on_new_segment: Callable[[MappedFile], None],
        on_put_failed: Callable[[], None],
    ) -> None:
        self.queue = queue
        self.positions = positions
        self.flags = flags
        self.path = path
        self._arrival = arrival
        self._preallocator = preallocator
        self._populator = populator
        self._blocks = blocks
        self._limits = limits
        self._next_segment_at = next_segment_at
        self._on_new_segment = on_new_segment
        self._on_put_failed = on_put_failed
        self._refusals = 0
        # D-15: a put waits no longer for this lock than for the rest.
        self._rolling = SignalSafeLock(
            "the next segment", max(limits.max_wait_ms, 1), reentrant=False
        )
        self._closed = False
        self._ended = False
        self._half_at = NEVER
        self._began = 0
        self._failure: BaseException | None = None
        ring = path.ring
        self.log = Log(
            self,
            positions,
            ring=ring,
            ring_size=ring.size if ring else 0,
            ring_address=ring.address if ring else 0,
            buffered=not path.mapped,
            visible_when_flushed=visible_when_flushed,
            file_size=queue.file_size or 0,
            max_unflushed_bytes=limits.max_unflushed_bytes,
            max_undispatched_bytes=limits.max_undispatched_bytes,
            store_host=store_host,
        )

    # ---- life ----

    def start(self, end_offset: int, last_record_start: int, last_store_timestamp_ms: int) -> None:
        """Admits puts; the log ends at `end_offset`, which recovery has found and made durable."""
        segment = self.queue.find(end_offset)
        if segment is None and self.queue.files and end_offset != self.queue.end_offset:
            raise MissingSegmentsError(f"no segment holds the end of the log, {end_offset}")
        self.queue.keep_descriptors(end_offset)
        self._began = end_offset
        buffer = None
        if segment is not None:
            self._blocks.take_over(segment, end_offset)
            buffer = self.path.borrow(segment)
            if buffer is not None:
                buffer.write(0, segment.read(0, end_offset - segment.start_offset))
        self.log.start(end_offset, last_record_start, last_store_timestamp_ms, segment, buffer)
        if segment is not None:
            self._watch_half(segment)

    def begin_at(self, start: int) -> None:
        """An empty log gets its first segment, which begins at `start`: the next append goes there.
        Raises: as `next_segment`."""
        with self._rolling():
            self._take_segment(start, time.monotonic() + self._limits.max_wait_ms / 1000)
        self._began = start

    def fail(self, cause: BaseException) -> None:
        """Latches the store as failed (K-01): puts are refused, waits end, reads go on."""
        if self._failure is None:
            self._failure = cause = without_frames(cause)
            logger.error(
                "%s: the store has failed, no more puts until it is opened again: %s",
                self.queue.directory,
                cause,
            )
        self.log.refuse(False, failed=True)
        self.refuse_or_admit()

    def close(self) -> None:
        """Refuses puts from now on; those in flight have ended when this returns. A put that waits
        for the disk waits on: the last flush is still to come."""
        self._closed = True
        self.log.refuse(True)

    def end(self) -> None:
        """No position moves any more: puts that wait get an error. A put that has taken a segment
        publishes it first."""
        with self._rolling():
            self._ended = True
        self.log.group.stir()

    @property
    def failure(self) -> BaseException | None:
        """The first cause, once the store has failed."""
        return self._failure

    @property
    def begin_offset(self) -> int:
        """Smallest physical offset that is kept."""
        files = self.queue.files
        return files[0].start_offset if files else self.positions.wrote

    def refuse_or_admit(self) -> None:
        """Follows a change of the running flags. After a failure NOT_WRITEABLE stays set."""
        if self._failure is not None:
            self.flags.set(FlagReason.NOT_WRITEABLE, self._failure)
        elif not self._closed:
            if self.flags.writeable:
                self._refusals = 0
                self.log.admit()
            else:
                self.log.refuse(False)

    # ---- what the native log asks its owner ----

    def refusal(self) -> RocketStoreError:
        """Why puts are refused now. Except for a closed store, the first and every 50,000th refusal
        is logged."""
        root = self.queue.directory.parent
        if self._closed:
            return _closed(root)
        self._refusals += 1
        error = (
            self._failed("nothing was stored") if self._failure else _refused_by(self.flags, root)
        )
        if self._refusals % REFUSALS_LOGGED == 1:
            logger.warning(REFUSAL, self.queue.directory, self._refusals, error)
        return error

    def wait_flushed(self, end_offset: int, limit_ms: int) -> bool:
        """Waits at most `limit_ms` milliseconds; whether all below `end_offset` is on the disk then."""
        return self.log.wait_flushed(end_offset, limit_ms)

    def check_waitable(self) -> None:
        """Raises when waiting for a flush is in vain."""
        if self._failure is not None:
            raise self._failed("whether the message is on disk is not known")
        if self._ended:
            raise StoreClosedError("the store was closed while a put waited for the disk")

    def _failed(self, outcome: str) -> StoreFailedError:
        error = StoreFailedError(
            f"{outcome}: an earlier write or sync failed ({self._failure}); "
            "close the store and open it again, which recovers what the disk has"
        )
        if self._failure is not None:
            error.__cause__ = without_frames(self._failure)
        return error

    def segment_faulted(self, start: int, error: int) -> None:
        """Fails the store (D-13): a page of the segment at `start` could not be stored to (SIGBUS),
        or a batch not be written to it (`error`, an errno). The segment may hold part of a record.
        The put that met it, and all later ones, are refused."""
        segment = self.queue.find(start)
        self.fail(
            OSError(
                error or errno.EIO,
                os.strerror(error) if error else "a page could not be stored to (SIGBUS)",
                segment.path if segment is not None else str(self.queue.directory),
            )
        )

    def next_segment(self) -> None:
        """Makes the next segment available to the appender. Raises with nothing changed (D-16)."""
        began = time.monotonic()
        try:
            with self._rolling():
                self._settle_roll()
                if not self.log.wants_next:
                    return
                start = self.queue.next_start(self.positions.wrote)
                self._take_segment(start, began + self._limits.max_wait_ms / 1000)
        except (OSError, RocketStoreError):
            self._on_put_failed()
            raise
        log_slow_wait(began, f"the segment at {start}", self.queue.directory)

    def more_blocks(self, wanted: int) -> None:
        """Makes blocks available up to the offset `wanted`. Raises with nothing changed (D-16)."""
        began = time.monotonic()
        try:
            if (segment := self._blocks.ensure(wanted)) is not None:
                self.log.reserve(segment)
        except (OSError, RocketStoreError):
            self._on_put_failed()
            raise
        log_slow_wait(began, f"blocks up to {wanted}", self.queue.directory)

    def extend_blocks(self) -> None:
        """Has blocks ready ahead of the writer. The preallocator calls it."""
        if (segment := self._blocks.extend()) is not None:
            self.log.reserve(segment)
            if self._populator is not None:
                self._populator.wake()

    def was_slow(self, nanoseconds: int, what: str) -> None:
        """Logs a put, or its wait for the disk, that took longer than half a second."""
        logger.warning("%s: %s took %d ms", self.queue.directory, what, nanoseconds // 1_000_000)

    def _take_segment(self, start: int, deadline: float) -> None:
        """An error or a signal handler may end it anywhere; the next put begins it again."""
        # One that the log has not got yet goes first, or the log would have a gap.
        segment = self._preallocator.given
        if segment in (None, self.log.segment_file, self.log.next_file):
            segment = self._preallocator.take(start, deadline - time.monotonic())
        if self.queue.find(segment.start_offset) is not segment:
            self.queue.publish(segment)
        buffer = self.path.borrow(segment)
        self._on_new_segment(segment)
        self.log.set_next(segment, buffer)

    def half_full(self) -> None:
        """At a mark: wakes the populator, requests a flush if much is unflushed, and, once the
        current segment is half used, requests the next one (decision 0009)."""
        wrote = self.positions.wrote
        if wrote >= self._half_at:
            self._half_at = NEVER
            self._preallocator.request(self.queue.end_offset)
        if wrote >= self._blocks.due_at:
            self._blocks.due_at = NEVER
            self._preallocator.wake()
        if self._populator is not None:
            self._populator.wake()
        if wrote - self.positions.flushed >= self._limits.max_unflushed_bytes // FLUSH_SHARE:
            self.log.request_flush(wrote)
        self._set_mark(wrote)

    def rolled(self) -> None:
        """A put has left a segment for the next one."""
        with contextlib.suppress(BackpressureError), self._rolling():
            self._settle_roll()  # else the put that needs the next segment does it

    def _settle_roll(self) -> None:
        left = self.log.take_roll()
        if left is not None:
            self._watch_half(left[2])
            self._preallocator.wake()  # the segment that was left may be unlocked

    def _watch_half(self, segment: MappedFile) -> None:
        self._half_at = segment.start_offset + int(segment.size * self._next_segment_at)
        self._blocks.watch(segment)
        self._set_mark(self.positions.wrote)

    def _set_mark(self, wrote: int) -> None:
        """The appender calls `half_full` at the next mark, or where the segment is half used."""
        step = min(max(wrote - self._began, MARK_FIRST_BYTES), MARK_EVERY_BYTES)
        if self._populator is not None and self._populator.pages.written == wrote:
            step = min(step, MARK_WRITTEN_BYTES)
        self.log.notify_at(min(self._half_at, self._blocks.due_at, wrote + step))

    def wait_for_room(self) -> None:
        """Waits until a bound on pending bytes may have moved (D-14, D-15)."""
        began = time.monotonic()
        try:
            self._limits.wait_for_room(self.positions, self.log, self._arrival, self.flags)
        except BackpressureError:
            self._on_put_failed()
            raise
        log_slow_wait(began, "room", self.queue.directory)


def _closed(root: Path) -> StoreClosedError:
    return StoreClosedError(
        f"the store is closed; open it again with rocketstore.open({str(root)!r})"
    )


def _refused_by(flags: RunningFlags, root: Path) -> RocketStoreError:
    """The error of a put that a flag refuses; without a flag the log is a copy."""
    if flags.writeable:
        return ReplicaStoreError(f"{root} is a copy of another store, which takes the puts")
    kind = FencedError if flags.is_set(FlagReason.FENCED) else StoreFailedError
    return kind(f"the store takes no puts: {flags}")
