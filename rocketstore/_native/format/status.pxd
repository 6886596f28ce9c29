# What the statuses of csrc are called, and which exception each one is. Nothing else maps them.

from libc.stdint cimport int64_t

from rocketstore._native.format.csrc cimport rs_status

# The name of a status as users see it: "blank", "body crc", …
cdef str status_text(rs_status status)

# 0 for RS_OK; raises for anything else. `physical_offset` is where the record is, -1 when unknown.
cdef int check(rs_status status, int64_t physical_offset) except -1
