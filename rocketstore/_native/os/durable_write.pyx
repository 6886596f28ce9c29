"""Writes of a flush to the file of the log: whole, in an order that a kill cannot turn into a beginning without
its end, and on disk where that is asked for."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, EIO, ENOSYS, EOPNOTSUPP
from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.os.libc_calls cimport RWF_DSYNC
from rocketstore._native.os.syscalls cimport done, io_part, outcome, page_size, sys


cdef int64_t write_parts(int fd, const uint8_t *data, int64_t size, const uint8_t *zeros,
                         int64_t zero_count, int64_t offset, int flags) noexcept nogil:
    """All of `data`, then `zero_count` of `zeros`: 0, or minus an errno. -ENOSYS with `flags`: the system does
    not know them."""
    cdef io_part[2] parts
    cdef int64_t have = 0, total = size + zero_count, result
    while have < total:
        if flags:
            parts[0].iov_base = <void *>(data + min(have, size))
            parts[0].iov_len = <size_t>(size - min(have, size))
            parts[1].iov_base = <void *>zeros
            parts[1].iov_len = <size_t>(total - max(have, size))
            result = outcome(sys.pwritev2(fd, parts, 2 if zero_count else 1, offset + have, flags))
        elif have < size:
            result = outcome(sys.pwrite(fd, data + have, <size_t>(size - have), offset + have))
        else:
            result = outcome(sys.pwrite(fd, zeros, <size_t>(total - have), offset + have))
        if result > 0:
            have += result
        elif result == 0:
            return -EIO  # neither progress nor a reason: never a success
        elif result != -EINTR:
            return -ENOSYS if flags and have == 0 and result == -EOPNOTSUPP else result
    return 0


cdef int64_t write_head_last_c(int fd, const uint8_t *data, int64_t size,
                               int64_t offset) noexcept nogil:
    cdef int64_t head = page_size - offset % page_size
    cdef int64_t result = 0
    if size > head:
        result = write_parts(fd, data + head, size - head, NULL, 0, offset + head, 0)
    if result == 0:
        result = write_parts(fd, data, min(size, head), NULL, 0, offset, 0)
    return result


cdef int64_t sync_c(int fd) noexcept nogil:
    cdef int64_t result = -EINTR
    while result == -EINTR:
        result = outcome(sys.fdatasync(fd))
    return result


cdef int64_t write_durable_c(int fd, const uint8_t *data, int64_t size, int64_t offset,
                             const uint8_t *zeros, int64_t zero_count) noexcept nogil:
    cdef int64_t result
    if offset % page_size + size <= page_size:
        result = write_parts(fd, data, size, zeros, zero_count, offset, RWF_DSYNC)
        if result != -ENOSYS:
            return result
    result = write_parts(fd, NULL, 0, zeros, zero_count, offset + size, 0)
    if result == 0:
        result = write_head_last_c(fd, data, size, offset)
    return sync_c(fd) if result == 0 else result


def write_head_last(int fd, data, int64_t offset):
    """All of `data`, its first page last. A kill ends a write between two pages: so it leaves nothing that
    begins where the data does (D-37). Raises OSError."""
    write(fd, data, offset, None)


def write_durable_head_last(int fd, data, int64_t offset, zeros=b""):
    """The same with `zeros` after it, on disk when this returns: one call where the data lies in one page (D-10)."""
    write(fd, data, offset, zeros)


cdef int write(int fd, object data, int64_t offset, const uint8_t[::1] zeros) except -1:
    """Durably unless `zeros` is None."""
    cdef Py_buffer buffer
    cdef int64_t result
    cdef int64_t zero_count = 0 if zeros is None else zeros.shape[0]
    cdef const uint8_t *zero_bytes = &zeros[0] if zero_count else NULL
    cdef bint durable = zeros is not None
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        with nogil:
            if durable:
                result = write_durable_c(fd, <uint8_t *>buffer.buf, buffer.len, offset, zero_bytes,
                                         zero_count)
            else:
                result = write_head_last_c(fd, <uint8_t *>buffer.buf, buffer.len, offset)
        done(result, fd)
    finally:
        PyBuffer_Release(&buffer)
    return 0
