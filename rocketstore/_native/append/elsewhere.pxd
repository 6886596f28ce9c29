from libc.stdint cimport int64_t, uint8_t, uint64_t

from rocketstore._native.append.guarded_append cimport append_call
from rocketstore._native.append.guest_line cimport Line, pending
from rocketstore._native.format.csrc cimport rs_message, rs_record_size, rs_span

cdef enum:
    # A put that may be split goes to the host in parts of at most this size.
    PART_BYTES = 4 << 20


cdef class Elsewhere:
    cdef Line waiting
    cdef Line quick
    cdef uint8_t *positions
    cdef object owner
    cdef uint64_t token
    cdef size_t most
    cdef set once_here  # threads whose next put is for its unique id
    cdef int64_t late_end
    cdef readonly int64_t last_end
    cdef readonly int64_t requests_under_way
    cdef readonly int64_t bytes_under_way

    # Appends as the call says, in the process of the host; -1: any queue offset.
    cdef int append(self, append_call *call, int64_t expected, int64_t now_ms) except -1
    # 1 once everything below the offset met the level, 0 after the time.
    cdef int await_end(self, int64_t end_offset, int level, int64_t limit_ms) except -1
    cdef int fill(self, append_call *call, pending *me) except -1
    cdef int talk(self, Line line, pending *me, uint8_t *request, size_t size,
                  int64_t deadline) except -1
    cdef int pause(self, int64_t deadline) except -1
    cdef int ask(self, pending *me, uint8_t *request, size_t size, int level,
                 int64_t limit_ms) except -1


# Of the messages that a put may split, how many go to the host together.
cdef inline size_t part_of(const rs_message *messages, const rs_span *bodies,
                           size_t count) noexcept nogil:
    cdef size_t at, size = 0
    for at in range(count):
        if bodies is NULL:
            size += rs_record_size(&messages[at])
        else:
            size += rs_record_size(messages) - messages.body.size + bodies[at].size
        if size > PART_BYTES and at:
            return at
    return count
