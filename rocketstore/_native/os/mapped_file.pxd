from libc.stdint cimport int64_t, uint8_t, uint64_t

from rocketstore._native.os.mapping cimport Mapping
from rocketstore._native.os.syscalls cimport file_stat

# `base` stays valid while the object lives, closed or not: its user keeps a reference.
cdef class MappedFile:
    cdef uint8_t *base
    cdef readonly int64_t size
    cdef readonly int64_t start_offset
    cdef readonly int fd
    cdef readonly bint writable
    cdef readonly bint closed
    cdef readonly str path
    cdef Mapping mapping
    cdef bint shared
    cdef uint64_t token
    cdef uint64_t device
    cdef readonly uint64_t inode
    cdef int64_t blocks  # loaded and stored whole: one thread grows it, others look

    cdef int64_t reserved_bytes(self) noexcept nogil
    cdef MappedFile identify(self, const file_stat *found)
    cdef int check_range(self, int64_t position, int64_t size) except -1
    cdef int check_writable(self) except -1
    cdef int check_shared(self) except -1
    cdef int64_t find(self, int fd, int64_t position, int64_t end) noexcept nogil
    cdef MappedFile without_holes(self)
