"""Index files: keys in, candidate physical offsets out (format.md 7).

Every function takes slots and entries, because a file does not hold them, and checks them against
its length. The content of the file is untrusted; csrc bounds it.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from rocketstore._native.format.csrc cimport (
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
from rocketstore._native.os.sigbus_guard cimport guarded, raise_unread, raise_unwritten
from rocketstore._native.os.mapped_file cimport MappedFile

import io

from rocketstore.errors import ReadFailedError

HEADER_SIZE = RS_INDEX_HEADER_SIZE
SLOTS_MAX = RS_INDEX_SLOTS_MAX


cdef enum What:
    LOAD_HEADER, LOAD_ENTRY, LOOK_PLAUSIBLE, PUT, START_WALK, DEDUCE, WALK, VALIDATE, CUT

cdef struct index_call:
    What what
    uint8_t *base
    uint64_t size
    uint32_t slots
    uint32_t entries
    bint growing
    uint32_t number        # of the entry to load; limit of a put; next entry after a cut
    uint32_t key_hash
    int64_t offset         # of a put or cut; of a walk the earliest time
    int64_t timestamp_ms   # of a put; of a walk the latest time
    rs_index_header header
    rs_index_entry entry
    rs_index_walk *walk
    rs_index_hit *hits
    Py_ssize_t room
    Py_ssize_t count
    rs_status status
    bint plausible


cdef void index_work(void *given) noexcept nogil:
    cdef index_call *call = <index_call *>given
    if call.what == PUT:
        call.status = rs_index_put(call.base, call.slots, call.number, call.key_hash, call.offset,
                                   call.timestamp_ms)
    elif call.what == WALK:
        while call.count < call.room and rs_index_walk_next(call.walk, &call.hits[call.count]):
            call.count += 1
    elif call.what == START_WALK:
        rs_index_walk_start(call.walk, call.base, call.slots, call.entries, call.key_hash,
                            call.offset, call.timestamp_ms)
    elif call.what == LOAD_HEADER:
        call.status = rs_index_header_load(call.base, call.entries, &call.header)
    elif call.what == LOAD_ENTRY:
        rs_index_entry_load(call.base, call.slots, call.number, &call.entry)
    elif call.what == LOOK_PLAUSIBLE:
        call.plausible = rs_index_plausible(call.base, call.slots, call.entries)
    elif call.what == DEDUCE:
        call.status = rs_index_deduce(call.base, call.size, &call.slots, &call.entries)
    elif call.what == VALIDATE:
        call.status = rs_index_validate(call.base, call.slots, call.entries, call.growing)
    else:
        call.number = rs_index_cut(call.base, call.slots, call.entries, call.offset)


cdef index_call prepare(MappedFile file, What what, uint32_t slots, uint32_t entries) noexcept:
    cdef index_call call
    memset(&call, 0, sizeof(call))
    call.what, call.base, call.size = what, file.base, <uint64_t>file.size
    call.slots, call.entries = slots, entries
    return call


cdef int run(MappedFile file, index_call *call) except -1:
    """An error where a page of the file cannot be had."""
    cdef bint whole
    if call.what <= PUT:
        whole = guarded(index_work, call)
    else:  # over the whole file: each step may wait for the disk
        with nogil:
            whole = guarded(index_work, call)
    if not whole and call.what in (PUT, CUT):
        raise_unwritten(file.path)
    if not whole and not run_without_holes(file, call):
        raise_unread(file.path, "a page of the index")
    return 0


cdef bint run_without_holes(MappedFile file, index_call *call) except -1:
    """Whether the call could be made with memory in place of the holes of the file (a full tmpfs). A step of a walk
    cannot: the walk knows its place in `file` only, so its caller starts another walk in the copy."""
    cdef MappedFile other = None if call.walk is not NULL else file.without_holes()
    cdef bint whole
    if other is None:
        return False
    call.base = other.base
    with nogil:
        whole = guarded(index_work, call)
    return whole


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
    """Bytes of a file with that many slots and entries."""
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
    cdef index_call call = prepare(file, LOAD_HEADER, slots, entries)
    check_shape(file, slots, entries)
    run(file, &call)
    cdef rs_index_header found = call.header
    return (
        found.begin_timestamp_ms,
        found.end_timestamp_ms,
        found.begin_offset,
        found.end_offset,
        found.slot_count,
        found.index_count,
        call.status == RS_OK,
    )


def entry(MappedFile file not None, uint32_t slots, uint32_t entries, uint32_t number) -> tuple:
    """(key_hash, physical_offset, time_diff_s, previous) of entry `number`, as the file has it."""
    cdef index_call call = prepare(file, LOAD_ENTRY, slots, entries)
    check_shape(file, slots, entries)
    if number >= entries:
        raise ValueError(f"entry {number} of {entries}")
    call.number = number
    run(file, &call)
    cdef rs_index_entry found = call.entry
    return found.key_hash, found.physical_offset, found.time_diff_s, found.previous


def plausible(MappedFile file not None, uint32_t slots, uint32_t entries) -> bool:
    """Whether first and last entries lie where this shape puts them; a file without keys fits any."""
    cdef index_call call = prepare(file, LOOK_PLAUSIBLE, slots, entries)
    check_shape(file, slots, entries)
    run(file, &call)
    return call.plausible


def deduce(MappedFile file not None) -> tuple | None:
    """(slots, entries) when the file's own bytes allow exactly one answer. May read the whole file."""
    cdef index_call call = prepare(file, DEDUCE, 0, 0)
    run(file, &call)
    return (call.slots, call.entries) if call.status == RS_OK else None


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
    cdef index_call call = prepare(file, PUT, slots, entries)
    call.number, call.key_hash = limit, key_hash
    call.offset, call.timestamp_ms = physical_offset, store_timestamp_ms
    run(file, &call)
    return call.status == RS_OK


