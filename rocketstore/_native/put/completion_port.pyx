"""What an event loop needs of a log: puts that never wait, and one descriptor that is readable when promises
were met. Everything here but the ringing of the bell happens in the loop's own thread.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t

from rocketstore._native.append.try_append cimport append_now
from rocketstore._native.append.appender cimport Log, put_took, unawaited
from rocketstore._native.put.body_buffers cimport body_copy
from rocketstore._native.format.csrc cimport (
    RS_POSITIONS_AT_COMMITTED, RS_POSITIONS_AT_FLUSHED, RS_POSITIONS_AT_WROTE, rs_appended,
    rs_message, rs_position_load,
)
from rocketstore._native.put.property_builder cimport Text, text_free, text_start
from rocketstore._native.append.copies cimport (
    COPIES_MAX, LATE, TOO_FEW, Copies, check_level, copies_of, ended, not_on_disk,
)
from rocketstore._native.append.put_result cimport (
    DISK, PutResult, durability_level, put_result,
)
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.sync.futex cimport EventFd, EventCount, now_ns
from rocketstore._native.put.writer cimport Writer

from bisect import insort
from rocketstore.errors import RocketStoreError, StoreClosedError, StoreReadOnlyError

cpdef enum Placed:
    """What became of a waiter: nothing, since nothing was put; it is in line; it is in line and somebody has
    to call request_flush before long, and expire after a while; its promise is met."""
    NOT_PUT, IN_LINE, ATTEND, MET

cdef enum:
    # Puts for the disk after which the port asks for a sync before the loop's turn ends: it goes on while the rest
    # is put. More and fewer are slower (bench/results/development.md, "What a durable put waits for").
    ASK_EVERY = 16
    TIDY_AT = 4096  # settled entries at the front of a line before it is moved
    TIDY_ARRIVALS_AT = 64


@cython.final
@cython.freelist(256)
@cython.auto_pickle(False)
cdef class Wait:
    """One waiter in line. In the order of the log, which is nearly always that of arrival."""

    cdef int64_t end_offset
    cdef int64_t size
    cdef int64_t due_ns
    cdef int64_t began_ns
    cdef int level
    cdef int then  # the promise beyond the disk that it waits for once it is there, or 0
    cdef PutResult result
    cdef object waiter

    def __lt__(self, Wait other not None):
        return self.end_offset < other.end_offset


@cython.auto_pickle(False)
cdef class CompletionPort:
    """Waiters of one event loop. `progress` and `arrival` ring its bell, at most once between two calls
    of `settle`."""

    cdef Log log
    cdef EventFd bell
    cdef EventCount arrival
    cdef list lines, arrival_waiters  # the lines: of waits for `os`, for `disk`, and for each number of machines
    cdef Py_ssize_t[COPIES_MAX + 1] heads
    cdef readonly int64_t pending
    cdef readonly int64_t pending_bytes
    cdef public int64_t max_pending  # bounds of `full`
    cdef public int64_t max_pending_bytes
    cdef int64_t timeout_ns
    cdef int64_t wanted
    cdef int unasked  # puts since the last request_flush
    cdef bint settling
    cdef object raised  # by a waiter when it was completed
    cdef bint begun, ended, rings
    cdef Py_ssize_t tidy_arrivals_at

    def __cinit__(self, *given, **named):
        self.arrival, self.bell = EventCount(), EventFd(-1)
        self.lines, self.arrival_waiters = [[], []], []
        self.wanted, self.tidy_arrivals_at = -1, TIDY_ARRIVALS_AT
        self.max_pending = self.max_pending_bytes = INT64_MAX
        self.ended = True

    def __init__(self, Log log, EventCount arrival not None, int descriptor, int64_t timeout_ms):
        if self.begun:  # what waits is of the first one's log
            raise TypeError("CompletionPort.__init__: called a second time; make another port")
        self.begun = True
        self.log, self.arrival, self.bell = log, arrival, EventFd(descriptor)
        self.timeout_ns = timeout_ms * 1_000_000
        self.ended = False
        self.rings = descriptor >= 0
        if self.rings:
            arrival.hang(self.bell)
            if log is not None:
                log.progress.hang(self.bell)

    @property
    def _bell(self):
        return self.bell

    # ---- puts ----

    cdef inline bint is_full(self) noexcept:
        return self.pending >= self.max_pending or self.pending_bytes >= self.max_pending_bytes

    @property
    def full(self):
        """Whether as much waits as may wait at once. One message fits always."""
        return self.is_full()

    def put(self, Writer writer not None, body, tags, keys, properties, flag, born_time, shard_key,
            durability, waiter, delay_level=None, deliver_at=None, deliver_after=None):
        """Puts a message that need not wait for room, and promises `durability`; gives a Placed.

        NOT_PUT: the port is full, or a put would have to wait; nothing was put. None as
        `durability` is that of the writer.

        Raises:
            MessageRejectedError and its kin: the message cannot be stored as it is.
            ValueError: the writer is of another store, or there is no such durability.
            StoreClosedError: the port or the store was closed.
        """
        cdef int level = writer.level if durability is None else writer.asked_for(durability, None)
        cdef int64_t started = writer.begun(level) if level <= writer.log.met else 0
        cdef PutResult result
        if self.is_full():
            return NOT_PUT
        result = self.put_now(writer, body, tags, keys, properties, flag, born_time, shard_key,
                              writer.delay_of(delay_level, deliver_at, deliver_after))
        if started and result is not None:
            put_took(writer.log, started, False)
        return NOT_PUT if result is None else self.promised(result, level, waiter)

    cdef PutResult put_now(self, Writer writer, body, tags, keys, properties, flag, born_time,
                           shard_key, delay):
        """The PutResult of a record that is in the log, or None where a put would have to wait first."""
        cdef rs_message message
        cdef rs_appended appended
        cdef Text text
        cdef QueueState queue
        cdef bytes data
        cdef int there
        if writer.log is not self.log:
            raise ValueError("the writer is of another store than the port")
        self.check_open()
        if PyBytes_CheckExact(body):
            data = body
        else:
            data = body_copy(body)
        queue = writer.pick(shard_key)
        text_start(&text)
        try:
            writer.fill(&message, queue, flag, born_time, 0, None)
            writer.describe(&message, &text, tags, keys, properties, shard_key)
            if delay is not None:
                queue = writer.delay(&message, &text, queue, delay)
            message.body.bytes = <const uint8_t *>PyBytes_AS_STRING(data)
            message.body.size = <size_t>PyBytes_GET_SIZE(data)
            writer.check_body(&message)
            there = append_now(writer.log, &message, queue, &appended)
        finally:
            text_free(&text)
        if not there:
            return None
        if delay is not None:
            delay.note()
        return put_result(&appended, queue.queue_id, 1, writer.log.met,
                          &writer.template.store_host)

    def promise(self, PutResult result not None, durability, waiter):
        """Calls `waiter.set_result(result)` once the promise is met; gives a Placed.

        It may call it at once. Else `settle` does.

        Raises:
            ValueError: there is no such durability.
            StoreClosedError: the port was closed.
        """
        return self.promised(result, durability_level(durability), waiter)

    def promise_flushed(self, int64_t end_offset, waiter):
        """Calls `waiter.set_result(None)` once all below `end_offset` is on disk; gives a Placed.

        Raises:
            ValueError: the log ends before `end_offset`.
            StoreReadOnlyError, StoreClosedError: nothing is flushed.
        """
        return self.wait_for(end_offset, 0, DISK, None, waiter)

    def check_durability(self, durability):
        """Checks the name of a promise before anything is put.

        Raises:
            ValueError: there is no such durability.
        """
        cdef int level = durability_level(durability)
        if self.log is not None:
            check_level(self.log.group.copies, level)

    cdef int promised(self, PutResult result, int level, waiter) except -1:
        if level <= result.level:
            if self.log is not None:  # of a store that is only read nobody waits for a flush
                unawaited(self.log)
            waiter.set_result(result)
            return MET
        return self.wait_for(result.end_offset, result.end_offset - result.physical_offset, level,
                             result, waiter)

    cdef int wait_for(self, int64_t end_offset, int64_t size, int level, PutResult result,
                      object waiter) except -1:
        cdef Wait wait = Wait.__new__(Wait)
        cdef bint first = self.pending == 0
        cdef int64_t wrote
        if self.log is None:
            raise StoreReadOnlyError(
                "flush: the store was opened with mode='r'; open it with 'rw' or 'r+'")
        self.check_open()
        check_level(self.log.group.copies, level)
        wrote = rs_position_load(self.log.log.positions, RS_POSITIONS_AT_WROTE)
        if end_offset > wrote:
            raise ValueError(f"end_offset = {end_offset}: the log ends at {wrote}")
        wait.end_offset, wait.size, wait.level = end_offset, size, min(level, <int>DISK)
        wait.then = level if level > DISK else 0
        wait.began_ns = now_ns()
        wait.due_ns = wait.began_ns + self.timeout_ns
        wait.result, wait.waiter = result, waiter
        # The bell first: a flush that comes now has been noticed here, or it rings.
        if first:
            self.bell.arm_c()
        if self.reached(wait):
            if not self.finish(wait, now_ns()):
                return ATTEND if first else IN_LINE
            self.raise_what_they_raised()
            return MET
        self.stand(wait)
        if self.log.state != 1:
            self.bell.ring_c()  # closed or failed meanwhile: settle says which
        if end_offset > self.wanted:
            self.wanted = end_offset
            self.unasked += 1
            if self.unasked >= ASK_EVERY:
                self.request_flush()
        return ATTEND if first or self.unasked == 1 else IN_LINE

    cdef int stand(self, Wait wait) except -1:
        cdef int at = wait.level - 1
        cdef list line
        while len(self.lines) <= at:
            self.lines.append([])
        line = self.lines[at]
        # Before the head there are no waits any more: a waiter that is completed puts again while all are settled.
        if (self.heads[at] < len(line)
                and (<Wait>line[len(line) - 1]).end_offset > wait.end_offset):
            insort(line, wait, lo=self.heads[at])
        else:
            line.append(wait)
        self.pending += 1
        self.pending_bytes += wait.size
        return 0

    cdef int check_open(self) except -1:
        if self.ended:
            raise StoreClosedError("the completion port is closed")
        return 0

    def _stop(self):
        """Nothing is put or promised from here on, and the bell stays silent."""
        self.ended = True

    def request_flush(self):
        """Asks for a flush of all that was promised: once for all puts of a turn of the loop.

        Raises nothing.
        """
        self.unasked = 0
        if self.wanted >= 0:
            self.log.group.want(self.wanted)

    cdef bint reached(self, Wait wait) noexcept:
        cdef size_t at = (RS_POSITIONS_AT_FLUSHED if wait.level == DISK
                          else RS_POSITIONS_AT_COMMITTED)
        if wait.level > DISK:
            return self.log.group.copies.reached(copies_of(wait.level), wait.end_offset)
        return rs_position_load(self.log.log.positions, at) >= wait.end_offset

    cdef bint finish(self, Wait wait, int64_t now) except -1:
        """Whether it has its answer: one for other machines waits on once it is on this one's disk."""
        cdef Copies copies = self.log.group.copies
        if wait.then:
            wait.level, wait.then = wait.then, 0
            wait.result.level = DISK
            if not self.reached(wait):
                if copies.worth_a_wait(copies_of(wait.level), wait.end_offset):
                    wait.due_ns = now + copies.timeout_ms * 1_000_000
                    self.stand(wait)
                    return False
                self.took(wait, now)
                self.tell(wait.waiter, None, copies.shortfall(
                    wait.result, copies_of(wait.level), TOO_FEW, 0, wait.end_offset))
                return True
        self.took(wait, now)
        if wait.result is not None:
            wait.result.level = max(wait.result.level, wait.level)
        self.tell(wait.waiter, wait.result, None)
        return True

    cdef int tell(self, waiter, result, error) except -1:
        """A waiter that raises strands none of those after it: the first error is raised at the end."""
        try:
            if not waiter.done():
                if error is None:
                    waiter.set_result(result)
                else:
                    waiter.set_exception(error)
        except BaseException as raised:
            if self.raised is None:
                self.raised = raised
        return 0

    cdef int raise_what_they_raised(self) except -1:
        raised, self.raised = self.raised, None
        if raised is not None:
            raise raised
        return 0

    cdef void took(self, Wait wait, int64_t now) noexcept:
        # A ticket's put was timed when it was submitted. A waiter may put again, after `now`, while a line is
        # gone through.
        if wait.result is not None and self.rings:
            self.log.put_times.add_c(max(<int64_t>0, now - wait.began_ns))

    # ---- completions ----

    def settle(self):
        """Completes every waiter that has an answer, in the order of the log; gives how many.

        Call it when the descriptor is readable.

        Raises:
            Exception: what a waiter raised, once all have their answer.
        """
        cdef int64_t before = self.pending
        if self.settling:
            return 0  # by a waiter of the lines that are gone through
        self.settling = True
        try:
            self.settle_all()
        finally:
            self.settling = False
        self.raise_what_they_raised()
        return before - self.pending

    cdef int settle_all(self) except -1:
        cdef list waiters
        cdef int at = 0
        self.bell.arm_c()
        while at < len(self.lines):  # one for other machines goes from a line to a later one
            self.settle_line(at)
            at += 1
        if self.arrival_waiters:
            waiters, self.arrival_waiters = self.arrival_waiters, []
            for waiter in waiters:
                self.tell(waiter, None, None)
        if self.pending and (self.log.state != 1 or ended(self.log.group.copies)):
            self.fail_rest()
        if self.pending == 0 and not self.arrival_waiters:
            self.bell.disarm()
        return 0

    cdef int settle_line(self, int at) except -1:
        cdef list line = self.lines[at]
        cdef Py_ssize_t head = self.heads[at]
        cdef int64_t now = now_ns() if head < len(line) else 0
        cdef Wait wait
        while head < len(line):  # it grows where a waiter puts again
            wait = <Wait>line[head]
            if not self.reached(wait):
                break
            line[head] = None
            head += 1
            self.heads[at] = head
            self.left(wait)
            self.finish(wait, now)
        self.tidy(at)
        return 0

    cdef int left(self, Wait wait) except -1:
        self.pending -= 1
        self.pending_bytes -= wait.size
        return 0

    cdef int tidy(self, int at) except -1:
        cdef list line = self.lines[at]
        cdef Py_ssize_t head = self.heads[at]
        if head == len(line):
            line.clear()
        elif head >= TIDY_AT and 2 * head >= len(line):
            del line[:head]
        else:
            return 0
        self.heads[at] = 0
        return 0

    cdef int fail_rest(self) except -1:
        """The store failed or closed: each waiter hears it by an error of its own, or nobody yet, while the
        last flush of a store that closes is still to come."""
        cdef Wait wait
        cdef int at, first = 0 if self.log.state != 1 else DISK  # only what waits for machines
        for at in range(first, len(self.lines)):
            while self.heads[at] < len(self.lines[at]):
                try:
                    if at >= DISK:
                        self.log.group.copies.check()
                    self.log.owner.check_waitable()
                    return 0
                except RocketStoreError as error:
                    wait = <Wait>self.lines[at][self.heads[at]]
                    self.lines[at][self.heads[at]] = None
                    self.heads[at] += 1
                    self.left(wait)
                    # It may have been flushed between the look of settle_line and the end.
                    if self.reached(wait):
                        self.finish(wait, now_ns())
                    else:
                        self.tell(wait.waiter, None, error)
            self.tidy(at)
        return 0

    def expire(self):
        """Fails waiters that waited longer than the timeout; gives the seconds to the next one.

        It completes those whose promise is met. None: nothing waits.

        Raises:
            Exception: what a waiter raised, once all have their answer.
        """
        cdef int64_t now = now_ns(), next_ns = -1, due_ns
        cdef list out = []
        cdef Wait wait
        if self.settling:
            return 0.001
        for at in range(len(self.lines)):
            kept = []
            for wait in self.lines[at][self.heads[at]:]:
                if wait.due_ns <= now or self.reached(wait):
                    self.left(wait)
                    out.append(wait)
                    continue
                kept.append(wait)
                due_ns = wait.due_ns
                if wait.then:  # it gets a time of its own in between
                    due_ns = min(due_ns, now + self.log.group.copies.timeout_ms * 1_000_000 // 8)
                if next_ns < 0 or due_ns < next_ns:
                    next_ns = due_ns
            self.lines[at] = kept
            self.heads[at] = 0
        for wait in out:  # the lines are whole again: one that is completed may put at once
            if self.reached(wait):
                if not self.finish(wait, now) and (next_ns < 0 or wait.due_ns < next_ns):
                    next_ns = wait.due_ns
            else:
                self.took(wait, now)
                self.tell(wait.waiter, None, self.too_late(wait))
        self.raise_what_they_raised()
        return None if next_ns < 0 else max(0.001, (next_ns - now) / 1e9)

    cdef object too_late(self, Wait wait):
        cdef Copies copies = self.log.group.copies
        if wait.level > DISK:
            return copies.shortfall(
                wait.result, copies_of(wait.level), LATE, copies.timeout_ms, wait.end_offset)
        return not_on_disk(wait.end_offset, self.timeout_ns // 1_000_000, wait.result)

    # ---- arrivals ----

    @property
    def arrivals(self):
        """A count that moves when messages become readable."""
        return self.arrival.load()

    def watch_arrivals(self, seen, waiter):
        """`waiter.set_result(None)` once `arrivals` is no longer `seen`, or without reason."""
        self.bell.arm_c()
        if self.arrival.load() != <uint32_t>seen:
            waiter.set_result(None)
        else:
            if len(self.arrival_waiters) >= self.tidy_arrivals_at:
                # Those that stopped waiting: an idle store would keep them all.
                self.arrival_waiters = [kept for kept in self.arrival_waiters if not kept.done()]
                self.tidy_arrivals_at = max(TIDY_ARRIVALS_AT, 2 * len(self.arrival_waiters))
            self.arrival_waiters.append(waiter)
