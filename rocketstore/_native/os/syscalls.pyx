"""All calls to the system below, through one table; nothing else in the package calls libc for it.

Functions of this module release the GIL, try again after EINTR once signals were served, and raise
OSError with errno and path. Paths are never cut at a NUL; a link is never followed as a last name.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport (
    EACCES, EAGAIN, EINTR, EINVAL, EIO, EISDIR, ELOOP, ENOSYS, ENXIO, EOPNOTSUPP, ESPIPE, errno,
)
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.time cimport CLOCK_MONOTONIC, CLOCK_REALTIME, timespec

from rocketstore._native.os.libc_calls cimport (
    AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW, F_OFD_GETLK, F_OFD_SETLK, F_UNLCK, F_WRLCK,
    MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_PRIVATE, O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK,
    O_RDONLY, O_RDWR, O_TMPFILE, PROT_READ, PROT_WRITE, RS_RENAME_NOREPLACE, SEEK_DATA,
    SEEK_SET, _SC_PAGESIZE,
    fill_table, rs_in_main_interpreter, sysconf,
)
from rocketstore._native.os.store_roots cimport linkable, rs_hold, rs_let_go

import os

from rocketstore.errors import StoreClosedError
from rocketstore.values.limits import explained

# A page that the kernel wipes in a forked child, however it was forked (D-35): first the token of what
# is opened in this process, then 1 in the process that loaded the module. Where the kernel refuses to
# wipe, the pids show it.
cdef uint64_t *fork_page
cdef bint fork_by_pid
cdef int loader_pid, token_pid
cdef uint64_t token_count

fill_table(&sys)
page_size = sysconf(_SC_PAGESIZE)


# ---- this process or a forked child of it (D-35) ----

cdef void watch_forks() except *:
    global fork_page, fork_by_pid, loader_pid
    cdef void *page = sys.mmap(NULL, <size_t>page_size, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if page == <void *>-1:
        raise MemoryError("no page for the word that tells a forked child")
    fork_by_pid = sys.madvise(page, <size_t>page_size, MADV_WIPEONFORK) != 0
    loader_pid = sys.getpid()
    fork_page = <uint64_t *>page
    fork_page[1] = 1
    process_token()


cpdef bint forked() noexcept nogil:
    """Whether this is a forked child of the process that loaded the module."""
    return fork_page[1] == 0 or (fork_by_pid and loader_pid != sys.getpid())


cpdef bint forked_since(uint64_t token) noexcept nogil:
    """Whether the holder of `token` was opened on the other side of a fork."""
    return fork_page[0] != token or (fork_by_pid and token_pid != sys.getpid())


cpdef int check_forked(uint64_t token) except -1:
    if forked_since(token):
        raise StoreClosedError("this process is a forked child of the one that opened the store, "
                               "which writes it as long as it lives: open it here with mode='r', "
                               "or fork first and open it in the one process that writes")
    return 0


cpdef uint64_t process_token() noexcept nogil:
    """What a handle keeps from its birth, for `forked_since`. A child's first call makes the child's
    own: what it opens works, what it inherited does not."""
    global token_count, token_pid
    if fork_page[0] == 0 or (fork_by_pid and token_pid != sys.getpid()):
        token_count += 1
        token_pid = sys.getpid()
        fork_page[0] = token_count
    return fork_page[0]


def in_main_interpreter():
    """Whether the caller runs in the main interpreter of its process, not in a sub-interpreter."""
    return rs_in_main_interpreter() != 0


watch_forks()


# ---- outcome and errors ----

cdef str LINKED = (
    "symbolic links are not followed here: put the file or directory in place of the link; one of "
    "another user, on the way to a store or right in it, is followed once it is root's (chown -h)"
)
#: What an error says of a directory, a socket or a pipe where a file belongs.
NO_FILE = "not a plain file: something else lies in its place, move it away"


cdef int64_t outcome(int64_t result) noexcept nogil:
    return result if result >= 0 else -<int64_t>errno


cdef bint done(int64_t result, object path=None, object other=None) except -1:
    """`path` is a name, or the number of an open descriptor."""
    if result >= 0:
        return True
    if result == -EINTR:
        PyErr_CheckSignals()
        return False
    if isinstance(path, int):
        path = os.path.realpath(f"/proc/self/fd/{path}")
    no_file = result in (-EISDIR, -ENXIO, -ESPIPE)
    text = LINKED if result == -ELOOP else NO_FILE if no_file else explained(<int>-result)
    raise OSError(<int>-result, text, path, None, other)


cdef bytes encode_path(object path):
    cdef bytes encoded = os.fsencode(path)
    if 0 in encoded:
        raise ValueError(f"a path holds no NUL: {path!r}")
    return encoded


# ---- names ----

cdef enum Naming:
    OPEN, LINK, RENAME, UNLINK, MKDIR, RMDIR


cdef int hold(object path, bytes encoded, const char **rest, bint whole) except -1:
    """The directory, held open, in which the `rest` of a path is looked up; only links of root
    and of this process's user lead there, and none out of a store."""
    cdef const char *whole_path = encoded
    cdef size_t free = linkable(encoded)
    cdef int64_t result = -EINTR
    while not done(result, path):
        with nogil:
            result = outcome(rs_hold(whole_path, free, whole, rest))
    return <int>result


