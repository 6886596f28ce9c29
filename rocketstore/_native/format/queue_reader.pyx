"""Records of a queue, by its units: read as messages, or held against them."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketstore._native.format.csrc cimport (
    RS_BAD_UNIT, RS_END_OF_FILE, RS_OK, RS_UNIT_SIZE, rs_load64s, rs_record, rs_scan, rs_status,
    rs_unit_reader, rs_units_check, rs_units_checked, rs_units_have_address, rs_units_read,
)
from rocketstore._native.os.sigbus_guard cimport fault_address, guarded, raise_unread
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.format.message cimport make_message, make_messages
from rocketstore._native.format.scanner cimport scan_of, unread
from rocketstore._native.format.status cimport check

cdef enum:
    # The GIL is kept for fewer: giving it up costs more.
    RELEASE_GIL_UNITS = 16
    # Records followed before their messages are made: bounds the memory of one call.
    CHUNK_UNITS = 512


cdef MappedFile segment_at(tuple segments, int64_t segment_size, int64_t offset):
    """The file that holds `offset`, None without one; by arithmetic, or by halving where files are
    missing."""
    cdef Py_ssize_t low = 0, high = len(segments), middle
    cdef MappedFile file
    if high == 0:
        return None
    middle = max(0, (offset - (<MappedFile?>segments[0]).start_offset) // max(1, segment_size))
    while low < high:
        middle = middle if low <= middle < high else low + (high - low) // 2
        file = <MappedFile?>segments[middle]
        if offset < file.start_offset:
            high = middle
        elif offset >= file.start_offset + file.size:
            low = middle + 1
        else:
            return file
        middle = -1
    return None


cdef class _CodeSet:
    """Tag codes, sorted, as C wants them."""

    cdef int64_t *codes
    cdef size_t count

    def __cinit__(self, wanted):
        cdef list ordered = sorted(wanted)
        self.codes = <int64_t *>PyMem_RawMalloc((len(ordered) + 1) * sizeof(int64_t))
        if self.codes is NULL:
            raise MemoryError("no memory for the tag codes of a filter")
        for code in ordered:
            self.codes[self.count] = code
            self.count += 1

    def __dealloc__(self):
        PyMem_RawFree(self.codes)


cdef struct units_call:
    rs_unit_reader reader
    const uint8_t *units
    size_t count
    size_t next
    rs_record *records          # NULL: the units are checked
    size_t found
    rs_units_checked checked
    bint tags
    rs_status status
    int64_t offset              # of the record of the unit at which it stopped


cdef void units_work(void *given) noexcept nogil:
    cdef units_call *call = <units_call *>given
    call.found = 0
    if call.records is NULL:
        call.status = rs_units_check(&call.reader, call.units, call.count, call.tags, &call.next,
                                     &call.checked)
    else:
        call.status = rs_units_read(&call.reader, call.units, call.count, &call.next,
                                    call.records, CHUNK_UNITS, &call.found)
    if call.status != RS_OK:
        call.offset = rs_load64s(call.units + call.next * RS_UNIT_SIZE)


cdef int units_faulted(MappedFile queue_file, MappedFile segment) except -1:
    cdef const uint8_t *address = <const uint8_t *>fault_address()
    if segment is None or not segment.base <= address < segment.base + segment.size:
        raise_unread(queue_file.path, "a unit")
    unread(segment, "a record at", segment.start_offset + (address - segment.base))


cdef int prepare(units_call *call, MappedFile queue_file, int64_t position, Py_ssize_t count,
                 bytes topic, unsigned verify) except -1:
    """All but what the units have to say."""
    queue_file.check_range(position, count * RS_UNIT_SIZE)
    call.units, call.count, call.next = queue_file.base + position, <size_t>count, 0
    call.records = NULL
    call.reader.segment.bytes = NULL
    call.reader.segment.size = 0
    call.reader.segment.start_offset = 0
    call.reader.segment.verify = verify
    call.reader.topic.bytes = <const uint8_t *>PyBytes_AS_STRING(topic)
    call.reader.topic.size = <size_t>len(topic)
    call.reader.filtered = False
    call.reader.tags_codes = NULL
    call.reader.tags_code_count = 0
    return 0


cdef int follow(units_call *call, MappedFile queue_file, MappedFile segment) except -1:
    """The units that lie before us, to the end of `segment`, of the records' room, or to one that does not hold."""
    cdef bint whole
    if call.count - call.next < RELEASE_GIL_UNITS:
        whole = guarded(units_work, call)
    else:
        with nogil:
            whole = guarded(units_work, call)
    if not whole:
        units_faulted(queue_file, segment)
    return 0


