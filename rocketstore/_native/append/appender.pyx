"""The end of the commit log for one process: the append lock, the positions, waiting for the disk.

`Log` decides no policy: it asks its owner (`log.commitlog.commit_log.CommitLog`), and tries again.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from rocketstore._native.format.csrc_atomic cimport (
    rs_load_int, rs_load_int64, rs_store_int, rs_store_int64, rs_store_max,
)
from rocketstore._native.format.codec cimport best_kernel
from rocketstore._native.format.csrc cimport (
    RS_END_OF_FILE, RS_FULL, RS_NO_BLOCKS, RS_OK, RS_POSITIONS_AT_COMMITTED,
    RS_POSITIONS_AT_FLUSHED, RS_POSITIONS_AT_VISIBLE, RS_POSITIONS_AT_WROTE,
    RS_RECORD_TOO_LARGE, rs_appended, rs_host, rs_log, rs_message,
    rs_position_load, rs_position_store, rs_segment, rs_span, rs_status,
)
from rocketstore._native.sync.durations cimport Durations
from rocketstore._native.append.copies cimport Copies, copies_of, line_of, machines, not_on_disk
from rocketstore._native.append.group_commit cimport BUSY, FAILED, IDLE, GroupCommit
from rocketstore._native.append.guarded_append cimport (
    FAULTED, REFUSED, Lights, append_call, guarded_append, UNEXPECTED,
)
from rocketstore._native.append.segment_descriptor cimport describe
from rocketstore._native.append.too_large cimport refuse, refuse_offset, refuse_size
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.sync.positions cimport Positions
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.append.put_result cimport DISK, MEMORY, OS, PutResult, set_host
from rocketstore._native.os.syscalls cimport check_forked, forked_since, process_token
from rocketstore._native.sync.wait_queue cimport WaitQueue
from rocketstore._native.sync.futex cimport Mutex, EventCount, now_ns, wall_ns

from rocketstore._native.format.codec import pack_host
from rocketstore.errors import (
    MessageTooLargeError, PropertiesTooLargeError, QueueOffsetMismatchError, RocketStoreError,
)

# A born timestamp that means: the same clock reading as the store timestamp.
cdef int64_t NOW = INT64_MIN

cdef int64_t standing_ns() noexcept nogil:
    return 0


@cython.final
@cython.auto_pickle(False)
cdef class Log:
    """One process's end of a commit log. The append mutex is never held while Python code may run. A forked child
    is refused before it takes it: a thread that the child does not have may have held it."""

    def __cinit__(self, owner, Positions positions not None, *, object ring=None,
                  int64_t ring_size=0, Py_ssize_t ring_address=0, bint buffered=False,
                  bint visible_when_flushed=False, int64_t file_size=0,
                  int64_t max_unflushed_bytes, int64_t max_undispatched_bytes,
                  str store_host not None):
        memset(&self.log, 0, sizeof(self.log))
        self.state = STATE_CLOSED
        self.owner, self.token, self.positions = owner, process_token(), positions
        self.mutex = Mutex()
        self.dispatch_signal = EventCount()
        self.group = GroupCommit(positions, self.dispatch_signal, ring=ring, ring_size=ring_size,
                                 ring_address=ring_address)
        self.progress, self.put_times = self.group.progress, Durations(())
        self.buffered, self.visible_when_flushed = buffered, visible_when_flushed
        self.met = MEMORY if buffered else OS
        self.log.positions = positions.page
        self.log.kernel = best_kernel()
        self.log.ring, self.log.ring_size = <uint8_t *>ring_address, ring_size
        self.log.zero_blank = buffered
        self.log.max_unflushed_bytes = max_unflushed_bytes
        self.log.max_undispatched_bytes = max_undispatched_bytes
        self.log.last_record_start, self.log.notify_at = -1, INT64_MAX
        self.log.file_size = file_size
        set_host(&self.store_host, pack_host(store_host))
        self.flowing_ns, self.clock_offset_ns = now_ns, wall_ns() - now_ns()

    def start(self, int64_t end_offset, int64_t last_record_start, int64_t last_store_timestamp_ms,
              MappedFile segment=None, MappedFile buffer=None):
        """Opens the log for puts: it ends at `end_offset`, in `segment` (None: at a segment border)."""
        self.log.wrote, self.log.last_record_start = end_offset, last_record_start
        self.log.last_store_timestamp_ms = last_store_timestamp_ms
        if segment is not None:
            self.segment_file, self.segment_buffer = segment, buffer
            self.log.segment = describe(segment, buffer)
        rs_store_int(&self.state, STATE_OPEN)

    def set_next(self, MappedFile segment not None, MappedFile buffer=None):
        """Hands over the segment that follows; the put that needs it swaps it in."""
        cdef rs_segment described = describe(segment, buffer)
        cdef bint free
        check_forked(self.token)
        with nogil:
            self.mutex.lock()
            free = self.log.next.size == 0
            if free:
                self.log.next = described
            self.mutex.unlock()
        if not free:
            raise ValueError("the next segment is already there")
        self.next_file, self.next_buffer = segment, buffer

    def reserve(self, MappedFile file not None):
        """A file that the log has, or is to have, got blocks: puts may store to what it has reserved by now."""
        cdef int64_t reserved = file.reserved_bytes()
        check_forked(self.token)
        with nogil:
            self.mutex.lock()
            if self.log.segment.size and self.log.segment.start == file.start_offset:
                self.log.segment.reserved = max(self.log.segment.reserved, reserved)
            elif self.log.next.size and self.log.next.start == file.start_offset:
                self.log.next.reserved = max(self.log.next.reserved, reserved)
            self.mutex.unlock()

    def take_roll(self):
        """After a put rolled: (the segment and buffer that were left, the new segment). Called once
        a roll by the owner, under its own lock."""
        cdef tuple left = (self.segment_file, self.segment_buffer, self.next_file)
        if self.next_file is None or self.has_next:
            return None
        self.segment_file, self.next_file = self.next_file, None
        self.segment_buffer, self.next_buffer = self.next_buffer, None
        return left

    @property
    def has_next(self):
        cdef bint there
        check_forked(self.token)
        with nogil:
            self.mutex.lock()
            there = self.log.next.size != 0
            self.mutex.unlock()
        return there

    @property
    def wants_next(self):
        """Whether a put found the current segment full; not when another has rolled meanwhile."""
        cdef bint wants
        check_forked(self.token)
        with nogil:
            self.mutex.lock()
            wants = self.log.next.size == 0 and self.full_start == segment_start(&self.log)
            self.mutex.unlock()
        return wants

    def wake_on_put(self, EventCount signal not None):
        """Every put notifies `signal` (RocketMQ's wakeFlushWhenPutMessage and its kin)."""
        self.woken = signal

    def notify_at(self, int64_t offset):
        """Asks for owner.half_full() once the log has passed `offset`."""
        check_forked(self.token)
        with nogil:
            self.mutex.lock()
            self.log.notify_at = offset
            self.mutex.unlock()

    def stand_at(self, int64_t when_ms):
        """The clock is moved by hand: it says `when_ms` until the next call. Store times do not fall."""
        if forked_since(self.token):
            return  # the parent's clock, in a child that puts nothing
        with nogil:
            self.mutex.lock()
            self.flowing_ns = standing_ns
            rs_store_int64(&self.clock_offset_ns, when_ms * 1_000_000)
            self.mutex.unlock()

    def copy_only(self):
        """The log is a copy of another one: from here on it takes bytes as they are, and no puts."""
        check_forked(self.token)
        with nogil:
            self.mutex.lock()
            self.copies_only = True
            if rs_load_int(&self.state) == STATE_OPEN:
                rs_store_int(&self.state, STATE_COPYING)
            self.mutex.unlock()

    def refuse(self, bint closed, bint failed=False):
        """No append after this returns: closed or failed for good, else until admit()."""
        cdef int state = STATE_CLOSED if closed else STATE_FAILED if failed else STATE_REFUSING
        check_forked(self.token)
        with nogil:
            self.mutex.lock()
            if closed or rs_load_int(&self.state) in (STATE_OPEN, STATE_REFUSING, STATE_COPYING):
                rs_store_int(&self.state, state)
            self.mutex.unlock()
        self.group.stir()

    def admit(self):
        check_forked(self.token)
        with nogil:
            self.mutex.lock()
            if rs_load_int(&self.state) == STATE_REFUSING:
                rs_store_int(&self.state, STATE_COPYING if self.copies_only else STATE_OPEN)
            self.mutex.unlock()

    def snapshot(self):
        """(wrote, start of the record that ends there or -1, store time of the last record), at once."""
        cdef int64_t wrote, start, stored
        check_forked(self.token)
        with nogil:
            self.mutex.lock()
            wrote, start = self.log.wrote, self.log.last_record_start
            stored = self.log.last_store_timestamp_ms
            self.mutex.unlock()
        return wrote, start, stored

    @property
    def pooled(self):
        """Written through pool buffers: file and mapping share the page cache, the descriptor syncs."""
        return self.buffered and self.log.ring is NULL

    cdef int64_t now_ms(self) noexcept nogil:
        """Wall clock at open plus the monotonic clock: later steps of the wall clock do not show. After
        stand_at what that says."""
        return (self.flowing_ns() + rs_load_int64(&self.clock_offset_ns)) // 1_000_000

    cdef void publish(self) noexcept nogil:
        """On the mapped path what is written is committed, and visible unless that waits for a flush."""
        cdef int64_t wrote
        if not self.buffered:
            wrote = rs_position_load(self.log.positions, RS_POSITIONS_AT_WROTE)
            rs_position_store(self.log.positions, RS_POSITIONS_AT_COMMITTED, wrote)
            if not self.visible_when_flushed:
                rs_position_store(self.log.positions, RS_POSITIONS_AT_VISIBLE, wrote)

    cdef inline rs_status append_locked(self, append_call *call) noexcept nogil:
        if rs_load_int(&self.state) != STATE_OPEN:
            return <rs_status>REFUSED
        call.now_ms = self.now_ms()
        if call.message.born_timestamp_ms == NOW:
            call.message.born_timestamp_ms = call.now_ms
        return self.settle_locked(guarded_append(call))

    cdef rs_status append_many_locked(self, append_call *call) noexcept nogil:
        cdef rs_status status
        if self.through is not None:
            self.through.offer(&self.log)
        status = self.append_locked(call)
        if status == RS_OK and call.appended.aside:
            status = self.write_locked(self.log.aside, call.appended)
        return status

    cdef rs_status write_locked(self, const uint8_t *data, rs_appended *appended) noexcept nogil:
        self.write_error = <int>-self.through.write(&self.log, data, appended)
        return self.settle_locked(<rs_status>FAULTED if self.write_error else RS_OK)

    cdef rs_status settle_locked(self, rs_status status) noexcept nogil:
        if status == RS_OK:
            self.publish()
        elif status == RS_END_OF_FILE:
            self.full_start = segment_start(&self.log)
        elif <int>status == FAULTED:
            rs_store_int(&self.state, STATE_FAILED)  # nobody appends after a record in part
        return status

    cdef int ready(self) except -1:
        check_forked(self.token)
        if rs_load_int(&self.state) != STATE_OPEN:
            raise self.owner.refusal()
        return 0

    cdef int append(self, rs_message *message, QueueState queue, Lights *lights,
                    rs_appended *appended) except -1:
        """One record, whatever it takes: a roll, room, a detached wait for the mutex. `lights`: the
        further queues it is listed in, or NULL."""
        cdef append_call call
        cdef rs_status status
        memset(&call, 0, sizeof(call))
        call.log, call.message, call.appended = &self.log, message, appended
        call.queue, call.lights = &queue.state, lights
        if self.elsewhere is not None:
            return self.append_elsewhere(&call, -1)
        while True:
            self.ready()
            if self.mutex.try_lock():
                status = self.append_locked(&call)
                self.mutex.unlock()
            else:
                with nogil:
                    self.mutex.lock()
                    status = self.append_locked(&call)
                    self.mutex.unlock()
            if status == RS_OK:
                return self.after(appended)
            self.react(status, &call)

    cdef int append_at(self, rs_message *message, QueueState queue, int64_t expected,
                       Lights *lights, rs_appended *appended) except -1:
        """As append, if the queue's next message has the queue offset `expected`; below 0: whatever it has."""
        cdef append_call call
        cdef rs_status status
        cdef int64_t following
        if expected < 0:
            return self.append(message, queue, lights, appended)
        memset(&call, 0, sizeof(call))
        call.log, call.message, call.appended = &self.log, message, appended
        call.queue, call.lights = &queue.state, lights
        if self.elsewhere is not None:
            return self.append_elsewhere(&call, expected)
        while True:
            self.ready()
            with nogil:
                self.mutex.lock()
                following = rs_load_int64(&queue.state.next_offset)
                status = self.append_locked(&call) if following == expected else RS_OK
                self.mutex.unlock()
            if following != expected:
                raise QueueOffsetMismatchError(queue.topic, queue.queue_id, expected, following)
            if status == RS_OK:
                return self.after(appended)
            self.react(status, &call)

    cdef int append_batch(self, rs_message *message, const rs_span *bodies, size_t count,
                          QueueState queue, int64_t *offsets, int64_t *rows,
                          rs_appended *appended) except -1:
        """All bodies in one segment under one lock, without the GIL. `rows`: of a log in another process, which
        may split them then, their queue offsets; or NULL."""
        cdef append_call call
        memset(&call, 0, sizeof(call))
        call.message, call.appended, call.queue = message, appended, &queue.state
        call.bodies, call.count, call.offsets = bodies, count, offsets
        call.rows, call.split = rows, rows is not NULL
        return self.append_many(&call)

    cdef int append_elsewhere(self, append_call *call, int64_t expected) except -1:
        self.ready()
        return self.elsewhere.append(call, expected, self.now_ms())

    cdef int append_many(self, append_call *call) except -1:
        cdef rs_status status
        call.log = &self.log
        if self.elsewhere is not None:
            return self.append_elsewhere(call, -1)
        while True:
            self.ready()
            with nogil:
                self.mutex.lock()
                status = self.append_many_locked(call)
                self.mutex.unlock()
            if status == RS_OK:
                return self.after(call.appended)
            self.react(status, call)

    cdef int react(self, rs_status status, append_call *call) except -1:
        """What an append that did not happen needs before it is tried again."""
        if status == RS_RECORD_TOO_LARGE and call is not NULL:
            refuse_size(call)
        elif <int>status == UNEXPECTED:
            refuse_offset(call)
        elif status == RS_END_OF_FILE:
            self.owner.next_segment()
        elif status == RS_FULL:
            self.owner.wait_for_room()
        elif status == RS_NO_BLOCKS:
            self.owner.more_blocks(self.wanted())
        elif <int>status == FAULTED:
            self.owner.segment_faulted(segment_start(&self.log), self.write_error)
        elif <int>status != REFUSED:
            self.owner.rolled()  # where it did
            refuse(status)
        return 0

    cdef int64_t wanted(self) except -1:
        """Up to where a put found no blocks, the last time that happened."""
        cdef int64_t wanted
        with nogil:
            self.mutex.lock()
            wanted = self.log.wanted
            self.mutex.unlock()
        return wanted

    cdef int after(self, rs_appended *appended) except -1:
        if not self.visible_when_flushed and not self.buffered:
            self.dispatch_signal.notify_c()
        if self.woken is not None:
            self.woken.notify_c()
        if appended.rolled:
            self.owner.rolled()
        if appended.notify:
            self.owner.half_full()
        return 0

    def moved(self):
        """The owner moved `committed` or `flushed`: visible follows, and waiting threads are called."""
        self.move_visible()
        self.group.moved()

    def move_visible(self):
        """Visible follows `committed` or `flushed`; moved() calls the waiting threads."""
        cdef size_t at = (RS_POSITIONS_AT_FLUSHED if self.visible_when_flushed
                          else RS_POSITIONS_AT_COMMITTED)
        cdef int64_t end = rs_position_load(self.log.positions, at)
        if self.buffered or self.visible_when_flushed:
            if rs_position_load(self.log.positions, RS_POSITIONS_AT_VISIBLE) < end:
                # Committer and flusher both come here: the later of two must not be the lower.
                rs_store_max(<int64_t *>(self.log.positions + RS_POSITIONS_AT_VISIBLE), end)
                self.dispatch_signal.notify_c()

    def request_flush(self, int64_t offset):
        """Asks the flusher for everything below `offset`, without waiting."""
        self.group.want(offset)

    cdef int wait_level(self, int64_t end_offset, int level, int64_t timeout_ms) except -1:
        """Until everything below `end_offset` is committed (OS) or flushed (DISK, and above it). 1: yes, 0: timeout.
        Raises what the owner says when the store fails or closes meanwhile. Above DISK: in line for others, too."""
        cdef int64_t deadline, left, started
        cdef int found = IDLE, stirs
        cdef bint stood = False
        cdef WaitQueue line = self.group.flushed_queue, others = None
        cdef size_t at = RS_POSITIONS_AT_FLUSHED
        if level > DISK:
            others = line_of(self.group.copies, level)
        elif level < DISK:
            line, at = self.group.committed_queue, RS_POSITIONS_AT_COMMITTED
        if rs_position_load(self.log.positions, at) >= end_offset:
            return 1
        if self.elsewhere is not None:
            return self.elsewhere.await_end(end_offset, level, timeout_ms)
        started = now_ns()
        deadline = started + timeout_ms * 1_000_000
        while True:
            stirs = rs_load_int(&self.group.stirs)
            check_forked(self.token)
            self.owner.check_waitable()
            left = deadline - now_ns()
            with nogil:  # once: a thread that gives up the GIL among many does not get it back at once
                if level > DISK and not stood:
                    stood = self.group.stand_for_copies(others, copies_of(level), end_offset,
                                                        timeout_ms * 1_000_000, deadline, stirs)
                if rs_position_load(self.log.positions, at) < end_offset:
                    found = self.group.wait_for(line, at, end_offset, timeout_ms * 1_000_000,
                                                deadline, stirs)
            if found == FAILED:
                self.owner.fail(self.group.failure())
                continue
            if found == BUSY or stood:
                (others if stood else line).goes_on(True)
                PyErr_CheckSignals()
            if rs_position_load(self.log.positions, at) >= end_offset:
                if now_ns() - started > SLOW_NS:
                    self.owner.was_slow(now_ns() - started, "waiting for the disk")
                return 1
            if left <= 0:
                self.group.want(end_offset)  # a caller that asks again, with no time at all, has it flushed, too
                return 0

    cpdef int await_promise(self, int64_t end_offset, int level, int64_t limit_ms, bint in_all,
                            PutResult result) except -1:
        """Until all below `end_offset` met `level`. Machines have a time of their own, or the limit is `in_all`."""
        cdef int copies = machines(self.group.copies, level) if level > DISK or level < 0 else 0
        cdef int64_t left_ms, started = now_ns() if copies else 0
        if level and not self.wait_level(end_offset, level, limit_ms):
            raise not_on_disk(end_offset, limit_ms, result)
        if result is not None:
            result.level = max(<int>result.level, min(level, <int>DISK))
        if copies:  # a wait and an error of its own (K-72)
            left_ms = max(<int64_t>0, limit_ms - (now_ns() - started) // 1_000_000)
            self.group.copies.wait(self.owner, self.token, &self.group.stirs, end_offset, copies,
                                   left_ms if in_all else self.group.copies.timeout_ms, result)
            if result is not None:
                result.level = <short>level
        return 0

    def wait_flushed(self, int64_t end_offset, int64_t timeout_ms):
        """True once everything below `end_offset` is on this machine's disk, False after the timeout."""
        return self.wait_level(end_offset, DISK, timeout_ms) == 1
