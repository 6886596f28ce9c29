"""Bodies as callers give them: bytes, or anything with a buffer."""

import re

from cpython.buffer cimport (
    PyBUF_CONTIG_RO, PyBUF_FORMAT, PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport uint8_t
from libc.string cimport memset, strpbrk

from rocketstore._native.format.csrc cimport rs_span
from rocketstore._native.os.sigbus_guard cimport check_readable, copied, raise_no_body

from rocketstore.errors import MessageRejectedError


cdef int no_body(object data, Py_ssize_t index) except -1:
    """TypeError: what was expected, and what to do."""
    cdef str name = "body" if index < 0 else f"bodies[{index}]"
    cdef str instead = "encode it first, for example with json.dumps(…).encode()"
    if isinstance(data, str):
        instead = "encode it first, for example with .encode()"
    elif data is None:
        instead = "an empty body is b''"
    raise TypeError(f"{name}: expected bytes or a buffer, not {type(data).__name__}; {instead}")


cdef bytes in_one_piece(object data, Py_ssize_t index):
    """A copy of what is not contiguous; says why where the memory is not what the caller means."""
    cdef str name = "body" if index < 0 else f"bodies[{index}]"
    try:
        view = memoryview(data)
        check_readable(view)
    except (BufferError, ValueError) as error:  # of datetimes, or closed by now
        raise MessageRejectedError(f"{name}: {error}; give its bytes, as by .tobytes()") from None
    cdef str kinds = re.sub(":[^:]*:", "", view.format)  # names of fields are between colons
    if "O" in kinds:
        raise TypeError(f"{name}: expected bytes or a buffer, not an array of objects, "
                        "whose memory holds addresses; put its items, each as bytes")
    if "w" in kinds or "u" in kinds:
        raise TypeError(f"{name}: expected bytes or a buffer, not an array of texts, "
                        "whose memory holds each character as a number; encode its items")
    return bytes(view)


cdef int view_open(Py_buffer *view, rs_span *span, object data, Py_ssize_t index) except -1:
    # NumPy's texts are buffers, too: of four bytes a letter.
    if PyUnicode_Check(data) or not PyObject_CheckBuffer(data):
        no_body(data, index)
    try:
        PyObject_GetBuffer(data, view, PyBUF_CONTIG_RO | PyBUF_FORMAT)
    except (BufferError, ValueError):
        PyObject_GetBuffer(in_one_piece(data, index), view, PyBUF_SIMPLE)
    if view.format is not NULL and strpbrk(view.format, b"Owu") is not NULL:
        PyBuffer_Release(view)
        PyObject_GetBuffer(in_one_piece(data, index), view, PyBUF_SIMPLE)
    span.bytes = <const uint8_t *>view.buf
    span.size = <size_t>view.len
    return 0


cdef bytes body_copy(object data):
    cdef Py_buffer view
    cdef rs_span span
    view_open(&view, &span, data, -1)
    cdef bytes copy = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>span.size)
    cdef bint whole = copied(PyBytes_AS_STRING(copy), span.bytes, span.size)
    PyBuffer_Release(&view)
    if not whole:
        raise_no_body()
    return copy


cdef list several_bodies(object bodies):
    if isinstance(bodies, (bytes, bytearray, memoryview, str)):
        raise TypeError(
            f"bodies: one {type(bodies).__name__}, expected several bodies; one goes to put")
    if not hasattr(bodies, "__iter__"):
        raise TypeError(f"bodies: expected several bodies, not {type(bodies).__name__}")
    return list(bodies)


cdef int bodies_open(Bodies *bodies, list items) except -1:
    cdef size_t count = <size_t>len(items)
    cdef size_t i, most = 0
    cdef object item
    memset(bodies, 0, sizeof(bodies[0]))
    bodies.spans = <rs_span *>PyMem_RawMalloc(count * sizeof(rs_span))
    if bodies.spans is NULL:
        raise MemoryError("no memory for the batch")
    for i in range(count):
        item = items[i]
        if PyBytes_Check(item):
            bodies.spans[i].bytes = <const uint8_t *>PyBytes_AS_STRING(item)
            bodies.spans[i].size = <size_t>PyBytes_GET_SIZE(item)
        else:
            if bodies.views is NULL:
                bodies.views = <Py_buffer *>PyMem_RawMalloc((count - i) * sizeof(Py_buffer))
                if bodies.views is NULL:
                    raise MemoryError("no memory for the batch")
            view_open(&bodies.views[bodies.held], &bodies.spans[i], item, <Py_ssize_t>i)
            bodies.held += 1
        if bodies.spans[i].size > most:
            most = bodies.spans[i].size
            bodies.largest = i
    return 0


cdef void bodies_close(Bodies *bodies):
    while bodies.held > 0:
        bodies.held -= 1
        PyBuffer_Release(&bodies.views[bodies.held])
    PyMem_RawFree(bodies.views)
    PyMem_RawFree(bodies.spans)