@cython.final
cdef class Walk:
    """The entries of one hash in one file, newest first, a piece at a time: no piece is walked twice."""

    cdef MappedFile file
    cdef rs_index_walk walk
    cdef rs_index_hit hits[64]
    cdef index_call call
    cdef readonly Py_ssize_t taken

    def __cinit__(self, MappedFile file not None, uint32_t slots, uint32_t entries,
                  uint32_t key_hash, int64_t begin_ms, int64_t end_ms):
        """Of the entries with times in [begin_ms, end_ms]. Entries lose up to 999 ms: to miss nothing, ask with a
        `begin_ms` that is a second early. Those of other keys with the same hash are among them; only the record
        has its keys."""
        self.call.key_hash = key_hash
        self.call.offset, self.call.timestamp_ms = begin_ms, end_ms
        self.call.slots, self.call.entries = slots, entries
        try:
            self.begin(file)
        except ReadFailedError:
            if not self.begin_without_holes(file):
                raise

    cdef int begin(self, MappedFile file) except -1:
        cdef index_call call = prepare(file, START_WALK, self.call.slots, self.call.entries)
        check_shape(file, self.call.slots, self.call.entries)
        call.walk, call.key_hash = &self.walk, self.call.key_hash
        call.offset, call.timestamp_ms = self.call.offset, self.call.timestamp_ms
        run(file, &call)
        self.file = file
        return 0

    cdef bint begin_without_holes(self, MappedFile file) except -1:
        """Goes to where the walk was, in memory in place of the holes of the file; whether it has some."""
        cdef MappedFile other = file.without_holes()
        cdef Py_ssize_t count = 1, left = self.taken
        if other is not None:
            self.begin(other)
        while other is not None and count and left:
            count = self.step(left)
            left -= count
        return other is not None

    cdef Py_ssize_t step(self, Py_ssize_t most) except -1:
        cdef index_call call = prepare(self.file, WALK, self.call.slots, self.call.entries)
        check_shape(self.file, self.call.slots, self.call.entries)
        call.walk, call.hits, call.room = &self.walk, self.hits, min(most, 64)
        run(self.file, &call)
        return call.count

    cdef Py_ssize_t load(self, Py_ssize_t most) except -1:
        """How many of `hits` are the next ones: `most`, and 64, at most."""
        cdef Py_ssize_t count
        try:
            count = self.step(most)
        except ReadFailedError:
            if not self.begin_without_holes(self.file):
                raise
            count = self.step(most)
        self.taken += count
        return count

    def next(self) -> list:
        """Physical offsets of the next up to 64 entries; none: the chain has ended."""
        cdef Py_ssize_t at, count = self.load(64)
        cdef list found = []
        for at in range(count):
            found.append(self.hits[at].physical_offset)
        return found


def validate(MappedFile file not None, uint32_t slots, uint32_t entries, *,
             bint growing=False) -> bool:
    """Whether every chain and count is sane. Reads the whole file. `growing`: somebody puts keys
    meanwhile, and what is after the count when the call begins is not looked at."""
    cdef index_call call = prepare(file, VALIDATE, slots, entries)
    call.growing = growing
    check_shape(file, slots, entries)
    run(file, &call)
    return call.status == RS_OK


def cut(MappedFile file not None, uint32_t slots, uint32_t entries, int64_t from_offset) -> int:
    """Drop the entries of records at `from_offset` and beyond and link the rest again.

    Returns the number of the next entry. An interrupted cut is finished by the same cut.
    """
    cdef index_call call = prepare(file, CUT, slots, entries)
    check_shape(file, slots, entries)
    check_writable(file)
    call.offset = from_offset
    run(file, &call)
    return call.number
