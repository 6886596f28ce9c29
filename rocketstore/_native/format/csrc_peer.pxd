# The headers of requests and answers between a guest of a store and its host.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

cdef extern from "rs_peer.h" nogil:
    enum:
        RS_ASK_PUT
        RS_ASK_WAIT
        RS_ASK_WHOLE
        RS_ASK_UNIQUE
        RS_ASK_EXPECTED
        RS_ANSWER_DONE
        RS_ANSWER_LATE
        RS_ANSWER_AGAIN
        RS_ANSWER_ERROR
        RS_ERROR_SIZE_MAX
    ctypedef struct rs_ask:
        uint32_t size
        uint32_t number
        uint8_t kind
        uint8_t level
        uint8_t flags
        uint8_t zero
        uint32_t count
        int64_t limit_ms
        int64_t end
    ctypedef struct rs_answer:
        uint32_t size
        uint32_t number
        uint8_t status
        uint8_t again
        uint16_t zero
        uint32_t count
        int64_t physical_offset
        int64_t end_offset
        int64_t queue_offset
        int64_t store_timestamp_ms
        int64_t due_ms
        int64_t committed
        int64_t flushed
    bint rs_ask_holds(const rs_ask *ask, size_t size_max)
    bint rs_answer_holds(const rs_answer *answer, uint32_t asked)
