"""Records of mapped log files: one at a time, and walked from end to end."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t

from rocketstore._native.format.codec cimport best_kernel
from rocketstore._native.format.csrc cimport (
    RS_SCAN_LENIENT, RS_SCAN_UNTORN, RS_VERIFY_BODY_CRC, RS_VERIFY_RECORD_CRC,
    RS_OK, rs_load32, rs_record, rs_scan, rs_scan_budget, rs_scan_find_magic,
    rs_scan_find_magic_plain, rs_scan_record, rs_scan_resynchronise, rs_scan_walk, rs_status,
    rs_walked,
)
from rocketstore._native.os.sigbus_guard cimport guarded, raise_unread
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.format.message cimport make_message
from rocketstore._native.format.status cimport check, status_text

from rocketstore._native.format.message import Message
from rocketstore.errors import OffsetOutOfRangeError

VERIFY_BODY_CRC = RS_VERIFY_BODY_CRC
VERIFY_RECORD_CRC = RS_VERIFY_RECORD_CRC
#: A record CRC that does not hold is counted, not an error: RocketMQ may have left a stale one.
VERIFY_LENIENT = RS_SCAN_LENIENT
#: A record that looks as if it was written in part is refused: for ground that was zeroed.
VERIFY_UNTORN = RS_SCAN_UNTORN

cdef enum:
    # The GIL is kept for less than this: giving it up costs more.
    RELEASE_GIL_ABOVE = 1 << 16


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
    uint64_t budget
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
        call.found = rs_scan_resynchronise(&call.scan, call.from_position, call.to_position,
                                           &call.budget)


cdef int scan_run(MappedFile file, What what, scan_call *call, bint long_) except -1:
    """ReadFailedError where a page of the file cannot be had."""
    cdef bint whole
    cdef rs_walked walked
    cdef uint64_t budget
    call.what = what
    if what >= WALK:
        walked, budget = call.walked, call.budget
    if long_:
        with nogil:
            whole = guarded(scan_work, call)
    else:
        whole = guarded(scan_work, call)
    if not whole and what >= WALK:
        call.walked, call.budget = walked, budget
    if not whole and not scan_without_holes(file, call):
        unread(file, "a record at or behind", file.start_offset + <int64_t>call.from_position)
    return 0


cdef bint scan_without_holes(MappedFile file, scan_call *call) except -1:
    """Whether the call could be made with memory in place of the holes of the file (a full tmpfs), and found
    nothing that lies there."""
    cdef MappedFile other = file.without_holes()
    cdef const uint8_t *bytes_ = call.scan.bytes
    cdef bint whole
    if other is None:
        return False
    call.scan.bytes = other.base
    with nogil:
        whole = guarded(scan_work, call)
    call.scan.bytes = bytes_
    return whole and not (call.what == RECORD and call.status == RS_OK)


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
    """The message whose record begins at `position`; no byte at or after `limit` is looked at.

    The record has to name its own place. `verify`: VERIFY_* bits.

    Raises:
        CorruptRecordError: something else is there; `reason` says what.
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
    def first_store_timestamp_ms(self):
        return self.walked.first_store_timestamp_ms

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
                 unsigned verify):
    """Walks from record to record, from a record's start until `to_position` is reached (the last
    record may end after it) or something is there that is no record. Without the GIL."""
    cdef scan_call call
    cdef ScanResult result = ScanResult.__new__(ScanResult)
    check_part(file, from_position, to_position)
    call.scan = scan_of(file, file.size, verify)
    call.from_position, call.to_position = <size_t>from_position, <size_t>to_position
    call.walked.end = <size_t>from_position
    call.walked.records = 0
    call.walked.last_record_start = -1
    call.walked.first_time_fall = -1
    call.walked.first_store_timestamp_ms = 0
    call.walked.last_store_timestamp_ms = INT64_MIN
    call.walked.record_crc_mismatches = 0
    scan_run(file, WALK, &call, True)
    result.walked = call.walked
    result.status = status_text(call.status)
    return result


@cython.final
@cython.auto_pickle(False)
cdef class SearchBudget:
    """Bytes that the searches of one walk may still read in a file to judge what looks like a record.
    It is that file's which was searched last, and is full again for another one."""

    cdef int64_t start
    cdef int64_t size
    cdef uint64_t left

    def __cinit__(self):
        self.size = -1

    cdef void renew(self, MappedFile file) noexcept:
        if self.start != file.start_offset or self.size != file.size:
            self.start, self.size = file.start_offset, file.size
            self.left = rs_scan_budget(<size_t>file.size)

    @property
    def left_bytes(self):
        return self.left if self.size >= 0 else None


def resynchronise(MappedFile file not None, int64_t from_position, int64_t to_position, *,
                  SearchBudget budget not None,
                  unsigned verify=RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC):
    """Position of the next record or blank that can be believed, None without one in
    [from_position, to_position) (format.md 15.3). `from_position` is the byte after the start of
    what is damaged. A walk has one `budget` for all its searches of a file: hostile bytes make each as
    dear as the file is large. Without the GIL."""
    cdef scan_call call
    check_part(file, from_position, to_position)
    call.scan = scan_of(file, file.size, verify)
    call.from_position, call.to_position = <size_t>from_position, <size_t>to_position
    budget.renew(file)
    call.budget = budget.left
    scan_run(file, RESYNCHRONISE, &call, True)
    budget.left = call.budget
    return <int64_t>call.found if <int64_t>call.found < to_position else None


def find_magic(bytes data not None, Py_ssize_t from_position, *, bint plain=False):
    """Where a magic begins in `data`, its size when nowhere. For tests: the fast loop, the plain one."""
    cdef const uint8_t *bytes_ = <const uint8_t *>PyBytes_AS_STRING(data)
    cdef size_t size = <size_t>len(data), at = <size_t>max(0, from_position)
    if plain:
        return rs_scan_find_magic_plain(bytes_, size, at)
    return rs_scan_find_magic(bytes_, size, at)
