"""How long something took, counted where it happens: some additions, and Python only when somebody looks."""

cimport cython
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memset

from rocketstore._native.sync.futex cimport Mutex


@cython.final
@cython.auto_pickle(False)
cdef class Durations:
    """Counts durations between bounds until they are taken. Any thread may do anything."""

    def __cinit__(self, bounds_ns):
        cdef Py_ssize_t at = 0
        self.mutex = Mutex()
        self.size = len(bounds_ns)
        self.bounds = <int64_t *>PyMem_RawCalloc(<size_t>self.size * 2 + 1, sizeof(int64_t))
        if self.bounds is NULL:
            raise MemoryError("no memory for the times of puts")
        self.counts = self.bounds + self.size
        for bound in bounds_ns:
            self.bounds[at] = bound
            at += 1

    def __dealloc__(self):
        PyMem_RawFree(self.bounds)

    cdef void add_c(self, int64_t duration_ns) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.size, middle
        while low < high:
            middle = (low + high) // 2
            if self.bounds[middle] < duration_ns:
                low = middle + 1
            else:
                high = middle
        self.mutex.lock()  # held for an addition or a copy, never for a wait
        self.counts[low] += 1
        self.sum_ns += duration_ns
        self.longest_ns = max(self.longest_ns, duration_ns)
        self.mutex.unlock()

    def add(self, int64_t duration_ns):
        """Counts one."""
        self.add_c(duration_ns)

    def take(self):
        """What was added since the last call: pairs of a bound and how many were no longer than it and longer
        than the one before, their sum, the longest. The longest is the bound of those beyond the last one."""
        cdef size_t room = <size_t>(self.size + 1) * sizeof(int64_t)
        cdef int64_t *taken = <int64_t *>PyMem_RawCalloc(1, room)
        cdef int64_t sum_ns, longest_ns
        cdef Py_ssize_t at
        if taken is NULL:
            raise MemoryError("no memory for the times of puts")
        try:
            with nogil:  # to the end: a put waits for the mutex, and must not wait for the GIL (D-33)
                self.mutex.lock()
                memcpy(taken, self.counts, room)
                memset(self.counts, 0, room)
                sum_ns, longest_ns = self.sum_ns, self.longest_ns
                self.sum_ns = self.longest_ns = 0
                self.mutex.unlock()
            found = [(self.bounds[at] if at < self.size else longest_ns, taken[at])
                     for at in range(self.size + 1) if taken[at]]
        finally:
            PyMem_RawFree(taken)
        return found, sum_ns, longest_ns
