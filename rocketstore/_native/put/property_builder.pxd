# A growing property text on the stack that moves to the heap when it must (format.md 2.6).

from libc.stdint cimport uint8_t

from rocketstore._native.format.csrc cimport rs_message, rs_span

cdef enum:
    TEXT_ON_STACK = 1024

cdef struct Text:
    uint8_t *bytes
    size_t size
    size_t room
    uint8_t *heap
    uint8_t stack[TEXT_ON_STACK]

cdef void text_start(Text *text) noexcept nogil
cdef void text_free(Text *text) noexcept nogil
cdef int text_reserve(Text *text, size_t more) except -1
cdef int text_add(Text *text, const uint8_t *bytes, size_t size) except -1
cdef const uint8_t *checked(object what, object value, Py_ssize_t *size) except NULL
cdef int text_property(Text *text, object name, object value) except -1
cdef int text_named(Text *text, object name, bytes opening, object value) except -1
# Adds TAGS; raises for those that no consumer could ask for: an expression is "a || b", blanks around a tag
# do not count.
cdef int text_tags(Text *text, object tags) except -1
cdef bint selectable(const uint8_t *bytes, size_t size) noexcept nogil
cdef int text_keys(Text *text, object keys) except -1
cdef int text_properties(Text *text, object properties, object reserved) except -1
cdef rs_span text_span(Text *text) noexcept nogil
# Adds UNIQ_KEY; raises where it is there already.
cdef int text_unique_id(Text *text, object unique_id) except -1
# The unique id among the properties of a message; None without one.
cdef object id_in(const rs_message *message)
