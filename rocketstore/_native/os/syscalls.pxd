# The one table of libc calls. Native users call through it: `sys.msync(...)`; -1 and errno say what failed.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from posix.time cimport timespec
from posix.types cimport off_t

cdef extern from "<sys/stat.h>" nogil:
    ctypedef struct file_stat "struct stat":
        uint64_t st_dev
        uint64_t st_ino
        uint32_t st_mode
        off_t st_size
        int64_t st_blocks

cdef extern from "<sys/vfs.h>" nogil:
    ctypedef struct file_system_stat "struct statfs":
        uint64_t f_type

cdef extern from "<fcntl.h>" nogil:
    ctypedef struct file_lock "struct flock":
        short l_type
        short l_whence
        off_t l_start
        off_t l_len
        int l_pid

cdef extern from "<sys/uio.h>" nogil:
    ctypedef struct io_part "struct iovec":
        void *iov_base
        size_t iov_len

cdef struct rs_syscalls:
    int (*open)(int at, const char *path, int flags, uint32_t mode) noexcept nogil
    int (*close)(int fd) noexcept nogil
    int (*duplicate)(int fd) noexcept nogil
    int (*linkat)(int old_at, const char *old, int new_at, const char *new,
                  int flags) noexcept nogil
    int (*renameat2)(int old_at, const char *old, int new_at, const char *new,
                     uint32_t flags) noexcept nogil
    int (*unlink)(int at, const char *path) noexcept nogil
    int (*mkdir)(int at, const char *path, uint32_t mode) noexcept nogil
    int (*rmdir)(int at, const char *path) noexcept nogil
    int (*fchown)(int fd, uint32_t owner, uint32_t group) noexcept nogil
    int (*fchmod)(int fd, uint32_t mode) noexcept nogil
    int (*fstat)(int fd, file_stat *found) noexcept nogil
    int (*link_count)(int fd) noexcept nogil
    int (*statfs)(const char *path, file_system_stat *found) noexcept nogil
    int (*lock)(int fd, int command, file_lock *lock) noexcept nogil
    int (*fallocate)(int fd, int mode, off_t offset, off_t length) noexcept nogil
    int (*ftruncate)(int fd, off_t size) noexcept nogil
    off_t (*lseek)(int fd, off_t offset, int whence) noexcept nogil
    ssize_t (*pread)(int fd, void *to, size_t count, off_t offset) noexcept nogil
    ssize_t (*pwrite)(int fd, const void *data, size_t count, off_t offset) noexcept nogil
    ssize_t (*pwritev2)(int fd, const io_part *parts, int count, off_t offset,
                        int flags) noexcept nogil
    int (*fdatasync)(int fd) noexcept nogil
    int (*fsync)(int fd) noexcept nogil
    int (*syncfs)(int fd) noexcept nogil
    void *(*mmap)(void *address, size_t size, int protection, int flags, int fd,
                  off_t offset) noexcept nogil
    int (*munmap)(void *address, size_t size) noexcept nogil
    int (*msync)(void *address, size_t size, int flags) noexcept nogil
    int (*madvise)(void *address, size_t size, int advice) noexcept nogil
    int (*mlock)(const void *address, size_t size) noexcept nogil
    int (*mlock2)(const void *address, size_t size, unsigned int flags) noexcept nogil
    int (*munlock)(const void *address, size_t size) noexcept nogil
    int (*memfd_create)(const char *name, uint32_t flags) noexcept nogil
    long (*futex)(uint32_t *word, int operation, uint32_t value,
                  const timespec *timeout) noexcept nogil
    int (*clock_gettime)(int clock, timespec *now) noexcept nogil
    int (*getpid)() noexcept nogil
    int (*gettid)() noexcept nogil
    int (*signal_event)(int fd) noexcept nogil
    ssize_t (*send)(int fd, const void *data, size_t count, int flags) noexcept nogil
    ssize_t (*receive)(int fd, void *to, size_t count, int flags) noexcept nogil
    int (*shut_down)(int fd, int how) noexcept nogil
    int (*give_way)() noexcept nogil

# Written at import only; a test build may replace entries.
cdef rs_syscalls sys

# Bytes of a page of memory, 4 to 64 KiB.
cdef int64_t page_size

# The result of a call, or minus its errno; for use inside `with nogil`.
cdef int64_t outcome(int64_t result) noexcept nogil
# True when done, False after EINTR (signals were served; call again); raises OSError otherwise.
cdef bint done(int64_t result, object path=*, object other=*) except -1
cdef bytes encode_path(object path)

# D-35. A handle keeps `process_token()` of its birth; once `forked_since(token)`, it is closed for ever.
cpdef bint forked() noexcept nogil
cpdef bint forked_since(uint64_t token) noexcept nogil
cpdef int check_forked(uint64_t token) except -1
cpdef uint64_t process_token() noexcept nogil
