"""A line of threads that wait for a position, each for its own offset.

Those whose offset was reached are called one after the other, in the order of the log: each calls the next
as it wakes. All need the GIL to go on; woken at once they would wake, find it taken, and sleep again.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from rocketstore._native.format.csrc_atomic cimport (
    rs_fence, rs_word_add, rs_word_load, rs_word_store,
)
from rocketstore._native.os.syscalls cimport sys
from rocketstore._native.sync.futex cimport Mutex, futex_wait, futex_wake, now_ns

cdef enum:
    # A signal that arrives just before the main thread falls asleep wakes nobody: it looks this often.
    MAIN_THREAD_SLEEP_NS = 200_000_000

cdef enum:
    # Called at the same time; measured with 64 threads on two cores: 1, 3 and 4 are slower.
    WAYS = 2

cdef enum:
    # To fall asleep over the GIL and be woken takes longer than most need it for: 8 percent more puts a second with
    # 64 threads on two cores.
    AWAKE_NS = 6_000

cdef enum:
    QUEUED, READY, CALLED


@cython.final
@cython.auto_pickle(False)
cdef class WaitQueue:

    def __cinit__(self):
        self.mutex = Mutex()

    cdef void join(self, waiter *me, int64_t target) noexcept nogil:
        cdef waiter *before = NULL
        cdef waiter *at
        me.target, me.called, me.state = target, 0, QUEUED
        self.mutex.lock()
        if self.last is not NULL and self.last.target <= target:
            before = self.last
        else:
            at = self.first
            while at is not NULL and at.target <= target:
                before = at
                at = at.next
        if before is NULL:
            me.next = self.first
            self.first = me
        else:
            me.next = before.next
            before.next = me
        if me.next is NULL:
            self.last = me
        rs_word_add(&self.count, 1)
        self.mutex.unlock()
        rs_fence()  # counted, then the caller's look; release: the position, then the look at the count

    cdef void sleep(self, waiter *me, int64_t timeout_ns) noexcept nogil:
        if timeout_ns > MAIN_THREAD_SLEEP_NS and sys.gettid() == sys.getpid():
            timeout_ns = MAIN_THREAD_SLEEP_NS
        futex_wait(&me.called, 0, timeout_ns, False)

    cdef void leave(self, waiter *me) noexcept nogil:
        cdef uint32_t *word = NULL
        self.mutex.lock()
        if me.state == CALLED:
            self.calling -= 1
            word = self.call_next()
        else:
            self.unlink(me)
        rs_word_add(&self.count, 0xFFFFFFFF)
        self.mutex.unlock()
        if word is not NULL:
            futex_wake(word, 1, False)

    cdef void goes_on(self, bint now) noexcept nogil:
        rs_word_store(&self.going, now)

    cdef void let_pass(self) noexcept nogil:
        cdef int64_t limit = now_ns() + AWAKE_NS
        while rs_word_load(&self.going) and now_ns() < limit:
            pass

    cdef void release(self, int64_t reached) noexcept nogil:
        cdef uint32_t *words[WAYS]
        cdef int called = 0, at
        cdef waiter *place
        rs_fence()
        if rs_word_load(&self.count) == 0:
            return  # a thread that joins now looks at the position afterwards
        self.mutex.lock()
        while self.first is not NULL and self.first.target <= reached:
            place = self.first
            self.first = place.next
            if self.first is NULL:
                self.last = NULL
            place.state, place.next = READY, NULL
            if self.ready_last is NULL:
                self.ready_first = place
            else:
                self.ready_last.next = place
            self.ready_last = place
        while self.calling < WAYS and self.ready_first is not NULL:
            words[called] = self.call_next()
            called += 1
        self.mutex.unlock()
        for at in range(called):
            # The thread may be gone by now, and the word with it: then this wakes nobody, or a thread
            # that looks again.
            futex_wake(words[at], 1, False)

    cdef uint32_t *call_next(self) noexcept nogil:
        """With the mutex: the word of the next thread that may go, to be woken without it."""
        cdef waiter *place = self.ready_first
        if place is NULL:
            return NULL
        self.calling += 1
        self.ready_first = place.next
        if self.ready_first is NULL:
            self.ready_last = NULL
        place.state = CALLED
        rs_word_store(&place.called, 1)
        return &place.called

    cdef void unlink(self, waiter *me) noexcept nogil:
        """With the mutex: out of the queue, or of those that are ready."""
        cdef waiter *before = NULL
        cdef waiter *at = self.first if me.state == QUEUED else self.ready_first
        while at != me:
            before = at
            at = at.next
        if before is not NULL:
            before.next = me.next
        elif me.state == QUEUED:
            self.first = me.next
        else:
            self.ready_first = me.next
        if me.next is NULL:
            if me.state == QUEUED:
                self.last = before
            else:
                self.ready_last = before
