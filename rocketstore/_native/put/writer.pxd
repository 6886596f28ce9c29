cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketstore._native.append.appender cimport Log
from rocketstore._native.format.csrc cimport rs_message, rs_span
from rocketstore._native.put.property_builder cimport Text
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.append.put_result cimport PutResult


cdef inline rs_span bytes_span(object data) noexcept:
    return rs_span(<const uint8_t *>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


cdef class Writer:
    cdef Log log
    cdef tuple queues
    cdef QueueState only  # of a writer with one queue, else None
    cdef readonly str topic
    cdef bytes topic_bytes
    cdef bytes constant_text  # the properties of a put that gives none
    cdef bytes own_properties  # what of it comes before keys and tags
    cdef object keys
    cdef object tags
    cdef rs_message template
    cdef int level
    cdef readonly str durability  # the promise that put waits for unless a call asks for another
    cdef int64_t timeout_ms
    cdef Py_ssize_t turn
    cdef int untimed  # puts until the next whose time is taken, of those that wait for nothing
    cdef int untimed_next
    cdef object reserved
    cdef object delays  # makes the delay of a put, as one value
    cdef object unique_ids  # puts a message with an id once
    cdef object to_ms

    @cython.final
    cdef inline QueueState pick(self, object shard_key)
    @cython.final
    cdef QueueState pick_of_several(self, object shard_key)
    @cython.final
    cdef inline int name_it(self, Text *text, object tags, object keys) except -1
    @cython.final
    cdef inline int describe(self, rs_message *message, Text *text, object tags, object keys,
                             object properties, object shard_key) except -1
    @cython.final
    cdef int describe_more(self, rs_message *message, Text *text, object tags, object keys,
                           object properties, object shard_key) except -1
    @cython.final
    cdef inline object delay_of(self, object delay_level, object deliver_at, object deliver_after)
    @cython.final
    cdef QueueState delay(self, rs_message *message, Text *text, QueueState real, object delay)
    @cython.final
    cdef PutResult append_spans(self, rs_message *message, const rs_span *spans, size_t count,
                                QueueState queue, bint whole, str what)
    cdef int64_t expected(self, object queue_offset, object shard_key) except? -1
    @cython.final
    cdef inline int fill(self, rs_message *message, QueueState queue, object flag, object born_time,
                         int asked, object timeout_s) except -1
    @cython.final
    cdef int32_t limit_ms(self, object given) except -1
    @cython.final
    cdef inline int check_body(self, const rs_message *message) except -1
    @cython.final
    cdef int check_record(self, const rs_message *message) except -1
    @cython.final
    cdef inline int asked(self, object durability, object timeout_s) except -1
    @cython.final
    cdef int asked_for(self, object durability, object timeout_s) except -1
    @cython.final
    cdef inline int64_t begun(self, int asked) noexcept
    @cython.final
    cdef inline int finish(self, PutResult result, int asked, object timeout_s,
                           int64_t started) except -1
    @cython.final
    cdef int wait(self, PutResult result, int asked, object timeout_s, int64_t started) except -1
