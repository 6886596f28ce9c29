"""A lock for Python code that signal handlers may use, too: `with turn as nested:`.

Taken and noted in one native step, and given back in another: a handler that raises, or comes here again, finds
either both or neither. Between two lines of Python it would leave the lock behind, or wait for its own thread.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int64_t

from rocketstore._native.format.csrc_atomic cimport rs_load_int64, rs_store_int64
from rocketstore._native.os.syscalls cimport sys
from rocketstore._native.sync.futex cimport Mutex, now_ns

from rocketstore.errors import BackpressureError


@cython.final
@cython.auto_pickle(False)
cdef class SignalSafeLock:
    """Of one thread at a time. `limit_ms`: how long another one waits for it, -1: for ever."""

    def __cinit__(self, int64_t limit_ms=-1):
        self.mutex = Mutex()
        self.limit_ms = limit_ms

    def __enter__(self):
        """Whether the thread has the turn already: it is in a signal's handler. Signals are served meanwhile.

        Raises:
            BackpressureError: not within the limit.
        """
        cdef int64_t me = sys.gettid()
        cdef int64_t left = -1, deadline = 0
        cdef bint mine = rs_load_int64(&self.owner) == me or self.mutex.try_lock()
        if self.limit_ms >= 0:
            deadline = now_ns() + self.limit_ms * 1_000_000
        while not mine:
            PyErr_CheckSignals()
            if self.limit_ms >= 0:
                left = deadline - now_ns()
                if left <= 0:
                    raise BackpressureError(
                        f"other threads had the turn for {self.limit_ms} ms, try again")
            with nogil:
                mine = self.mutex.lock_for(left)
        rs_store_int64(&self.owner, me)
        self.depth += 1
        return self.depth > 1

    def __exit__(self, *error):
        self.depth -= 1
        if self.depth == 0:
            rs_store_int64(&self.owner, 0)
            self.mutex.unlock()


@cython.final
@cython.auto_pickle(False)
cdef class SingleUse:
    """Of one call at a time, in whatever thread; one inside it is another, too."""

    cdef Mutex mutex
    cdef object error
    cdef str text

    def __cinit__(self, error not None, str text not None):
        """`error(text)` is what the other calls raise meanwhile."""
        self.mutex = Mutex()
        self.error, self.text = error, text

    def __enter__(self):
        if not self.mutex.try_lock():
            raise self.error(self.text)

    def __exit__(self, *error):
        self.mutex.unlock()
