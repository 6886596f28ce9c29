from libc.stdint cimport int64_t

from rocketstore._native.format.csrc cimport rs_record, rs_span

# One record. `record` points into `owner`: a Mapping or bytes, both of which never change their address.
cdef class Message:
    cdef object owner
    cdef rs_record record
    cdef int64_t due_ms  # what the unit says that it was read by, where that is a time; else 0

    cdef bint find_property(self, bytes name, rs_span *value) except -1
    cdef property_text(self, bytes name)

# A message over `record`, whose spans lie in `owner`. The caller has decoded and judged it.
cdef Message make_message(object owner, const rs_record *record)

# The same for `count` records.
cdef list make_messages(object owner, const rs_record *records, Py_ssize_t count)
