from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rocketstore._native.format.csrc cimport (
    rs_dispatch_properties, rs_queue_entry, rs_queue_table, rs_record,
)
from rocketstore._native.format.queue_table cimport walk_call
from rocketstore._native.os.mapped_file cimport MappedFile

cdef enum:
    REASON_DONE = 0        # everything below `to_offset` is dispatched
    REASON_END = 1         # a blank, or zeros: the segment goes no further
    REASON_NEW_QUEUE = 2
    REASON_QUEUE_FILE = 3  # the unit lies in another file, or beyond the blocks reserved
    REASON_GAP = 4         # queue offsets are missing before this record's
    REASON_CONFLICT = 5    # another unit is where this record's belongs
    REASON_INDEX_FILE = 6
    REASON_LIGHT = 7       # the record is listed in further queues
    REASON_BAD_RECORD = 8
    REASON_ARRIVALS = 9    # the buffer of arrivals is full
    REASON_FAULT = 10      # a page of a mapped file could not be had: `faulted` says of which
    ARRIVALS_MAX = 1024
    DELAY_LEVELS_MAX = 1000
    FIRST_CAPACITY = 64

cdef enum:
    SLOTS_A_PIECE = 16384  # slots of an index file that get their blocks together: 64 KiB

cdef enum:
    SHORT_RUN = 32 << 10  # bytes; a run of at most this keeps the GIL: to get it again from a busy writer takes 5 ms

cdef enum:
    BAD_PLACE = -1
    BAD_DELAY = -2

cdef struct arrival_row:
    int64_t entry
    int64_t next_offset
    int64_t tags_code
    int64_t store_timestamp_ms


cdef class DispatchLoop:
    cdef rs_queue_table table
    cdef size_t *moved  # places of the entries that have moved
    cdef size_t moved_count
    cdef MappedFile index
    cdef uint32_t index_slots
    cdef uint32_t index_limit
    cdef object index_slots_ready  # the owner of the next; None: all are
    cdef const uint8_t *slots_ready
    cdef readonly uint32_t wanted_hash  # of the key for which the index has no room
    cdef int64_t index_from
    cdef bint index_tags
    cdef int64_t keys_done
    cdef int64_t lights_done
    # Of the record that gets no unit in its own queue.
    cdef public int64_t unit_kept
    cdef bint multi_dispatch
    cdef bint report
    cdef int64_t delays[DELAY_LEVELS_MAX]
    cdef size_t delay_count
    cdef list topics
    cdef dict handles
    cdef rs_record record
    cdef rs_dispatch_properties found
    cdef int bad_status   # an rs_status, or BAD_*: why the record cannot be believed
    cdef readonly str faulted
    cdef int64_t tags_code
    cdef arrival_row arrivals[ARRIVALS_MAX]
    cdef size_t arrival_count
    cdef readonly int64_t last_store_timestamp_ms
    cdef readonly int64_t records

    cdef int grow(self, size_t capacity) except -1
    cdef void note_moved(self, rs_queue_entry *entry) noexcept nogil
    # Readers see the units that were written since the last call.
    cpdef void publish_moved(self) noexcept nogil
    cdef int walk(self, walk_call *call) noexcept nogil
    cdef int dispatch(self) noexcept nogil
    cdef int put_unit(self) noexcept nogil
    cdef int further(self) noexcept nogil
    cdef int note_arrival(self, rs_queue_entry *entry, int64_t next_offset) noexcept nogil
    cdef int put_keys(self) noexcept nogil
    cdef bint put_hash(self, uint32_t key_hash, int64_t number) noexcept nogil


# One walk; False: a page of a mapped file could not be had, the call says where it stood.
cdef bint walk_guarded(walk_call *call) noexcept nogil
