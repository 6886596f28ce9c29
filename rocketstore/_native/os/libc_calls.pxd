# libc, as the table of `syscalls` is filled with it, and one question to Python. Nobody else cimports this.

from rocketstore._native.os.syscalls cimport rs_syscalls

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sched.h>
    #include <stdint.h>
    #include <stdio.h>
    #include <sys/file.h>
    #include <sys/mman.h>
    #include <sys/socket.h>
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
    /* A macro, since the type of the table is Cython's. */
    #define fill_table(table) (*(table) = (__typeof__(*(table))){ \\
        .open = rs_open, .close = close, .duplicate = rs_duplicate, .linkat = linkat, \\
        .renameat2 = rs_renameat2, .unlink = rs_unlink, .mkdir = rs_mkdir, .rmdir = rs_rmdir, \\
        .fchown = fchown, .fchmod = fchmod, .fstat = fstat, .link_count = rs_link_count, \\
        .statfs = statfs, .lock = rs_lock, .fallocate = fallocate, .ftruncate = ftruncate, \\
        .lseek = lseek, .pread = pread, .pwrite = pwrite, .pwritev2 = pwritev2, \\
        .fdatasync = fdatasync, .fsync = fsync, .syncfs = syncfs, .mmap = mmap, .munmap = munmap, \\
        .msync = msync, .madvise = madvise, .mlock = mlock, .mlock2 = mlock2, .munlock = munlock, \\
        .memfd_create = rs_memfd_create, .futex = rs_futex, .clock_gettime = clock_gettime, \\
        .getpid = getpid, .gettid = rs_gettid, .signal_event = rs_signal_event, .send = send, \\
        .receive = recv, .shut_down = shutdown, .give_way = sched_yield})
    """
    void fill_table(rs_syscalls *) noexcept
    long sysconf(int) noexcept nogil
    int rs_in_main_interpreter() noexcept
    enum:
        AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_FOLLOW
        F_OFD_GETLK, F_OFD_SETLK, F_UNLCK, F_WRLCK
        MADV_WIPEONFORK, MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE
        O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_RDONLY, O_RDWR, O_TMPFILE
        RS_RENAME_NOREPLACE, RWF_DSYNC, SEEK_DATA, SEEK_SET, _SC_PAGESIZE
