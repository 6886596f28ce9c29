from libc.stdint cimport int64_t, uint64_t

from rocketstore._native.append.put_result cimport PutResult
from rocketstore._native.sync.wait_queue cimport WaitQueue

cdef enum:
    COPIES_MAX = 9  # as `put_result` names promises
    NOT_NEAR = -1

cdef enum Shortfall:
    LATE, TOO_FEW

# How many machines a promise beyond the disk names.
cdef inline int copies_of(int level) noexcept nogil:
    return level - 1


cdef class Copies:
    cdef int64_t[COPIES_MAX + 1] confirmed  # below this that many machines had everything on disk, once
    cdef int64_t[COPIES_MAX + 1] near  # the same of those that are connected now; NOT_NEAR: there are fewer
    # Puts that end in (from, to] are on none of the machines that reached `to`: their logs begin there.
    cdef int64_t[COPIES_MAX + 1] lacked_from, lacked_to
    cdef list lines
    cdef public int64_t timeout_ms
    cdef public int64_t max_lag_bytes
    cdef readonly object error

    cdef bint reached(self, int copies, int64_t end_offset) noexcept nogil
    cdef bint worth_a_wait(self, int copies, int64_t end_offset) noexcept nogil
    cdef int check(self) except -1
    # Raises unless `copies` machines have everything below the offset in time. `owner` and
    # `token` are of the log, as is `stirred`.
    cdef int wait(self, object owner, uint64_t token, const int *stirred, int64_t end_offset,
                  int copies, int64_t timeout_ms, PutResult result) except -1
    # Without the GIL: waits in line until called or the deadline; `stirs`, at `stirred`, moves when all shall look.
    cdef void stand(self, WaitQueue line, int copies, int64_t end_offset, int64_t deadline,
                    const int *stirred, int stirs) noexcept nogil
    cdef void stir(self)
    cdef str counted(self, int64_t end_offset)
    cdef object shortfall(self, PutResult result, int copies, Shortfall why, int64_t waited_ms,
                          int64_t end_offset)


cdef inline bint ended(Copies copies) noexcept:
    return copies is not None and copies.error is not None

# Gives the level; ConfigError for one above DISK of a log without replicas.
cdef int check_level(Copies copies, int level) except -1
# How many machines a level above DISK names; ConfigError without replicas, ValueError for any other level.
cdef int machines(Copies copies, int level) except -1
# The line in which puts of such a level wait; raises as `machines`.
cdef WaitQueue line_of(Copies copies, int level)
# The error of a put, or of a flush without a result, that was waited for in vain.
cdef object not_on_disk(int64_t end_offset, int64_t waited_ms, PutResult result)
