from libc.stdint cimport int64_t, uint32_t

cdef enum:
    # A signal that arrives just before the main thread falls asleep wakes nobody: it looks this often.
    MAIN_THREAD_SLEEP_NS = 200_000_000

cdef class Mutex:
    cdef uint32_t word

    cdef bint try_lock(self) noexcept nogil
    # Without the GIL only (D-33).
    cdef void lock(self) noexcept nogil
    # False after `timeout_ns`, or when a signal wants to be served.
    cdef bint lock_for(self, int64_t timeout_ns) noexcept nogil
    cdef void unlock(self) noexcept nogil


cdef struct bell_state:
    uint32_t armed
    int fd


cdef class EventFd:
    cdef bell_state state

    # Before the caller looks at the world: what happens from here on rings, once.
    cdef void arm_c(self) noexcept nogil
    # As a notify would.
    cdef void ring_c(self) noexcept nogil


# Does what a signal wakes its sleeper for, if it is little; whether nothing is left to do.
ctypedef bint (*work_done)(void *owner) noexcept nogil


cdef class EventCount:
    cdef uint32_t word
    cdef uint32_t sleepers
    cdef uint32_t bell_count
    cdef bell_state **bells
    cdef list bell_owners
    cdef Mutex bell_mutex
    cdef object worker  # whose work it is; both are set before the first notify
    cdef work_done work  # NULL: notify alone says that there is some

    cdef void ring_bells(self) noexcept nogil

    # Adds one; wakes all sleepers if there are any. Callable under a native lock, without the GIL.
    cdef void notify_c(self) noexcept nogil
    # The same; `here`: or does the work in this thread, where it can: a sleeper costs more to wake. Under no lock.
    cdef void notify_or_work(self, bint here) noexcept nogil
    cdef uint32_t load(self) noexcept nogil
    # Sleeps while the count is `seen`, at most `timeout_ns` (negative: no limit). Returns the count; it
    # may be `seen` before the time is up (a signal, a limit of its own): the caller looks again, with
    # PyErr_CheckSignals where it is a Python thread.
    cdef uint32_t wait_c(self, uint32_t seen, int64_t timeout_ns) noexcept nogil


cpdef int64_t timeout_ms(object timeout_s, str name=*) except -1
# CLOCK_MONOTONIC.
cdef int64_t now_ns() noexcept nogil
# CLOCK_REALTIME.
cdef int64_t wall_ns() noexcept nogil
# CLOCK_THREAD_CPUTIME_ID: of this thread alone, also while another one has its processor.
cdef int64_t processor_ns() noexcept nogil
# FUTEX_WAIT on `word` with the clock and EINTR rules of this module: 0, or minus an errno. `shared`:
# the word may lie in memory of several processes.
cdef int64_t futex_wait(uint32_t *word, uint32_t seen, int64_t timeout_ns,
                        bint shared) noexcept nogil
cdef void futex_wake(uint32_t *word, int count, bint shared) noexcept nogil
