"""The end of a log that another process holds: a put becomes a request to it, and its answer what the put gives."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport INT64_MIN, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from rocketstore._native.append.guarded_append cimport append_call
from rocketstore._native.append.guest_line cimport (
    ANSWERED, BROKEN, UNANSWERED, UNSENT, Line, pending,
)
from rocketstore._native.append.put_result cimport DISK, PutResult, put_result
from rocketstore._native.format.codec cimport best_kernel
from rocketstore._native.format.csrc_atomic cimport rs_load_int, rs_store_int, rs_store_max
from rocketstore._native.format.csrc cimport (
    RS_POSITIONS_AT_COMMITTED, RS_POSITIONS_AT_FLUSHED, RS_POSITIONS_AT_WROTE, rs_appended,
    rs_crc32_kernel, rs_message, rs_position_load, rs_property_find, rs_queue_state,
    rs_record_encode, rs_record_publish, rs_record_size, rs_span,
)
from rocketstore._native.format.csrc_peer cimport (
    RS_ANSWER_AGAIN, RS_ANSWER_ERROR, RS_ANSWER_LATE, RS_ASK_EXPECTED, RS_ASK_PUT,
    RS_ASK_UNIQUE, RS_ASK_WAIT, RS_ASK_WHOLE, rs_answer, rs_ask,
)
from rocketstore._native.os.syscalls cimport check_forked, forked_since, process_token
from rocketstore._native.sync.futex cimport futex_wait, now_ns
from rocketstore._native.sync.positions cimport Positions

import threading

from rocketstore.errors import BackpressureError, MessageRejectedError, MessageTooLargeError

cdef enum:
    # A call goes on for so long after its time limit, in which the host says that the time is over.
    GRACE_MS = 1000
    PAUSE_NS = 2_000_000
    STACK_BYTES = 1 << 10
    STACK_WORDS = 128


cdef void count_put(rs_queue_state *queue, int64_t messages, int64_t size) noexcept:
    """With the GIL, by which these figures are kept in a guest."""
    queue.messages += messages
    queue.bytes += size


class Found(Exception):
    """A put that found the message of its unique id: its result."""


@cython.final
@cython.auto_pickle(False)
cdef class Elsewhere:
    """The two lines of a guest to its host: one for puts that wait for the disk, and one for the others."""

    def __cinit__(self, owner, Positions positions not None):
        """`owner` says how to wait for a host (`await_host`), and what to raise (`unknown`, `error_from`)."""
        self.owner, self.positions, self.token = owner, positions.page, process_token()
        self.once_here, self.late_end = set(), -1

    def connect(self, waiting not None, quick not None, size_t max_request_bytes):
        """Takes over two sockets that are connected to the host, in the place of broken ones."""
        self.disconnect()
        self.most = max_request_bytes
        self.waiting, self.quick = Line(waiting), Line(quick)

    @property
    def connected(self):
        """Whether both lines are there, as far as anybody has seen."""
        return (self.waiting is not None and not rs_load_int(&self.waiting.broken)
                and not rs_load_int(&self.quick.broken))

    def disconnect(self):
        """Ends the lines. Requests under way, which may have been done, raise what the owner says."""
        cdef Line line
        for line in (self.waiting, self.quick):
            if line is not None and not forked_since(self.token):
                with nogil:
                    line.fail()
                line.settle()

    def once(self, append):
        """What `append()` gives, whose put happens once for its unique id; as a duplicate where it has."""
        me = threading.get_ident()
        self.once_here.add(me)
        try:
            return append()
        except Found as found:
            return found.args[0]
        finally:
            self.once_here.discard(me)

    cdef int append(self, append_call *call, int64_t expected, int64_t now_ms) except -1:
        cdef bint several = call.queues is not NULL or call.bodies is not NULL
        cdef size_t at, count = call.count if several else 1, size = sizeof(rs_ask), one
        cdef bint places = expected >= 0 or call.expected is not NULL
        cdef rs_crc32_kernel kernel = best_kernel()
        cdef rs_message message
        cdef int64_t[STACK_WORDS] small
        cdef uint8_t *request = <uint8_t *>small
        cdef uint8_t *to
        cdef rs_ask *ask
        cdef pending me
        if call.lights is not NULL:
            raise MessageRejectedError("a guest of a store puts no message into light queues")
        if places:
            size += 8 * count
        for at in range(count):
            message = call.message[at if call.queues is not NULL else 0]
            message.record_crc = False
            if call.bodies is not NULL:
                message.body = call.bodies[at]
            size += rs_record_size(&message)
        if size - sizeof(rs_ask) > self.most:
            raise MessageTooLargeError(
                f"{count} messages of {size} bytes together: a guest sends at most {self.most} "
                "bytes at once; put fewer")
        if size > STACK_BYTES:
            request = <uint8_t *>PyMem_RawMalloc(size)
            if request is NULL:
                raise MemoryError(f"no memory for a request of {size} bytes")
        me.tail = NULL
        try:
            ask = <rs_ask *>request
            memset(ask, 0, sizeof(rs_ask))
            ask.size, ask.kind = <uint32_t>(size - sizeof(rs_ask)), RS_ASK_PUT
            ask.count = <uint32_t>count
            ask.level = <uint8_t>min(max(call.message.asked, 0), <int>DISK)
            ask.limit_ms = call.message.limit_ms
            if not call.split:
                ask.flags = RS_ASK_WHOLE
            if self.once_here and threading.get_ident() in self.once_here:
                ask.flags |= RS_ASK_UNIQUE
            to = request + sizeof(rs_ask)
            if places:
                ask.flags |= RS_ASK_EXPECTED
                for at in range(count):
                    (<int64_t *>to)[at] = expected if call.expected is NULL else call.expected[at]
                to += 8 * count
            with nogil:
                for at in range(count):
                    message = call.message[at if call.queues is not NULL else 0]
                    message.record_crc = False
                    message.queue_offset = message.physical_offset = 0
                    message.store_timestamp_ms = 0
                    if message.born_timestamp_ms == INT64_MIN:
                        message.born_timestamp_ms = now_ms
                    if call.bodies is not NULL:
                        message.body = call.bodies[at]
                    one = rs_record_encode(&message, to, kernel)
                    rs_record_publish(to, message.topic.size)
                    to += one
            me.asked = <uint32_t>count
            self.ask(&me, request, size, ask.level, ask.limit_ms)
            self.fill(call, &me)
        finally:
            PyMem_RawFree(me.tail)
            if request is not <uint8_t *>small:
                PyMem_RawFree(request)
        return 0

    cdef int fill(self, append_call *call, pending *me) except -1:
        """What an append says, from the answer."""
        cdef const rs_answer *answer = &me.answer
        cdef const int64_t *tail = <const int64_t *>me.tail
        cdef rs_appended *appended = call.appended
        cdef size_t at
        cdef PutResult result
        cdef rs_span unique_id
        appended.physical_offset, appended.end_offset = answer.physical_offset, answer.end_offset
        appended.queue_offset = answer.queue_offset
        appended.store_timestamp_ms = answer.store_timestamp_ms
        appended.rolled = appended.notify = appended.aside = False
        if answer.again:
            result = put_result(appended, call.message.queue_id, 1, 0, &call.message.store_host)
            result.again, result.due_ms = True, answer.due_ms
            if rs_property_find(call.message.properties, "UNIQ_KEY", 8, &unique_id):
                result.id = (<const char *>unique_id.bytes)[:unique_id.size].decode()
            raise Found(result)
        if call.queues is NULL:
            count_put(call.queue, me.asked, answer.end_offset - answer.physical_offset)
        for at in range(me.asked):
            if call.queues is not NULL:
                count_put(call.queues[at], 1, <int64_t>rs_record_size(&call.message[at]))
            if call.offsets is not NULL:
                call.offsets[at] = tail[at] if tail is not NULL else answer.physical_offset
            if call.rows is not NULL:
                call.rows[at] = tail[me.asked + at] if tail is not NULL else answer.queue_offset
            if call.queues is not NULL:
                call.message[at].queue_offset = (tail[me.asked + at] if tail is not NULL
                                                 else answer.queue_offset)
        return 0

    cdef int await_end(self, int64_t end_offset, int level, int64_t limit_ms) except -1:
        cdef rs_ask ask
        cdef pending me
        cdef size_t at = RS_POSITIONS_AT_FLUSHED if level >= DISK else RS_POSITIONS_AT_COMMITTED
        if end_offset == self.late_end:  # the host has waited for it
            self.late_end = -1
            return 0
        memset(&ask, 0, sizeof(ask))
        ask.kind, ask.level = RS_ASK_WAIT, <uint8_t>level
        ask.limit_ms, ask.end = limit_ms, end_offset
        me.asked, me.tail = 0, NULL
        try:
            self.ask(&me, <uint8_t *>&ask, sizeof(ask), level, limit_ms)
        finally:
            PyMem_RawFree(me.tail)
        return rs_position_load(self.positions, at) >= end_offset

    def await_flushed(self, int64_t end_offset, int64_t limit_ms):
        """Whether everything below an offset is on the disk of the host, at the end of the time."""
        return self.await_end(end_offset, DISK, limit_ms) == 1

    cdef int ask(self, pending *me, uint8_t *request, size_t size, int level,
                 int64_t limit_ms) except -1:
        """Until it is answered, by whichever host. Raises what the host says, and what the owner does where no
        answer comes."""
        cdef int64_t deadline = now_ns() + (limit_ms + GRACE_MS) * 1_000_000
        cdef int found = UNSENT
        cdef Line line
        self.requests_under_way += 1
        self.bytes_under_way += <int64_t>size
        try:
            while found != ANSWERED:
                check_forked(self.token)
                line = self.waiting if level >= DISK else self.quick
                if line is None or rs_load_int(&line.broken):
                    self.owner.await_host(deadline)
                    if line is (self.waiting if level >= DISK else self.quick):
                        self.pause(deadline)  # the end of this host is not known there yet
                    continue
                line.users += 1
                try:
                    found = self.talk(line, me, request, size, deadline)
                finally:
                    line.users -= 1
                    line.settle()
                if found == UNSENT and now_ns() >= deadline:
                    self.pause(deadline)
                elif found == BROKEN or found == UNANSWERED:
                    raise self.owner.unknown(found == UNANSWERED)
                elif found == ANSWERED and me.answer.status == RS_ANSWER_AGAIN:
                    rs_store_int(&line.broken, 1)  # this host takes no more
                    found = UNSENT
        finally:
            self.requests_under_way -= 1
            self.bytes_under_way -= <int64_t>size
        if me.answer.status == RS_ANSWER_ERROR:
            raise self.owner.error_from((<const char *>me.tail)[:me.answer.size] if me.answer.size
                                        else b"")
        rs_store_max(<int64_t *>(self.positions + RS_POSITIONS_AT_WROTE), me.answer.end_offset)
        rs_store_max(<int64_t *>(self.positions + RS_POSITIONS_AT_COMMITTED), me.answer.committed)
        rs_store_max(<int64_t *>(self.positions + RS_POSITIONS_AT_FLUSHED), me.answer.flushed)
        if me.answer.status == RS_ANSWER_LATE:
            self.late_end = me.answer.end_offset
        self.last_end = max(self.last_end, me.answer.end_offset)
        return 0

    cdef int talk(self, Line line, pending *me, uint8_t *request, size_t size,
                  int64_t deadline) except -1:
        """What became of it in the end: UNSENT, or a state. A signal's handler that raises leaves it to itself."""
        cdef int found
        with nogil:  # once: a thread that is called to read has to come at once
            found = line.send(me, request, size, deadline)
            if found != UNSENT:
                found = line.wait(me, deadline)
        try:
            while found == UNANSWERED and now_ns() < deadline:
                PyErr_CheckSignals()
                with nogil:
                    found = line.wait(me, deadline)
        finally:
            with nogil:
                line.forget(me)
        return found

    cdef int pause(self, int64_t deadline) except -1:
        """A moment, in which another host may come; BackpressureError after the time."""
        cdef uint32_t never = 0
        if now_ns() >= deadline:
            raise BackpressureError(
                "the process that holds the store takes no requests, within the time limit of this "
                "one: nothing was stored")
        with nogil:
            futex_wait(&never, 0, PAUSE_NS, False)
        PyErr_CheckSignals()
        return 0
