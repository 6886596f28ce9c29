# cython: language_level=3
"""What only native code can do, for tests: the C sides of `waiting`, and system calls that fail on demand.

Built by tests/support/native_probe.py; no part of the package.
"""

from libc.stdint cimport int64_t, uint32_t
from posix.time cimport timespec
from posix.types cimport off_t

from rocketstore._native.os.syscalls cimport forked, io_part, rs_syscalls, sys
from rocketstore._native.sync.futex cimport Mutex, EventCount

cdef extern from *:
    """
    #include <errno.h>
    #include <signal.h>
    #include <time.h>
    static void set_errno(int number) { errno = number; }
    /* Nanoseconds of both clocks in this thread; negative: the clocks run. */
    static _Thread_local long long frozen_ns = -1;
    static long long frozen(void) { return frozen_ns; }
    static void set_frozen(long long ns) { frozen_ns = ns; }
    """
    long long frozen() noexcept nogil
    void set_frozen(long long ns) noexcept nogil
    void set_errno(int number) noexcept nogil
    int c_raise "raise"(int number) noexcept nogil

cdef rs_syscalls real = sys
# Errno of the failing entries; how many calls fail; how many were made since.
cdef int failing_errno = 0
cdef int failures_left = 0
cdef int calls = 0
cdef int raised_signal = 0
cdef size_t most_bytes = 0
cdef int advised[64]


cdef bint fails() noexcept nogil:
    global failures_left, calls
    calls += 1
    if failures_left == 0:
        return False
    failures_left -= 1
    if raised_signal:
        c_raise(raised_signal)
    set_errno(failing_errno)
    return True


cdef int failing_open(int at, const char *path, int flags, uint32_t mode) noexcept nogil:
    return -1 if fails() else real.open(at, path, flags, mode)

cdef int failing_fdatasync(int fd) noexcept nogil:
    return -1 if fails() else real.fdatasync(fd)

cdef int failing_fsync(int fd) noexcept nogil:
    return -1 if fails() else real.fsync(fd)

cdef int failing_fallocate(int fd, int mode, off_t offset, off_t length) noexcept nogil:
    return -1 if fails() else real.fallocate(fd, mode, offset, length)

cdef int failing_fchown(int fd, uint32_t owner, uint32_t group) noexcept nogil:
    return -1 if fails() else real.fchown(fd, owner, group)

cdef off_t failing_lseek(int fd, off_t offset, int whence) noexcept nogil:
    return -1 if fails() else real.lseek(fd, offset, whence)

cdef int failing_msync(void *address, size_t size, int flags) noexcept nogil:
    return -1 if fails() else real.msync(address, size, flags)

cdef int failing_madvise(void *address, size_t size, int advice) noexcept nogil:
    advised[calls % 64] = advice
    return -1 if fails() else real.madvise(address, size, advice)

cdef int failing_mlock(const void *address, size_t size) noexcept nogil:
    return -1 if fails() else real.mlock(address, size)

cdef void *failing_mmap(void *address, size_t size, int protection, int flags, int fd,
                        off_t offset) noexcept nogil:
    return <void *>-1 if fails() else real.mmap(address, size, protection, flags, fd, offset)

cdef int failing_renameat2(int old_at, const char *old, int new_at, const char *new,
                           uint32_t flags) noexcept nogil:
    return -1 if fails() else real.renameat2(old_at, old, new_at, new, flags)

cdef ssize_t failing_pwritev2(int fd, const io_part *parts, int count, off_t offset,
                              int flags) noexcept nogil:
    return -1 if fails() else real.pwritev2(fd, parts, count, offset, flags)

cdef ssize_t short_pwrite(int fd, const void *data, size_t count, off_t offset) noexcept nogil:
    """At most `most_bytes` a call, as a disk that runs full or a signal may have it."""
    if fails():
        return -1
    return real.pwrite(fd, data, min(count, most_bytes) if most_bytes else count, offset)

cdef ssize_t short_pread(int fd, void *to, size_t count, off_t offset) noexcept nogil:
    if fails():
        return -1
    return real.pread(fd, to, min(count, most_bytes) if most_bytes else count, offset)


