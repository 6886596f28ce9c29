from libc.stdint cimport int64_t

from rocketstore._native.sync.futex cimport Mutex


cdef class Durations:
    cdef Mutex mutex
    cdef Py_ssize_t size
    cdef int64_t *bounds  # rising; the counts come after them, one more
    cdef int64_t *counts
    cdef int64_t sum_ns
    cdef int64_t longest_ns

    cdef void add_c(self, int64_t duration_ns) noexcept nogil
