from libc.stdint cimport int64_t, uint8_t, uint32_t

from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.sync.futex cimport Mutex

cdef enum What:
    LOAD, STORE, FORMAT, COUNT, ANNOUNCE, PUBLISH

cdef struct position_call:
    What what
    uint8_t *page
    const uint8_t *source
    size_t at
    int64_t value
    uint32_t changes

cdef class Positions:
    cdef uint8_t *page
    cdef readonly bint writable
    cdef void *memory
    cdef MappedFile file
    cdef Mutex publishing

    cdef int check_writable(self) except -1
    cdef int64_t load(self, size_t at) except? -1
    cdef int store(self, position_call *call) except -1
    cdef int set(self, size_t at, int64_t value) except -1
    cdef int set_id(self, size_t at, bytes value) except -1
    cdef bytes id_at(self, size_t at)
    cdef uint32_t count_changes(self) except? 0
    # publish_to without the GIL; False where the shared page cannot be stored to.
    cdef bint publish_c(self, Positions shared) noexcept nogil
    cdef void wake(self) noexcept nogil
