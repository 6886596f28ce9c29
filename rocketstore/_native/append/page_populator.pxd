from libc.stdint cimport int64_t, uint8_t, uint32_t

from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.sync.positions cimport Positions
from rocketstore._native.sync.futex cimport EventCount

cdef class PagesAhead:
    cdef Positions positions
    cdef int64_t opened_at
    cdef int64_t window_bytes
    cdef int64_t populated_end  # physical offset up to which pages were made ready
    cdef int64_t gap_end  # up to here pages were passed over
    cdef int64_t written_end  # where the last batch ends that was written by a call
    cdef readonly bint hurried
    cdef bint slept
    cdef public int64_t slow_ns
    cdef public bint slow  # as the last large step was
    cdef public int64_t quick_ns
    cdef int64_t lead  # while batches are written by calls, a step begins this far ahead of them
    cdef int64_t rest_end  # up to here no pages are tried while batches are written by calls
    cdef int64_t rated_ns  # when and where the rate is taken from
    cdef int64_t rated_at
    cdef int64_t large_at  # start of the file that is advised to have large pages
    cdef int64_t result
    cdef int paused_now
    cdef int expects_put
    cdef uint32_t never

    cdef int check(self, MappedFile file) except -1
    cdef void serve_c(self, EventCount signal, MappedFile file) noexcept nogil
    cdef int64_t round_c(self, MappedFile file, int64_t now) noexcept nogil
    cdef void read_first(self, MappedFile file, int64_t wrote) noexcept nogil
    cdef int64_t window(self, int64_t appended) noexcept nogil
    cdef int64_t ready_end(self, int64_t wrote) noexcept nogil
    cdef bint beside_calls(self, int64_t wrote) noexcept nogil
    cdef void note_rate(self, int64_t now, int64_t wrote) noexcept nogil
    cdef void advise_size(self, MappedFile file) noexcept nogil
    cdef int64_t first_page(self, MappedFile file, int64_t wrote) noexcept nogil
    cdef int64_t populate(self, MappedFile file, int64_t wrote) noexcept nogil
    cdef int64_t populate_timed(self, uint8_t *base, int64_t size, int64_t wrote) noexcept nogil
