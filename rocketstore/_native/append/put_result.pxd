from libc.stdint cimport int32_t, int64_t

from rocketstore._native.format.csrc cimport rs_appended, rs_host

cdef enum:
    MEMORY = 0
    OS = 1
    DISK = 2  # above it: on the disks of `copies_of(level)` machines

cpdef str durability_name(int level)
cpdef int durability_level(object name) except -1
cdef int64_t number_of(str name, object value, int64_t low, int64_t high) except? -1
cdef int set_host(rs_host *host, bytes packed) except -1


cdef class PutResult:
    cdef readonly int64_t physical_offset
    cdef readonly int64_t end_offset
    cdef readonly int64_t queue_offset
    cdef readonly int64_t store_timestamp_ms
    cdef readonly int64_t count
    cdef int64_t due_ms  # when it will be delivered, of a delayed message; else 0
    cdef readonly object id
    cdef readonly int32_t queue_id
    cdef short level
    cdef short again  # whether it is about a message that was there before
    cdef rs_host store_host
    cdef bytes offsets  # of each row in the log; None: one row
    cdef bytes rows  # in the queue; None: one after another
    cdef bytes ids  # of the queues; None: all in one

    cdef int add_rows(self, const rs_appended *appended, int64_t done, int64_t part,
                      bytes given) except -1


cpdef PutResult nothing_put(object durability, int32_t queue_id=*)


# The result of a message that waits: until when, by its `Delay`, and its id.
cdef PutResult waiting(PutResult result, object delay, object unique_id)
cdef PutResult put_result(const rs_appended *appended, int32_t queue_id, int64_t count, int level,
                          const rs_host *store_host)
