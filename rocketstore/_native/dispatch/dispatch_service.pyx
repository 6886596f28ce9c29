"""The dispatcher's thread without the GIL: it waits, dispatches and wakes readers, until it needs Python."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t

from rocketstore._native.format.csrc_atomic cimport rs_load_int, rs_store_int
from rocketstore._native.format.csrc cimport (
    RS_POSITIONS_AT_DISPATCHED, RS_POSITIONS_AT_INDEXED, RS_POSITIONS_AT_VISIBLE,
    rs_position_load, rs_position_store,
)
from rocketstore._native.dispatch.dispatch_loop cimport (
    REASON_DONE, SHORT_RUN, DispatchLoop, walk_guarded,
)
from rocketstore._native.format.queue_table cimport walk_call
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.sync.positions cimport Positions
from rocketstore._native.sync.signal_safe_lock cimport SignalSafeLock
from rocketstore._native.sync.futex cimport EventCount, futex_wait, now_ns

cdef enum:
    # Records are taken in runs of at most this much, so that readers see them on the way.
    RUN_BYTES = 4 << 20
    # After work it looks again once before it sleeps: while puts come quickly none of them has to wake it.
    NAP_NS = 50_000
    # What a thread dispatches of its own before it wakes the dispatcher, bytes: it takes less time than that.
    OWN_RUN = 4 << 10


cdef bint own_run(void *service) noexcept nogil:
    return (<DispatchService>service).caught_up(OWN_RUN)


@cython.final
@cython.auto_pickle(False)
cdef class DispatchService:
    """One a dispatcher. The thread that dispatches has the turn: the one that serves, one that has put something
    short, or Python code of any thread in `with service.turn`."""

    def __cinit__(self, DispatchLoop loop not None, Positions positions not None,
                  EventCount arrival not None):
        self.loop = loop
        self.positions = positions
        self.arrival = arrival
        self.turn = SignalSafeLock("the dispatch")
        self.indexing = 1

    def help_at(self, EventCount signal not None):
        """A thread that would notify `signal` dispatches a short run itself. Called once, before the first put."""
        signal.worker, signal.work = self, own_run

    def stop_indexing(self):
        """The index takes no keys any more: `indexed` stays where it is."""
        rs_store_int(&self.indexing, 0)

    def go_on_indexing(self):
        """The index has the keys of all that was dispatched. Called with the turn."""
        rs_store_int(&self.indexing, 1)

    @property
    def paused(self):
        """Whether serve returns at once. A caller that sets it wakes the signal."""
        return rs_load_int(&self.paused_now) != 0

    @paused.setter
    def paused(self, bint value):
        rs_store_int(&self.paused_now, value)

    def serve(self, EventCount signal not None, MappedFile segment not None, Positions shared,
              int64_t limit_ms, bint indexing):
        """Dispatches what becomes visible in `segment`, woken by `signal`, at most for `limit_ms` or until
        something needs Python, as an index that begins or ceases to take keys: the caller says what it believes.
        `shared` gets the positions of each step, None: there is none."""
        self.take_up(segment, shared)
        try:
            with nogil:
                self.serve_c(signal, limit_ms * 1_000_000, indexing)
        finally:
            self.take_up(None, None)

    cdef void take_up(self, MappedFile segment, Positions shared) noexcept:
        """With the turn: other threads look at both there. The caller keeps what they were."""
        with nogil:
            self.turn.mutex.lock()
        self.segment, self.shared = segment, shared
        self.turn.mutex.unlock()

    cdef void serve_c(self, EventCount signal, int64_t limit_ns, bint indexing) noexcept nogil:
        cdef const uint8_t *page = self.positions.page
        cdef int64_t until = now_ns() + limit_ns, left
        cdef bint worked = False
        cdef bint well
        cdef uint32_t seen
        while True:
            seen = signal.load()  # first: whatever happens from here on ends the wait below
            left = until - now_ns()
            if rs_load_int(&self.paused_now) or left <= 0:
                return
            if rs_load_int(&self.indexing) != indexing:
                return
            if (rs_position_load(page, RS_POSITIONS_AT_VISIBLE)
                    > rs_position_load(page, RS_POSITIONS_AT_DISPATCHED)):
                self.turn.mutex.lock()
                well = self.round()
                self.turn.mutex.unlock()
                if not well:
                    return
                worked = True
            elif worked:
                futex_wait(&self.never, 0, NAP_NS, False)
                worked = False
            else:
                signal.wait_c(seen, left)

    cdef bint round(self) noexcept nogil:
        """One run. False: Python has to look at what comes next."""
        cdef const uint8_t *page = self.positions.page
        cdef walk_call call
        cdef int64_t low = rs_position_load(page, RS_POSITIONS_AT_DISPATCHED)
        cdef int64_t visible = rs_position_load(page, RS_POSITIONS_AT_VISIBLE)
        cdef bint whole
        if low >= visible:
            return True
        call.owner = <void *>self.loop
        call.segment = self.segment.base
        call.start = self.segment.start_offset
        call.end = call.start + self.segment.size
        if low < call.start or low >= call.end:
            return False
        call.offset, call.to_offset = low, min(visible, low + RUN_BYTES)
        whole = walk_guarded(&call)
        if call.offset > low and not self.publish(call.offset):
            return False
        # Python's own run meets a fault or a stop again, and reports it.
        return whole and call.reason == REASON_DONE and call.offset > low

    cdef bint caught_up(self, int64_t most=SHORT_RUN) noexcept nogil:
        """Whether all that is visible at this call is dispatched, here if that takes a run of `most` bytes, and the
        dispatcher is not at work."""
        cdef const uint8_t *page = self.positions.page
        cdef int64_t visible = rs_position_load(page, RS_POSITIONS_AT_VISIBLE)
        cdef int64_t left = visible - rs_position_load(page, RS_POSITIONS_AT_DISPATCHED)
        if (0 < left <= most and not rs_load_int(&self.paused_now)
                and self.turn.mutex.try_lock()):
            if self.segment is not None:
                self.round()
            self.turn.mutex.unlock()
        return rs_position_load(page, RS_POSITIONS_AT_DISPATCHED) >= visible

    cdef bint publish(self, int64_t offset) noexcept nogil:
        cdef uint8_t *page = self.positions.page
        cdef bint told = True
        self.loop.publish_moved()
        rs_position_store(page, RS_POSITIONS_AT_DISPATCHED, offset)
        if rs_load_int(&self.indexing) and rs_position_load(page, RS_POSITIONS_AT_INDEXED) < offset:
            rs_position_store(page, RS_POSITIONS_AT_INDEXED, offset)
        if self.shared is not None:
            told = self.positions.publish_c(self.shared)
        self.arrival.notify_c()
        return told
