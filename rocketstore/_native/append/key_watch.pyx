"""Which keys were put meanwhile: the appender notes them under its lock."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from rocketstore._native.append.appender cimport Log
from rocketstore._native.format.csrc cimport rs_key_watch
from rocketstore._native.os.syscalls cimport forked_since


@cython.final
@cython.auto_pickle(False)
@cython.no_gc_clear
cdef class KeyWatch:
    """Within its context the log refuses a put with `only_latest` whose key was put since it began. One at a time
    for each log, which the caller sees to."""
    cdef Log log
    cdef rs_key_watch watch

    def __cinit__(self, Log log not None, uint64_t salt):
        self.log, self.watch.salt = log, salt

    def __dealloc__(self):
        self.change(NULL)  # an exception of a signal's handler may come before `__exit__` is due

    def __enter__(self):
        """Gives the end of the log: what was put below is not noted."""
        return self.change(&self.watch)

    def __exit__(self, *_):
        self.change(NULL)

    cdef int64_t change(self, rs_key_watch *to) noexcept:
        """Begins this watch, or ends it; not in a forked child, which puts nothing."""
        cdef int64_t wrote = 0
        if not forked_since(self.log.token):
            with nogil:
                self.log.mutex.lock()
                if to is not NULL or self.log.log.watch is &self.watch:
                    self.log.log.watch = to
                wrote = self.log.log.wrote
                self.log.mutex.unlock()
        return wrote
