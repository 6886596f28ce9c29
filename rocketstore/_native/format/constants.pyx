"""Numbers of the format that Python needs, from `rs_format.h`, where each is written once.

A module of Python takes a size, a place or a magic from here and writes none of its own; what it can ask another
native module for (a unit, a record), it does not parse by hand.
"""

from libc.stdint cimport uint32_t

cdef extern from "rs_format.h":
    const uint32_t RS_MAGIC_V1
    const uint32_t RS_MAGIC_V2
    const uint32_t RS_MAGIC_BLANK
    enum:
        RS_AT_MAGIC
        RS_AT_PHYSICAL_OFFSET
        RS_RECORD_SIZE_MIN
        RS_RECORD_CRC_SIZE
        RS_BLANK_SIZE_MIN
        RS_TOPIC_MAX_V1
        RS_TOPIC_MAX_V2
        RS_UNIT_SIZE
        RS_UNIT_AT_SIZE
        RS_UNIT_AT_TAGS_CODE
        RS_PRE_BLANK_SIZE
        RS_INDEX_HEADER_SIZE
        RS_INDEX_SLOT_SIZE
        RS_INDEX_ENTRY_SIZE
        RS_CHECKPOINT_FILE_SIZE
        RS_OWN_CHECKPOINT_FILE_SIZE
        RS_OWN_SLOT_STRIDE

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = RS_MAGIC_V1, RS_MAGIC_V2, RS_MAGIC_BLANK
#: The magic of a blank as it lies in the file, MAGIC_AT bytes after where the blank or record begins.
BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big")
MAGIC_AT = RS_AT_MAGIC
#: Where a record names its own physical offset, 8 bytes.
PHYSICAL_OFFSET_AT = RS_AT_PHYSICAL_OFFSET
#: Size of a blank at least: its length and its magic.
BLANK_BYTES = RS_BLANK_SIZE_MIN
#: Size of a record at least: hosts of IPv4, a topic of one byte, no body, no properties.
RECORD_BYTES_MIN = RS_RECORD_SIZE_MIN + 1
#: Size of the property that holds a record's checksum.
RECORD_CRC_BYTES = RS_RECORD_CRC_SIZE
#: Bytes of a topic at most, in a record of the first version and of the second.
TOPIC_BYTES_MAX, WIDE_TOPIC_BYTES_MAX = RS_TOPIC_MAX_V1, RS_TOPIC_MAX_V2
#: A unit of a consume queue: its size, and where the record's size and the tags code are in it.
UNIT_SIZE, UNIT_SIZE_AT, UNIT_TAGS_CODE_AT = RS_UNIT_SIZE, RS_UNIT_AT_SIZE, RS_UNIT_AT_TAGS_CODE
#: The record's size in a unit that holds a place only.
PRE_BLANK_SIZE = RS_PRE_BLANK_SIZE
#: Parts of an index file.
INDEX_HEADER_BYTES, SLOT_BYTES, ENTRY_BYTES = (
    RS_INDEX_HEADER_SIZE, RS_INDEX_SLOT_SIZE, RS_INDEX_ENTRY_SIZE)
#: RocketMQ's checkpoint; ours, and the distance of its slots.
CHECKPOINT_BYTES = RS_CHECKPOINT_FILE_SIZE
OWN_CHECKPOINT_BYTES, OWN_SLOT_STRIDE = RS_OWN_CHECKPOINT_FILE_SIZE, RS_OWN_SLOT_STRIDE
