from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from rocketstore._native.format.csrc cimport bool_, rs_span

cdef extern from "rs_filter.h" nogil:
    enum:
        RS_FILTER_SLOTS_MAX
        RS_FILTER_STACK_MAX
    ctypedef enum rs_verdict:
        RS_VERDICT_FALSE
        RS_VERDICT_TRUE
        RS_VERDICT_NULL
        RS_VERDICT_ERROR
        RS_VERDICT_UNSURE
    ctypedef enum rs_filter_code:
        RS_FILTER_CONSTANT
        RS_FILTER_AND
        RS_FILTER_OR
        RS_FILTER_NOT
        RS_FILTER_IS_NULL
        RS_FILTER_CAST
        RS_FILTER_TRUTH
        RS_FILTER_IN
        RS_FILTER_CONTAINS
        RS_FILTER_STARTS
        RS_FILTER_ENDS
        RS_FILTER_INT
        RS_FILTER_LONG
        RS_FILTER_DOUBLE
        RS_FILTER_CODES
    enum:
        RS_FILTER_LESS
        RS_FILTER_SAME
        RS_FILTER_MORE
        RS_FILTER_ELSE_FALSE
    ctypedef struct rs_filter_op:
        uint8_t code
        uint8_t accepts
        bool_ negated
        uint16_t slot
        uint32_t first_text
        uint32_t text_count
        int64_t number
        double real
        const uint32_t *borders
    ctypedef struct rs_filter:
        const rs_filter_op *ops
        size_t op_count
        const rs_span *names
        size_t slot_count
        const rs_span *texts
    void rs_filter_borders(rs_span text, uint32_t *borders)
    rs_verdict rs_filter_verdict(const rs_filter *filter, rs_span properties)


cdef class FilterProgram:
    cdef rs_filter filter
    cdef rs_filter_op *ops
    cdef rs_span *names
    cdef rs_span *texts
    cdef uint32_t *borders  # of the texts of "contains", one after the other
    cdef tuple kept         # the bytes that names and texts point to
    cdef object unsure
    cdef Py_ssize_t put(self, rs_filter_op *to, tuple op, Py_ssize_t slots, list texts,
                        Py_ssize_t depth) except -1
    cdef bint answer(self, bytes properties) except -1
