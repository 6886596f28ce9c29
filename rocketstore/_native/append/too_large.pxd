# What is said of a message or batch that the log does not take.

from libc.stdint cimport int64_t

from rocketstore._native.append.guarded_append cimport UNREAD, append_call
from rocketstore._native.format.csrc cimport (
    RS_BLANK_SIZE_MIN, RS_PROPERTIES_TOO_LARGE, RS_RECORD_TOO_LARGE, rs_log_record_max, rs_message,
    rs_record_size, rs_status,
)
from rocketstore._native.os.sigbus_guard cimport raise_no_body

from rocketstore.errors import (
    MessageTooLargeError, PropertiesTooLargeError, QueueOffsetMismatchError, RocketStoreError,
)

cdef enum:
    WRITE_BUFFER_MAX = 1 << 30


cdef inline int refuse_offset(append_call *call) except -1:
    """Says which queue offset a message would get in place of the one that it has to."""
    cdef const rs_message *message = &call.message[call.refused]
    cdef bytes topic = (<const char *>message.topic.bytes)[:message.topic.size]
    raise QueueOffsetMismatchError(
        topic.decode(), message.queue_id, call.expected[call.refused], call.following)


cdef inline int refuse_size(append_call *call) except -1:
    """Says by how much it is too large, and which option bounds it."""
    cdef int64_t most = rs_log_record_max(call.log), size = 0, half = 0
    cdef size_t i
    if call.queues is not NULL:
        for i in range(call.count):
            size += <int64_t>rs_record_size(&call.message[i])
    elif call.bodies is not NULL:
        size = <int64_t>(rs_record_size(call.message) - call.message.body.size)
        size *= <int64_t>call.count
        for i in range(call.count):
            size += <int64_t>call.bodies[i].size
    else:
        size = <int64_t>rs_record_size(call.message)
    if call.log.ring is not NULL:
        half = (call.log.ring_size - RS_BLANK_SIZE_MIN) // 2
    what = f"the batch of {call.count} messages" if call.count > 1 else "the message"
    smaller = "put it with chunk=True" if call.count > 1 else "send a smaller message"
    if most != half:
        wanted = size + RS_BLANK_SIZE_MIN
        remedy = f"open a new store with commit_log_file_size_bytes = {wanted} or more"
        bound = "a file of the log"
    else:
        remedy = f"open the store with write_buffer_bytes = {2 * size + RS_BLANK_SIZE_MIN} or more"
        bound = "half of the write buffer"
        if 2 * size + RS_BLANK_SIZE_MIN > WRITE_BUFFER_MAX:
            remedy = f"put them in parts of at most {most} bytes"
    raise MessageTooLargeError(
        f"{what} takes {size} bytes in the log, and {bound} takes at most {most}; {smaller}, "
        f"or {remedy}")


cdef inline int refuse(rs_status status) except -1:
    """Raises what a status means that no other try changes."""
    if <int>status == UNREAD:
        raise_no_body()
    if status == RS_RECORD_TOO_LARGE:
        raise MessageTooLargeError("the bytes are more than the rest of the segment takes")
    if status == RS_PROPERTIES_TOO_LARGE:
        raise PropertiesTooLargeError(
            "properties with the offsets of light queues: at most 32767 bytes, encoded")
    raise RocketStoreError(f"append ended with status {<int>status}")


cdef inline int refuse_row(int64_t body_max, size_t row, size_t body, int64_t room) except -1:
    """Says that the body of a row is too large: for the store, or for a file of its log."""
    if <int64_t>body > body_max:
        raise MessageTooLargeError(f"row {row}: body: {body} bytes, at most {body_max}")
    raise MessageTooLargeError(
        f"row {row}: body: {body} bytes, at most {max(room, 0)} beside the rest of it in a file of "
        "the log; open the store with a larger commit_log_file_size_bytes")
