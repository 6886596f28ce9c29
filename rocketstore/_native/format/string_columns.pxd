from libc.stdint cimport int32_t, uint8_t

from rocketstore._native.format.csrc_columns cimport rs_dictionary

# MemoryError, never NULL. PyMem_RawFree frees it.
cdef void *allocated(size_t count, size_t size) except NULL

# A dictionary of csrc and the objects that own what its words point to.
cdef class Words:
    cdef rs_dictionary table
    cdef size_t room
    cdef list kept
    cdef list texts
    cdef tuple shown

    cdef int clear(self) except -1
    cdef int resize(self, size_t room) except -1
    # `queue_ids` None: all of them. The word is not there yet.
    cdef int add(self, bytes word, str shown, bint wanted, object queue_ids) except -1
    # All of them, by their numbers.
    cdef tuple words(self)

# Property texts taken apart: the ends of each row's pairs; offsets, bytes and "is UTF-8" of all names, and of
# all values.
cdef tuple pairs_of(const int32_t[::1] offsets, const uint8_t[::1] data, size_t rows)

cdef bint utf8(const int32_t[::1] offsets, const uint8_t[::1] data)
