# Columns of texts in Arrow's layout, and the property text of one row of them.

from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.format.csrc cimport rs_message, rs_span, rs_status

cdef enum:
    KNOWN_NAMES = 32

cdef struct RowText:
    uint8_t *bytes  # room for the largest property text
    size_t size
    const char *field  # what was added last; NULL: a property, with its name and value
    rs_span name
    rs_span value
    rs_span known[KNOWN_NAMES]  # property names that were checked
    size_t known_count

cdef class Strings:
    cdef const int64_t[::1] offsets
    cdef const uint8_t[::1] data

cdef inline rs_span row_of(const int64_t[::1] offsets, const uint8_t[::1] data,
                           Py_ssize_t row) noexcept nogil:
    cdef rs_span span
    span.size = <size_t>(offsets[row + 1] - offsets[row])
    span.bytes = &data[offsets[row]] if span.size else NULL
    return span

# The texts of `keys` and `tags` in `row`, added to a property text; the empty one is none.
cdef rs_status describe_own(RowText *text, Py_ssize_t row, Strings keys,
                            Strings tags) noexcept nogil
cdef rs_status describe(RowText *text, Py_ssize_t row, Strings tags, Strings keys, Strings names,
                        Strings values, const int64_t[::1] places, object refused) except *

# Why a row cannot be a message, with the name of the field.
cdef str refusal(const RowText *text, const rs_message *message, rs_status status, int64_t max_body)
# Raises it, as the error of its kind.
cdef int reject_row(const RowText *text, const rs_message *message, rs_status status,
                    int64_t max_body, Py_ssize_t row) except -1
