from libc.stdint cimport int64_t, uint8_t, uint32_t

from rocketstore._native.append.appender cimport Log
from rocketstore._native.append.guarded_append cimport append_call
from rocketstore._native.format.csrc cimport (
    rs_appended, rs_message, rs_queue_entry, rs_queue_state, rs_queue_table, rs_status,
)
from rocketstore._native.format.csrc_peer cimport rs_ask

cdef class HostPuts:
    cdef Log log
    cdef object desk
    cdef object failure  # why the last request was not carried out
    cdef bint record_crc
    cdef rs_message *messages
    cdef rs_queue_state **queues
    cdef int64_t *expected
    cdef int64_t *offsets
    cdef bint *told  # whether the desk hears of a message
    cdef size_t message_room, queue_room, expected_room, offset_room, told_room
    cdef rs_queue_table table
    cdef list kept  # topics and states that the table points at
    # Of the last request: where its first part went, its last part, and how many messages were stored; whether that
    # was before.
    cdef rs_appended first, appended
    cdef uint32_t stored
    cdef bint again
    cdef int64_t due_ms

    # Appends; False: `failure` says why not all.
    cdef bint put(self, const rs_ask *ask, const uint8_t *bytes) noexcept nogil
    cdef bint refuse(self, const char *text, size_t at, int64_t value) noexcept with gil
    cdef void ends_before(self, int64_t end_offset) noexcept with gil
    cdef bint read_frames(self, const uint8_t *bytes, size_t size, size_t count) noexcept nogil
    cdef rs_queue_entry *new_queue(self, const rs_message *message) noexcept with gil
    cdef bint append(self, size_t begin, size_t count, bint places) noexcept nogil
    cdef bint attend(self) noexcept with gil
    cdef bint prepare(self, rs_status status, append_call *call) noexcept with gil
    cdef bint put_once(self, bint places) noexcept with gil
    cdef bint tell(self, size_t count) noexcept nogil
    cdef bint tell_one(self, const rs_message *message) noexcept with gil
