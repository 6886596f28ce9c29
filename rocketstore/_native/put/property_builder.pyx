"""Property text built from Python objects, checked on the way: the part of a put before the lock."""

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Check
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from cpython.tuple cimport PyTuple_Check
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport uint8_t
from libc.string cimport memchr, memcpy

from rocketstore._native.format.csrc cimport rs_message, rs_span

from rocketstore.errors import MessageRejectedError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object unicode, Py_ssize_t *size) except NULL


cdef void text_start(Text *text) noexcept nogil:
    text.bytes = text.stack
    text.size = 0
    text.room = TEXT_ON_STACK
    text.heap = NULL


cdef void text_free(Text *text) noexcept nogil:
    if text.heap is not NULL:
        PyMem_RawFree(text.heap)
        text.heap = NULL


cdef rs_span text_span(Text *text) noexcept nogil:
    cdef rs_span span
    span.bytes = text.bytes
    span.size = text.size
    return span


cdef int text_reserve(Text *text, size_t more) except -1:
    cdef size_t room
    cdef uint8_t *grown
    if text.room - text.size >= more:
        return 0
    room = 2 * (text.size + more)
    grown = <uint8_t *>PyMem_RawMalloc(room)
    if grown is NULL:
        raise MemoryError("no memory for the property text")
    memcpy(grown, text.bytes, text.size)
    text_free(text)
    text.heap = grown
    text.bytes = grown
    text.room = room
    return 0


cdef int text_add(Text *text, const uint8_t *bytes, size_t size) except -1:
    text_reserve(text, size)
    memcpy(text.bytes + text.size, bytes, size)
    text.size += size
    return 0


#: Properties that are arguments of put, by the names that the user knows.
cdef dict ARGUMENTS = {"TAGS": "tags", "KEYS": "keys", "__SHARDINGKEY": "shard_key"}


cdef str shown(object what, object value):
    name = ARGUMENTS.get(what)
    return f"property {what!r}" if name is None else f"{name} = {value!r}"


cdef const uint8_t *checked(object what, object value, Py_ssize_t *size) except NULL:
    """UTF-8 of a name or value that a property text may hold."""
    if not PyUnicode_Check(value):
        name = ARGUMENTS.get(what) or f"property {what!r}"
        raise TypeError(f"{name} = {value!r}: expected a str")
    cdef const uint8_t *bytes
    try:
        bytes = <const uint8_t *>PyUnicode_AsUTF8AndSize(value, size)
    except UnicodeEncodeError as error:
        raise MessageRejectedError(
            f"{shown(what, value)}: {value!r} cannot be UTF-8: {error}") from None
    if size[0] == 0:
        raise MessageRejectedError(
            f"{shown(what, value)}: empty names and values cannot be stored (RocketMQ drops them)")
    if (memchr(bytes, 1, <size_t>size[0]) is not NULL
            or memchr(bytes, 2, <size_t>size[0]) is not NULL):
        raise MessageRejectedError(
            f"{shown(what, value)}: {value!r} holds a control character 1 or 2, "
            "which separate properties")
    return bytes


cdef int text_property(Text *text, object name, object value) except -1:
    """Adds `name 01 value 02`."""
    cdef Py_ssize_t name_size, value_size
    cdef const uint8_t *name_bytes = checked(name, name, &name_size)
    cdef const uint8_t *value_bytes = checked(name, value, &value_size)
    text_reserve(text, <size_t>(name_size + value_size + 2))
    memcpy(text.bytes + text.size, name_bytes, <size_t>name_size)
    text.size += <size_t>name_size
    text.bytes[text.size] = 1
    memcpy(text.bytes + text.size + 1, value_bytes, <size_t>value_size)
    text.size += <size_t>value_size + 2
    text.bytes[text.size - 1] = 2
    return 0


