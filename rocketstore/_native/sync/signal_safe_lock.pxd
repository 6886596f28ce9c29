from libc.stdint cimport int64_t

from rocketstore._native.sync.futex cimport Mutex

cdef class SignalSafeLock:
    cdef Mutex mutex  # native code, which no handler interrupts, takes it without a note
    cdef int64_t owner  # a thread, 0: none, or native code
    cdef int depth
    cdef str name
    cdef public int64_t limit_ms
    cdef bint reentrant
    cdef object busy

    cdef bint take(self, bint wait) except -1
    cdef void give(self) noexcept
    cdef int await_owner(self) except -1
