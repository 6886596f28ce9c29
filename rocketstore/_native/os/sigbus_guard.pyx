"""SIGBUS in our own loops over mapped files as an error of Python, for all of `_native` (D-34)."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EIO
from libc.string cimport memset

import os

from rocketstore.errors import ReadFailedError

cdef extern from "sigbus_guard.h" nogil:
    bint rs_guard_run(guarded_work work, void *given) noexcept
    bint rs_guard_copy(void *to, const void *from_, size_t size) noexcept
    void rs_guard_own() noexcept
    bint rs_guard_owns() noexcept
    const void *rs_guard_address

cdef enum:
    # Copies above this give up the GIL; below, giving it up costs more than the copy.
    LONG_COPY = 1 << 18

cdef struct zero_call:
    void *to
    size_t size


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
    """A tmpfs gives a page also to who reads a hole, or has no room for it."""
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
