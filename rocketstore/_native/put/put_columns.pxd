# Columns of messages, each with a topic and a queue of its own.

from libc.stdint cimport int32_t, int64_t

from rocketstore._native.format.csrc cimport rs_message, rs_status
from rocketstore._native.put.string_rows cimport RowText, Strings


cdef class MessageColumns:
    cdef Strings bodies
    cdef tuple topics
    cdef const int32_t[::1] topic_rows
    cdef const int32_t[::1] queue_ids
    cdef const int64_t[::1] born_ms
    cdef const int32_t[::1] flags
    cdef const int32_t[::1] sys_flags
    cdef const int32_t[::1] reconsume_times
    cdef Strings tags
    cdef Strings keys
    cdef const int64_t[::1] property_places
    cdef Strings names
    cdef Strings values
    cdef rs_message common  # what all rows have
    cdef int64_t max_body
    cdef object refused

    # No property texts, and no frames, of these columns have more bytes.
    cdef int check_shapes(self) except -1
    cdef Py_ssize_t texts_bound(self)
    cdef Py_ssize_t frames_bound(self)
    # The message of a row, checked, with its property text at text.bytes; or why it cannot be one.
    cdef rs_status fill(self, Py_ssize_t row, rs_message *message, RowText *text) except *
