from libc.stdint cimport int64_t, uint8_t

# Mapped memory. Views, readers and the MappedFile hold it; it is unmapped when the last one lets go.
cdef class Mapping:
    cdef uint8_t *base
    cdef int64_t size
    cdef bint counted
    cdef bint locked

    cdef int export(self, Py_buffer *view, int flags) except -1


# `fd` -1: memory without a file. Raises OSError.
cdef Mapping map_memory(int fd, object path, int64_t size, int protection, int flags)
