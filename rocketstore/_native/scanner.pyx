"""Records of mapped log files: one at a time, by queue units, and walked from end to end."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rocketstore._native.codec cimport best_kernel
from rocketstore._native.core cimport (
    RS_BAD_UNIT, RS_END_OF_FILE, RS_OK, RS_SCAN_LENIENT, RS_SCAN_UNTORN, RS_SCAN_UNTORN_CRC,
    RS_VERIFY_BODY_CRC, RS_VERIFY_RECORD_CRC, rs_load32, rs_load64s, rs_record, rs_scan,
    rs_scan_find_magic, rs_scan_find_magic_plain, rs_scan_record, rs_scan_resynchronise,
    rs_scan_walk, rs_status, rs_unit_reader, rs_units_read, rs_walked,
)
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
    """
    cdef rs_scan scan = scan_of(file, limit, verify)
    cdef rs_record record
    cdef rs_status status
    cdef size_t at = <size_t>position
    if position < 0 or position >= <int64_t>scan.size:
        raise OffsetOutOfRangeError(
            file.start_offset + position, file.start_offset, file.start_offset + <int64_t>scan.size)
    if scan.size - at >= 4 and rs_load32(scan.bytes + at) > RELEASE_GIL_ABOVE:
        with nogil:
            status = rs_scan_record(&scan, at, &record)
    else:
        status = rs_scan_record(&scan, at, &record)
    check(status, file.start_offset + position)
    return make_message(file.mapping, &record)


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


cdef int follow_units(rs_unit_reader *reader, const uint8_t *units, size_t count, tuple segments,
                      int64_t segment_size, rs_record *records, list messages) except -1:
    """Appends the messages of all units to `messages`."""
    cdef size_t next = 0, found, i
    cdef rs_status status
    cdef MappedFile segment = None
    cdef int64_t offset
    cdef rs_scan nowhere = reader.segment
    while next < count:
        found = 0
        if count - next < RELEASE_GIL_UNITS:
            status = rs_units_read(reader, units, count, &next, records, CHUNK_UNITS, &found)
        else:
            with nogil:
                status = rs_units_read(reader, units, count, &next, records, CHUNK_UNITS, &found)
        for i in range(found):
            messages.append(make_message(segment.mapping, &records[i]))
        if status == RS_OK:
            continue
        offset = rs_load64s(units + next * UNIT_SIZE)
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
        follow_units(&reader, queue_file.base + position, <size_t>count, segments, segment_size,
                     records, messages)
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
    cdef rs_scan scan = scan_of(file, file.size, verify)
    cdef ScanResult result = ScanResult.__new__(ScanResult)
    cdef rs_walked walked
    cdef rs_status status
    check_part(file, from_position, to_position)
    walked.end = <size_t>from_position
    walked.records = 0
    walked.last_record_start = -1
    walked.first_time_fall = -1
    walked.last_store_timestamp_ms = previous_store_timestamp_ms
    walked.record_crc_mismatches = 0
    with nogil:
        status = rs_scan_walk(&scan, <size_t>from_position, <size_t>to_position, &walked)
    result.walked = walked
    result.status = status_text(status)
    return result


def resynchronise(MappedFile file not None, int64_t from_position, int64_t to_position, *,
                  unsigned verify=RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC):
    """Position of the next record or blank that can be believed, None without one in
    [from_position, to_position) (format.md 15.3). `from_position` is the byte behind the start of
    what is damaged. Without the GIL."""
    cdef rs_scan scan = scan_of(file, file.size, verify)
    cdef size_t found
    check_part(file, from_position, to_position)
    with nogil:
        found = rs_scan_resynchronise(&scan, <size_t>from_position, <size_t>to_position)
    return <int64_t>found if <int64_t>found < to_position else None


def find_magic(bytes data not None, Py_ssize_t from_position, *, bint plain=False):
    """Where a magic begins in `data`, its size when nowhere. For tests: the fast loop, the plain one."""
    cdef const uint8_t *bytes_ = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef size_t size = <size_t>len(data), at = <size_t>max(0, from_position)
    if plain:
        return rs_scan_find_magic_plain(bytes_, size, at)
    return rs_scan_find_magic(bytes_, size, at)