cdef int name(Naming what, object path, int flags=0, uint32_t mode=0, object other=None,
              int at=AT_FDCWD) except -1:
    """One call that makes, changes or removes a name; `other` is the new name of LINK and RENAME. The
    flags of LINK say that the old name is a descriptor."""
    cdef bytes encoded = encode_path(path)
    cdef bytes other_encoded = b"" if other is None else encode_path(other)
    cdef const char *old = encoded
    cdef const char *new = other_encoded
    cdef int held = -1, other_held = -1, other_at = AT_FDCWD
    cdef int64_t result = -EINTR
    try:
        if what != LINK or flags == 0:
            at = held = hold(path, encoded, &old,
                             what == OPEN and flags & O_DIRECTORY and not flags & O_NOFOLLOW)
        if other is not None:
            other_at = other_held = hold(other, other_encoded, &new, False)
        while not done(result, path, other):
            with nogil:
                if what == OPEN:
                    # O_NONBLOCK means nothing for a file; a FIFO in its place must not hang us.
                    result = outcome(sys.open(at, old, flags | O_CLOEXEC | O_NONBLOCK, mode))
                elif what == LINK:
                    result = outcome(sys.linkat(at, old, other_at, new, flags))
                elif what == RENAME:
                    result = outcome(sys.renameat2(at, old, other_at, new, <uint32_t>flags))
                elif what == UNLINK:
                    result = outcome(sys.unlink(at, old))
                elif what == MKDIR:
                    result = outcome(sys.mkdir(at, old, mode))
                else:
                    result = outcome(sys.rmdir(at, old))
    finally:
        rs_let_go(held)
        rs_let_go(other_held)
    return <int>result


def open(path, int flags, uint32_t mode=0o600):
    """A descriptor of a file, never through a link, closed on exec."""
    return name(OPEN, path, flags | O_NOFOLLOW, mode)


def open_directory(path):
    """A descriptor of a directory, to sync it or to change its owner; the directory may be a link."""
    return name(OPEN, path, O_RDONLY | O_DIRECTORY)


def open_unnamed(directory, uint32_t mode=0o600):
    """A new file without a name, for `link_unnamed`; what is never linked vanishes by itself (D-06)."""
    return name(OPEN, directory, O_TMPFILE | O_RDWR, mode)


