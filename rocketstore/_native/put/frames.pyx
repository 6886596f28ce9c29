"""Frames: records encoded away from the log, without offsets and store time; the log fills those in."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from rocketstore._native.append.appender cimport Log
from rocketstore._native.format.codec cimport best_kernel
from rocketstore._native.format.csrc cimport (
    RS_OK, RS_PROPERTIES_MAX, RS_RECORD_CRC_SIZE, RS_VERIFY_BODY_CRC, rs_crc32_kernel, rs_message,
    rs_properties_walk, rs_property_next, rs_property_walk, rs_record, rs_record_born_host,
    rs_record_crc_find, rs_record_decode, rs_record_encode, rs_record_publish, rs_record_size,
    rs_record_verify, rs_span, rs_status,
)
from rocketstore._native.put.put_columns cimport MessageColumns
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.put.batch_append cimport Rows
from rocketstore._native.put.string_rows cimport RowText, refusal
from rocketstore._native.format.status cimport status_text
from rocketstore._native.put.writer cimport Writer

from rocketstore.errors import MessageRejectedError

cdef extern from "<string.h>" nogil:
    void *memmem(const void *text, size_t size, const void *part, size_t part_size)

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

cdef void to_message(const rs_record *record, bint record_crc, Log log,
                     rs_message *message) noexcept:
    """What the encoder takes, from a record; the record CRC goes, the log writes its own."""
    cdef uint32_t crc
    memset(message, 0, sizeof(message[0]))
    message.topic = record.topic
    message.body = record.body
    message.properties = record.properties
    if rs_record_crc_find(record, &crc):
        message.properties.size -= RS_RECORD_CRC_SIZE
    message.queue_id = record.queue_id
    message.flag = record.flag
    message.sys_flag = record.sys_flag
    message.reconsume_times = record.reconsume_times
    message.born_timestamp_ms = record.born_timestamp_ms
    message.record_crc = record_crc
    message.store_host = log.store_host
    cdef rs_span born_host = rs_record_born_host(record)
    message.born_host.size = <uint8_t>born_host.size
    memcpy(message.born_host.bytes, born_host.bytes, born_host.size)


cdef int check_frame(const rs_record *record, size_t at, rs_crc32_kernel kernel) except -1:
    """MessageRejectedError for a frame that is no plain message, or not what was encoded."""
    cdef rs_property_walk walk = rs_properties_walk(record.properties)
    cdef rs_span name, value
    cdef rs_status status = rs_record_verify(record, -1, RS_VERIFY_BODY_CRC, kernel)
    if status != RS_OK:
        raise MessageRejectedError(f"frame at byte {at}: {status_text(status)} does not match")
    if record.sys_flag & <uint32_t>REFUSED_FLAGS:
        raise MessageRejectedError(
            f"frame at byte {at}: sys_flag = {record.sys_flag:#x} says that it belongs to a "
            "transaction or is a batch; put_message takes those")
    if memmem(record.properties.bytes, record.properties.size, b"INNER_", 6) is NULL:
        return 0  # for half of the instructions that the walk of five properties takes
    while rs_property_next(&walk, &name, &value):
        if name.size >= 6 and memcmp(name.bytes, b"INNER_", 6) == 0:
            raise MessageRejectedError(
                f"frame at byte {at}: properties of batches and light queues cannot be in a frame")
    return 0


cdef Rows decode_frames(Log log, const uint8_t[::1] frames, dict writers, object writer_of,
                        bint record_crc):
    """The messages of a buffer of frames, and where each goes; borrows frames and writers."""
    cdef Rows decoded = Rows()
    cdef rs_crc32_kernel kernel = best_kernel()
    cdef rs_record record
    cdef rs_message *message
    cdef rs_status status
    cdef Writer writer
    cdef QueueState state = None
    cdef rs_span last
    cdef int32_t last_queue = -1
    cdef size_t at = 0, size = <size_t>frames.shape[0]
    last.bytes, last.size = NULL, 0
    while at < size:
        if decoded.count == decoded.room:
            decoded.reserve(2 * decoded.room + 64)
        status = rs_record_decode(&frames[at], size - at, &record)
        if status != RS_OK:
            raise MessageRejectedError(f"frame at byte {at}: no record ({status_text(status)})")
        check_frame(&record, at, kernel)
        if (state is None or record.queue_id != last_queue or record.topic.size != last.size
                or memcmp(record.topic.bytes, last.bytes, last.size) != 0):
            last, last_queue = record.topic, record.queue_id
            key = (record.topic.bytes[:record.topic.size], record.queue_id)
            writer = writers.get(key)
            if writer is None:
                writer = writer_of(key[0], record.queue_id)
                writers[key] = writer
                if decoded.first is None:
                    decoded.first = writer
            state = writer.queues[0]
        message = &decoded.messages[decoded.count]
        to_message(&record, record_crc, log, message)
        writer.check_body(message)
        decoded.queues[decoded.count] = &state.state
        decoded.count += 1
        at += record.size
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
