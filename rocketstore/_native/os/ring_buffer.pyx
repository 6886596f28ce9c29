"""A ring of memory mapped twice in a row: any run of up to its size is contiguous.

The write buffer of stores whose default promise is `disk`. The byte of physical offset o lies at
o modulo the size; the flusher writes it to the file from here.
"""

cimport cython
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t, uint8_t
from rocketstore._native.os.syscalls cimport sys

from rocketstore.values.limits import explained

cdef extern from "<sys/mman.h>" nogil:
    enum:
        MAP_ANONYMOUS
        MAP_FIXED
        MAP_PRIVATE
        MAP_SHARED
        PROT_NONE
        PROT_READ
        PROT_WRITE
    void *MAP_FAILED

cdef enum:
    MFD_CLOEXEC = 1
    MLOCK_ONFAULT = 1


@cython.final
@cython.auto_pickle(False)
cdef class RingBuffer:
    """`size` is rounded up to whole pages of 64 KiB, so that it fits every page size."""

    cdef uint8_t *base
    cdef readonly int64_t size
    cdef readonly bint memory_locked

    def __cinit__(self, int64_t size):
        self.base = NULL
        self.size = (size + 0xFFFF) // 0x10000 * 0x10000
        cdef int fd = sys.memfd_create(b"rocketstore-ring", MFD_CLOEXEC)
        if fd < 0:
            raise self.refused("memfd_create")
        try:
            self.map_twice(fd)
        finally:
            sys.close(fd)
        # Each page once it is used: a store that is idle holds none.
        self.memory_locked = sys.mlock2(self.base, <size_t>self.size, MLOCK_ONFAULT) == 0

    cdef int map_twice(self, int fd) except -1:
        cdef size_t size = <size_t>self.size
        cdef void *base
        cdef void *half
        cdef size_t start
        while sys.ftruncate(fd, self.size) != 0:
            if errno == EINTR:
                continue
            raise self.refused("ftruncate")
        base = sys.mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
        if base == MAP_FAILED:
            raise self.refused("mmap")
        self.base = <uint8_t *>base
        for start in range(2):  # both halves show the same memory
            half = sys.mmap(self.base + start * size, size, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_FIXED, fd, 0)
            if half == MAP_FAILED:
                raise self.refused("mmap")
        return 0

    cdef object refused(self, str call):
        cdef int number = errno
        return OSError(number, f"write buffer of {self.size} bytes (write_buffer_bytes), {call}: "
                               f"{explained(number)}")

    @property
    def address(self):
        """Where the ring begins, for the appender of this process."""
        return <Py_ssize_t>self.base

    def run(self, int64_t offset, Py_ssize_t count):
        """A view of the `count` bytes of physical offset `offset` on; it keeps the ring alive."""
        if count < 0 or count > self.size or offset < 0:
            raise ValueError(f"run of {count} bytes at {offset} in a ring of {self.size}")
        cdef Py_ssize_t at = <Py_ssize_t>(offset % self.size)
        return memoryview(self)[at:at + count]

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.base, 2 * self.size, 1, flags)

    def __dealloc__(self):
        if self.base is not NULL:
            sys.munmap(self.base, 2 * <size_t>self.size)


cdef extern from "Python.h":
    int PyBuffer_FillInfo(Py_buffer *view, object exporter, void *buf, Py_ssize_t size,
                          int readonly, int flags) except -1
