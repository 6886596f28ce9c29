from rocketstore._native.core cimport rs_record

# One record. `record` points into `owner`: a Mapping or bytes, both of which never change their address.
cdef class Message:
    cdef object owner
    cdef rs_record record

    cdef property_text(self, bytes name)

# A message over `record`, whose spans lie in `owner`. The caller has decoded and judged it.
cdef Message make_message(object owner, const rs_record *record)
