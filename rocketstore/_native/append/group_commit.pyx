"""Group commit: one write brings the content of the write buffer to the disk, for all threads that wait for it.

The holder of the flush lock flushes, one thread at a time (D-12): the flusher's thread, which serves here without
the GIL, or a thread that waits for the disk while nobody else does. Armed with the file that the log ends
in, a flush is one write here; everything else (a roll, a file that lost its name) is the flusher's Python.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t

from rocketstore._native.append.copies cimport Copies
from rocketstore._native.format.csrc_atomic cimport (
    rs_fence, rs_load_int, rs_load_int64, rs_store_int, rs_store_int64, rs_store_max,
)
from rocketstore._native.format.csrc cimport (
    RS_POSITIONS_AT_COMMITTED, RS_POSITIONS_AT_FLUSHED, RS_POSITIONS_AT_VISIBLE,
    RS_POSITIONS_AT_WROTE, rs_position_load, rs_position_store,
)
from rocketstore._native.os.durable_write cimport write_durable_c
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.sync.positions cimport Positions
from rocketstore._native.os.syscalls cimport forked_since, page_size, process_token, sys
from rocketstore._native.sync.wait_queue cimport WaitQueue, waiter
from rocketstore._native.sync.futex cimport MAIN_THREAD_SLEEP_NS, Mutex, EventCount, now_ns

import os

cdef enum:
    BOTH_NAMES = 2
    SLOW_NS = 500_000_000
    # A thread that waits syncs itself if it would wait for so long, and the last sync took no longer.
    PATIENT_NS = 1_000_000_000
    QUICK_NS = 100_000_000
    # The first write into a block that was allocated only has to bring the change of its state to the disk, too,
    # which takes a second write for the file system's journal. So a flush of at most SMALL_FLUSH that comes to such
    # blocks writes up to ZEROS_AHEAD of zeros after its bytes, which later flushes overwrite. Larger flushes gain less
    # than that costs, and larger pieces make single flushes wait.
    SMALL_FLUSH = 256 << 10
    ZEROS_AHEAD = 512 << 10
    TOGETHER_NS = 50_000_000  # a put waits for this disk and for others in one sleep, for so long


@cython.final
@cython.auto_pickle(False)
cdef class GroupCommit:
    """The threads that wait for the disk, and what serves them. Every log has one; it is armed only where records go
    through a ring, whose bytes one call writes and syncs."""

    def __cinit__(self, Positions positions not None, EventCount dispatch_signal not None, *,
                  object ring=None, int64_t ring_size=0, Py_ssize_t ring_address=0):
        self.positions = positions
        self.dispatch_signal = dispatch_signal
        self.signal = EventCount()
        self.progress = EventCount()
        self.committed_queue = WaitQueue()
        self.flushed_queue = WaitQueue()
        self.flush_lock = Mutex()
        self.notes = Mutex()
        self.token = process_token()
        self.ring = ring
        self.ring_base = <uint8_t *>ring_address
        self.ring_size = ring_size
        self.fd = -1
        if ring is not None:
            # Untouched: the kernel's one page of zeros, again and again.
            self.zeros = <uint8_t *>PyMem_RawCalloc(1, ZEROS_AHEAD)
            if self.zeros is NULL:
                raise MemoryError("no memory for zeros")

    def __dealloc__(self):
        PyMem_RawFree(self.zeros)

    # ---- from any thread ----

    @property
    def wanted(self):
        """The largest offset that anybody asked for."""
        return rs_load_int64(&self.wanted_offset)

    cdef void want(self, int64_t offset) noexcept nogil:
        # What is not there yet cannot be flushed: the flusher would never come to rest.
        rs_store_max(&self.wanted_offset,
                     min(offset, rs_position_load(self.positions.page, RS_POSITIONS_AT_WROTE)))
        self.signal.notify_c()

    cdef void moved(self) noexcept nogil:
        cdef const uint8_t *page = self.positions.page
        self.flushed_queue.release(rs_position_load(page, RS_POSITIONS_AT_FLUSHED))
        self.committed_queue.release(rs_position_load(page, RS_POSITIONS_AT_COMMITTED))
        self.progress.notify_c()

    def stir(self):
        """Every waiting thread looks again whether there is anything to wait for."""
        rs_store_int(&self.stirs, self.stirs + 1)
        self.flushed_queue.release(INT64_MAX)
        self.committed_queue.release(INT64_MAX)
        if self.copies is not None:
            self.copies.stir()
        self.progress.notify_c()

    def keep_copies(self):
        """Puts may wait for other machines from here on."""
        if self.copies is None:
            self.copies = Copies()
        return self.copies

    def confirm(self, int copies, int64_t offset, int64_t begin=0):
        """Copies.confirm, and wakes the puts that wait. Any thread may call it."""
        self.copies.confirm(copies, offset, begin)
        self.progress.notify_c()

    def end_copies(self, error not None):
        """Copies.end, and wakes the puts that wait."""
        self.copies.end(error)
        self.stir()

    cdef bint stand_for_copies(self, WaitQueue line, int copies, int64_t end_offset,
                               int64_t patience_ns, int64_t deadline, int stirs) noexcept nogil:
        if not self.copies.worth_a_wait(copies, end_offset):
            return False
        self.lead(patience_ns)
        self.want(end_offset)
        self.copies.stand(line, copies, end_offset, min(deadline, now_ns() + TOGETHER_NS),
                          &self.stirs, stirs)
        return True

    cdef int lead(self, int64_t patience_ns) noexcept nogil:
        cdef int64_t flushed
        cdef int found
        if rs_load_int(&self.fd) < 0 or forked_since(self.token):
            return BUSY
        if patience_ns < PATIENT_NS or rs_load_int64(&self.last_ns) > QUICK_NS:
            return BUSY  # nothing ends a sync that hangs: a caller that sleeps in line can give up
        flushed = rs_position_load(self.positions.page, RS_POSITIONS_AT_FLUSHED)
        if rs_load_int64(&self.wanted_offset) > flushed:
            return BUSY  # the flusher is on its way, and takes our bytes along
        if not self.flush_lock.try_lock():
            return BUSY
        found = self.flush_turn(True)
        if rs_load_int(&self.attention):
            self.signal.notify_c()
        return found

    cdef int wait_for(self, WaitQueue line, size_t at, int64_t end_offset, int64_t patience_ns,
                      int64_t deadline, int stirs) noexcept nogil:
        cdef const uint8_t *page = self.positions.page
        cdef waiter place
        cdef int64_t left
        line.goes_on(False)
        if self.lead(patience_ns) == FAILED:
            return FAILED
        left = deadline - now_ns()
        if left <= 0 or rs_position_load(page, at) >= end_offset:
            return IDLE
        line.join(&place, end_offset)
        self.want(end_offset)
        if rs_position_load(page, at) < end_offset and rs_load_int(&self.stirs) == stirs:
            line.sleep(&place, left)
        line.leave(&place)
        line.let_pass()
        return BUSY

    cdef int flush_turn(self, bint alone) noexcept nogil:
        """Unlocks before it calls any thread: one that goes on may want to flush at once. `alone`: for a thread
        that waits by itself, and has the time to dispatch what it put."""
        cdef int64_t before = self.flushes
        cdef int found = self.flush_held()
        cdef bint some = self.flushes != before
        self.flush_lock.unlock()
        if some:
            self.tell(alone)
        return found

    cdef void tell(self, bint alone) noexcept nogil:
        self.moved()
        self.dispatch_signal.notify_or_work(alone)

    # ---- with the turn ----

    cdef int flush_held(self) noexcept nogil:
        """Everything that was written so far."""
        cdef const uint8_t *page = self.positions.page
        cdef int64_t flushed = rs_position_load(page, RS_POSITIONS_AT_FLUSHED)
        cdef int64_t target = rs_position_load(page, RS_POSITIONS_AT_WROTE)
        cdef int64_t began, result, zero_count
        if self.error:
            return FAILED
        if flushed >= target:
            return FLUSHED
        if (self.fd < 0 or flushed != rs_position_load(page, RS_POSITIONS_AT_COMMITTED)
                or flushed < self.start or target > self.end):
            return FOR_PYTHON
        began = now_ns()
        zero_count = self.zeros_after(self.segment, flushed, target) if self.ahead else 0
        result = write_durable_c(self.fd, self.ring_base + flushed % self.ring_size,
                                 target - flushed, flushed - self.start, self.zeros, zero_count)
        if result < 0:
            self.error = <int>-result
            return FAILED
        if zero_count > 0:
            self.zeroed = target + zero_count
        if not self.linked():
            rs_store_int(&self.fd, -1)  # D-05: the Python side gives it its name back first
            return FOR_PYTHON
        self.note(now_ns() - began)
        self.publish(target)
        return FLUSHED

    cpdef int64_t zeros_after(self, MappedFile segment, int64_t flushed,
                              int64_t target) noexcept nogil:
        """How many zeros a flush of [flushed, target) brings along: to the end of a page, or of its blocks. No other
        thread writes to it, and it has nothing there (D-11)."""
        cdef int64_t used = target - segment.start_offset
        if target <= self.zeroed or target == flushed or target - flushed > SMALL_FLUSH:
            return 0
        return min(used - used % page_size + ZEROS_AHEAD, segment.reserved_bytes()) - used

    cdef bint linked(self) noexcept nogil:
        cdef int at
        for at in range(self.link_count):
            if sys.link_count(self.links[at]) < BOTH_NAMES:
                return False
        return True

    cdef void publish(self, int64_t target) noexcept nogil:
        cdef uint8_t *page = self.positions.page
        rs_position_store(page, RS_POSITIONS_AT_COMMITTED, target)
        rs_position_store(page, RS_POSITIONS_AT_FLUSHED, target)
        if rs_position_load(page, RS_POSITIONS_AT_VISIBLE) < target:
            rs_position_store(page, RS_POSITIONS_AT_VISIBLE, target)
        # Before a put returns: a process that opens the store now sees the message.
        if self.shared is not None and not self.positions.publish_c(self.shared):
            rs_store_int(&self.attention, 1)

    cdef void note(self, int64_t taken_ns) noexcept nogil:
        cdef bint many
        self.flushes += 1
        rs_store_int64(&self.last_ns, taken_ns)
        self.notes.lock()
        if self.latency_count < LATENCIES_MAX:
            self.latencies[self.latency_count] = taken_ns
            self.latency_count += 1
        many = 2 * self.latency_count >= LATENCIES_MAX
        self.notes.unlock()
        if many or taken_ns > SLOW_NS:
            rs_store_int(&self.attention, 1)

    # ---- the flusher's own ----

    def attend(self):
        """`serve` returns soon, also where a flush takes up what the signal says."""
        rs_store_int(&self.attention, 1)
        self.signal.notify_c()

    def take_turn(self):
        """Nobody else flushes until give_turn."""
        with nogil:
            self.flush_lock.lock()

    def give_turn(self):
        self.flush_lock.unlock()

    def pass_turn(self, int64_t limit_ms):
        """Returns once the flush that runs now has ended, and what its thread does after it under the lock; False when
        that takes longer than the limit. Signals are served."""
        cdef int64_t deadline = now_ns() + limit_ms * 1_000_000, left
        cdef bint mine = self.flush_lock.try_lock()
        while not mine:
            PyErr_CheckSignals()
            left = min(deadline - now_ns(), MAIN_THREAD_SLEEP_NS)
            if left <= 0:
                return False
            with nogil:
                mine = self.flush_lock.lock_for(left)
        self.flush_lock.unlock()
        return True

    def flush(self):
        """With the turn: everything written so far; the Outcome."""
        cdef int found
        with nogil:
            found = self.flush_held()
            if found == FLUSHED:
                self.tell(False)
        return found

    def arm(self, MappedFile segment not None, links, Positions shared, *, bint ahead):
        """With the turn: `segment`, which the log ends in, is flushed natively from here on. `links` are
        descriptors of files that must have two names; `shared` gets the positions of each flush, None: there is none.
        `ahead`: zeros are written after small flushes."""
        cdef int at = 0
        if len(links) > LINKS_MAX or self.ring is None:
            self.disarm()
            return
        for descriptor in links:
            self.links[at] = descriptor
            at += 1
        self.link_count = at
        self.shared, self.ahead = shared, ahead
        self.segment = segment
        self.start, self.end = segment.start_offset, segment.end_offset
        rs_store_int(&self.fd, segment.fd)

    def disarm(self):
        """With the turn."""
        rs_store_int(&self.fd, -1)
        self.segment = None
        self.shared = None

    def fail(self, int error):
        """With the turn: no flush from here on."""
        self.error = error
        self.disarm()

    def failure(self):
        """The OSError of the write or sync that failed."""
        path = self.segment.path if self.segment is not None else None
        return OSError(self.error, os.strerror(self.error), path)

    def serve(self, uint32_t seen, int64_t limit_ms, bint every, int64_t rest_ms):
        """Flushes for waiting threads, for `limit_ms`; longer if `every` thing written is to be flushed after
        that time: then until the signal, which was at `seen`, moves for another reason. The Outcome. With all
        on disk it looks after `rest_ms` only."""
        cdef int found
        with nogil:
            found = self.serve_c(seen, limit_ms * 1_000_000, every, rest_ms * 1_000_000)
        return found

    cdef int serve_c(self, uint32_t seen, int64_t limit_ns, bint every,
                     int64_t rest_ns) noexcept nogil:
        cdef const uint8_t *page = self.positions.page
        cdef int64_t due = now_ns() + limit_ns, left, flushed
        cdef uint32_t moved
        cdef bint rested
        cdef int found
        while True:
            if rs_load_int(&self.attention):
                rs_store_int(&self.attention, 0)  # before the flusher's look at what it is for
                return FOR_PYTHON
            left = due - now_ns()
            flushed = rs_position_load(page, RS_POSITIONS_AT_FLUSHED)
            rested = every and flushed == rs_position_load(page, RS_POSITIONS_AT_WROTE)
            if rs_load_int64(&self.wanted_offset) > flushed:
                self.flush_lock.lock()
                found = self.flush_turn(False)
            elif left > 0 or rested:
                if rested:
                    moved = self.rest(seen, flushed, rest_ns)
                    due = now_ns() + limit_ns
                else:
                    moved = self.signal.wait_c(seen, left)
                if moved != seen:
                    seen = moved
                    flushed = rs_position_load(page, RS_POSITIONS_AT_FLUSHED)
                    if rs_load_int64(&self.wanted_offset) <= flushed:
                        return IDLE
                continue
            elif not every:
                return IDLE
            else:
                due = now_ns() + limit_ns
                if not self.flush_lock.try_lock():
                    continue  # somebody flushes this very moment
                found = self.flush_turn(False)
            if found != FLUSHED:
                return found

    cdef uint32_t rest(self, uint32_t seen, int64_t flushed,
                       int64_t limit_ns) noexcept nogil:
        """With all on disk: sleeps until the signal moves or somebody stores for whom nobody waits; the count of
        the signal."""
        rs_store_int(&self.resting, 1)
        rs_fence()
        if rs_position_load(self.positions.page, RS_POSITIONS_AT_WROTE) == flushed:
            seen = self.signal.wait_c(seen, limit_ns)
        rs_store_int(&self.resting, 0)
        return seen

    cdef void stored(self) noexcept nogil:
        rs_fence()
        if rs_load_int(&self.resting):
            self.signal.notify_c()

    # ---- statistics ----

    def take_latencies(self):
        """Nanoseconds of the flushes since the last call, the first 512 of them."""
        cdef int64_t[LATENCIES_MAX] taken
        cdef int at, count
        with nogil:  # to the end: a flush waits for the notes, and must not wait for the GIL (D-33)
            self.notes.lock()
            count = self.latency_count
            for at in range(count):
                taken[at] = self.latencies[at]
            self.latency_count = 0
            self.notes.unlock()
        return [taken[at] for at in range(count)]