cdef MappedFile next_segment(units_call *call, tuple segments, int64_t segment_size):
    """The file of the record at which `follow` ended; raises what else it ended at."""
    cdef MappedFile segment = None
    cdef rs_status status = call.status
    if status == RS_END_OF_FILE:
        segment = segment_at(segments, segment_size, call.offset)
        status = RS_BAD_UNIT
    if segment is None:
        check(status, call.offset)
    call.reader.segment = scan_of(segment, segment.size, call.reader.segment.verify)
    return segment


cdef int follow_units(units_call *call, MappedFile queue_file, tuple segments,
                      int64_t segment_size, list messages) except -1:
    """Appends the messages of all units to `messages`, if they are read."""
    cdef MappedFile segment = None
    while call.next < call.count:
        follow(call, queue_file, segment)
        if call.found:
            messages += make_messages(segment.mapping, call.records, <Py_ssize_t>call.found)
        if call.status != RS_OK:
            segment = next_segment(call, segments, segment_size)
    return 0


def read_units(MappedFile queue_file not None, int64_t position, Py_ssize_t count,
               tuple segments not None, int64_t segment_size, *, bytes topic not None,
               int32_t queue_id, int64_t first_queue_offset, int64_t log_minimum,
               int64_t limit_offset, unsigned verify, tags_codes):
    """The messages of `count` units from `position` on, whose first has queue offset
    `first_queue_offset`.

    Passed over: pre-blanks, units of records below `log_minimum`, and units whose code is not in
    `tags_codes` (None takes all).

    Raises:
        CorruptRecordError: a unit that is not written, reaches beyond `limit_offset`, or does not
            agree with its record (format.md 15.2, equation 9).
    """
    cdef units_call call
    cdef _CodeSet codes = None
    cdef list messages = []
    prepare(&call, queue_file, position, count, topic, verify)
    if tags_codes is not None:
        codes = _CodeSet(tags_codes)
        call.reader.filtered = True
        call.reader.tags_codes = codes.codes
        call.reader.tags_code_count = codes.count
    call.reader.queue_id = queue_id
    call.reader.first_queue_offset = first_queue_offset
    call.reader.log_minimum = log_minimum
    call.reader.log_limit = limit_offset
    call.records = <rs_record *>PyMem_RawMalloc(
        <size_t>max(1, min(count, CHUNK_UNITS)) * sizeof(rs_record))
    if call.records is NULL:
        raise MemoryError("no memory for the records of a batch")
    try:
        follow_units(&call, queue_file, segments, segment_size, messages)
    finally:
        PyMem_RawFree(call.records)
    return messages


@cython.final
@cython.auto_pickle(False)
cdef class UnitRun:
    """Units of one queue file that are known to be readable, followed batch by batch: an iterator over the
    messages of the last batch, each made when it is asked for. Between two batches it keeps no file of the log."""

    cdef units_call call
    cdef MappedFile queue_file
    cdef bytes topic
    cdef int64_t segment_size
    cdef size_t count
    cdef size_t ready       # records that were found by a batch that has ended
    cdef size_t at          # of these, the next to hand out
    cdef object owner       # of their memory

    def __cinit__(self, MappedFile queue_file not None, int64_t position, Py_ssize_t count,
                  int64_t segment_size, *, bytes topic not None, int32_t queue_id,
                  int64_t first_queue_offset, int64_t log_minimum, int64_t limit_offset,
                  unsigned verify):
        prepare(&self.call, queue_file, position, count, topic, verify)
        self.queue_file, self.topic, self.segment_size = queue_file, topic, segment_size
        self.count = <size_t>count
        self.call.reader.queue_id = queue_id
        self.call.reader.first_queue_offset = first_queue_offset
        self.call.reader.log_minimum = log_minimum
        self.call.reader.log_limit = limit_offset

    def __dealloc__(self):
        PyMem_RawFree(self.call.records)

    @property
    def log_minimum(self):
        """What lies below was passed over."""
        return self.call.reader.log_minimum

    @property
    def next_offset(self):
        """Queue offset of the first unit that was not followed."""
        return self.call.reader.first_queue_offset + <int64_t>self.call.next

    def fetch(self, Py_ssize_t limit, tuple segments not None):
        """Follows up to `limit` units to their records, to the end of a log file at most. How many messages
        wait now; what waited before is gone.

        Raises:
            CorruptRecordError, ReadFailedError: as `read_units`, of the first unit.
        """
        cdef units_call *call = &self.call
        cdef MappedFile segment = None
        self.at = self.ready = call.found = 0
        self.owner = None
        self.queue_file.check_range(0, 0)
        if call.records is NULL:
            call.records = <rs_record *>PyMem_RawMalloc(
                min(self.count, <size_t>CHUNK_UNITS) * sizeof(rs_record))
            if call.records is NULL:
                raise MemoryError("no memory for the records of a batch")
        call.count = min(self.count, call.next + <size_t>max(0, min(limit, CHUNK_UNITS)))
        while call.next < call.count and call.found == 0:
            follow(call, self.queue_file, segment)
            if call.found or call.status == RS_OK:
                break
            segment = next_segment(call, segments, self.segment_size)
        call.reader.segment.size = 0  # the memory is not kept: the next batch looks where it lies
        if call.found:
            self.owner, self.ready = segment.mapping, call.found
        return <Py_ssize_t>self.ready

    @cython.critical_section
    def peek(self):
        """The message that is handed out next, None without one."""
        if self.at >= self.ready:
            return None
        return make_message(self.owner, &self.call.records[self.at])

    @cython.critical_section
    def waiting(self):
        """All that were not handed out yet, which they still are not."""
        return make_messages(self.owner, self.call.records + self.at,
                             <Py_ssize_t>(self.ready - self.at))

    def __length_hint__(self):
        return <Py_ssize_t>(self.ready - self.at)

    def __iter__(self):
        return self

    @cython.critical_section
    def __next__(self):
        if self.at >= self.ready:
            self.owner = None
            raise StopIteration
        self.at += 1
        return make_message(self.owner, &self.call.records[self.at - 1])


