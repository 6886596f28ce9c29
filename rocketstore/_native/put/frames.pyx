"""Frames: records encoded away from the log, without offsets and store time; the log fills those in."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, uint8_t
from libc.string cimport memcmp, memset

from rocketstore._native.append.appender cimport Log
from rocketstore._native.format.codec cimport best_kernel
from rocketstore._native.format.csrc cimport (
    RS_BAD_BODY_CRC, RS_FRAME_FLAGS, RS_FRAME_INNER, RS_OK, RS_PROPERTIES_MAX, rs_crc32_kernel,
    rs_frame_take, rs_message, rs_record_encode, rs_record_publish, rs_record_size, rs_span,
    rs_status,
)
from rocketstore._native.put.put_columns cimport MessageColumns
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.put.batch_append cimport Rows
from rocketstore._native.put.string_rows cimport RowText, refusal
from rocketstore._native.format.status cimport status_text
from rocketstore._native.put.writer cimport Writer

from rocketstore.errors import MessageRejectedError

cdef enum:
    REFUSED_FLAGS = 0xCC  # transactions, inner batches, wrapped messages (format.md 2.2)


# ---- encoding ----

def encode_columns(MessageColumns columns not None, bytearray into not None):
    """(frames, refused): one frame a row, back to back in a view of `into`, which is made
    larger when it must be; a row that cannot be a message is left out, `refused` says why.

    `into` cannot change its size meanwhile: a buffer of it is held while Python code may run. The
    room of a row is looked at again before it is written: its caller may have changed the columns.

    Raises:
        MessageRejectedError: the columns grew during the call.
    """
    cdef rs_message message
    cdef RowText text
    cdef rs_crc32_kernel kernel = best_kernel()
    cdef Py_ssize_t row
    cdef dict refusals = {}
    cdef size_t size = 0
    cdef Py_ssize_t bound = columns.frames_bound()
    cdef uint8_t[::1] held
    cdef uint8_t *frames
    cdef rs_status status
    memset(&text, 0, sizeof(text))
    text.bytes = <uint8_t *>PyMem_RawMalloc(RS_PROPERTIES_MAX)
    try:
        if text.bytes is NULL:
            raise MemoryError("no memory for the property text")
        if PyByteArray_GET_SIZE(into) < bound:
            into.clear()  # nothing to copy
            PyByteArray_Resize(into, bound)
        if bound == 0:
            return memoryview(into)[:0], refusals
        view = memoryview(into)
        held = view
        if held.shape[0] < bound:  # a subclass may give another buffer than its own
            raise TypeError(
                f"into: {type(into).__name__} gives a buffer of {held.shape[0]} bytes of its "
                f"{PyByteArray_GET_SIZE(into)}; use a plain bytearray")
        frames = &held[0]
        for row in range(columns.bodies.rows):
            status = columns.fill(row, &message, &text)
            if status != RS_OK:
                refusals[row] = refusal(&text, &message, status, columns.max_body)
                continue
            message.record_crc = False
            if rs_record_size(&message) > <size_t>bound - size:
                raise MessageRejectedError(
                    f"row {row}: the columns grew while they were read; do not change them "
                    "during the call")
            rs_record_encode(&message, frames + size, kernel)
            rs_record_publish(frames + size, message.topic.size)
            size += rs_record_size(&message)
        return view[:<Py_ssize_t>size], refusals
    finally:
        PyMem_RawFree(text.bytes)


# ---- appending ----

cdef int refuse_frame(int fault, const rs_message *message, size_t at) except -1:
    """MessageRejectedError for a frame that is no plain message, or not what was encoded."""
    if fault == RS_FRAME_FLAGS:
        raise MessageRejectedError(
            f"frame at byte {at}: sys_flag = {message.sys_flag:#x} says that it belongs to a "
            "transaction or is a batch; put_message takes those")
    if fault == RS_FRAME_INNER:
        raise MessageRejectedError(
            f"frame at byte {at}: properties of batches and light queues cannot be in a frame")
    if fault == RS_BAD_BODY_CRC:
        raise MessageRejectedError(f"frame at byte {at}: body crc does not match")
    raise MessageRejectedError(
        f"frame at byte {at}: no record ({status_text(<rs_status>fault)})")


cdef Rows decode_frames(Log log, const uint8_t[::1] frames, dict writers, object writer_of,
                        bint record_crc):
    """The messages of a buffer of frames, and where each goes; borrows frames and writers."""
    cdef Rows decoded = Rows()
    cdef rs_crc32_kernel kernel = best_kernel()
    cdef rs_message *message
    cdef int fault
    cdef Writer writer
    cdef QueueState state = None
    cdef rs_span last
    cdef int32_t last_queue = -1
    cdef size_t at = 0, size = <size_t>frames.shape[0], taken = 0
    last.bytes, last.size = NULL, 0
    while at < size:
        if decoded.count == decoded.room:
            decoded.reserve(2 * decoded.room + 64)
        message = &decoded.messages[decoded.count]
        fault = rs_frame_take(&frames[at], size - at, REFUSED_FLAGS, kernel, message, &taken)
        if fault != RS_OK:
            refuse_frame(fault, message, at)
        message.record_crc, message.store_host = record_crc, log.store_host
        if (state is None or message.queue_id != last_queue or message.topic.size != last.size
                or memcmp(message.topic.bytes, last.bytes, last.size) != 0):
            last, last_queue = message.topic, message.queue_id
            key = (message.topic.bytes[:message.topic.size], message.queue_id)
            writer = writers.get(key)
            if writer is None:
                writer = writer_of(key[0], message.queue_id)
                writers[key] = writer
                if decoded.first is None:
                    decoded.first = writer
            state = writer.queues[0]
        writer.check_body(message)
        decoded.queues[decoded.count] = &state.state
        decoded.count += 1
        at += taken
    return decoded


def put_frames(Log log not None, const uint8_t[::1] frames not None, object writer_of, *,
               bint record_crc, durability, timeout_s):
    """Appends every frame, in order, in as many segments as it takes. `writer_of(topic, queue_id)`
    gives the plain writer of a queue, or refuses it."""
    cdef dict writers = {}  # holds the queue states that the messages point at
    cdef int asked
    cdef Rows decoded = decode_frames(log, frames, writers, writer_of, record_crc)
    if decoded.count == 0:
        raise MessageRejectedError("no frames: pass at least one")
    asked = decoded.first.asked(durability, timeout_s)
    return decoded.append(log, asked, timeout_s, False, "frames")
