# Where the bytes of a body are.

from cpython.buffer cimport PyBUF_SIMPLE, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t

from rocketstore._native.core cimport rs_span


cdef inline rs_span bytes_span(object data) noexcept:
    cdef rs_span span
    span.bytes = <const uint8_t *>PyBytes_AS_STRING(data)
    span.size = <size_t>PyBytes_GET_SIZE(data)
    return span


cdef inline int view_open(Py_buffer *view, rs_span *span, object data) except -1:
    """Points at the bytes of a body that is no bytes object; it stays pinned until the view goes."""
    if isinstance(data, str):
        raise TypeError("body is a str; encode it first, for example body.encode()")
    PyObject_GetBuffer(data, view, PyBUF_SIMPLE)
    span.bytes = <const uint8_t *>view.buf
    span.size = <size_t>view.len
    return 0
