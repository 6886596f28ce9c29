"""The ends of a queue: where its next message goes, which the appender says, and how far its readers may
look, which the dispatcher says."""

cimport cython
from libc.stdint cimport int32_t, int64_t

from rocketstore._native.format.csrc_atomic cimport rs_load_int64, rs_store_int64, rs_store_max


@cython.final
@cython.auto_pickle(False)
cdef class QueueState:
    """Next queue offset of one (topic, queue id), and what was put there since the store was opened."""

    def __cinit__(self, str topic not None, bytes topic_bytes not None, int32_t queue_id,
                  int64_t next_offset):
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


@cython.final
@cython.auto_pickle(False)
cdef class QueueEnd:
    """Queue offset after the last unit that readers see."""

    @property
    def value(self):
        return rs_load_int64(&self.offset)

    @value.setter
    def value(self, int64_t offset):
        rs_store_int64(&self.offset, offset)

    def raise_to(self, int64_t offset):
        """The end, unless it is there already."""
        rs_store_max(&self.offset, offset)
