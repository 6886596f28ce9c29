"""Looks for the unit of each record, without the GIL; writes nothing.

It walks one segment as the dispatch loop does, until it needs Python: a queue or queue file that it does not know,
a record whose unit is missing, further queues, or bytes that are no record.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t

from rocketstore._native.format.csrc cimport (
    RS_BLANK, RS_FLAG_COMMIT, RS_NOTHING, RS_OK, RS_UNIT_SIZE, rs_dispatch_find,
    rs_dispatch_properties, rs_queue_entry, rs_queue_table, rs_queue_table_add,
    rs_queue_table_find, rs_record, rs_record_decode, rs_scan_fetch_ends, rs_status,
    rs_transaction_type, rs_unit, rs_unit_load,
)
from rocketstore._native.format.queue_table cimport (
    begin_walk, entry_of, grow_table, topic_span, walk_call,
)
from rocketstore._native.os.sigbus_guard cimport copied_bytes, fault_address, guarded
from rocketstore._native.os.mapped_file cimport MappedFile

cdef enum:
    LOOK_DONE = 0       # all records below `to_offset` have their units
    LOOK_END = 1        # a blank, or zeros: the segment goes no further
    LOOK_QUEUE = 2      # the record's queue was not added
    LOOK_FILE = 3       # its unit lies in a file that was not pointed to
    LOOK_MISSING = 4    # its unit is missing, or another is there
    LOOK_LISTED = 5     # its unit is there; it is listed in further queues
    LOOK_BAD = 6        # no record begins here
    LOOK_FAULT = 7      # a page of a mapped file could not be had
    LOOK_CAPACITY = 64

DONE = LOOK_DONE
END = LOOK_END
QUEUE = LOOK_QUEUE
FILE = LOOK_FILE
MISSING = LOOK_MISSING
LISTED = LOOK_LISTED
BAD = LOOK_BAD
FAULT = LOOK_FAULT
cdef int64_t IGNORED = -1  # `next_offset` of a queue whose records have no units
cdef int64_t AGREED = -2   # of one that has all its units: only further queues are asked for
cdef int64_t LOOKED = -3   # of one whose units are looked at; else the number of its `rs_counted`

# Queue offsets of the records of a queue that has no file.
cdef struct rs_counted:
    int64_t first
    int64_t last
    int64_t count


cdef void look_work(void *given) noexcept nogil:
    cdef walk_call *call = <walk_call *>given
    call.reason = (<UnitLook>call.owner).walk(call)


@cython.final
@cython.auto_pickle(False)
cdef class UnitLook:
    """The queues of one look, and the file of each that was looked into last. One thread at a time."""

    cdef rs_queue_table table
    cdef rs_counted *counts
    cdef int64_t count_of_counts
    cdef list topics
    cdef dict handles
    cdef rs_record record
    cdef rs_dispatch_properties found

    def __cinit__(self):
        self.topics = []
        self.handles = {}
        grow_table(&self.table, LOOK_CAPACITY, 0)

    def __dealloc__(self):
        PyMem_RawFree(self.table.entries)
        PyMem_RawFree(self.counts)

    def add_queue(self, bytes topic not None, int32_t queue_id, *, bint ignored=False,
                  bint agreed=False):
        """Makes a queue known. `ignored`: its records have no units; `agreed`: the caller has seen them all."""
        cdef rs_queue_entry *entry
        if 4 * (self.table.count + 1) > 3 * self.table.capacity:
            grow_table(&self.table, 2 * self.table.capacity, 0)
        entry = rs_queue_table_add(&self.table, topic_span(topic), queue_id)
        entry.next_offset = IGNORED if ignored else AGREED if agreed else LOOKED
        entry.unit_limit = 0
        self.topics.append(topic)  # the table borrows from it

    def point(self, bytes topic not None, int32_t queue_id, MappedFile file, int64_t first_unit,
              int64_t units):
        """The queue's units [first_unit, first_unit + units) are those of `file`, from its first one on; None:
        they are missing."""
        cdef rs_queue_entry *entry = entry_of(&self.table, topic, queue_id)
        if units < 0 or file is not None and units * RS_UNIT_SIZE > file.size:
            raise ValueError("more units than the file has")
        entry.units = NULL if file is None else file.base
        entry.first_unit = first_unit
        entry.unit_limit = units
        self.handles[topic, queue_id] = file  # keeps the mapping while the table points to it

    def count_all(self, bytes topic not None, int32_t queue_id):
        """The queue has no file: from here on its records are counted, those that are in further queues too left
        out."""
        cdef size_t size = <size_t>(self.count_of_counts + 1) * sizeof(rs_counted)
        cdef rs_counted *more = <rs_counted *>PyMem_RawRealloc(self.counts, size)
        if more is NULL:
            raise MemoryError("no memory for the counts of queues")
        self.counts = more
        more[self.count_of_counts] = rs_counted(INT64_MAX, -1, 0)
        entry_of(&self.table, topic, queue_id).next_offset = self.count_of_counts
        self.count_of_counts += 1

    def counted(self, bytes topic not None, int32_t queue_id):
        """(first, last, count) of the queue offsets that were counted."""
        cdef int64_t number = entry_of(&self.table, topic, queue_id).next_offset
        if number < 0:
            raise ValueError("this queue has files")
        return self.counts[number].first, self.counts[number].last, self.counts[number].count

    def run(self, MappedFile segment not None, int64_t from_offset, int64_t to_offset):
        """Looks for the units of the records of `segment` in [from_offset, to_offset): (reason, offset reached)."""
        cdef walk_call call
        cdef bint whole
        begin_walk(&call, self, segment, from_offset, to_offset)
        with nogil:
            whole = guarded(look_work, &call)
        while not whole and self.step_over_holes():
            with nogil:
                whole = guarded(look_work, &call)
        return (call.reason if whole else LOOK_FAULT), call.offset

    cdef bint step_over_holes(self) except -1:
        """Whether the queue file whose page could not be had can be read with memory in place of its holes (a full
        tmpfs)."""
        cdef const uint8_t *address = <const uint8_t *>fault_address()
        cdef MappedFile file, other
        for queue, found in self.handles.items():
            file = found
            if file is not None and file.base <= address < file.base + file.size:
                other = file.without_holes()
                if other is None:
                    return False
                entry_of(&self.table, queue[0], queue[1]).units = other.base
                self.handles[queue] = other
                return True
        return False

    cdef int walk(self, walk_call *call) noexcept nogil:
        cdef int64_t end = min(call.end, call.to_offset)
        cdef rs_status status
        cdef int reason
        while call.offset < end:
            status = rs_record_decode(call.segment + (call.offset - call.start),
                                      <size_t>(call.end - call.offset), &self.record)
            if status == RS_BLANK or status == RS_NOTHING:
                return LOOK_END
            if status != RS_OK or self.record.physical_offset != call.offset:
                return LOOK_BAD
            reason = self.look()
            if reason != LOOK_DONE:
                return reason
            rs_scan_fetch_ends(self.record.start, <size_t>(end - call.offset), self.record.size)
            call.offset += self.record.size
        return LOOK_DONE

    cdef int look(self) noexcept nogil:
        cdef rs_record *r = &self.record
        cdef uint32_t kind = rs_transaction_type(r.sys_flag)
        cdef rs_queue_entry *entry
        cdef rs_counted *counted
        cdef rs_unit unit
        cdef int64_t n = r.queue_offset
        if kind != 0 and kind != RS_FLAG_COMMIT:
            return LOOK_DONE
        entry = rs_queue_table_find(&self.table, r.topic, r.queue_id)
        if entry is NULL:
            return LOOK_QUEUE
        if entry.next_offset == IGNORED:
            return LOOK_DONE
        if entry.next_offset == AGREED:
            rs_dispatch_find(r.properties, &self.found)
            return LOOK_LISTED if self.found.multi_dispatch.size > 0 else LOOK_DONE
        if entry.next_offset != LOOKED:
            rs_dispatch_find(r.properties, &self.found)
            if self.found.multi_dispatch.size > 0 or n < 0:
                return LOOK_MISSING
            counted = &self.counts[entry.next_offset]
            counted.first = min(counted.first, n)
            counted.last = max(counted.last, n)
            counted.count += 1
            return LOOK_DONE
        if n < entry.first_unit or n - entry.first_unit >= entry.unit_limit:
            return LOOK_FILE
        if entry.units is NULL:
            return LOOK_MISSING
        unit = rs_unit_load(entry.units + (n - entry.first_unit) * RS_UNIT_SIZE)
        if unit.physical_offset != r.physical_offset or unit.size != <int32_t>r.size:
            return LOOK_MISSING
        rs_dispatch_find(r.properties, &self.found)
        return LOOK_LISTED if self.found.multi_dispatch.size > 0 else LOOK_DONE

    def current(self):
        """(topic, queue_id, queue_offset, physical_offset, size, properties) of the record at which it stopped.
        Valid while its segment is mapped."""
        cdef rs_record *r = &self.record
        return (copied_bytes(r.topic.bytes, r.topic.size, "a topic"), r.queue_id, r.queue_offset,
                r.physical_offset, <int64_t>r.size,
                copied_bytes(r.properties.bytes, r.properties.size, "the properties of a record"))
