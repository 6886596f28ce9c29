"""A put of one message of which every field is given: what services and replication store."""

from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, UINT32_MAX, int32_t, int64_t, uint8_t, uint32_t,
)
from libc.string cimport memset

from rocketstore._native.put.body_buffers cimport body_open
from rocketstore._native.format.csrc cimport rs_appended, rs_message
from rocketstore._native.append.guarded_append cimport MAX_LIGHTS, Lights
from rocketstore._native.put.property_builder cimport (
    Text, text_add, text_free, text_reserve, text_span, text_start,
)
from rocketstore._native.append.put_result cimport (
    PutResult, nothing_put, number_of, put_result, set_host,
)
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.put.writer cimport Writer


def put_message(Writer writer not None, body, bytes properties not None, *, flag, sys_flag,
                born_timestamp_ms, bytes born_host not None, bytes store_host not None,
                reconsume_times, prepared_transaction_offset, list lights not None, durability,
                timeout_s, int64_t expected=-1, bint only_latest=False):
    """One message with every field as given; `properties` is checked property text. `lights` are the
    states of the light queues it is listed in as well, `expected` the queue offset that it has to get, or -1.
    `only_latest`: nothing is put, and `count` is 0, where a message of its key may have been put since the `KeyWatch`
    began."""
    cdef rs_message message
    cdef rs_appended appended
    cdef Py_buffer view
    cdef bint held = False
    cdef Text text
    cdef PutResult result
    cdef int asked = writer.asked(durability, timeout_s)
    cdef int64_t started = writer.begun(asked)
    cdef QueueState light, queue = writer.queues[0]
    cdef Lights further
    memset(&appended, 0, sizeof(appended))
    text_start(&text)
    try:
        writer.fill(&message, queue, flag, None, asked, timeout_s)
        held = body_open(&view, &message.body, body)
        text_add(&text, <const uint8_t *>PyBytes_AS_STRING(properties), <size_t>len(properties))
        text_reserve(&text, 32 + 20 * <size_t>len(lights))
        message.properties = text_span(&text)
        message.sys_flag = <uint32_t>number_of("sys_flag", sys_flag, 0, UINT32_MAX)
        message.reconsume_times = <int32_t>number_of(
            "reconsume_times", reconsume_times, INT32_MIN, INT32_MAX)
        message.prepared_transaction_offset = number_of(
            "prepared_transaction_offset", prepared_transaction_offset, INT64_MIN, INT64_MAX)
        message.only_latest = only_latest
        if born_timestamp_ms is not None:
            message.born_timestamp_ms = born_timestamp_ms
        set_host(&message.born_host, born_host)
        set_host(&message.store_host, store_host)
        writer.check_body(&message)
        further.text, further.room, further.count = text.bytes, text.room, 0
        for light in lights[:MAX_LIGHTS]:
            further.states[further.count] = &light.state
            further.count += 1
        writer.log.append_at(&message, queue, expected, &further if further.count else NULL,
                             &appended)
    finally:
        text_free(&text)
        if held:
            PyBuffer_Release(&view)
    if appended.end_offset == 0:
        return nothing_put(durability, queue.queue_id)
    result = put_result(&appended, queue.queue_id, 1, writer.log.met, &message.store_host)
    writer.finish(result, asked, timeout_s, started)
    return result
