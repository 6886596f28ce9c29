from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.format.csrc cimport rs_appended, rs_log
from rocketstore._native.append.page_populator cimport PagesAhead

cdef class WriteThrough:
    cdef readonly PagesAhead pages
    cdef uint8_t *base
    cdef public int64_t least_bytes

    # All with the append mutex. Before a batch: it may be laid aside.
    cdef void offer(self, rs_log *log) noexcept nogil
    # One that was, or bytes that go as they are: 0 once the file has `data`, or minus an errno; then part of it may
    # be there.
    cdef int64_t write(self, rs_log *log, const uint8_t *data, rs_appended *appended) noexcept nogil
