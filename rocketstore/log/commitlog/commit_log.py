"""The commit log of a store that is open for writing: segments, roll, room, refusals.

The native `Log` appends; this class is its owner: it is asked for the next segment, for room, and why
an append is refused. Every method that the native side calls runs without the append mutex.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from rocketstore._native.appender import Log
from rocketstore._native.turn import Turn
from rocketstore.errors import (
    BackpressureError,
    MissingSegmentsError,
    RocketStoreError,
    StoreClosedError,
    StoreFailedError,
)
from rocketstore.log.commitlog.running_flags import Reason

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile
    from rocketstore._native.positions import Positions
    from rocketstore._native.ring import Ring
    from rocketstore._native.waiting import Signal
    from rocketstore.log.commitlog.running_flags import RunningFlags
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.mapped_files.populator import Populator
    from rocketstore.log.mapped_files.preallocator import Preallocator
    from rocketstore.log.mapped_files.write_buffer_pool import WriteBufferPool

logger = logging.getLogger(__name__)

#: A put that waits longer for a segment or for room is logged (semantics 0).
SLOW_MS = 500
#: How often a put that waits for room looks whether the other bound has moved.
LOOK_EVERY_MS = 20
#: The preallocated next segment is asked for when this share of the current one is used, by default.
NEXT_SEGMENT_AT = 0.5
#: After this much the log is looked at: whether a flush should begin, and for the populator. First, and then as often
#: as what was appended has doubled: the pages of a burst are made ready soon.
MARK_FIRST_BYTES = 64 << 10
MARK_EVERY_BYTES = 4 << 20
#: Behind a batch that was written by a call, for which no pages were made: what is put after it soon needs some.
#: Wherever the writer is at the last page, it would cost single puts of 100 B a tenth (2.1 and 2.5 M/s in turns).
MARK_WRITTEN_BYTES = 512 << 10
#: A flush begins once this part of the bound on unflushed bytes waits for one, whatever the flusher's interval.
FLUSH_SHARE = 4
NEVER = 2**63 - 1
#: A file that was rolled out of stays locked in memory for this long (semantics 0).
UNLOCK_DELAY_S = 6.0
#: Of refused puts every so many is logged (semantics 0).
REFUSALS_LOGGED = 50_000


class CommitLog:
    """Segments and the end of the log. `log` is its native half.

    Exactly one of `ring` (promise `disk`) and `pool` (promise `memory`) is given, or neither: then
    records are encoded straight into the mapping (promise `os`).
    """

    def __init__(
        self,
        queue: MappedFileQueue,
        positions: Positions,
        preallocator: Preallocator,
        flags: RunningFlags,
        arrival: Signal,
        *,
        ring: Ring | None = None,
        pool: WriteBufferPool | None = None,
        pool_fast_fail: bool = False,
        next_segment_at: float = NEXT_SEGMENT_AT,
        visible_when_flushed: bool,
        max_unflushed_bytes: int,
        max_undispatched_bytes: int,
        max_wait_ms: int,
        store_host: str,
        on_new_segment: Callable[[MappedFile], None],
        on_put_failed: Callable[[], None],
    ) -> None:
        self.queue = queue
        self.positions = positions
        self.flags = flags
        self._arrival = arrival
        self._preallocator = preallocator
        self._pool = pool
        self._pool_fast_fail = pool_fast_fail
        self._next_segment_at = next_segment_at
        self._on_new_segment = on_new_segment
        self._on_put_failed = on_put_failed
        self._refusals = 0
        self._max_unflushed_bytes = max_unflushed_bytes
        self._max_undispatched_bytes = max_undispatched_bytes
        self._max_wait_ms = max_wait_ms
        # D-15: who waits for it has no more time than for the rest.
        self._rolling = Turn(max(max_wait_ms, 1))
        self._buffers: dict[int, MappedFile] = {}  # segment start -> its write buffer
        self._unlock_at: list[tuple[float, MappedFile]] = []
        self._closed = False
        self._ended = False
        self._half_at = NEVER
        self._began = 0
        self._populator: Populator | None = None
        # Part of the queue, not yet of the log: the next roll goes there, else the log had a gap.
        self._taken: MappedFile | None = None
        self._failure: BaseException | None = None
        self.log = Log(
            self,
            positions,
            ring=ring,
            ring_size=ring.size if ring else 0,
            ring_address=ring.address if ring else 0,
            buffered=ring is not None or pool is not None,
            visible_when_flushed=visible_when_flushed,
            file_size=queue.file_size or 0,
            max_unflushed_bytes=max_unflushed_bytes,
            max_undispatched_bytes=max_undispatched_bytes,
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
            buffer = self._borrow(segment)
            if buffer is not None:
                buffer.write(0, segment.read(0, end_offset - segment.start_offset))
        self.log.start(end_offset, last_record_start, last_store_timestamp_ms, segment, buffer)
        if segment is not None:
            self._watch_half(segment)

    def fail(self, cause: BaseException) -> None:
        """Latches the store as failed (K-01): puts are refused, waiters told, reads go on."""
        if self._failure is None:
            self._failure = cause
            logger.error("the store has failed, no more puts until it is opened again: %s", cause)
        self.log.refuse(False, failed=True)
        self.refuse_or_admit()

    def close(self) -> None:
        """Refuses puts from now on; those in flight have ended when this returns. Who waits for the disk
        waits on: the last flush is still to come."""
        self._closed = True
        self.log.refuse(True)

    def end(self) -> None:
        """Nothing moves any more: who waits is told. A put that has got a segment publishes it before."""
        while not self._ended:
            with contextlib.suppress(BackpressureError), self._rolling:
                self._ended = True
        self.log.group.stir()

    @property
    def failure(self) -> BaseException | None:
        """The first cause, once the store has failed."""
        return self._failure

    @property
    def end_offset(self) -> int:
        """Where the next record goes."""
        return self.positions.wrote

    @property
    def begin_offset(self) -> int:
        """Smallest physical offset that is kept."""
        files = self.queue.files
        return files[0].start_offset if files else self.positions.wrote

    def refuse_or_admit(self) -> None:
        """Follows a change of the running flags, of which one says a failure, whoever clears it."""
        if self._failure is not None:
            self.flags.set(Reason.NOT_WRITEABLE, self._failure)
        elif not self._closed:
            if self.flags.writeable:
                self._refusals = 0
                self.log.admit()
            else:
                self.log.refuse(False)

    # ---- what the native log asks its owner ----

    def refusal(self) -> RocketStoreError:
        """Why no put is taken at present. What a user has not done himself is logged at the first and every
        50,000th time."""
        if self._closed:
            root = str(self.queue.directory.parent)
            return StoreClosedError(
                f"the store is closed; open it again with rocketstore.open({root!r})"
            )
        self._refusals += 1
        if self._failure is not None:
            error = self._failed("nothing was stored")
        else:
            error = StoreFailedError(f"the store takes no puts: {self.flags}")
        if self._refusals % REFUSALS_LOGGED == 1:
            logger.warning("put refused (%d so far): %s", self._refusals, error)
        return error

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
        error.__cause__ = self._failure
        return error

    def segment_faulted(self, start: int, error: int) -> None:
        """A page of the segment at `start` could not be stored to (SIGBUS), or a batch not be written to it
        (`error`, an errno): a record may stand there in part, so the store has failed (D-13). The put that
        met it, and all later ones, are refused."""
        segment = self.queue.find(start)
        self.fail(
            OSError(
                error or errno.EIO,
                os.strerror(error) if error else "a page could not be stored to (SIGBUS)",
                segment.path if segment is not None else str(self.queue.directory),
            )
        )

    def next_segment(self) -> None:
        """Makes the segment that follows available. Raises with nothing changed (D-16)."""
        began = time.monotonic()
        try:
            with self._rolling as nested:
                if nested:
                    raise BackpressureError("a put of this thread waits for a segment already")
                self._settle_roll()
                if not self.log.wants_next:
                    return
                files, wrote = self.queue.files, self.positions.wrote
                start = self.queue.end_offset if files else self.queue.start_for(wrote)
                self._take_segment(start, began + self._max_wait_ms / 1000)
        except (OSError, RocketStoreError):
            self._on_put_failed()
            raise
        _note_slow(began, f"the segment at {start}")

    def was_slow(self, nanoseconds: int, what: str) -> None:
        """A put, or its wait for the disk, took longer than half a second."""
        logger.warning("%s took %d ms", what, nanoseconds // 1_000_000)

    def _take_segment(self, start: int, deadline: float) -> None:
        """May end anywhere, by an error or a signal's handler, and is begun again by the next put."""
        if self._taken in (self.log.segment_file, self.log.next_file):
            self._taken = None  # what was begun came to its end
        if self._taken is None:
            self._taken = self._preallocator.take(start, deadline - time.monotonic())
        segment = self._taken
        if self.queue.find(segment.start_offset) is not segment:
            self.queue.publish(segment)
        buffer = self._buffers.get(segment.start_offset) or self._borrow(segment)
        self._on_new_segment(segment)
        self.log.set_next(segment, buffer)
        self._taken = None

    def half_full(self) -> None:
        """A mark was passed: pages ahead are populated, what waits to be flushed does not come to its bound
        before the flusher's time, and once the current segment is half used the next one is made ready."""
        wrote = self.positions.wrote
        if wrote >= self._half_at:
            self._half_at = NEVER
            self._preallocator.request(self.queue.end_offset)
        if self._populator is not None:
            self._populator.wake()
        if wrote - self.positions.flushed >= self._max_unflushed_bytes // FLUSH_SHARE:
            self.log.request_flush(wrote)
        self._set_mark(wrote)

    def rolled(self) -> None:
        """A put has left a segment for the next one."""
        with contextlib.suppress(BackpressureError), self._rolling as nested:
            if not nested:
                self._settle_roll()  # else the put that needs the next segment does

    def _settle_roll(self) -> None:
        left = self.log.take_roll()
        if left is None:
            return
        old, _, new = left
        self._watch_half(new)
        if old is not None and old.memory_locked:
            self._unlock_at.append((time.monotonic() + UNLOCK_DELAY_S, old))

    def _watch_half(self, segment: MappedFile) -> None:
        self._half_at = segment.start_offset + int(segment.size * self._next_segment_at)
        self._set_mark(self.positions.wrote)

    def _set_mark(self, wrote: int) -> None:
        """The native log says when it passes the next of the two marks."""
        step = min(max(wrote - self._began, MARK_FIRST_BYTES), MARK_EVERY_BYTES)
        if self._populator is not None and self._populator.pages.written == wrote:
            step = min(step, MARK_WRITTEN_BYTES)
        self.log.notify_at(min(self._half_at, wrote + step))

    def populate_with(self, populator: Populator) -> None:
        """Before start(): who populates pages ahead of the appends."""
        self._populator = populator

    def wait_for_room(self) -> None:
        """Waits until a bound on pending bytes may have moved (D-14, D-15)."""
        positions, log = self.positions, self.log
        wrote, flushed, dispatched = positions.wrote, positions.flushed, positions.dispatched
        if flushed >= wrote and dispatched >= wrote:
            return  # all was done since the put was refused, and nothing more would be told
        # The dispatcher only sees what is visible, so a full flush bound is what holds up both.
        behind = positions.visible - dispatched
        by_dispatch = flushed >= wrote or behind * 2 > self._max_undispatched_bytes
        signal = self._arrival if by_dispatch else log.progress
        seen = signal.count
        log.dispatch_signal.notify()
        if flushed < wrote:
            log.request_flush(wrote)
        began = time.monotonic()
        left_ms = self._max_wait_ms
        # Either of the two makes room, and only one can be waited for: the other is looked at.
        while positions.flushed == flushed and positions.dispatched == dispatched:
            if left_ms <= 0:
                self._refuse_for_room(wrote, by_dispatch)
            if signal.wait(seen, min(left_ms, LOOK_EVERY_MS)) != seen:
                break  # also of a store that failed or closes: the next try says so
            left_ms = self._max_wait_ms - int((time.monotonic() - began) * 1000)
        _note_slow(began, "room")

    def _refuse_for_room(self, wrote: int, by_dispatch: bool) -> NoReturn:
        positions = self.positions
        stuck = (
            f"dispatched = {positions.dispatched} "
            f"(bound {self._max_undispatched_bytes} bytes behind)"
            if by_dispatch
            else f"flushed = {positions.flushed} (bound {self._max_unflushed_bytes} bytes behind)"
        )
        self._on_put_failed()
        raise BackpressureError(
            f"no room after {self._max_wait_ms} ms: wrote = {wrote}, stuck at {stuck}; "
            f"the disk or the dispatcher does not keep up ({self.flags})"
        )

    # ---- write buffers ----

    def _borrow(self, segment: MappedFile) -> MappedFile | None:
        """A write buffer for `segment`; without a free one it is an ordinary mapped file (K-43)."""
        if self._pool is None:
            return None
        buffer = self._pool.borrow()
        if buffer is None:
            if self._pool_fast_fail:
                raise BackpressureError("no free write buffer (transient_pool_fast_fail is on)")
            return None
        self._buffers[segment.start_offset] = buffer
        return buffer

    def buffer_of(self, segment: MappedFile) -> MappedFile | None:
        """The write buffer that `segment` is written through, if any."""
        return self._buffers.get(segment.start_offset)

    def committed_whole(self, segment: MappedFile) -> None:
        """Gives the buffer of a segment back once all of it is committed (S000-92)."""
        buffer = self._buffers.pop(segment.start_offset, None)
        if buffer is not None and self._pool is not None:
            self._pool.give_back(buffer)

    def tick(self) -> None:
        """Housekeeping of a slow worker: unlocks files that were rolled out of a while ago."""
        now, due = time.monotonic(), self._unlock_at[:0]
        with contextlib.suppress(BackpressureError), self._rolling:
            due = [rolled for rolled in self._unlock_at if rolled[0] <= now]
            self._unlock_at = [rolled for rolled in self._unlock_at if rolled[0] > now]
        for _, file in due:
            file.unlock_memory()


def _note_slow(began: float, what: str) -> None:
    """A put waits outside the append lock, so the others are not held up; it is logged all the same."""
    elapsed = (time.monotonic() - began) * 1000
    if elapsed > SLOW_MS:
        logger.warning("a put waited %.0f ms for %s", elapsed, what)