def link_unnamed(int fd, path):
    """Gives the file its name; FileExistsError when there is one, nothing is ever replaced. Errors
    name `path` alone: the number of a descriptor means nothing to a reader."""
    try:
        _link_by_number(fd, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _link_by_number(int fd, path):
    own = f"/proc/self/fd/{fd}"
    try:
        name(LINK, own, AT_SYMLINK_FOLLOW, 0, path)
    except FileNotFoundError:
        if os.path.exists(own):
            raise
        name(LINK, "", AT_EMPTY_PATH, 0, path, fd)  # no /proc in this container


def link(old, new):
    """A second name of the same file; FileExistsError when there is one."""
    name(LINK, old, 0, 0, new)


def rename(old, new):
    """Replaces `new` atomically."""
    name(RENAME, old, 0, 0, new)


def rename_noreplace(old, new):
    """FileExistsError when there is a `new`."""
    name(RENAME, old, RS_RENAME_NOREPLACE, 0, new)


def unlink(path):
    name(UNLINK, path)


def mkdir(path, uint32_t mode=0o700):
    name(MKDIR, path, 0, mode)


def rmdir(path):
    name(RMDIR, path)


# ---- descriptors ----

cdef enum:
    KEEP_SIZE = 1  # linux/falloc.h
    PUNCH_HOLE = 2


cdef enum Change:
    OWNER, MODE, BLOCKS, HOLE, SIZE, DATA_SYNC, SYNC, SYNC_ALL


cdef int change(Change what, int fd, int64_t first=0, int64_t second=0) except -1:
    cdef int64_t result = -EINTR
    while not done(result, fd):
        with nogil:
            if what == OWNER:
                result = outcome(sys.fchown(fd, <uint32_t>first, <uint32_t>second))
            elif what == MODE:
                result = outcome(sys.fchmod(fd, <uint32_t>first))
            elif what == BLOCKS:
                result = outcome(sys.fallocate(fd, 0, first, second))
            elif what == HOLE:
                result = outcome(sys.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, first, second))
            elif what == SIZE:
                result = outcome(sys.ftruncate(fd, first))
            elif what == DATA_SYNC:
                result = outcome(sys.fdatasync(fd))
            elif what == SYNC:
                result = outcome(sys.fsync(fd))
            else:
                result = outcome(sys.syncfs(fd))
    return 0


def chown(int fd, uint32_t owner, uint32_t group):
    """Owner and group of an open file or directory."""
    change(OWNER, fd, owner, group)


def chmod(int fd, uint32_t mode):
    """Mode of an open file or directory; the process's umask does not count."""
    change(MODE, fd, mode)


def fallocate(int fd, int64_t offset, int64_t length):
    """Blocks for `length` bytes at `offset`, which grow the file; ENOSPC when there are none."""
    change(BLOCKS, fd, offset, length)


def punch_hole(int fd, int64_t offset, int64_t length):
    """Gives the blocks of `length` bytes at `offset` back: they are zeros from now on. The size stays."""
    change(HOLE, fd, offset, length)


def ftruncate(int fd, int64_t size):
    change(SIZE, fd, size)


def fdatasync(int fd):
    change(DATA_SYNC, fd)


def fsync(int fd):
    change(SYNC, fd)


def syncfs(int fd):
    change(SYNC_ALL, fd)


def sync_directory(path):
    """Makes names that were added to or taken from a directory durable."""
    cdef int fd = name(OPEN, path, O_RDONLY | O_DIRECTORY)
    try:
        change(SYNC, fd)
    finally:
        sys.close(fd)


def close(int fd):
    """The descriptor is gone whatever happens; the error of an earlier write may be reported here."""
    cdef int64_t result
    with nogil:
        result = outcome(sys.close(fd))
    if result != -EINTR:  # Linux frees the number even then: a second close could hit another file
        done(result, fd)


# ---- bytes ----

def pread(int fd, Py_ssize_t count, int64_t offset):
    """`count` bytes; fewer only at the end of the file."""
    if count < 0:
        raise ValueError(f"count = {count}: not negative")
    cdef bytes found = PyBytes_FromStringAndSize(NULL, count)
    cdef char *to = PyBytes_AS_STRING(found)
    cdef Py_ssize_t have = 0
    cdef int64_t result = 1
    while have < count and result != 0:
        with nogil:
            result = outcome(sys.pread(fd, to + have, <size_t>(count - have), offset + have))
        if done(result, fd):
            have += <Py_ssize_t>result
    return found if have == count else found[:have]


