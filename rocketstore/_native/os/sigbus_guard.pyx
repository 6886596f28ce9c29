"""SIGBUS in our own loops over mapped files as an error of Python, for all of `_native` (D-34)."""

from cpython.buffer cimport PyBUF_FULL_RO, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EIO
from libc.stdint cimport uint8_t
from libc.string cimport memset

import os

from rocketstore.errors import MessageRejectedError, ReadFailedError

cdef extern from "sigbus_guard.h" nogil:
    bint rs_guard_run(guarded_work work, void *given) noexcept
    bint rs_guard_copy(void *to, const void *from_, size_t size) noexcept
    void rs_guard_own() noexcept
    bint rs_guard_owns() noexcept
    const void *rs_guard_address

cdef extern from *:
    """
    /* A byte of each page, of the smallest pages that there are. */
    static void rs_look_at(const volatile unsigned char *at, const volatile unsigned char *end)
    {
        for (; at < end; at += 4096)
            (void)*at;
        (void)end[-1];
    }
    """
    void rs_look_at(const uint8_t *at, const uint8_t *end) noexcept nogil

cdef enum:
    # Copies above this give up the GIL; below, giving it up costs more than the copy.
    LONG_COPY = 1 << 18

cdef struct zero_call:
    void *to
    size_t size

cdef struct look_call:
    const uint8_t *begin
    const uint8_t *end


cdef void zero_work(void *given) noexcept nogil:
    cdef zero_call *call = <zero_call *>given
    memset(call.to, 0, call.size)


cdef bint guarded(guarded_work work, void *given) noexcept nogil:
    return rs_guard_run(work, given)


cdef bint guarded_copy(void *to, const void *from_, size_t size) noexcept nogil:
    return rs_guard_copy(to, from_, size)


cdef bint copied(void *to, const void *from_, size_t size) noexcept:
    cdef bint whole
    if size <= LONG_COPY:
        return rs_guard_copy(to, from_, size)
    with nogil:
        whole = rs_guard_copy(to, from_, size)
    return whole


cdef bint guarded_zero(void *to, size_t size) noexcept nogil:
    cdef zero_call call
    call.to = to
    call.size = size
    return rs_guard_run(zero_work, &call)


cdef const void *fault_address() noexcept nogil:
    return rs_guard_address


cdef void own_signal() noexcept nogil:
    rs_guard_own()


cdef bytes copied_bytes(const void *from_, size_t size, object what):
    cdef bytes copy = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>size)
    if not copied(PyBytes_AS_STRING(copy), from_, size):
        raise_unread("the log", what)
    return copy


def owns_signal():
    """Whether SIGBUS comes to us first."""
    return rs_guard_owns()


cdef int raise_unread(object path, object what) except -1:
    raise ReadFailedError(f"{path}: {what} cannot be read: {why_unread(path)}")


cdef str why_unread(object path):
    """A tmpfs gives a page also to a read of a hole, or has no room for it."""
    cdef bint full = False
    try:
        full = os.statvfs(path).f_bavail == 0
    except (OSError, TypeError, ValueError):
        pass  # no name of a file
    if full:
        return ("no room on its file system: a tmpfs takes memory even to read a hole; make room, "
                "or the disk failed, or another program cut the file")
    return "the disk does not give it back, or another program cut the file"


cdef int raise_unwritten(object path) except -1:
    raise OSError(EIO, "a page of the file could not be changed (SIGBUS): the disk failed or is "
                       "full, or another program cut the file", path)


cdef int raise_no_body() except -1:
    raise MessageRejectedError(
        "memory that was given for the message cannot be read (SIGBUS): the file that it is mapped "
        "from was cut, or its disk failed; it is not stored, give a copy of what can be read")


cdef void look_work(void *given) noexcept nogil:
    rs_look_at((<look_call *>given).begin, (<look_call *>given).end)


cpdef int check_readable(object data) except -1:
    cdef Py_buffer view
    cdef look_call call
    cdef Py_ssize_t reach
    cdef int axis
    cdef bint whole
    try:
        PyObject_GetBuffer(data, &view, PyBUF_FULL_RO)
    except (BufferError, TypeError, ValueError):
        return 0  # of dates, or of no bytes: its user says so
    call.begin = <const uint8_t *>view.buf
    call.end = call.begin + view.itemsize
    for axis in range(view.ndim):
        reach = (view.shape[axis] - 1) * view.strides[axis]
        if reach < 0:
            call.begin += reach
        else:
            call.end += reach
    rs_guard_own()  # there may be no store in this process
    with nogil:
        whole = view.len == 0 or rs_guard_run(look_work, &call)
    PyBuffer_Release(&view)
    return 0 if whole else raise_no_body()
