"""One line of a guest to its host: requests of all threads go out, and a thread that waits reads the answers of all.

The thread that waits first reads, and calls another one to it when its own answer is there.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.errno cimport EAGAIN, EINTR
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove

from rocketstore._native.format.csrc_atomic cimport rs_load_int, rs_store_int
from rocketstore._native.format.csrc_peer cimport rs_answer, rs_answer_holds, rs_ask
from rocketstore._native.os.syscalls cimport outcome, sys
from rocketstore._native.sync.futex cimport Mutex, futex_wait, futex_wake, now_ns

import socket
import struct

cdef extern from "<sys/socket.h>" nogil:
    enum: MSG_DONTWAIT, MSG_NOSIGNAL, SHUT_RDWR

cdef enum:
    # A thread looks for signals so often.
    SLICE_NS = 200_000_000
    SPIN_NS = 20_000
    SPINS_IN_VAIN_NS = 100_000
    BUFFER_BYTES = 64 << 10


cdef bint reserve(void **memory, size_t *room, size_t wanted, size_t size) noexcept nogil:
    cdef void *more
    if wanted <= room[0]:
        return True
    wanted = max(wanted, 2 * room[0])
    more = PyMem_RawRealloc(memory[0], wanted * size)
    if more is NULL:
        return False
    memory[0], room[0] = more, wanted
    return True


cdef int64_t receive_awake(int fd, uint8_t *to, size_t room, int64_t *idle_ns) noexcept nogil:
    cdef int64_t found, until
    if idle_ns[0] < SPINS_IN_VAIN_NS:
        until = now_ns() + SPIN_NS
        while True:
            found = outcome(sys.receive(fd, to, room, MSG_DONTWAIT))
            if found != -EAGAIN:
                idle_ns[0] = 0
                return found
            if now_ns() >= until:
                break
            sys.give_way()
        idle_ns[0] += SPIN_NS
    else:
        idle_ns[0] = idle_ns[0] + SPIN_NS
        if idle_ns[0] > 40 * SPINS_IN_VAIN_NS:
            idle_ns[0] = 0  # tries again, now and then
    return outcome(sys.receive(fd, to, room, 0))


@cython.final
@cython.auto_pickle(False)
cdef class Line:
    def __cinit__(self, sock):
        self.sending, self.table = Mutex(), Mutex()
        self.sock, self.fd = sock, sock.fileno()
        for limit in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, limit, struct.pack("ll", 0, SLICE_NS // 1000))

    def __dealloc__(self):
        PyMem_RawFree(self.buffer)

    cdef int send(self, pending *me, uint8_t *request, size_t size,
                  int64_t deadline) noexcept nogil:
        """Sends it, in line; UNSENT: not as a whole, so that the host does not do it."""
        cdef size_t sent = 0
        cdef int64_t found
        while not self.sending.lock_for(max(deadline - now_ns(), <int64_t>0)):
            if now_ns() >= deadline:
                return UNSENT
        self.table.lock()
        if self.broken:
            self.table.unlock()
            self.sending.unlock()
            return UNSENT
        self.last_number += 1
        me.number, me.state, me.tail, me.next = self.last_number, UNANSWERED, NULL, self.first
        (<rs_ask *>request).number = me.number
        self.first = me
        self.table.unlock()
        while sent < size:
            found = outcome(sys.send(self.fd, request + sent, size - sent, MSG_NOSIGNAL))
            if found > 0:
                sent += <size_t>found
            elif found == -EINTR or (found == -EAGAIN and now_ns() < deadline):
                continue
            else:
                self.forget(me)
                if sent or found != -EAGAIN:
                    # No other request goes this way. Those that did may be answered: a host that ends says
                    # what became of them.
                    rs_store_int(&self.broken, 1)
                self.sending.unlock()
                return UNSENT
        self.sending.unlock()
        return UNANSWERED

    cdef int wait(self, pending *me, int64_t deadline) noexcept nogil:
        """The state after the answer, the end of the line, or a while."""
        cdef int64_t until = min(deadline, now_ns() + SLICE_NS), left
        cdef pending *other
        cdef bint leads
        cdef uint32_t state
        while True:
            self.table.lock()
            state = me.state
            leads = state != ANSWERED and state != BROKEN and not self.led
            if leads:
                self.led = True
            if state == CALLED:
                me.state = UNANSWERED
            self.table.unlock()
            if state == ANSWERED or state == BROKEN:
                return <int>state
            left = until - now_ns()
            if leads:
                self.lead(me, until)
                self.table.lock()
                self.led = False
                other = self.first
                while other is not NULL and (other is me or other.state != UNANSWERED):
                    other = other.next
                if other is not NULL:
                    other.state = CALLED
                    futex_wake(&other.state, 1, False)
                self.table.unlock()
            elif left > 0 and futex_wait(&me.state, UNANSWERED, left, False) == -EINTR:
                return UNANSWERED
            if now_ns() >= until:
                self.table.lock()
                state = me.state
                self.table.unlock()
                return <int>state if state == ANSWERED or state == BROKEN else UNANSWERED

    cdef void lead(self, pending *me, int64_t until) noexcept nogil:
        """Reads until the answer to `me` is there, the line ends, or a while is over."""
        cdef int64_t found
        while True:
            if not reserve(<void **>&self.buffer, &self.room,
                           max(<size_t>BUFFER_BYTES, self.used + 1), 1):
                self.fail()
                return
            found = receive_awake(self.fd, self.buffer + self.used, self.room - self.used,
                                  &self.idle_ns)
            if found > 0:
                self.used += <size_t>found
                if not self.take_answers():
                    self.fail()
                    return
                if me.state != UNANSWERED:
                    return
            elif found != -EAGAIN and found != -EINTR:
                self.fail()
                return
            if found == -EINTR or now_ns() >= until:
                return

    cdef bint take_answers(self) noexcept nogil:
        """Hands out what has arrived; False: it does not add up."""
        cdef rs_answer answer
        cdef pending *one
        cdef size_t at = 0
        cdef bint holds = True
        while self.used - at >= sizeof(rs_answer):
            memcpy(&answer, self.buffer + at, sizeof(rs_answer))
            self.table.lock()
            one = self.first
            while one is not NULL and one.number != answer.number:
                one = one.next
            # Nobody waits any more for one that was forgotten.
            holds = rs_answer_holds(&answer, answer.count if one is NULL else one.asked)
            if not holds or self.used - at - sizeof(rs_answer) < answer.size:
                self.table.unlock()
                break
            if one is not NULL:
                if answer.size:
                    one.tail = <uint8_t *>PyMem_RawMalloc(answer.size)
                    holds = one.tail is not NULL
                if holds:
                    if answer.size:
                        memcpy(one.tail, self.buffer + at + sizeof(rs_answer), answer.size)
                    one.answer = answer
                    self.unlink(one)
                    one.state = ANSWERED
                    futex_wake(&one.state, 1, False)
            self.table.unlock()
            at += sizeof(rs_answer) + answer.size
        memmove(self.buffer, self.buffer + at, self.used - at)
        self.used -= at
        return holds and (self.used < sizeof(rs_answer)
                          or reserve(<void **>&self.buffer, &self.room,
                                     (<rs_answer *>self.buffer).size + BUFFER_BYTES, 1))

    cdef void forget(self, pending *me) noexcept nogil:
        """No answer to it is taken from here on. Harmless where it is there."""
        self.table.lock()
        self.unlink(me)
        self.table.unlock()

    cdef void unlink(self, pending *me) noexcept nogil:
        cdef pending **at = &self.first
        while at[0] is not NULL and at[0] is not me:
            at = &at[0].next
        if at[0] is me:
            at[0] = me.next

    cdef void fail(self) noexcept nogil:
        """Ends the line: threads that wait hear that no answer comes."""
        cdef pending *one
        cdef pending *following
        self.table.lock()
        rs_store_int(&self.broken, 1)
        sys.shut_down(self.fd, SHUT_RDWR)
        one = self.first
        while one is not NULL:
            following = one.next
            one.state = BROKEN
            futex_wake(&one.state, 1, False)
            one = following
        self.first = NULL
        self.table.unlock()

    cdef int settle(self) except -1:
        """Called with the GIL when a thread is done with it: closes what is broken and not in use."""
        if rs_load_int(&self.broken) and not self.users:
            self.table.lock()
            self.fd = -1  # its number is another's soon
            self.table.unlock()
            self.sock.close()
        return 0
