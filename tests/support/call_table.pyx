# cython: language_level=3
"""The table of system calls with a hook in front of every entry; no part of the package.

`install(hook)`: `hook(entry)` is called with the GIL before each call and says what becomes of it:
0 it is made; an errno, it fails; -n, it moves at most n bytes. Calls of the entries in `QUIET` are made
where no Python code may run: they are counted only, `fail_quiet` says which of them fail.
"""

from libc.stdint cimport int64_t

from rocketstore._native.os.syscalls cimport sys

import os
import traceback

cdef extern from "call_table.h" nogil:
    int ENTRY_COUNT
    const char **entry_names
    int64_t *calls
    int64_t (*ask)(int) noexcept nogil
    int quiet_entry, quiet_errno
    int64_t quiet_first, quiet_last
    int64_t clock_step_ns
    bint IS_QUIET(int entry)
    int wrap_table(void **table, size_t size)

NAMES = [entry_names[entry].decode() for entry in range(ENTRY_COUNT)]
QUIET = frozenset(name for entry, name in enumerate(NAMES) if IS_QUIET(entry))

cdef object current = None


cdef int64_t ask_python(int entry) noexcept with gil:
    try:
        return current(NAMES[entry]) if current is not None else 0
    except BaseException:
        traceback.print_exc()
        os._exit(97)


def install(hook):
    """From here on every call goes through the wrappers; again with None, they do nothing."""
    global current, ask
    if wrap_table(<void **>&sys, sizeof(sys)) != 0:
        raise AssertionError("call_table.h and rs_syscalls have different entries")
    current = hook
    ask = ask_python


def fail_quiet(str name, int error, int64_t first, int64_t times):
    """Calls `first` … `first + times - 1` of a quiet entry, counted from its next one, fail."""
    global quiet_entry, quiet_errno, quiet_first, quiet_last
    quiet_errno = 0
    quiet_entry = NAMES.index(name)
    quiet_first = calls[quiet_entry] + first
    quiet_last = quiet_first + times
    quiet_errno = error


def step_clock(int64_t nanoseconds):
    """The wall clock shows so much more than the system's."""
    global clock_step_ns
    clock_step_ns = nanoseconds


def calls_made(str name):
    return calls[NAMES.index(name)]