@cython.final
@cython.auto_pickle(False)
cdef class BatchIterator:
    """The messages of one batch after another. `fetch()` gives the next batch as an iterator, None
    after the last one. What it raises leaves the iterator as it is: the next call fetches again.

    Several threads may call it: it holds what it calls, so none can take it from another, as with
    `itertools.chain` over a generator. `fetch` refuses a second thread.
    """

    cdef object fetch, batch
    cdef bint ended

    def __cinit__(self, fetch not None):
        self.fetch = fetch

    def __iter__(self):
        return self

    @cython.critical_section
    def __next__(self):
        cdef object batch = self.batch
        cdef object message
        while True:
            if batch is not None:
                message = next(batch, None)
                if message is not None:
                    return message
            if self.ended:
                raise StopIteration
            batch = self.fetch()
            if batch is None:
                self.ended = True
            else:
                batch = iter(batch)
            self.batch = batch


cdef struct address_call:
    const uint8_t *units
    size_t count
    bint found


cdef void address_work(void *given) noexcept nogil:
    cdef address_call *call = <address_call *>given
    call.found = rs_units_have_address(call.units, call.count)


def has_address(MappedFile queue_file not None, int64_t position, Py_ssize_t count):
    """Whether one of `count` units from `position` on has the address of an extension unit."""
    cdef address_call call
    queue_file.check_range(position, count * RS_UNIT_SIZE)
    call.units, call.count = queue_file.base + position, <size_t>count
    if not guarded(address_work, &call):
        raise_unread(queue_file.path, "a unit")
    return call.found


def check_units(MappedFile queue_file not None, int64_t position, Py_ssize_t count,
                tuple segments not None, int64_t segment_size, *, bytes topic not None,
                int32_t queue_id, int64_t first_queue_offset, int64_t log_minimum,
                int64_t limit_offset, bint tags):
    """Holds `count` units from `position` on against their records, whose checksums are not looked
    at. Without the GIL.

    `tags`: their tags codes have to be those of the records; not so in the queues of delayed
    messages. Addresses of extension units are not followed: such a unit does not agree.

    Returns:
        How many agree with a record, how many of those with a record of this very queue, how many
        are pre-blanks; physical offsets of the first and the last that is none, -1 without one.

    Raises:
        CorruptRecordError: as `read_units`; or units that do not rise, or have another tags code.
    """
    cdef units_call call
    prepare(&call, queue_file, position, count, topic, 0)
    call.tags = tags
    call.checked.matching = call.checked.own = call.checked.pre_blanks = 0
    call.checked.first_physical_offset = call.checked.last_physical_offset = -1
    call.reader.queue_id = queue_id
    call.reader.first_queue_offset = first_queue_offset
    call.reader.log_minimum = log_minimum
    call.reader.log_limit = limit_offset
    follow_units(&call, queue_file, segments, segment_size, [])
    return (call.checked.matching, call.checked.own, call.checked.pre_blanks,
            call.checked.first_physical_offset, call.checked.last_physical_offset)
