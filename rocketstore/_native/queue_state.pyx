"""Where the next message of a queue goes: written by the appender alone, under its mutex."""

cimport cython
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cdef extern from "rs_atomic.h" nogil:
    int64_t rs_load_int64(const int64_t *where)


@cython.final
@cython.auto_pickle(False)
cdef class QueueState:
    """Next queue offset of one (topic, queue id), and what was put there since the store was opened."""

    def __init__(self, str topic not None, bytes topic_bytes not None, int32_t queue_id,
                 int64_t next_offset):
        memset(&self.state, 0, sizeof(self.state))
        self.topic = topic
        self.topic_bytes = topic_bytes
        self.queue_id = queue_id
        self.state.next_offset = next_offset

    @property
    def next_offset(self):
        return rs_load_int64(&self.state.next_offset)

    @property
    def messages(self):
        return rs_load_int64(&self.state.messages)

    @property
    def bytes(self):
        return rs_load_int64(&self.state.bytes)
