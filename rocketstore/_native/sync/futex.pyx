"""Sleeping until something happened: a signal that counts, and a mutex that needs no GIL.

Both are one futex word. A thread sleeps only if the word still has the value it saw, so no wake-up is
lost; nobody polls. Event loops, which cannot sleep here, hang a bell on a signal.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawFree, PyMem_RawRealloc
from libc.errno cimport EINTR
from libc.stdint cimport INT32_MAX, int64_t, uint32_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_THREAD_CPUTIME_ID, timespec

from rocketstore._native.format.csrc_atomic cimport (
    rs_pause, rs_word_add, rs_word_exchange, rs_word_load, rs_word_raise, rs_word_take,
)
from rocketstore._native.os.syscalls cimport outcome, sys

from rocketstore.values.arguments import seconds as wait_seconds

cdef enum:
    FUTEX_WAIT = 0
    FUTEX_WAKE = 1
    FUTEX_PRIVATE = 128
    LONGEST_S = 366 * 86_400
    # Tries before sleeping: the lock is held for the copy of a message, not longer.
    SPINS = 60


cdef inline int64_t clock_ns(int clock) noexcept nogil:
    cdef timespec now
    sys.clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef int64_t now_ns() noexcept nogil:
    return clock_ns(CLOCK_MONOTONIC)


cpdef int64_t timeout_ms(object timeout_s, str name="timeout_s") except -1:
    """Milliseconds of a timeout, a year's at most: a number of seconds, or a timedelta. Raises
    TypeError, ValueError."""
    cdef double seconds
    try:
        seconds = timeout_s
    except (TypeError, OverflowError):
        seconds = wait_seconds(name, timeout_s)
    if seconds != seconds:
        raise ValueError(f"{name} = nan: give a number of seconds, or float('inf')")
    return <int64_t>(min(max(seconds, 0.0), <double>LONGEST_S) * 1000)


cdef int64_t wall_ns() noexcept nogil:
    return clock_ns(CLOCK_REALTIME)


cdef int64_t processor_ns() noexcept nogil:
    return clock_ns(CLOCK_THREAD_CPUTIME_ID)


cdef int64_t futex_wait(uint32_t *word, uint32_t seen, int64_t timeout_ns,
                        bint shared) noexcept nogil:
    cdef timespec timeout
    if timeout_ns < 0:
        return outcome(sys.futex(word, FUTEX_WAIT | (0 if shared else FUTEX_PRIVATE), seen, NULL))
    timeout.tv_sec = timeout_ns // 1_000_000_000
    timeout.tv_nsec = timeout_ns % 1_000_000_000
    return outcome(sys.futex(word, FUTEX_WAIT | (0 if shared else FUTEX_PRIVATE), seen, &timeout))


cdef void futex_wake(uint32_t *word, int count, bint shared) noexcept nogil:
    sys.futex(word, FUTEX_WAKE | (0 if shared else FUTEX_PRIVATE), <uint32_t>count, NULL)


cdef void bell_ring(bell_state *state) noexcept nogil:
    if rs_word_load(&state.armed) != 0 and rs_word_exchange(&state.armed, 0) != 0:
        sys.signal_event(state.fd)


@cython.final
@cython.auto_pickle(False)
cdef class EventFd:
    """An eventfd that is written to once after each `arm`: many notifies, one wake-up. The descriptor
    belongs to the caller, which closes it after the bell was taken down everywhere."""

    def __cinit__(self, int descriptor):
        self.state.fd = descriptor

    cdef void arm_c(self) noexcept nogil:
        # A thread that moves something looks at `armed` afterwards; one that arms looks at the world afterwards.
        rs_word_raise(&self.state.armed, 1)

    cdef void ring_c(self) noexcept nogil:
        bell_ring(&self.state)

    def arm(self):
        """The next notify of a signal that the bell hangs on makes the descriptor readable."""
        self.arm_c()

    def disarm(self):
        rs_word_exchange(&self.state.armed, 0)


@cython.final
@cython.auto_pickle(False)
cdef class EventCount:
    """A count that threads wait on. Read `count`, look at the world, then `wait(count)`: whatever
    happened in between has moved the count, and the wait returns at once. Any thread may do anything.
    """

    def __cinit__(self):
        self.bell_mutex = Mutex()
        self.bell_owners = []

    def __dealloc__(self):
        PyMem_RawFree(self.bells)

    cdef void notify_c(self) noexcept nogil:
        rs_word_add(&self.word, 1)
        # Sleepers count themselves before the kernel compares the word: either we see them here, or
        # they see the new count there.
        if rs_word_load(&self.sleepers) != 0:
            futex_wake(&self.word, INT32_MAX, False)
        if rs_word_load(&self.bell_count) != 0:
            self.ring_bells()

    cdef void notify_or_work(self, bint here) noexcept nogil:
        if not here or self.work is NULL or not self.work(<void *>self.worker):
            self.notify_c()
        elif rs_word_load(&self.bell_count) != 0:
            self.ring_bells()

    cdef void ring_bells(self) noexcept nogil:
        cdef uint32_t at
        self.bell_mutex.lock()  # held for nothing but this and the two below
        for at in range(self.bell_count):
            bell_ring(self.bells[at])
        self.bell_mutex.unlock()

    def hang(self, EventFd bell not None):
        """From now on each notify rings `bell` if it is armed; until take_down."""
        cdef bell_state **bells
        with nogil:
            self.bell_mutex.lock()
            bells = <bell_state **>PyMem_RawRealloc(
                self.bells, (self.bell_count + 1) * sizeof(bell_state *))
            if bells is not NULL:
                self.bells = bells
                self.bells[self.bell_count] = &bell.state
                rs_word_add(&self.bell_count, 1)
            self.bell_mutex.unlock()
        if bells is NULL:
            raise MemoryError("no memory for a bell")
        self.bell_owners.append(bell)

    def take_down(self, EventFd bell not None):
        """Once this returns, nothing rings `bell` through this signal. Harmless when it does not hang."""
        cdef uint32_t at
        with nogil:
            self.bell_mutex.lock()
            for at in range(self.bell_count):
                if self.bells[at] == &bell.state:
                    self.bells[at] = self.bells[self.bell_count - 1]
                    rs_word_add(&self.bell_count, 0xFFFFFFFF)
                    break
            self.bell_mutex.unlock()
        if bell in self.bell_owners:
            self.bell_owners.remove(bell)

    cdef uint32_t load(self) noexcept nogil:
        return rs_word_load(&self.word)

    cdef uint32_t wait_c(self, uint32_t seen, int64_t timeout_ns) noexcept nogil:
        if rs_word_load(&self.word) != seen or timeout_ns == 0:
            return rs_word_load(&self.word)
        if (timeout_ns < 0 or timeout_ns > MAIN_THREAD_SLEEP_NS) and sys.gettid() == sys.getpid():
            timeout_ns = MAIN_THREAD_SLEEP_NS
        rs_word_add(&self.sleepers, 1)
        futex_wait(&self.word, seen, timeout_ns, False)
        rs_word_add(&self.sleepers, 0xFFFFFFFF)
        return rs_word_load(&self.word)

    @property
    def count(self):
        return rs_word_load(&self.word)

    def notify(self):
        self.notify_c()

    def wait(self, uint32_t seen, timeout_ms=None):
        """The count once it is no longer `seen`, or `seen` after the time. Signals are served."""
        cdef int64_t left = -1
        cdef int64_t deadline = 0
        cdef uint32_t found
        if timeout_ms is not None:
            left = max(0, min(<int64_t>timeout_ms, 1 << 40)) * 1_000_000
            deadline = now_ns() + left
        while True:
            with nogil:
                found = self.wait_c(seen, left)
            if found != seen:
                return found
            PyErr_CheckSignals()
            if timeout_ms is not None:
                left = deadline - now_ns()
                if left <= 0:
                    return seen


@cython.final
@cython.auto_pickle(False)
cdef class Mutex:
    """0 free, 1 taken, 2 taken and somebody may sleep. Not reentrant; C level only, since no Python
    code may run while it is held (D-33)."""

    cdef bint try_lock(self) noexcept nogil:
        return rs_word_take(&self.word)

    cdef void lock(self) noexcept nogil:
        while not self.lock_for(-1):
            pass

    cdef bint lock_for(self, int64_t timeout_ns) noexcept nogil:
        cdef int tries
        cdef int64_t deadline
        for tries in range(SPINS):
            if rs_word_take(&self.word):
                return True
            rs_pause()
        deadline = now_ns() + timeout_ns if timeout_ns >= 0 else -1
        # A thread that slept takes the lock as 2: it cannot know whether others sleep.
        while rs_word_exchange(&self.word, 2) != 0:
            if deadline >= 0:
                timeout_ns = deadline - now_ns()
                if timeout_ns <= 0:
                    return False
            if futex_wait(&self.word, 2, timeout_ns, False) == -EINTR:
                return False
        return True

    cdef void unlock(self) noexcept nogil:
        if rs_word_exchange(&self.word, 0) == 2:
            futex_wake(&self.word, 1, False)
