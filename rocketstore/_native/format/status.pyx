"""The one place that turns a status of csrc into a name or an exception."""

from libc.stdint cimport int64_t

from rocketstore._native.format.csrc cimport RS_OK, RS_STATUS_COUNT, rs_status

from rocketstore.errors import (
    CorruptRecordError,
    InvalidTopicError,
    MessageNotFoundError,
    MessageRejectedError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    RocketStoreError,
)

# In the order of `enum rs_status`.
STATUS_NAMES = (
    "ok",
    "end",
    "blank",
    "zeros",
    "full",
    "not found",
    "truncated",
    "magic",
    "length",
    "topic",
    "properties",
    "physical offset",
    "body crc",
    "record crc",
    "unit",
    "topic illegal",
    "body too large",
    "properties too large",
    "property illegal",
    "record too large",
    "no blocks",
)
assert len(STATUS_NAMES) == RS_STATUS_COUNT

# Statuses that are not about a record at an offset.
cdef dict OTHERS = {
    "full": (RocketStoreError, "no room left in a table or a file"),
    "no blocks": (RocketStoreError, "the file has no blocks there yet"),
    "not found": (MessageNotFoundError, "no message stands where it was looked for"),
    "topic illegal": (
        InvalidTopicError,
        "a topic has 1 … 127 bytes (255 where the store allows wide topics)",
    ),
    "body too large": (MessageTooLargeError, "the body is larger than max_message_size_bytes"),
    "properties too large": (
        PropertiesTooLargeError,
        "more than 32,767 bytes of encoded properties, separators and record CRC included",
    ),
    "property illegal": (
        MessageRejectedError,
        "property names and values must not be empty nor hold the characters 1 and 2",
    ),
    "record too large": (MessageTooLargeError, "the record does not fit in a commit log file"),
}


cdef str status_text(rs_status status):
    return STATUS_NAMES[<int>status]


cdef int check(rs_status status, int64_t physical_offset) except -1:
    if status == RS_OK:
        return 0
    cdef str name = STATUS_NAMES[<int>status]
    other = OTHERS.get(name)
    if other is None:
        raise CorruptRecordError(physical_offset, name)
    raise other[0](other[1])


def check_status(int status, int64_t physical_offset):
    """Raises what status number `status` means; nothing for 0. For tests: C code uses `check`."""
    if not 0 <= status < RS_STATUS_COUNT:
        raise ValueError(f"no such status: {status}")
    check(<rs_status>status, physical_offset)
