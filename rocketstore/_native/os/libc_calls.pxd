# libc, as the table of `syscalls` is filled with it, and one question to Python. Nobody else cimports this.

from libc.stdint cimport uint32_t
from posix.time cimport timespec
from posix.types cimport off_t

from rocketstore._native.os.syscalls cimport (
    file_lock, file_stat, file_system_stat, io_part, rs_syscalls,
)

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <sys/file.h>
    #include <sys/mman.h>
    #include <sys/stat.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <sys/vfs.h>
    #include <time.h>
    #include <unistd.h>
    #ifndef MADV_WIPEONFORK
    #define MADV_WIPEONFORK 18
    #endif
    #ifndef RWF_DSYNC
    #define RWF_DSYNC 2
    #endif
    #define RS_RENAME_NOREPLACE 1u

    static int rs_in_main_interpreter(void)
    {
        return PyInterpreterState_Get() == PyInterpreterState_Main();
    }

    /* Variadic in libc; and calls that an old libc has no wrapper for. */
    static int rs_open(int at, const char *path, int flags, uint32_t mode)
    {
        return openat(at, path, flags, (mode_t)mode);
    }
    /* The mode that the caller gives, whatever the umask; one for all users is as the umask says. */
    static int rs_mkdir(int at, const char *path, uint32_t mode)
    {
        struct stat found;
        int made = mkdirat(at, path, mode);
        if (made != 0 || mode & 077 || fstatat(at, path, &found, 0) != 0 || (found.st_mode & 0700) == mode)
            return made;
        return fchmodat(at, path, (found.st_mode & 07000) | mode, 0);
    }
    static int rs_unlink(int at, const char *path) { return unlinkat(at, path, 0); }
    static int rs_rmdir(int at, const char *path) { return unlinkat(at, path, AT_REMOVEDIR); }
    /* How many names a file has, without asking for its times: the kernel answers a question for mtime with
       an exact one at the next write, which makes the next sync write the inode, too. */
    static int rs_link_count(int fd)
    {
    #ifdef STATX_NLINK
        struct statx found;
        if (statx(fd, "", AT_EMPTY_PATH, STATX_NLINK, &found) == 0)
            return (int)found.stx_nlink;
        if (errno != ENOSYS)
            return -1;
    #endif
        struct stat all;
        return fstat(fd, &all) == 0 ? (int)all.st_nlink : -1;
    }
    static int rs_duplicate(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }
    static int rs_lock(int fd, int command, struct flock *lock) { return fcntl(fd, command, lock); }
    static int rs_renameat2(int from, const char *old, int to, const char *new_name, uint32_t flags)
    {
        return (int)syscall(SYS_renameat2, from, old, to, new_name, flags);
    }
    static int rs_memfd_create(const char *name, uint32_t flags)
    {
        return (int)syscall(SYS_memfd_create, name, flags);
    }
    static long rs_futex(uint32_t *word, int operation, uint32_t value, const struct timespec *timeout)
    {
        return syscall(SYS_futex, word, operation, value, timeout, NULL, 0);
    }
    static int rs_gettid(void) { return (int)syscall(SYS_gettid); }
    /* Adds one to an eventfd. Full is as good: it is readable. */
    static int rs_signal_event(int fd)
    {
        const uint64_t one = 1;
        return write(fd, &one, sizeof one) == (ssize_t)sizeof one || errno == EAGAIN ? 0 : -1;
    }
    """
    int rs_open(int, const char *, int, uint32_t) noexcept nogil
    int rs_mkdir(int, const char *, uint32_t) noexcept nogil
    int rs_unlink(int, const char *) noexcept nogil
    int rs_rmdir(int, const char *) noexcept nogil
    int rs_link_count(int) noexcept nogil
    int rs_duplicate(int) noexcept nogil
    int rs_lock(int, int, file_lock *) noexcept nogil
    int rs_renameat2(int, const char *, int, const char *, uint32_t) noexcept nogil
    int rs_memfd_create(const char *, uint32_t) noexcept nogil
    long rs_futex(uint32_t *, int, uint32_t, const timespec *) noexcept nogil
    int rs_gettid() noexcept nogil
    int rs_signal_event(int) noexcept nogil
    int c_close "close"(int) noexcept nogil
    int c_linkat "linkat"(int, const char *, int, const char *, int) noexcept nogil
    int c_fchown "fchown"(int, uint32_t, uint32_t) noexcept nogil
    int c_fchmod "fchmod"(int, uint32_t) noexcept nogil
    int c_fstat "fstat"(int, file_stat *) noexcept nogil
    int c_statfs "statfs"(const char *, file_system_stat *) noexcept nogil
    int c_fallocate "fallocate"(int, int, off_t, off_t) noexcept nogil
    int c_ftruncate "ftruncate"(int, off_t) noexcept nogil
    off_t c_lseek "lseek"(int, off_t, int) noexcept nogil
    ssize_t c_pread "pread"(int, void *, size_t, off_t) noexcept nogil
    ssize_t c_pwrite "pwrite"(int, const void *, size_t, off_t) noexcept nogil
    ssize_t c_pwritev2 "pwritev2"(int, const io_part *, int, off_t, int) noexcept nogil
    int c_fdatasync "fdatasync"(int) noexcept nogil
    int c_fsync "fsync"(int) noexcept nogil
    int c_syncfs "syncfs"(int) noexcept nogil
    void *c_mmap "mmap"(void *, size_t, int, int, int, off_t) noexcept nogil
    int c_munmap "munmap"(void *, size_t) noexcept nogil
    int c_msync "msync"(void *, size_t, int) noexcept nogil
    int c_madvise "madvise"(void *, size_t, int) noexcept nogil
    int c_mlock "mlock"(const void *, size_t) noexcept nogil
    int c_mlock2 "mlock2"(const void *, size_t, unsigned int) noexcept nogil
    int c_munlock "munlock"(const void *, size_t) noexcept nogil
    int c_clock_gettime "clock_gettime"(int, timespec *) noexcept nogil
    int c_getpid "getpid"() noexcept nogil
    long c_sysconf "sysconf"(int) noexcept nogil
    int rs_in_main_interpreter() noexcept
    enum:
        AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW
        F_OFD_GETLK, F_OFD_SETLK, F_UNLCK, F_WRLCK
        MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE
        O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR, O_TMPFILE
        RS_RENAME_NOREPLACE, RWF_DSYNC, SEEK_DATA, SEEK_SET, _SC_PAGESIZE


cdef inline void fill_table(rs_syscalls *table) noexcept:
    table.open = rs_open
    table.close = c_close
    table.duplicate = rs_duplicate
    table.linkat = c_linkat
    table.renameat2 = rs_renameat2
    table.unlink = rs_unlink
    table.mkdir = rs_mkdir
    table.rmdir = rs_rmdir
    table.fchown = c_fchown
    table.fchmod = c_fchmod
    table.fstat = c_fstat
    table.link_count = rs_link_count
    table.statfs = c_statfs
    table.lock = rs_lock
    table.fallocate = c_fallocate
    table.ftruncate = c_ftruncate
    table.lseek = c_lseek
    table.pread = c_pread
    table.pwrite = c_pwrite
    table.pwritev2 = c_pwritev2
    table.fdatasync = c_fdatasync
    table.fsync = c_fsync
    table.syncfs = c_syncfs
    table.mmap = c_mmap
    table.munmap = c_munmap
    table.msync = c_msync
    table.madvise = c_madvise
    table.mlock = c_mlock
    table.mlock2 = c_mlock2
    table.munlock = c_munlock
    table.memfd_create = rs_memfd_create
    table.futex = rs_futex
    table.clock_gettime = c_clock_gettime
    table.getpid = c_getpid
    table.gettid = rs_gettid
    table.signal_event = rs_signal_event
