from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.mapped_file cimport MappedFile

cdef class Positions:
    cdef uint8_t *page
    cdef readonly bint writable
    cdef void *memory
    cdef MappedFile file

    cdef int check_writable(self) except -1
    cdef int set(self, size_t at, int64_t value) except -1
    cdef int set_id(self, size_t at, bytes value) except -1
    cdef void announce(self) noexcept
