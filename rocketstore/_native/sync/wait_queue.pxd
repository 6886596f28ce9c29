from libc.stdint cimport int64_t, uint32_t

from rocketstore._native.sync.futex cimport Mutex

# On the stack of the thread that waits.
cdef struct waiter:
    int64_t target
    uint32_t called  # a futex word
    int state
    waiter *next


cdef class WaitQueue:
    cdef Mutex mutex
    cdef waiter *first  # threads that wait, by target
    cdef waiter *last
    cdef waiter *ready_first  # threads that may go, in the order in which they are called
    cdef waiter *ready_last
    cdef int calling
    cdef uint32_t count
    cdef uint32_t going  # a thread that was called before has the GIL, as far as that is known

    # All without the GIL. A thread joins, looks at the position once more, sleeps, and leaves in any case.
    cdef void join(self, waiter *me, int64_t target) noexcept nogil
    # Until called, at most `timeout_ns`; shorter in the main thread, and when a signal comes.
    cdef void sleep(self, waiter *me, int64_t timeout_ns) noexcept nogil
    cdef void leave(self, waiter *me) noexcept nogil
    # Whether the calling thread, which was called, has the GIL now; not any more once it waits again.
    cdef void goes_on(self, bint now) noexcept nogil
    # After `leave`: waits, awake and not for long, for the one that was called before to give up the GIL.
    cdef void let_pass(self) noexcept nogil
    # The position has got to `reached`; INT64_MAX: everybody shall look again.
    cdef void release(self, int64_t reached) noexcept nogil
    cdef uint32_t *call_next(self) noexcept nogil
    cdef void unlink(self, waiter *me) noexcept nogil
