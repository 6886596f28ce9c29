"""The lock of this package, for Python code that signal handlers interrupt and use: `with lock() as nested:`.

A handler that raises, or comes here again, finds the lock either taken and noted or free: both are one native
step. And no exception leaves it taken. A handler may raise when the lock is taken and the block has not
begun: CPython 3.14 serves signals there, and `__exit__` is never called. So each `with` has a Passage of its own,
which nothing but the stack of the frame refers to. It gives the lock back at the end of the block, or as it goes.
"""

import threading

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int64_t

from rocketstore._native.format.csrc_atomic cimport rs_load_int64, rs_store_int64
from rocketstore._native.sync.futex cimport MAIN_THREAD_SLEEP_NS, Mutex, now_ns

from rocketstore.errors import BackpressureError


@cython.final
@cython.auto_pickle(False)
@cython.no_gc  # else the collector could clear what it gives back
@cython.freelist(8)
cdef class Passage:
    """Of one thread, once. Nothing keeps it but `with`."""

    cdef SignalSafeLock lock
    cdef bint wait, held

    def __cinit__(self, SignalSafeLock lock not None, bint wait):
        self.lock, self.wait = lock, wait

    def __enter__(self):
        self.held = self.lock.take(self.wait)
        return self.lock.depth > 1 if self.wait else self.held

    def __exit__(self, kind, error, trace):
        self.leave()

    def __dealloc__(self):
        self.leave()

    cdef void leave(self) noexcept:
        if self.held:
            self.held = False
            self.lock.give()


@cython.final
@cython.auto_pickle(False)
cdef class SignalSafeLock:
    """Of one thread at a time."""

    def __cinit__(self, str name, int64_t limit_ms=300_000, *, bint reentrant=True, busy=None):
        """`name`: what it guards, for errors. `limit_ms`: how long another thread waits for it; never for ever,
        because its owner may hang, and a close waits for both.

        `reentrant`: False refuses the thread that has it and comes again, in a signal's handler. `busy`: the error
        of each call that finds it taken, in whatever thread, instead of a wait.
        """
        self.mutex = Mutex()
        self.name, self.limit_ms, self.reentrant, self.busy = name, limit_ms, reentrant, busy

    def __call__(self, *, bint wait=True):
        """For `with`, which gets whether the thread has it already: it is in a signal's handler. Without `wait`
        it gets whether the thread has it now."""
        return Passage(self, wait)

    cdef bint take(self, bint wait) except -1:
        """Whether the thread has it now."""
        cdef int64_t me = <int64_t>PyThread_get_thread_ident()
        cdef bint mine = rs_load_int64(&self.owner) == me
        if not ((self.reentrant and self.busy is None) if mine else self.mutex.try_lock()):
            if not wait:
                return False
            if self.busy is not None:
                raise type(self.busy)(*self.busy.args)
            if mine:
                raise BackpressureError(
                    f"{self.name}: this thread is at it already, try outside the signal handler")
            self.await_owner()
        rs_store_int64(&self.owner, me)
        self.depth += 1
        return True

    cdef void give(self) noexcept:
        """Undoes one `take`."""
        self.depth -= 1
        if self.depth == 0:
            rs_store_int64(&self.owner, 0)
            self.mutex.unlock()

    cdef int await_owner(self) except -1:
        """Returns with the mutex. Signals are served, as often as in other waits: one that another thread was sent
        wakes nobody here. There is a try after the time, too: the process may have been stopped."""
        cdef int64_t left, slice_ns, deadline = now_ns() + self.limit_ms * 1_000_000
        while True:
            PyErr_CheckSignals()
            left = deadline - now_ns()
            slice_ns = min(left, MAIN_THREAD_SLEEP_NS) if left > 0 else MAIN_THREAD_SLEEP_NS
            with nogil:
                if self.mutex.lock_for(slice_ns):
                    return 0
            if left <= 0:
                who = threading._active.get(rs_load_int64(&self.owner))
                who = getattr(who, "name", "another thread")
                raise BackpressureError(f"{self.name}: {who} has it for {self.limit_ms} ms, retry")
