from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rocketstore._native.append.copies cimport Copies
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.sync.positions cimport Positions
from rocketstore._native.sync.wait_queue cimport WaitQueue
from rocketstore._native.sync.futex cimport Mutex, EventCount

cpdef enum Outcome:
    FLUSHED = 0  # nothing written is left to flush
    BUSY = 1  # another thread flushes, or will at once
    FOR_PYTHON = 2  # needs more than one write to the file that is armed
    FAILED = 3  # a write or sync failed, now or earlier: never again (D-13)
    IDLE = 4  # nobody waits for the disk

cdef enum:
    LINKS_MAX = 8
    LATENCIES_MAX = 512


cdef class GroupCommit:
    cdef readonly EventCount signal
    cdef readonly EventCount progress
    cdef readonly int64_t flushes
    cdef readonly Copies copies  # None: no other machine has the log
    cdef WaitQueue committed_queue
    cdef WaitQueue flushed_queue
    cdef EventCount dispatch_signal
    cdef Positions positions
    cdef Positions shared
    cdef Mutex flush_lock
    cdef uint64_t token
    cdef object ring
    cdef uint8_t *ring_base
    cdef int64_t ring_size
    cdef int64_t wanted_offset
    cdef MappedFile segment
    cdef int fd  # of the armed file, -1: none
    cdef int64_t start
    cdef int64_t end
    cdef uint8_t *zeros
    cdef bint ahead  # whether they are written
    cdef public int64_t zeroed  # the log's blocks below were written, as far as that is known
    cdef int[LINKS_MAX] links
    cdef int link_count
    cdef int error
    cdef int stirs
    cdef int attention
    cdef readonly int resting  # the flusher, until something is stored
    # Held for a look or a note, never over a flush: statistics do not wait for the disk.
    cdef Mutex notes
    cdef int64_t[LATENCIES_MAX] latencies
    cdef int latency_count
    cdef int64_t last_ns  # what the last flush took

    # Asks the flusher for everything below `offset`.
    cdef void want(self, int64_t offset) noexcept nogil
    # Something was stored that nobody waits for.
    cdef void stored(self) noexcept nogil
    # The calling thread, which would wait for `patience_ns`, flushes if nobody else does; without the GIL.
    cdef int lead(self, int64_t patience_ns) noexcept nogil
    # Without the GIL: flushes, or waits in line until the position is reached or the deadline is over; may end
    # early. `stirs`: their count at the caller's last look. FAILED; BUSY: waited in line; IDLE: did not.
    cdef int wait_for(self, WaitQueue line, size_t at, int64_t end_offset, int64_t patience_ns,
                      int64_t deadline, int stirs) noexcept nogil
    # Without the GIL: has it flushed, and waits in the line of other machines; False: none is worth it.
    cdef bint stand_for_copies(self, WaitQueue line, int copies, int64_t end_offset,
                               int64_t patience_ns, int64_t deadline, int stirs) noexcept nogil
    cdef int flush_turn(self, bint alone) noexcept nogil
    cdef void tell(self, bint alone) noexcept nogil
    cdef int flush_held(self) noexcept nogil
    # The positions have moved: calls the threads that wait for them.
    cdef void moved(self) noexcept nogil
    cpdef int64_t zeros_after(self, MappedFile segment, int64_t flushed,
                              int64_t target) noexcept nogil
    cdef bint linked(self) noexcept nogil
    cdef void publish(self, int64_t target) noexcept nogil
    cdef void note(self, int64_t taken_ns) noexcept nogil
    cdef uint32_t rest(self, uint32_t seen, int64_t flushed, int64_t limit_ns) noexcept nogil
    cdef int serve_c(self, uint32_t seen, int64_t limit_ns, bint every,
                     int64_t rest_ns) noexcept nogil
