"""The dispatch loop: records to queue units and index entries, without the GIL.

It runs over one segment until it needs Python: a new queue or queue file, a full index file, a gap, a bad record.
Python handles that and runs it again; every step is idempotent, since the record itself says where its unit goes.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t

from rocketstore._native.format.csrc_atomic cimport rs_store_max
from rocketstore._native.format.csrc cimport (
    RS_BLANK, RS_FLAG_COMMIT, RS_FLAG_ROLLBACK, RS_NOTHING, RS_OK, RS_UNIT_SIZE,
    rs_dispatch_find, rs_dispatch_tags, rs_index_key_hash, rs_index_put, rs_index_tags_hash,
    rs_queue_entry, rs_queue_table_add, rs_queue_table_find, rs_record,
    rs_record_decode, rs_scan_fetch_ends, rs_span, rs_status, rs_transaction_type, rs_unit,
    rs_unit_load, rs_unit_store, rs_unit_written,
)
from rocketstore._native.format.queue_table cimport (
    begin_walk, entry_of, grow_table, topic_span, walk_call,
)
from rocketstore._native.os.sigbus_guard cimport copied_bytes, fault_address, guarded
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.sync.queue_positions cimport QueueEnd
from rocketstore._native.format.status cimport status_text

DONE = REASON_DONE
END = REASON_END
NEW_QUEUE = REASON_NEW_QUEUE
QUEUE_FILE = REASON_QUEUE_FILE
GAP = REASON_GAP
CONFLICT = REASON_CONFLICT
INDEX_FILE = REASON_INDEX_FILE
LIGHT = REASON_LIGHT
BAD_RECORD = REASON_BAD_RECORD
ARRIVALS = REASON_ARRIVALS
FAULT = REASON_FAULT
SLOTS_IN_PIECE = SLOTS_A_PIECE

SHORT_RUN_BYTES = SHORT_RUN
cdef int64_t IGNORED = INT64_MIN  # next offset of a queue that gets no units


cdef void walk_work(void *given) noexcept nogil:
    cdef walk_call *call = <walk_call *>given
    call.reason = (<DispatchLoop>call.owner).walk(call)


cdef bint walk_guarded(walk_call *call) noexcept nogil:
    return guarded(walk_work, call)


cdef bint inside(MappedFile file) noexcept:
    """Whether the last fault of this thread was in this file's mapping."""
    cdef const uint8_t *address = <const uint8_t *>fault_address()
    return file is not None and file.base <= address < file.base + file.size


