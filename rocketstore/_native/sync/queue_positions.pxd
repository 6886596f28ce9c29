from libc.stdint cimport int32_t, int64_t

from rocketstore._native.format.csrc cimport rs_queue_state


cdef class QueueState:
    cdef rs_queue_state state
    cdef readonly str topic
    cdef readonly bytes topic_bytes
    cdef readonly int32_t queue_id
    cdef public bint expects_put  # somebody has said that a first message is near


cdef class QueueEnd:
    cdef int64_t offset
