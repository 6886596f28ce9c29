"""The host's end of a line of puts from a guest: requests come in, records go to the log, answers go out.

The thread of a line runs without the GIL. It takes it for what needs Python: a queue that it does not know
yet, the next segment, a unique id, a delayed message, an error. Nobody else waits for it.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.errno cimport EINTR
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove, memset

from rocketstore._native.append.appender cimport Log
from rocketstore._native.append.guest_line cimport receive_awake, reserve
from rocketstore._native.append.group_commit cimport FAILED
from rocketstore._native.append.put_result cimport DISK
from rocketstore._native.format.csrc_atomic cimport rs_load_int, rs_store_int
from rocketstore._native.format.csrc cimport (
    RS_POSITIONS_AT_COMMITTED, RS_POSITIONS_AT_FLUSHED, RS_POSITIONS_AT_WROTE, rs_position_load,
)
from rocketstore._native.format.csrc_peer cimport (
    RS_ANSWER_AGAIN, RS_ANSWER_DONE, RS_ANSWER_ERROR, RS_ANSWER_LATE, RS_ASK_PUT,
    RS_ERROR_SIZE_MAX, rs_answer, rs_ask, rs_ask_holds,
)
from rocketstore._native.os.syscalls cimport outcome, sys
from rocketstore._native.put.host_puts cimport HostPuts
from rocketstore._native.sync.futex cimport now_ns
from rocketstore._native.sync.wait_queue cimport WaitQueue

import socket
import struct

cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_NOSIGNAL, SHUT_RD

cdef enum:
    BUFFER_BYTES = 64 << 10
    KEPT_BYTES = 4 << 20  # a larger buffer goes after the request that needed it
    DEAF_S = 10  # a guest that takes no answer for so long is let go

# An answer that waits for its promise.
cdef struct want:
    size_t at  # in the buffer of answers
    int64_t end
    int64_t deadline
    int level

cdef struct buffer:
    uint8_t *bytes
    size_t room
    size_t used


cdef void shrink(buffer *one) noexcept nogil:
    cdef void *less = PyMem_RawRealloc(one.bytes, 2 * BUFFER_BYTES)
    if less is not NULL:
        one.bytes, one.room = <uint8_t *>less, 2 * BUFFER_BYTES


@cython.final
@cython.auto_pickle(False)
cdef class HostLine:
    """One line; `serve` belongs to one thread. `desk` is the Python of the host: `queue_of`, `told`,
    `unique_put`, `error_text`, `record_crc`."""

    cdef Log log
    cdef HostPuts work
    cdef WaitQueue flushed, committed
    cdef size_t most
    cdef int fd, ending, stirs_seen
    cdef int64_t idle_ns
    cdef buffer asked, answers
    cdef want *wants
    cdef size_t want_room
    #: Requests whose records are in the log, and whose promise is not met yet.
    cdef readonly size_t want_count
    cdef readonly int64_t puts
    cdef readonly int64_t bytes
    cdef readonly int64_t heard_ns

    def __cinit__(self, Log log not None, desk, size_t max_request_bytes):
        self.log, self.most, self.fd = log, max_request_bytes, -1
        self.work = HostPuts(log, desk)
        self.flushed, self.committed = log.group.flushed_queue, log.group.committed_queue
        self.heard_ns, self.stirs_seen = now_ns(), log.group.stirs

    def __dealloc__(self):
        PyMem_RawFree(self.asked.bytes)
        PyMem_RawFree(self.answers.bytes)
        PyMem_RawFree(self.wants)

    def serve(self, sock not None):
        """Answers until the guest ends, says what no guest says, or `end` is called. Does not close the socket."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", DEAF_S, 0))
        self.fd = sock.fileno()
        try:
            with nogil:
                self.run()
        finally:
            self.fd = -1

    def end(self):
        """Begins no further request: those that came are answered by "again", and no others come."""
        rs_store_int(&self.ending, 1)
        if self.fd >= 0:  # the thread closes nothing before it has the GIL again
            sys.shut_down(self.fd, SHUT_RD)

    # ---- requests and answers ----

    cdef void run(self) noexcept nogil:
        cdef int64_t found
        while True:
            if not reserve(<void **>&self.asked.bytes, &self.asked.room,
                           self.asked.used + BUFFER_BYTES, 1):
                return
            found = receive_awake(self.fd, self.asked.bytes + self.asked.used,
                                  self.asked.room - self.asked.used, &self.idle_ns)
            if found == -EINTR:
                continue
            if found <= 0:
                return
            self.heard_ns = now_ns()
            self.asked.used += <size_t>found
            if not self.take_requests():
                return
            if self.asked.room > KEPT_BYTES and self.asked.used < BUFFER_BYTES:
                shrink(&self.asked)

    cdef bint take_requests(self) noexcept nogil:
        """Carries out what has arrived as a whole, then waits for what that was promised; False: the line ends."""
        cdef rs_ask ask
        cdef size_t at = 0
        cdef bint holds = True
        while holds and self.asked.used - at >= sizeof(rs_ask):
            memcpy(&ask, self.asked.bytes + at, sizeof(rs_ask))
            if not rs_ask_holds(&ask, self.most):
                return False
            if self.asked.used - at - sizeof(rs_ask) < ask.size:
                holds = reserve(<void **>&self.asked.bytes, &self.asked.room,
                                at + sizeof(rs_ask) + ask.size, 1)
                break
            holds = self.carry_out(&ask, self.asked.bytes + at + sizeof(rs_ask))
            at += sizeof(rs_ask) + ask.size
        memmove(self.asked.bytes, self.asked.bytes + at, self.asked.used - at)
        self.asked.used -= at
        return holds and self.meet_promises() and self.send_answers()

    cdef bint carry_out(self, const rs_ask *ask, const uint8_t *bytes) noexcept nogil:
        """Puts its answer into the buffer; False without the memory."""
        cdef rs_answer answer
        cdef bint done
        memset(&answer, 0, sizeof(answer))
        answer.number = ask.number
        if rs_load_int(&self.ending):
            answer.status = RS_ANSWER_AGAIN
            return self.add_answer(&answer, NULL, 0)
        if ask.kind == RS_ASK_PUT:
            done = self.work.put(ask, bytes)
            answer.count, answer.again = self.work.stored, self.work.again
            self.puts += answer.count
            self.bytes += ask.size if answer.count else 0
        else:
            done = self.check_end(ask)
        if not done:
            done = self.add_error(&answer)
            with gil:
                self.work.failure = None
            return done
        if ask.kind == RS_ASK_PUT:
            answer.physical_offset = self.work.first.physical_offset
            answer.queue_offset = self.work.first.queue_offset
            answer.store_timestamp_ms = self.work.first.store_timestamp_ms
            answer.end_offset, answer.due_ms = self.work.appended.end_offset, self.work.due_ms
        else:
            answer.physical_offset = answer.end_offset = ask.end
        answer.committed = rs_position_load(self.log.log.positions, RS_POSITIONS_AT_COMMITTED)
        answer.flushed = rs_position_load(self.log.log.positions, RS_POSITIONS_AT_FLUSHED)
        if ask.level > <uint8_t>self.log.met or ask.kind != RS_ASK_PUT:
            if not reserve(<void **>&self.wants, &self.want_room, self.want_count + 1,
                           sizeof(want)):
                return False
            self.wants[self.want_count] = want(
                self.answers.used, answer.end_offset, now_ns() + ask.limit_ms * 1_000_000,
                ask.level)
            self.want_count += 1
        elif self.log.log.ring is not NULL:
            self.log.group.stored()
        return self.add_answer(&answer, NULL, 0)

    cdef bint add_answer(self, rs_answer *answer, const uint8_t *text, size_t size) noexcept nogil:
        cdef uint8_t *to
        cdef size_t at
        cdef bint batch = text is NULL and answer.count > 1 and answer.status != RS_ANSWER_AGAIN
        if batch:
            size = 16 * <size_t>answer.count
        answer.size = <uint32_t>size
        if not reserve(<void **>&self.answers.bytes, &self.answers.room,
                       self.answers.used + sizeof(rs_answer) + size, 1):
            return False
        to = self.answers.bytes + self.answers.used
        memcpy(to, answer, sizeof(rs_answer))
        to += sizeof(rs_answer)
        if batch:
            memcpy(to, self.work.offsets, size // 2)
            for at in range(answer.count):
                memcpy(to + size // 2 + 8 * at, &self.work.messages[at].queue_offset, 8)
        elif size:
            memcpy(to, text, size)
        self.answers.used += sizeof(rs_answer) + size
        return True

    cdef bint add_error(self, rs_answer *answer) noexcept with gil:
        answer.status = RS_ANSWER_ERROR
        try:
            text = self.work.desk.error_text(self.work.failure)[:RS_ERROR_SIZE_MAX]
            return self.add_answer(answer, <const uint8_t *>PyBytes_AS_STRING(text),
                                   <size_t>PyBytes_GET_SIZE(text))
        except BaseException:
            return False  # the line ends, and the guest does not know what became of it

    cdef bint send_answers(self) noexcept nogil:
        cdef size_t sent = 0
        cdef int64_t found
        while sent < self.answers.used:
            found = outcome(sys.send(self.fd, self.answers.bytes + sent, self.answers.used - sent,
                                     MSG_NOSIGNAL))
            if found > 0:
                sent += <size_t>found
            elif found != -EINTR:
                return False
        self.answers.used = 0
        if self.answers.room > KEPT_BYTES:
            shrink(&self.answers)
        return True

    # ---- promises ----

    cdef bint meet_promises(self) noexcept nogil:
        """Waits for what the answers say; False: the line ends."""
        cdef rs_answer *answer
        cdef const uint8_t *page = self.log.log.positions
        cdef size_t i, left = 0, position
        cdef int64_t now
        cdef bint met
        while True:
            left, now = 0, now_ns()
            for i in range(self.want_count):
                position = (RS_POSITIONS_AT_FLUSHED if self.wants[i].level >= DISK
                            else RS_POSITIONS_AT_COMMITTED)
                met = rs_position_load(page, position) >= self.wants[i].end
                if met or now >= self.wants[i].deadline:
                    self.settle(self.wants[i].at, RS_ANSWER_DONE if met else RS_ANSWER_LATE)
                else:
                    self.wants[left] = self.wants[i]
                    left += 1
            self.want_count = left
            if not left:
                return True
            if not self.wait_for_first():
                return False

    cdef void settle(self, size_t at, int status) noexcept nogil:
        cdef rs_answer answer
        memcpy(&answer, self.answers.bytes + at, sizeof(rs_answer))
        answer.status = <uint8_t>status
        answer.committed = rs_position_load(self.log.log.positions, RS_POSITIONS_AT_COMMITTED)
        answer.flushed = rs_position_load(self.log.log.positions, RS_POSITIONS_AT_FLUSHED)
        memcpy(self.answers.bytes + at, &answer, sizeof(rs_answer))

    cdef bint wait_for_first(self) noexcept nogil:
        """Until all that is wanted of the highest promise is there, or the first time limit is over."""
        cdef int64_t end = 0, deadline = self.wants[0].deadline, patience
        cdef bint disk = False
        cdef int stirs = rs_load_int(&self.log.group.stirs), found
        cdef size_t i
        for i in range(self.want_count):
            disk = disk or self.wants[i].level >= DISK
            deadline = min(deadline, self.wants[i].deadline)
        for i in range(self.want_count):
            if (self.wants[i].level >= DISK) == disk:
                end = max(end, self.wants[i].end)
        if stirs != self.stirs_seen:  # the store may have failed, or ended
            self.stirs_seen = stirs
            if self.has_failed(False):
                return self.fail_wants()
        patience = max(deadline - now_ns(), <int64_t>0)
        if disk:
            found = self.log.group.wait_for(self.flushed, RS_POSITIONS_AT_FLUSHED, end, patience,
                                            deadline, stirs)
        else:
            found = self.log.group.wait_for(self.committed, RS_POSITIONS_AT_COMMITTED, end,
                                            patience, deadline, stirs)
        if found == FAILED and self.has_failed(True):
            return self.fail_wants()
        return True

    cdef bint has_failed(self, bint now) noexcept with gil:
        """Whether no promise is met any more, `failure` says why. `now`: a flush failed this moment."""
        try:
            if now:
                self.log.owner.fail(self.log.group.failure())
            self.log.owner.check_waitable()
        except BaseException as error:
            self.work.failure = error
        return self.work.failure is not None

    cdef bint fail_wants(self) noexcept nogil:
        """Answers that wait become the error of the store."""
        cdef buffer old = self.answers
        cdef rs_answer answer
        cdef size_t at = 0, size, i = 0
        cdef bint done = True
        memset(&self.answers, 0, sizeof(buffer))
        while done and at < old.used:
            memcpy(&answer, old.bytes + at, sizeof(rs_answer))
            size = sizeof(rs_answer) + answer.size
            if i < self.want_count and self.wants[i].at == at:
                i += 1
                done = self.add_error(&answer)
            else:
                done = self.add_answer(&answer, old.bytes + at + sizeof(rs_answer), answer.size)
            at += size
        PyMem_RawFree(old.bytes)
        self.want_count = 0
        with gil:
            self.work.failure = None
        return done

    cdef bint check_end(self, const rs_ask *ask) noexcept nogil:
        if ask.end <= rs_position_load(self.log.log.positions, RS_POSITIONS_AT_WROTE):
            return True
        self.work.ends_before(ask.end)
        return False
