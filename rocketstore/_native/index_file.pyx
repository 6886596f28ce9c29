"""Index files: keys in, candidate physical offsets out (format.md 7).

Every function is told slots and entries, because a file does not hold them, and checks them against
its length. What stands in the file is untrusted; csrc bounds it.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rocketstore._native.core cimport (
    RS_INDEX_ENTRIES_MAX,
    RS_INDEX_HEADER_SIZE,
    RS_INDEX_SLOTS_MAX,
    RS_OK,
    rs_index_cut,
    rs_index_deduce,
    rs_index_entry,
    rs_index_entry_at,
    rs_index_entry_load,
    rs_index_file_size,
    rs_index_header,
    rs_index_header_init,
    rs_index_header_load,
    rs_index_hit,
    rs_index_key_hash,
    rs_index_plausible,
    rs_index_put,
    rs_index_validate,
    rs_index_walk,
    rs_index_walk_next,
    rs_index_walk_start,
    rs_span,
    rs_status,
)
from rocketstore._native.mapped_file cimport MappedFile

import io

HEADER_SIZE = RS_INDEX_HEADER_SIZE
ENTRIES_MAX = RS_INDEX_ENTRIES_MAX
SLOTS_MAX = RS_INDEX_SLOTS_MAX


cdef int check_shape(MappedFile file, uint32_t slots, uint32_t entries) except -1:
    if (
        slots < 1
        or entries < 1
        or slots > RS_INDEX_SLOTS_MAX
        or entries > RS_INDEX_ENTRIES_MAX
        or <uint64_t>file.size != rs_index_file_size(slots, entries)
    ):
        raise ValueError(
            f"{file.path}: {file.size} bytes are not {slots} slots and {entries} entries"
        )
    return 0


cdef int check_writable(MappedFile file) except -1:
    if not file.writable:
        raise io.UnsupportedOperation(f"{file.path} is not writable")
    return 0


def file_size(uint32_t slots, uint32_t entries) -> int:
    """Bytes of a file with so many slots and entries."""
    return rs_index_file_size(slots, entries)


def entry_position(uint32_t slots, uint32_t number) -> int:
    """Position of entry `number`, which is also where entries below it end."""
    return rs_index_entry_at(slots, number)


def key_hash(bytes topic not None, bytes key not None) -> int:
    """0 … 2³¹ − 1: the hash that the file keeps instead of the key."""
    cdef rs_span topic_span = rs_span(<const uint8_t *>topic, <size_t>len(topic))
    cdef rs_span key_span = rs_span(<const uint8_t *>key, <size_t>len(key))
    return rs_index_key_hash(topic_span, key_span)


def fresh_header(int64_t previous_end_timestamp_ms, int64_t previous_end_offset) -> bytes:
    """First bytes of a new file: it carries the end of the one before it (Q-22)."""
    cdef uint8_t header[RS_INDEX_HEADER_SIZE]
    rs_index_header_init(header, previous_end_timestamp_ms, previous_end_offset)
    return header[:RS_INDEX_HEADER_SIZE]


def header(MappedFile file not None, uint32_t slots, uint32_t entries) -> tuple:
    """(begin_timestamp_ms, end_timestamp_ms, begin_offset, end_offset, slot_count, index_count, sane).

    index_count is the number of the next entry, held within the file; `sane` is false when the file
    says a number that it has no room for.
    """
    cdef rs_index_header found
    check_shape(file, slots, entries)
    cdef rs_status status = rs_index_header_load(file.base, entries, &found)
    return (
        found.begin_timestamp_ms,
        found.end_timestamp_ms,
        found.begin_offset,
        found.end_offset,
        found.slot_count,
        found.index_count,
        status == RS_OK,
    )


def entry(MappedFile file not None, uint32_t slots, uint32_t entries, uint32_t number) -> tuple:
    """(key_hash, physical_offset, time_diff_s, previous) of entry `number`, as it stands."""
    cdef rs_index_entry found
    check_shape(file, slots, entries)
    if number >= entries:
        raise ValueError(f"entry {number} of {entries}")
    rs_index_entry_load(file.base, slots, number, &found)
    return found.key_hash, found.physical_offset, found.time_diff_s, found.previous


def plausible(MappedFile file not None, uint32_t slots, uint32_t entries) -> bool:
    """Whether first and last entries lie where this shape puts them; a file without keys fits any."""
    check_shape(file, slots, entries)
    return rs_index_plausible(file.base, slots, entries)


def deduce(MappedFile file not None) -> tuple | None:
    """(slots, entries) when the file's own bytes allow exactly one answer. May read the whole file."""
    cdef uint32_t slots = 0, entries = 0
    cdef rs_status status
    cdef uint64_t size = <uint64_t>file.size
    with nogil:
        status = rs_index_deduce(file.base, size, &slots, &entries)
    return (slots, entries) if status == RS_OK else None


def put(
    MappedFile file not None,
    uint32_t slots,
    uint32_t entries,
    uint32_t limit,
    uint32_t key_hash,
    int64_t physical_offset,
    int64_t store_timestamp_ms,
) -> bool:
    """Add one key. False, without a change, when the next entry's number is not below `limit`."""
    check_shape(file, slots, entries)
    check_writable(file)
    if limit > entries:
        raise ValueError(f"limit {limit} beyond {entries} entries")
    return (
        rs_index_put(file.base, slots, limit, key_hash, physical_offset, store_timestamp_ms)
        == RS_OK
    )


def find(
    MappedFile file not None,
    uint32_t slots,
    uint32_t entries,
    uint32_t key_hash,
    int64_t begin_ms,
    int64_t end_ms,
    Py_ssize_t limit,
) -> list:
    """At most `limit` (physical_offset, timestamp_ms) with this hash, newest first.

    Entries lose up to 999 ms: to miss nothing, ask with a `begin_ms` that is a second early. Entries of
    other keys with the same hash are among them; only the record can tell.
    """
    cdef rs_index_walk walk
    cdef rs_index_hit hits[64]
    cdef Py_ssize_t room, count, at
    cdef list found = []
    check_shape(file, slots, entries)
    rs_index_walk_start(&walk, file.base, slots, entries, key_hash, begin_ms, end_ms)
    while True:
        room = limit - len(found)
        if room <= 0:
            return found
        room = min(room, 64)
        count = 0
        with nogil:  # a chain jumps over the whole file: each step may wait for the disk
            while count < room and rs_index_walk_next(&walk, &hits[count]):
                count += 1
        for at in range(count):
            found.append((hits[at].physical_offset, hits[at].timestamp_ms))
        if count < room:
            return found


def validate(MappedFile file not None, uint32_t slots, uint32_t entries) -> bool:
    """Whether every chain and count is sane. Reads the whole file."""
    cdef rs_status status
    check_shape(file, slots, entries)
    with nogil:
        status = rs_index_validate(file.base, slots, entries)
    return status == RS_OK


def cut(MappedFile file not None, uint32_t slots, uint32_t entries, int64_t from_offset) -> int:
    """Drop the entries of records at `from_offset` and beyond and link the rest anew.

    Returns the number of the next entry. An interrupted cut is finished by the same cut.
    """
    cdef uint32_t following
    check_shape(file, slots, entries)
    check_writable(file)
    with nogil:
        following = rs_index_cut(file.base, slots, entries, from_offset)
    return following