cdef int text_named(Text *text, object name, bytes opening, object value) except -1:
    """As text_property for a name of our own; `opening` is the name and its separator."""
    cdef Py_ssize_t size
    cdef const uint8_t *bytes = checked(name, value, &size)
    text_add(text, <const uint8_t *>PyBytes_AS_STRING(opening), <size_t>PyBytes_GET_SIZE(opening))
    text_reserve(text, <size_t>size + 1)
    memcpy(text.bytes + text.size, bytes, <size_t>size)
    text.size += <size_t>size + 1
    text.bytes[text.size - 1] = 2
    return 0


cdef bint selectable(const uint8_t *bytes, size_t size) noexcept nogil:
    """Whether a consumer can ask for this tag: no "||" in it, no blanks around it. Blanks beyond ASCII
    do not count here."""
    cdef const uint8_t *found = bytes
    cdef const uint8_t *end = bytes + size
    if bytes[0] <= 32 or bytes[size - 1] <= 32:
        return False
    while True:
        found = <const uint8_t *>memchr(found, b'|', <size_t>(end - found))
        if found is NULL or found + 1 == end:
            return True
        if found[1] == b'|':
            return False
        found += 1


cdef int text_tags(Text *text, object tags) except -1:
    """Adds TAGS."""
    cdef size_t start = text.size + 5
    text_named(text, "TAGS", b"TAGS\x01", tags)
    if not selectable(text.bytes + start, text.size - start - 1):
        raise MessageRejectedError(
            f"tags = {tags!r}: one tag, without blanks around it; a consumer takes '||' for what "
            "separates tags and could never ask for it (put_message stores it as it is)")
    return 0


cdef int text_keys(Text *text, object keys) except -1:
    """Adds KEYS: one str, or several joined with blanks."""
    cdef Py_ssize_t size
    cdef const uint8_t *bytes
    cdef bint first = True
    if PyUnicode_Check(keys):
        keys = (keys,)
    elif not PyTuple_Check(keys) and (
            PyObject_CheckBuffer(keys) or not hasattr(keys, "__iter__")):
        raise TypeError(f"keys = {keys!r}: expected a str, or several")
    for key in keys:
        bytes = checked("KEYS", key, &size)
        if memchr(bytes, b' ', <size_t>size) is not NULL:
            raise MessageRejectedError(
                f"key {key!r} holds a blank, which separates keys; pass several keys as a tuple")
        text_add(text, <const uint8_t *>(b"KEYS\x01" if first else b" "), 5 if first else 1)
        text_add(text, bytes, <size_t>size)
        first = False
    if not first:
        text_add(text, <const uint8_t *>b"\x02", 1)
    return 0


cdef int text_properties(Text *text, object properties, object reserved) except -1:
    """Adds a mapping; names in `reserved` are refused."""
    if not PyDict_Check(properties) and not hasattr(properties, "items"):
        raise TypeError(f"properties = {properties!r}: expected a mapping of names to values")
    for name, value in properties.items():
        if reserved is not None and isinstance(name, str) and name.endswith("__CRC32#"):
            raise MessageRejectedError(
                f"property {name!r}: names that end in __CRC32# look like the record CRC")
        if reserved is not None and name in reserved:
            raise MessageRejectedError(
                f"property {name!r} is reserved by RocketMQ; {reserved[name]}")
        text_property(text, name, value)
    return 0


cdef int text_unique_id(Text *text, object unique_id) except -1:
    if b"\x02UNIQ_KEY\x01" in b"\x02" + (<char *>text.bytes)[:text.size]:
        raise MessageRejectedError(
            "UNIQ_KEY: given as unique_id and among the properties; give one of them")
    return text_named(text, "UNIQ_KEY", b"UNIQ_KEY\x01", unique_id)


cdef object id_in(const rs_message *message):
    _, found, rest = (b"\x02" + (<const char *>message.properties.bytes)[:message.properties.size]
                      ).partition(b"\x02UNIQ_KEY\x01")
    return rest.partition(b"\x02")[0].decode() if found else None
