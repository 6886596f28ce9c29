# Bodies as callers give them: bytes, or anything with a buffer.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from rocketstore._native.format.csrc cimport rs_span

cdef struct Bodies:
    rs_span *spans
    Py_buffer *views  # of those that are no bytes objects, `held` so far
    size_t held
    size_t largest  # place of the largest

# Points at the bytes of a body that is no bytes object; it stays pinned until the view goes.
# `index`: its place among several, -1 for one alone.
cdef int view_open(Py_buffer *view, rs_span *span, object data, Py_ssize_t index) except -1
cdef bytes body_copy(object data)

# Points at the bytes of one body; whether there is a view to release.
cdef inline bint body_open(Py_buffer *view, rs_span *span, object body) except -1:
    if PyBytes_Check(body):
        span.bytes = <const uint8_t *>PyBytes_AS_STRING(body)
        span.size = <size_t>PyBytes_GET_SIZE(body)
        return False
    view_open(view, span, body, -1)
    return True

# Points at the bytes of all; bodies_close also after an error.
cdef int bodies_open(Bodies *bodies, list items) except -1
cdef void bodies_close(Bodies *bodies)

# The bodies of a batch, or why it is none.
cdef list several_bodies(object bodies)
