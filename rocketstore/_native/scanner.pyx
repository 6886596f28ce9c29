"""Records of mapped log files: one at a time, by queue units, and walked from end to end."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rocketstore._native.codec cimport best_kernel
from rocketstore._native.core cimport (
    RS_BAD_UNIT, RS_END_OF_FILE, RS_OK, RS_SCAN_LENIENT, RS_SCAN_UNTORN, RS_SCAN_UNTORN_CRC,
    RS_VERIFY_BODY_CRC, RS_VERIFY_RECORD_CRC, rs_load32, rs_load64s, rs_record, rs_scan,
    rs_scan_find_magic, rs_scan_find_magic_plain, rs_scan_record, rs_scan_resynchronise,
    rs_scan_walk, rs_status, rs_unit_reader, rs_units_read, rs_walked,
)
from rocketstore._native.guard cimport fault_address, guarded, raise_unread
from rocketstore._native.mapped_file cimport MappedFile
from rocketstore._native.message cimport make_message
from rocketstore._native.status cimport check, status_text

from rocketstore._native.message import Message
from rocketstore.errors import OffsetOutOfRangeError

VERIFY_BODY_CRC = RS_VERIFY_BODY_CRC
VERIFY_RECORD_CRC = RS_VERIFY_RECORD_CRC
#: A record CRC that does not hold is counted, not an error: RocketMQ may have left a stale one.
VERIFY_LENIENT = RS_SCAN_LENIENT
#: A record that looks as if it was written in part is refused: for ground that was zeroed.
VERIFY_UNTORN = RS_SCAN_UNTORN
#: With it, where the store appends record CRCs.
VERIFY_UNTORN_CRC = RS_SCAN_UNTORN_CRC

cdef enum:
    UNIT_SIZE = 20
    # The GIL is kept for less than this: giving it up costs more.
    RELEASE_GIL_ABOVE = 1 << 16
    RELEASE_GIL_UNITS = 16
    # Records followed before their messages are made: bounds the memory of one call.
    CHUNK_UNITS = 512


cdef enum What:
    RECORD, WALK, RESYNCHRONISE, SIZE

cdef struct scan_call:
    What what
    rs_scan scan
    size_t from_position
    size_t to_position
    rs_record record
    rs_walked walked
    size_t found
    uint32_t size
    rs_status status


cdef void scan_work(void *given) noexcept nogil:
    cdef scan_call *call = <scan_call *>given
    if call.what == SIZE:
        call.size = rs_load32(call.scan.bytes + call.from_position)
    elif call.what == RECORD:
        call.status = rs_scan_record(&call.scan, call.from_position, &call.record)
    elif call.what == WALK:
        call.status = rs_scan_walk(&call.scan, call.from_position, call.to_position, &call.walked)
    else:
        call.found = rs_scan_resynchronise(&call.scan, call.from_position, call.to_position)


cdef int scan_run(MappedFile file, What what, scan_call *call, bint long_) except -1:
    """ReadFailedError where a page of the file cannot be had."""
    cdef bint whole
    call.what = what
    if long_:
        with nogil:
            whole = guarded(scan_work, call)
    else:
        whole = guarded(scan_work, call)
    if not whole:
        unread(file, "a record at or behind", file.start_offset + <int64_t>call.from_position)
    return 0


cdef int unread(MappedFile file, str what, int64_t offset) except -1:
    raise_unread(file.path, f"{what} physical offset {offset}")


cdef rs_scan scan_of(MappedFile file, int64_t limit, unsigned verify) noexcept:
    """The first `limit` bytes of a file."""
    cdef rs_scan scan
    scan.bytes = file.base
    scan.size = <size_t>max(0, min(limit, file.size))
    scan.start_offset = file.start_offset
    scan.verify = verify
    scan.kernel = best_kernel()
    return scan


def read_message(MappedFile file not None, int64_t position, int64_t limit, *, unsigned verify):
    """The message whose record begins at `position`; no byte at or behind `limit` is looked at.

    The record has to name its own place. `verify`: VERIFY_* bits.

    Raises:
        CorruptRecordError: something else stands there; `reason` says what.
        OffsetOutOfRangeError: `position` is not below the limit.
        ReadFailedError: the disk does not give the bytes back.
    """
    cdef scan_call call
    call.scan = scan_of(file, limit, verify)
    call.from_position = <size_t>position
    call.size = 0
    if position < 0 or position >= <int64_t>call.scan.size:
        raise OffsetOutOfRangeError(
            file.start_offset + position, file.start_offset,
            file.start_offset + <int64_t>call.scan.size)
    if call.scan.size - call.from_position >= 4:
        scan_run(file, SIZE, &call, False)
    scan_run(file, RECORD, &call, call.size > RELEASE_GIL_ABOVE)
    check(call.status, file.start_offset + position)
    return make_message(file.mapping, &call.record)


# ---- queues ----

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
    rs_unit_reader *reader
    const uint8_t *units
    size_t count
    size_t next
    rs_record *records
    size_t found
    rs_status status
    int64_t offset  # of the record of the unit at which it stopped


cdef void units_work(void *given) noexcept nogil:
    cdef units_call *call = <units_call *>given
    call.found = 0
    call.status = rs_units_read(call.reader, call.units, call.count, &call.next, call.records,
                                CHUNK_UNITS, &call.found)
    if call.status != RS_OK:
        call.offset = rs_load64s(call.units + call.next * UNIT_SIZE)


cdef int units_faulted(MappedFile queue_file, MappedFile segment) except -1:
    cdef const uint8_t *address = <const uint8_t *>fault_address()
    if segment is None or not segment.base <= address < segment.base + segment.size:
        raise_unread(queue_file.path, "a unit")
    unread(segment, "a record at", segment.start_offset + (address - segment.base))


cdef int follow_units(rs_unit_reader *reader, MappedFile queue_file, const uint8_t *units,
                      size_t count, tuple segments, int64_t segment_size, rs_record *records,
                      list messages) except -1:
    """Appends the messages of all units to `messages`."""
    cdef units_call call
    cdef bint whole
    cdef size_t i
    cdef MappedFile segment = None
    cdef int64_t offset
    cdef rs_scan nowhere = reader.segment
    cdef rs_status status
    call.reader, call.units, call.count, call.next, call.records = reader, units, count, 0, records
    while call.next < count:
        if count - call.next < RELEASE_GIL_UNITS:
            whole = guarded(units_work, &call)
        else:
            with nogil:
                whole = guarded(units_work, &call)
        if not whole:
            units_faulted(queue_file, segment)
        for i in range(call.found):
            messages.append(make_message(segment.mapping, &records[i]))
        status, offset = call.status, call.offset
        if status == RS_OK:
            continue
        if status == RS_END_OF_FILE:
            segment = segment_at(segments, segment_size, offset)
            if segment is not None:
                reader.segment = scan_of(segment, segment.size, nowhere.verify)
                continue
            status = RS_BAD_UNIT
        check(status, offset)
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
    cdef rs_unit_reader reader
    cdef _CodeSet codes = None
    cdef rs_record *records
    cdef list messages = []
    queue_file.check_range(position, count * UNIT_SIZE)
    if tags_codes is not None:
        codes = _CodeSet(tags_codes)
    reader.filtered = codes is not None
    reader.tags_codes = codes.codes if codes is not None else NULL
    reader.tags_code_count = codes.count if codes is not None else 0
    reader.segment.bytes = NULL
    reader.segment.size = 0
    reader.segment.start_offset = 0
    reader.segment.verify = verify
    reader.segment.kernel = best_kernel()
    reader.topic.bytes = <const uint8_t *>PyBytes_AS_STRING(topic)
    reader.topic.size = <size_t>len(topic)
    reader.queue_id = queue_id
    reader.first_queue_offset = first_queue_offset
    reader.log_minimum = log_minimum
    reader.log_limit = limit_offset
    records = <rs_record *>PyMem_RawMalloc(
        <size_t>max(1, min(count, CHUNK_UNITS)) * sizeof(rs_record))
    if records is NULL:
        raise MemoryError("no memory for the records of a batch")
    try:
        follow_units(&reader, queue_file, queue_file.base + position, <size_t>count, segments,
                     segment_size, records, messages)
    finally:
        PyMem_RawFree(records)
    return messages


# ---- whole files ----

@cython.final
@cython.auto_pickle(False)
cdef class ScanResult:
    """What a walk over records has found."""

    cdef rs_walked walked
    cdef readonly str status

    def __init__(self):
        raise TypeError("a ScanResult is made by scan_segment")

    @property
    def end_position(self):
        return <int64_t>self.walked.end

    @property
    def records(self):
        return self.walked.records

    @property
    def last_record_start(self):
        return self.walked.last_record_start

    @property
    def last_store_timestamp_ms(self):
        return self.walked.last_store_timestamp_ms

    @property
    def first_time_fall(self):
        return self.walked.first_time_fall

    @property
    def record_crc_mismatches(self):
        return self.walked.record_crc_mismatches

    def __repr__(self):
        return (f"ScanResult(end_position={self.end_position}, status={self.status!r}, "
                f"records={self.records}, last_record_start={self.last_record_start})")


cdef int check_part(MappedFile file, int64_t from_position, int64_t to_position) except -1:
    if not 0 <= from_position <= to_position <= file.size:
        raise ValueError(
            f"[{from_position}, {to_position}) is no part of the {file.size} bytes of {file.path}")
    return 0


def scan_segment(MappedFile file not None, int64_t from_position, int64_t to_position, *,
                 unsigned verify, int64_t previous_store_timestamp_ms=0):
    """Walks from record to record, from a record's start until `to_position` is reached (the last
    record may end behind it) or something stands there that is no record. Without the GIL."""
    cdef scan_call call
    cdef ScanResult result = ScanResult.__new__(ScanResult)
    check_part(file, from_position, to_position)
    call.scan = scan_of(file, file.size, verify)
    call.from_position, call.to_position = <size_t>from_position, <size_t>to_position
    call.walked.end = <size_t>from_position
    call.walked.records = 0
    call.walked.last_record_start = -1
    call.walked.first_time_fall = -1
    call.walked.last_store_timestamp_ms = previous_store_timestamp_ms
    call.walked.record_crc_mismatches = 0
    scan_run(file, WALK, &call, True)
    result.walked = call.walked
    result.status = status_text(call.status)
    return result


def resynchronise(MappedFile file not None, int64_t from_position, int64_t to_position, *,
                  unsigned verify=RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC):
    """Position of the next record or blank that can be believed, None without one in
    [from_position, to_position) (format.md 15.3). `from_position` is the byte behind the start of
    what is damaged. Without the GIL."""
    cdef scan_call call
    check_part(file, from_position, to_position)
    call.scan = scan_of(file, file.size, verify)
    call.from_position, call.to_position = <size_t>from_position, <size_t>to_position
    scan_run(file, RESYNCHRONISE, &call, True)
    return <int64_t>call.found if <int64_t>call.found < to_position else None


def find_magic(bytes data not None, Py_ssize_t from_position, *, bint plain=False):
    """Where a magic begins in `data`, its size when nowhere. For tests: the fast loop, the plain one."""
    cdef const uint8_t *bytes_ = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef size_t size = <size_t>len(data), at = <size_t>max(0, from_position)
    if plain:
        return rs_scan_find_magic_plain(bytes_, size, at)
    return rs_scan_find_magic(bytes_, size, at)
