from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rocketstore._native.append.put_result cimport PutResult
from rocketstore._native.format.csrc cimport (
    rs_appended, rs_host, rs_log, rs_log_record_max, rs_message, rs_span, rs_status,
)
from rocketstore._native.sync.durations cimport Durations
from rocketstore._native.append.elsewhere cimport Elsewhere
from rocketstore._native.append.group_commit cimport GroupCommit
from rocketstore._native.append.guarded_append cimport Lights, append_call
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.os.syscalls cimport check_forked
from rocketstore._native.sync.positions cimport Positions
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.sync.futex cimport Mutex, EventCount, now_ns
from rocketstore._native.append.direct_write cimport WriteThrough

cdef enum:
    SLOW_NS = 500_000_000

cdef enum:
    STATE_CLOSED = 0
    STATE_OPEN = 1
    STATE_REFUSING = 2  # a running flag forbids puts
    STATE_FAILED = 3  # the owner knows why
    STATE_COPYING = 4  # a copy of another log: bytes as they are, and no puts


cdef class Log:
    cdef rs_log log
    cdef Mutex mutex
    cdef public WriteThrough through  # None: every append is stored to the segment, or the ring
    cdef public Durations put_times
    cdef public Elsewhere elsewhere  # None: the log is of this process
    cdef int write_error
    cdef readonly Positions positions
    cdef readonly EventCount dispatch_signal
    cdef readonly GroupCommit group
    cdef readonly EventCount progress
    cdef object owner
    cdef uint64_t token
    cdef readonly MappedFile segment_file
    cdef readonly MappedFile next_file
    cdef object segment_buffer
    cdef object next_buffer
    cdef int state
    cdef readonly bint copies_only  # a copy of another log
    cdef EventCount woken
    cdef bint buffered
    cdef int met  # the promise that every append meets at once
    cdef bint visible_when_flushed
    cdef int64_t (*flowing_ns)() noexcept nogil  # what moves the clock by itself: now_ns, or nothing
    cdef int64_t clock_offset_ns
    cdef int64_t full_start  # of the segment that had no room for a put, the last time that happened
    cdef rs_host store_host
    cdef public int64_t max_message_size_bytes
    cdef public int64_t sync_flush_timeout_ms

    cdef int64_t now_ms(self) noexcept nogil
    cdef inline rs_status append_locked(self, append_call *call) noexcept nogil
    cdef rs_status append_many_locked(self, append_call *call) noexcept nogil
    cdef rs_status write_locked(self, const uint8_t *data, rs_appended *appended) noexcept nogil
    cdef rs_status settle_locked(self, rs_status status) noexcept nogil
    cdef void publish(self) noexcept nogil
    cdef int ready(self) except -1
    cdef int append(self, rs_message *message, QueueState queue, Lights *lights,
                    rs_appended *appended) except -1
    cdef int append_at(self, rs_message *message, QueueState queue, int64_t expected,
                       Lights *lights, rs_appended *appended) except -1
    cdef int append_batch(self, rs_message *message, const rs_span *bodies, size_t count,
                          QueueState queue, int64_t *offsets, int64_t *rows,
                          rs_appended *appended) except -1
    cdef int append_many(self, append_call *call) except -1
    cdef int append_elsewhere(self, append_call *call, int64_t expected) except -1
    cdef int react(self, rs_status status, append_call *call) except -1
    cdef int64_t wanted(self) except -1
    cdef int after(self, rs_appended *appended) except -1
    cdef int wait_level(self, int64_t end_offset, int level, int64_t timeout_ms) except -1
    cpdef int await_promise(self, int64_t end_offset, int level, int64_t limit_ms, bint in_all,
                            PutResult result) except -1


cdef inline int64_t segment_start(const rs_log *log) noexcept nogil:
    return log.segment.start if log.segment.size else -1


cdef inline int64_t record_max(Log log) except -1:
    # The largest record that this log can take, whatever else it may have.
    cdef int64_t most
    check_forked(log.token)  # a thread of the parent may have held the mutex
    with nogil:
        log.mutex.lock()
        most = rs_log_record_max(&log.log)
        log.mutex.unlock()
    return most


cdef inline int unawaited(Log log) noexcept:
    # Nobody waits for what was put last: a flusher that rests, which only that of a ring does, hears of it. 0.
    if log.log.ring is not NULL:
        log.group.stored()
    return 0


cdef inline int put_took(Log log, int64_t started, bint waited) except -1:
    # Notes how long a put took; one that waited for the disk has reported already that it was slow.
    cdef int64_t taken = now_ns() - started
    log.put_times.add_c(taken)
    if taken > SLOW_NS and not waited:
        log.owner.was_slow(taken, "put")
    return 0
