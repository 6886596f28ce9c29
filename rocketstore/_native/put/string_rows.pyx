"""Columns of texts, and the property text of one row of them."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from rocketstore._native.format.csrc cimport (
    RS_BODY_TOO_LARGE, RS_OK, RS_PROPERTIES_MAX, RS_PROPERTIES_TOO_LARGE, RS_PROPERTY_ILLEGAL,
    rs_message, rs_property_check, rs_span, rs_status,
)
from rocketstore._native.format.status cimport status_text

from rocketstore.errors import (
    MessageRejectedError, MessageTooLargeError, PropertiesTooLargeError,
)


cdef rs_status text_add(RowText *text, rs_span name, rs_span value) noexcept nogil:
    cdef rs_status status = rs_property_check(name, value)
    text.name, text.value = name, value
    if status != RS_OK:
        return status
    if name.size + value.size + 2 > RS_PROPERTIES_MAX - text.size:
        return RS_PROPERTIES_TOO_LARGE
    memcpy(text.bytes + text.size, name.bytes, name.size)
    text.size += name.size
    text.bytes[text.size] = 1
    memcpy(text.bytes + text.size + 1, value.bytes, value.size)
    text.size += value.size + 2
    text.bytes[text.size - 1] = 2
    return RS_OK


cdef bint name_known(const RowText *text, rs_span name) noexcept nogil:
    cdef size_t i
    for i in range(text.known_count):
        if (text.known[i].size == name.size
                and memcmp(text.known[i].bytes, name.bytes, name.size) == 0):
            return True
    return False


cdef rs_span four(const char *name) noexcept nogil:
    cdef rs_span span
    span.bytes, span.size = <const uint8_t *>name, 4
    return span


@cython.final
@cython.auto_pickle(False)
cdef class Strings:
    """A column of texts in Arrow's layout, checked: row i is data[offsets[i]:offsets[i + 1]]."""

    def __cinit__(self, offsets, data):
        cdef Py_ssize_t i
        self.offsets = offsets
        self.data = data
        if self.offsets.shape[0] == 0 or self.offsets[0] < 0:
            raise ValueError("offsets: n rows need n + 1 offsets that begin at 0 or more")
        for i in range(self.offsets.shape[0] - 1):
            if self.offsets[i + 1] < self.offsets[i]:
                raise ValueError(f"offsets: fall at row {i}")
        if self.offsets[self.offsets.shape[0] - 1] > self.data.shape[0]:
            raise ValueError("offsets: end behind the data")

    @property
    def places(self):
        return self.offsets

    @property
    def text(self):
        return self.data

    @property
    def rows(self):
        return self.offsets.shape[0] - 1


cdef int check_name(RowText *text, rs_span name, object refused) except -1:
    """0; or raises what `refused(name)` says. Each name is asked for once."""
    if name_known(text, name):
        return 0
    refused(PyBytes_FromStringAndSize(<const char *>name.bytes, <Py_ssize_t>name.size))
    if text.known_count < KNOWN_NAMES:
        text.known[text.known_count] = name
        text.known_count += 1
    return 0


cdef rs_status describe_own(RowText *text, Py_ssize_t row, Strings keys,
                            Strings tags) noexcept nogil:
    cdef rs_span value
    cdef rs_status status = RS_OK
    if keys is not None:
        value = row_of(keys.offsets, keys.data, row)
        if value.size:
            text.field = b"keys"
            status = text_add(text, four(b"KEYS"), value)
    if tags is not None and status == RS_OK:
        value = row_of(tags.offsets, tags.data, row)
        if value.size:
            text.field = b"tags"
            status = text_add(text, four(b"TAGS"), value)
    return status


cdef rs_status describe(RowText *text, Py_ssize_t row, Strings tags, Strings keys, Strings names,
                        Strings values, const int64_t[::1] places, object refused) except *:
    """The property text of one row."""
    cdef rs_span name, value
    cdef rs_status status = RS_OK
    cdef int64_t place
    text.size = 0
    text.field = NULL
    if places is not None:
        for place in range(places[row], places[row + 1]):
            name = row_of(names.offsets, names.data, place)
            value = row_of(values.offsets, values.data, place)
            if name.size and status == RS_OK:
                check_name(text, name, refused)
            if status == RS_OK:
                status = text_add(text, name, value)
    if status == RS_OK:
        status = describe_own(text, row, keys, tags)
    return status


cdef str refusal(const RowText *text, const rs_message *message, rs_status status,
                 int64_t max_body):
    cdef str field
    if status == RS_BODY_TOO_LARGE:
        return f"body: {message.body.size} bytes, at most {max_body}"
    if status == RS_PROPERTIES_TOO_LARGE:
        return f"properties: more than {RS_PROPERTIES_MAX} bytes, encoded"
    if status != RS_PROPERTY_ILLEGAL:
        return status_text(status)
    if text.field is not NULL:
        field = text.field.decode("ascii")
    elif text.name.size == 0:
        return "properties: an empty name"
    else:
        field = f"property {text.name.bytes[:text.name.size].decode('utf-8', 'replace')!r}"
        if text.value.size == 0:
            return f"{field}: an empty value (RocketMQ drops it)"
    return f"{field}: holds a control character 1 or 2, which separate properties"


cdef int reject_row(const RowText *text, const rs_message *message, rs_status status,
                    int64_t max_body, Py_ssize_t row) except -1:
    kind = MessageRejectedError
    if status == RS_BODY_TOO_LARGE:
        kind = MessageTooLargeError
    elif status == RS_PROPERTIES_TOO_LARGE:
        kind = PropertiesTooLargeError
    raise kind(f"row {row}: {refusal(text, message, status, max_body)}")