def fail(str name, int error, int times=1, int with_signal=0, size_t at_most=0):
    """The next `times` calls of `name` fail with `error`; writes and reads move `at_most` bytes."""
    global failing_errno, failures_left, calls, raised_signal, most_bytes
    failing_errno, failures_left, calls = error, times, 0
    raised_signal, most_bytes = with_signal, at_most
    if name == "open":
        sys.open = failing_open
    elif name == "fdatasync":
        sys.fdatasync = failing_fdatasync
    elif name == "fsync":
        sys.fsync = failing_fsync
    elif name == "fallocate":
        sys.fallocate = failing_fallocate
    elif name == "fchown":
        sys.fchown = failing_fchown
    elif name == "lseek":
        sys.lseek = failing_lseek
    elif name == "msync":
        sys.msync = failing_msync
    elif name == "madvise":
        sys.madvise = failing_madvise
    elif name == "mlock":
        sys.mlock = failing_mlock
    elif name == "mmap":
        sys.mmap = failing_mmap
    elif name == "renameat2":
        sys.renameat2 = failing_renameat2
    elif name == "pwritev2":
        sys.pwritev2 = failing_pwritev2
    elif name == "pwrite":
        sys.pwrite = short_pwrite
    elif name == "pread":
        sys.pread = short_pread
    else:
        raise KeyError(name)


cdef int frozen_clock_gettime(int clock, timespec *now) noexcept nogil:
    if frozen() < 0:
        return real.clock_gettime(clock, now)
    now.tv_sec = frozen() // 1_000_000_000
    now.tv_nsec = frozen() % 1_000_000_000
    return 0


# Called with (name, descriptor) before a write or sync; an errno in its place fails the call.
cdef object disk_hook = None


cdef bint refused(str name, int fd) noexcept with gil:
    cdef int error = disk_hook(name, fd) if disk_hook is not None else 0
    set_errno(error)
    return error != 0

cdef ssize_t told_pwritev2(int fd, const io_part *parts, int count, off_t offset,
                           int flags) noexcept nogil:
    return -1 if refused("pwritev2", fd) else real.pwritev2(fd, parts, count, offset, flags)

cdef ssize_t told_pwrite(int fd, const void *data, size_t count, off_t offset) noexcept nogil:
    return -1 if refused("pwrite", fd) else real.pwrite(fd, data, count, offset)

cdef int told_fdatasync(int fd) noexcept nogil:
    return -1 if refused("fdatasync", fd) else real.fdatasync(fd)


def tell_of_disk(hook):
    """`hook(name, descriptor)` runs before each pwritev2, pwrite and fdatasync, and may hold it up; it
    returns 0, or the errno that the call fails with."""
    global disk_hook
    disk_hook = hook
    sys.pwritev2, sys.pwrite, sys.fdatasync = told_pwritev2, told_pwrite, told_fdatasync


def freeze_clock(int64_t ms):
    """This thread's clocks stand at `ms`, so that a store opened and used by it has chosen store times."""
    sys.clock_gettime = frozen_clock_gettime
    set_frozen(ms * 1_000_000)


def restore():
    """Every call is the system's again."""
    global disk_hook
    disk_hook = None
    sys.open, sys.fdatasync, sys.fsync = real.open, real.fdatasync, real.fsync
    sys.fallocate, sys.fchown, sys.lseek = real.fallocate, real.fchown, real.lseek
    sys.msync, sys.madvise, sys.mlock, sys.mmap = real.msync, real.madvise, real.mlock, real.mmap
    sys.renameat2, sys.pwritev2 = real.renameat2, real.pwritev2
    sys.pwrite, sys.pread = real.pwrite, real.pread
    set_frozen(-1)
    sys.clock_gettime = real.clock_gettime


def calls_made():
    return calls


def advice_given():
    """Of the calls of madvise since the last fail, in order."""
    return [advised[at] for at in range(calls)]


def is_forked():
    return forked()


def wait_c(EventCount signal not None, uint32_t seen, int64_t timeout_ns):
    cdef uint32_t found
    with nogil:
        found = signal.wait_c(seen, timeout_ns)
    return found


cdef class Guarded:
    """A counter that only a mutex makes right: threads without the GIL add to it in two steps."""

    cdef Mutex mutex
    cdef int64_t value

    def __cinit__(self):
        self.mutex = Mutex()

    def add(self, int64_t rounds):
        cdef int64_t at, seen
        with nogil:
            for at in range(rounds):
                self.mutex.lock()
                seen = self.value
                self.value = seen + 1
                self.mutex.unlock()

    def total(self):
        return self.value

    def try_lock(self):
        return self.mutex.try_lock()

    def lock_for(self, int64_t timeout_ns):
        cdef bint taken
        with nogil:
            taken = self.mutex.lock_for(timeout_ns)
        return taken

    def unlock(self):
        self.mutex.unlock()
