"""Batches that a single call writes to the file of the log, where its pages are not in memory yet.

A store to a fresh page of a mapping waits for a page that is zeroed, mapped and protected first; a write of many
pages only fills them. Both are the same page cache: readers have the mapping, and a process that dies loses
neither. What is small, or comes to pages that are ready, is stored to the mapping as ever.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.format.csrc_atomic cimport rs_store_int64
from rocketstore._native.format.csrc cimport (
    RS_ASIDE_RECORD_MIN, rs_appended, rs_log, rs_log_written,
)
from rocketstore._native.os.durable_write cimport write_head_last_c
from rocketstore._native.append.page_populator cimport PagesAhead

cdef enum:
    # What a batch may take; memory is used as batches need it. Larger ones are stored to the mapping.
    ASIDE_BYTES = 8 << 20
    # A batch from which on the call costs less than what it saves.
    LEAST_BYTES = 64 << 10


@cython.final
@cython.auto_pickle(False)
cdef class WriteThrough:
    """Where batches are laid before they are written. One a log. `pages` says what is ready, and gets the end of
    each write: while batches are written, it makes pages only as long as that is quick."""

    def __cinit__(self, PagesAhead pages not None):
        self.pages = pages
        self.least_bytes = LEAST_BYTES
        self.base = <uint8_t *>PyMem_RawMalloc(ASIDE_BYTES)
        if self.base is NULL:
            raise MemoryError(f"no memory for batches of {ASIDE_BYTES} bytes")

    def __dealloc__(self):
        PyMem_RawFree(self.base)

    cdef void offer(self, rs_log *log) noexcept nogil:
        log.aside, log.aside_least, log.aside_size = self.base, self.least_bytes, ASIDE_BYTES
        log.aside_record_min = RS_ASIDE_RECORD_MIN if self.pages.window_bytes else 0
        log.ready = self.pages.ready_end(log.wrote)

    cdef int64_t write(self, rs_log *log, const uint8_t *data,
                       rs_appended *appended) noexcept nogil:
        cdef int64_t result = write_head_last_c(log.segment.fd, data,
                                                appended.end_offset - log.wrote,
                                                log.wrote - log.segment.start)
        if result == 0:
            rs_store_int64(&self.pages.written_end, appended.end_offset)
            rs_log_written(log, appended)
        return result
