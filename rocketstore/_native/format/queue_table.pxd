# A table of queues that grows, and a walk over the records of a segment: the dispatch loop and the look at units
# have one each.

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketstore._native.format.csrc cimport (
    rs_queue_entry, rs_queue_table, rs_queue_table_add, rs_queue_table_find, rs_span,
)
from rocketstore._native.os.mapped_file cimport MappedFile

# One run over a segment whose bytes have the offsets [start, end).
cdef struct walk_call:
    void *owner
    const uint8_t *segment
    int64_t start
    int64_t end
    int64_t offset
    int64_t to_offset
    int reason


cdef inline int begin_walk(walk_call *call, object owner, MappedFile segment, int64_t from_offset,
                           int64_t to_offset) except -1:
    if not segment.start_offset <= from_offset <= segment.start_offset + segment.size:
        raise ValueError(f"{from_offset} is not in {segment!r}")
    call.owner, call.segment = <void *>owner, segment.base
    call.start, call.end = segment.start_offset, segment.start_offset + segment.size
    call.offset, call.to_offset = from_offset, to_offset
    return 0


cdef inline rs_span topic_span(bytes topic) noexcept:
    return rs_span(<const uint8_t *>PyBytes_AS_STRING(topic), <size_t>len(topic))


cdef inline rs_queue_entry *entry_of(rs_queue_table *table, bytes topic,
                                     int32_t queue_id) except NULL:
    cdef rs_queue_entry *entry = rs_queue_table_find(table, topic_span(topic), queue_id)
    if entry is NULL:
        raise KeyError((topic, queue_id))
    return entry


cdef inline int grow_table(rs_queue_table *table, size_t capacity, size_t more) except -1:
    """Moves the queues of a table into one for `capacity`, with `more` bytes of zeros for each after
    the entries."""
    cdef rs_queue_table bigger
    cdef rs_queue_entry *entry
    bigger.count = bigger.last = 0
    bigger.capacity = capacity
    bigger.entries = <rs_queue_entry *>PyMem_RawCalloc(capacity, sizeof(rs_queue_entry) + more)
    if bigger.entries is NULL:
        raise MemoryError("no memory for the table of queues")
    for i in range(table.capacity):
        if table.entries[i].topic.bytes is not NULL:
            entry = rs_queue_table_add(&bigger, table.entries[i].topic, table.entries[i].queue_id)
            entry[0] = table.entries[i]
    PyMem_RawFree(table.entries)
    table[0] = bigger
    return 0