@cython.final
@cython.auto_pickle(False)
cdef class DispatchLoop:
    """State of the one dispatcher of a store: its queues and its index file. One thread at a time."""

    def __cinit__(self, tuple delay_level_ms not None, *, bint multi_dispatch,
                  bint report_arrivals):
        self.delay_count = <size_t>min(len(delay_level_ms), DELAY_LEVELS_MAX)
        for i in range(self.delay_count):
            self.delays[i] = delay_level_ms[i]
        self.multi_dispatch = multi_dispatch
        self.report = report_arrivals
        self.topics = []
        self.handles = {}
        self.lights_done = self.unit_kept = -1
        self.index_from = INT64_MAX
        self.grow(FIRST_CAPACITY)

    def __dealloc__(self):
        PyMem_RawFree(self.table.entries)

    # ---- queues ----

    cdef int grow(self, size_t capacity) except -1:
        grow_table(&self.table, capacity, sizeof(size_t))
        self.moved_count = 0
        self.moved = <size_t *>(self.table.entries + capacity)  # in one piece with the entries
        for i in range(capacity):
            if self.table.entries[i].moved:
                self.table.entries[i].moved = False
                self.note_moved(&self.table.entries[i])
        return 0

    cdef void note_moved(self, rs_queue_entry *entry) noexcept nogil:
        if not entry.moved:
            entry.moved = True
            self.moved[self.moved_count] = <size_t>(entry - self.table.entries)
            self.moved_count += 1

    def add_queue(self, bytes topic not None, int32_t queue_id, int64_t next_offset,
                  QueueEnd end=None):
        """Makes a queue known; `next_offset` is after its last unit, `end` is what its readers see."""
        cdef rs_queue_entry *entry
        if 4 * (self.table.count + 1) > 3 * self.table.capacity:
            self.grow(2 * self.table.capacity)
        entry = rs_queue_table_add(&self.table, topic_span(topic), queue_id)
        entry.next_offset = next_offset
        entry.published = &end.offset if end is not None else NULL
        self.topics.append((topic, end))  # the table borrows from both

    def point(self, bytes topic not None, int32_t queue_id, MappedFile file, int64_t first_unit,
              int64_t unit_limit):
        """The queue's units go to `file`, whose first unit has queue offset `first_unit`; its first
        `unit_limit` units may be written."""
        cdef rs_queue_entry *entry = entry_of(&self.table, topic, queue_id)
        if file is None:
            entry.units = NULL
            entry.unit_limit = 0
        else:
            if unit_limit * RS_UNIT_SIZE > file.size or not file.writable:
                raise ValueError("more units than the file has, or a file mapped read-only")
            entry.units = file.base
            entry.first_unit = first_unit
            entry.unit_limit = unit_limit
        self.handles[topic, queue_id] = file  # keeps the mapping while the table points to it

    def set_next(self, bytes topic not None, int32_t queue_id, int64_t next_offset):
        """The units up to there were written by other means."""
        cdef rs_queue_entry *entry = entry_of(&self.table, topic, queue_id)
        if entry.next_offset < entry.dirty_from:
            entry.dirty_from = entry.next_offset
        entry.next_offset = next_offset
        self.note_moved(entry)

    def ignore_queue(self, bytes topic not None, int32_t queue_id):
        """Records of this queue get no unit: its name cannot be a directory."""
        self.add_queue(topic, queue_id, IGNORED)

    def advance(self, bytes topic not None, int32_t queue_id, int64_t queue_offset):
        """A unit was written at `queue_offset` by other means."""
        cdef rs_queue_entry *entry = entry_of(&self.table, topic, queue_id)
        if queue_offset >= entry.next_offset:
            entry.next_offset = queue_offset + 1
            self.note_moved(entry)
        if queue_offset < entry.dirty_from:
            entry.dirty_from = queue_offset

    def next_offset(self, bytes topic not None, int32_t queue_id):
        """Queue offset after the last unit."""
        return entry_of(&self.table, topic, queue_id).next_offset

    cpdef void publish_moved(self) noexcept nogil:
        """Readers see the units that were written since the last call."""
        cdef rs_queue_entry *entry
        for i in range(self.moved_count):
            entry = &self.table.entries[self.moved[i]]
            entry.moved = False
            if entry.published is not NULL:
                rs_store_max(entry.published, entry.next_offset)
        self.moved_count = 0

    def take_dirty(self):
        """[(topic, queue_id, first, end)] of the units written since the last call; forgets them."""
        rows = []
        cdef rs_queue_entry *entry
        for i in range(self.table.capacity):
            entry = &self.table.entries[i]
            if entry.topic.bytes is not NULL and entry.dirty_from != INT64_MAX:
                topic = (<const char *>entry.topic.bytes)[:entry.topic.size]
                rows.append((topic, entry.queue_id, entry.dirty_from, entry.next_offset))
                entry.dirty_from = INT64_MAX
        return rows

    # ---- index ----

    def set_index(self, MappedFile file, uint32_t slots, uint32_t limit, int64_t index_from, *,
                  bint tags=False, bytearray slots_ready=None):
        """Keys of records at or beyond `index_from` go to `file`; None: the first key asks for one.
        `tags`: the tags of each record, too. `slots_ready`: a byte for each 16384 slots, not 0 once they have
        blocks; None: all have some."""
        if slots_ready is not None and len(slots_ready) * SLOTS_A_PIECE < slots:
            raise ValueError(f"{len(slots_ready)} pieces for {slots} slots")
        self.index_slots_ready = slots_ready
        self.slots_ready = NULL
        if slots_ready is not None:
            self.slots_ready = <const uint8_t *>PyByteArray_AS_STRING(slots_ready)
        self.index, self.index_slots, self.index_limit = file, slots, limit
        self.index_from, self.index_tags = index_from, tags

    def no_index(self):
        """Keys go nowhere."""
        self.index, self.index_from, self.keys_done = None, INT64_MAX, 0
        self.index_slots_ready, self.slots_ready = None, NULL

    # ---- the loop ----

    def run(self, MappedFile segment not None, int64_t from_offset, int64_t to_offset):
        """Dispatches the records of `segment` in [from_offset, to_offset): (reason, offset reached)."""
        cdef walk_call call
        cdef bint whole
        begin_walk(&call, self, segment, from_offset, to_offset)
        if to_offset - from_offset <= SHORT_RUN:
            whole = walk_guarded(&call)
        else:
            with nogil:
                whole = walk_guarded(&call)
        if whole:
            return call.reason, call.offset
        # A record that was dispatched in part is dispatched again, like after any other stop.
        self.faulted = "log" if inside(segment) else "index" if inside(self.index) else "queue"
        return REASON_FAULT, call.offset

    @property
    def status(self):
        """Why the record at which the loop stopped cannot be believed."""
        if self.bad_status == BAD_PLACE:
            return "physical offset"
        return "delay" if self.bad_status == BAD_DELAY else status_text(<rs_status>self.bad_status)

    cdef int walk(self, walk_call *call) noexcept nogil:
        cdef int64_t end = min(call.end, call.to_offset)
        cdef rs_status status
        cdef int reason
        while call.offset < end:
            status = rs_record_decode(call.segment + (call.offset - call.start),
                                      <size_t>(call.end - call.offset), &self.record)
            if status == RS_BLANK or status == RS_NOTHING:
                return REASON_END
            if status != RS_OK or self.record.physical_offset != call.offset:
                self.bad_status = <int>status if status != RS_OK else BAD_PLACE
                return REASON_BAD_RECORD
            if call.offset + self.record.size > call.to_offset:
                return REASON_DONE
            reason = self.dispatch()
            if reason != REASON_DONE:
                return reason
            rs_scan_fetch_ends(self.record.start, <size_t>(end - call.offset), self.record.size)
            call.offset += self.record.size
            self.last_store_timestamp_ms = self.record.store_timestamp_ms
            self.records += 1
        return REASON_DONE

    cdef int dispatch(self) noexcept nogil:
        """Unit and keys of the current record."""
        cdef uint32_t kind = rs_transaction_type(self.record.sys_flag)
        cdef int reason
        rs_dispatch_find(self.record.properties, &self.found)
        if kind == 0 or kind == RS_FLAG_COMMIT:
            reason = self.put_unit()
            if reason != REASON_DONE:
                return reason
        if not self.index_tags:
            self.found.tags.size = 0  # the unit has its tag code: from here on they are a key
        if (self.found.keys.size + self.found.uniq_key.size + self.found.tags.size == 0
                or kind == RS_FLAG_ROLLBACK or self.record.physical_offset < self.index_from):
            return REASON_DONE
        return self.put_keys()

    cdef int put_unit(self) noexcept nogil:
        cdef rs_record *r = &self.record
        cdef rs_queue_entry *entry = rs_queue_table_find(&self.table, r.topic, r.queue_id)
        cdef rs_unit unit, there
        cdef int64_t n = r.queue_offset
        cdef bint same
        cdef uint8_t *at
        if entry is NULL:
            return REASON_NEW_QUEUE
        if entry.next_offset == IGNORED:
            return REASON_DONE
        if self.unit_kept == r.physical_offset:
            return self.further()
        self.tags_code = rs_dispatch_tags(r, &self.found, self.delays, self.delay_count)
        if n > entry.next_offset:
            return REASON_GAP
        if entry.units is NULL or n < entry.first_unit or n - entry.first_unit >= entry.unit_limit:
            return REASON_QUEUE_FILE
        unit.physical_offset = self.record.physical_offset
        unit.size = <int32_t>self.record.size
        unit.tags_code = self.tags_code
        at = entry.units + (n - entry.first_unit) * RS_UNIT_SIZE
        there = rs_unit_load(at)
        same = (there.physical_offset == unit.physical_offset and there.size == unit.size
                and there.tags_code == unit.tags_code)
        if not same and rs_unit_written(there):
            return REASON_CONFLICT
        # Also one that is there, unless stored since the last sync: it may be in the page cache only.
        if not same or n < entry.dirty_from or n >= entry.next_offset:
            rs_unit_store(at, unit)
        if n < entry.dirty_from:
            entry.dirty_from = n
        if self.further() != REASON_DONE:
            return REASON_LIGHT
        if n == entry.next_offset:
            entry.next_offset = n + 1
            self.note_moved(entry)
        return self.note_arrival(entry, n + 1)

    cdef int further(self) noexcept nogil:
        """REASON_LIGHT while the current record lacks units in further queues."""
        cdef bint listed = self.multi_dispatch and self.found.multi_dispatch.size > 0
        listed = listed and self.lights_done != self.record.physical_offset
        return REASON_LIGHT if listed else REASON_DONE

    cdef int note_arrival(self, rs_queue_entry *entry, int64_t next_offset) noexcept nogil:
        cdef arrival_row *row
        if not self.report:
            return REASON_DONE
        if self.arrival_count == ARRIVALS_MAX:
            return REASON_ARRIVALS
        row = &self.arrivals[self.arrival_count]
        row.entry = entry - self.table.entries
        row.next_offset = next_offset
        row.tags_code = self.tags_code
        row.store_timestamp_ms = self.record.store_timestamp_ms
        self.arrival_count += 1
        return REASON_DONE

    cdef int put_keys(self) noexcept nogil:
        """UNIQ_KEY, each word of KEYS, the tags; continues with the key that found the file full."""
        cdef rs_span topic = self.record.topic, keys = self.found.keys, word
        cdef int64_t number = 0
        cdef size_t at = 0
        if self.found.uniq_key.size > 0:
            if not self.put_hash(rs_index_key_hash(topic, self.found.uniq_key), number):
                return REASON_INDEX_FILE
            number += 1
        while at < keys.size:
            word.bytes, word.size = keys.bytes + at, 0
            while at + word.size < keys.size and word.bytes[word.size] != b' ':
                word.size += 1
            at += word.size + 1
            if word.size > 0:
                if not self.put_hash(rs_index_key_hash(topic, word), number):
                    return REASON_INDEX_FILE
                number += 1
        if self.found.tags.size > 0:
            if not self.put_hash(rs_index_tags_hash(topic, self.found.tags), number):
                return REASON_INDEX_FILE
        self.keys_done = 0
        return REASON_DONE

    cdef bint put_hash(self, uint32_t key_hash, int64_t number) noexcept nogil:
        cdef rs_status status
        if number < self.keys_done:
            return True
        self.wanted_hash = key_hash
        if self.index is None or (self.slots_ready is not NULL and not self.slots_ready[
                key_hash % self.index_slots // SLOTS_A_PIECE]):
            self.keys_done = number
            return False
        status = rs_index_put(self.index.base, self.index_slots, self.index_limit, key_hash,
                              self.record.physical_offset, self.record.store_timestamp_ms)
        if status != RS_OK:
            self.keys_done = number
            return False
        return True

    # ---- what Python asks after a stop ----

    def current(self):
        """(topic, queue_id, queue_offset, physical_offset, size, tags_code, store_timestamp_ms, properties) of
        the record at which the loop stopped. Valid while its segment is mapped."""
        cdef rs_record *r = &self.record
        return (copied_bytes(r.topic.bytes, r.topic.size, "a topic"), r.queue_id, r.queue_offset,
                r.physical_offset, <int64_t>r.size, self.tags_code, r.store_timestamp_ms,
                copied_bytes(r.properties.bytes, r.properties.size, "the properties of a record"))

    def lights_written(self):
        """The further queues of the current record have their units: it is not asked for again."""
        self.lights_done = self.record.physical_offset

    def take_arrivals(self):
        """[(topic, queue_id, next_queue_offset, tags_code, store_timestamp_ms)] since the last call."""
        rows = []
        cdef rs_queue_entry *entry
        for i in range(self.arrival_count):
            entry = &self.table.entries[self.arrivals[i].entry]
            topic = (<const char *>entry.topic.bytes)[:entry.topic.size]
            rows.append((topic.decode("utf-8", "rocketstore.java"), entry.queue_id,
                         self.arrivals[i].next_offset, self.arrivals[i].tags_code,
                         self.arrivals[i].store_timestamp_ms))
        self.arrival_count = 0
        return rows
