# Appends under guard: a page of the segment that cannot be had is a status, not a signal (D-13, D-34).
# The append mutex is taken outside, so a fault leaves it as it was.

from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.format.csrc_atomic cimport rs_load_int64
from rocketstore._native.format.csrc cimport (
    RS_STATUS_COUNT, rs_appended, rs_log, rs_log_append, rs_log_append_batch, rs_log_append_lights,
    rs_log_append_messages, rs_log_append_raw, rs_log_owns, rs_log_take_back, rs_message,
    rs_queue_state, rs_span, rs_status,
)
from rocketstore._native.os.sigbus_guard cimport fault_address, guarded

cdef enum:
    # Beyond the statuses of csrc: the log takes no puts now; a store to the segment faulted; a load
    # from the memory of the caller did, and nothing was appended.
    REFUSED = RS_STATUS_COUNT
    FAULTED = RS_STATUS_COUNT + 1
    UNREAD = RS_STATUS_COUNT + 2
    UNEXPECTED = RS_STATUS_COUNT + 3  # a message would not get its queue offset, nothing was appended

cdef enum:
    MAX_LIGHTS = 256

# Further queues that a message is listed in; `text` holds its properties and has `room` bytes.
cdef struct Lights:
    rs_queue_state *states[MAX_LIGHTS]
    size_t count
    uint8_t *text
    size_t room

cdef struct append_call:
    rs_log *log
    rs_message *message
    rs_queue_state *queue
    Lights *lights           # NULL: listed in its own queue only
    const rs_span *bodies    # of a batch, NULL for a single message
    rs_queue_state **queues  # of messages that have nothing in common; NULL: all go to `queue`
    size_t count
    bint split               # of messages: not all have to lie in one segment (of a log in another process)
    int64_t *offsets
    int64_t *rows            # queue offsets of a batch, where a log in another process may split it; or NULL
    const int64_t *expected  # of messages: the queue offset that each has to get, -1: any; NULL: all any
    size_t refused           # the first that would get another one, `following`
    int64_t following
    int64_t now_ms
    rs_appended *appended
    rs_status status


cdef inline bint unexpected(append_call *call) noexcept nogil:
    """Whether a message would get another queue offset than it has to."""
    cdef size_t i, j
    for i in range(call.count if call.expected is not NULL else 0):
        if call.expected[i] < 0:
            continue
        call.refused, call.following = i, rs_load_int64(&call.queues[i].next_offset)
        for j in range(i):
            call.following += call.queues[j] == call.queues[i]
        if call.following != call.expected[i]:
            return True
    return False


cdef inline void append_work(void *given) noexcept nogil:
    cdef append_call *call = <append_call *>given
    if call.queues is not NULL and unexpected(call):
        call.status = <rs_status>UNEXPECTED
    elif call.queues is not NULL:
        call.status = rs_log_append_messages(call.log, call.message, call.queues, call.count,
                                             call.now_ms, call.offsets, call.appended)
    elif call.bodies is not NULL:
        call.status = rs_log_append_batch(call.log, call.message, call.bodies, call.count,
                                          call.queue, call.now_ms, call.offsets, call.appended)
    elif call.lights is not NULL:
        call.status = rs_log_append_lights(call.log, call.message, call.queue, call.lights.states,
                                           call.lights.count, call.lights.text, call.lights.room,
                                           call.now_ms, call.appended)
    else:
        call.status = rs_log_append(call.log, call.message, call.queue, call.now_ms, call.appended)


cdef inline void take_back_work(void *given) noexcept nogil:
    cdef append_call *call = <append_call *>given
    rs_log_take_back(call.log, call.message, call.queues, call.appended)


cdef inline rs_status guarded_append(append_call *call) noexcept nogil:
    if guarded(append_work, call):
        return call.status
    if rs_log_owns(call.log, fault_address()) or not guarded(take_back_work, call):
        return <rs_status>FAULTED
    return <rs_status>UNREAD


cdef struct raw_call:
    rs_log *log
    int64_t start
    rs_span span
    int64_t last_record
    int64_t stored_ms
    rs_appended appended
    rs_status status


cdef inline void raw_work(void *given) noexcept nogil:
    cdef raw_call *call = <raw_call *>given
    call.status = rs_log_append_raw(call.log, call.start, call.span, call.last_record,
                                    call.stored_ms, &call.appended)


cdef inline rs_status guarded_append_raw(raw_call *call) noexcept nogil:
    return call.status if guarded(raw_work, call) else <rs_status>FAULTED
