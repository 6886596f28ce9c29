# A table of queues that grows: the dispatch loop and the look at units have one each.

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree

from rocketstore._native.format.csrc cimport rs_queue_entry, rs_queue_table, rs_queue_table_add


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