def pwrite(int fd, data, int64_t offset):
    """All of `data`; a short write goes on until an error says why."""
    cdef Py_buffer buffer
    cdef Py_ssize_t have = 0
    cdef int64_t result
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        while have < buffer.len:
            with nogil:
                result = outcome(sys.pwrite(fd, <uint8_t *>buffer.buf + have,
                                            <size_t>(buffer.len - have), offset + have))
            if result == 0:
                result = -EIO  # neither progress nor a reason: never a success
            if done(result, fd):
                have += <Py_ssize_t>result
    finally:
        PyBuffer_Release(&buffer)


def link_count(int fd):
    """How many names a file has; asks for nothing else of it."""
    cdef int64_t result
    with nogil:
        result = outcome(sys.link_count(fd))
    done(result, fd)
    return result


def seek_data(int fd, int64_t offset):
    """The first byte at or after `offset` that is no hole, None after the last one."""
    cdef int64_t result
    with nogil:
        result = outcome(sys.lseek(fd, offset, SEEK_DATA))
    if result == -ENXIO:
        return None
    if result == -EINVAL and offset >= 0:
        return offset  # a file system that does not know its holes
    done(result, fd)
    return result


def allocated_bytes(int fd):
    """What the file takes of the disk; less than its size when there are holes."""
    cdef file_stat found
    done(outcome(sys.fstat(fd, &found)), fd)
    return found.st_blocks * 512


def file_system_type(path):
    """The magic number of the file system, as `statfs(2)` lists them (D-39)."""
    cdef bytes encoded = encode_path(path)
    cdef const char *name = encoded
    cdef file_system_stat found
    cdef int64_t result = -EINTR
    while not done(result, path):
        with nogil:
            result = outcome(sys.statfs(name, &found))
    return found.f_type & 0xFFFFFFFF


# ---- the lock (D-04) ----

cdef int64_t lock_byte(int fd, int command, short kind, file_lock *lock) noexcept nogil:
    lock.l_type = kind
    lock.l_whence = SEEK_SET
    lock.l_start = 0
    lock.l_len = 1
    lock.l_pid = 0
    cdef int64_t result = -EINTR
    while result == -EINTR:  # none of these waits
        result = outcome(sys.lock(fd, command, lock))
    return result


def lock_first_byte(int fd):
    """Whether this open file description has byte 0 now. It conflicts with POSIX locks both ways."""
    cdef file_lock lock
    cdef int64_t result = lock_byte(fd, F_OFD_SETLK, F_WRLCK, &lock)
    return result not in (-EAGAIN, -EACCES) and done(result, fd)


def unlock_first_byte(int fd):
    """Never in a forked child: the description is shared, the parent would lose its lock."""
    cdef file_lock lock
    done(lock_byte(fd, F_OFD_SETLK, F_UNLCK, &lock), fd)


def first_byte_holder(int fd):
    """The other holder of byte 0: None nobody, -1 an open file description, > 0 a process with a POSIX lock,
    0 such a process that cannot be named from this pid namespace."""
    cdef file_lock lock
    done(lock_byte(fd, F_OFD_GETLK, F_WRLCK, &lock), fd)
    return None if lock.l_type == F_UNLCK else lock.l_pid


cdef int64_t clock_ns(int clock) noexcept:
    cdef timespec now
    sys.clock_gettime(clock, &now)
    return <int64_t>now.tv_sec * 1_000_000_000 + now.tv_nsec


def realtime_ms():
    """Milliseconds since 1970."""
    return clock_ns(CLOCK_REALTIME) // 1_000_000


def monotonic_ns():
    return clock_ns(CLOCK_MONOTONIC)
