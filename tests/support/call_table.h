/* Wrappers of every entry of `rs_syscalls`, for call_table.pyx: each asks what is to become of its call. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define LIMIT(size) if (found < 0 && (size_t)-found < (size)) (size) = (size_t)-found
/* A descriptor is gone even when close fails. */
#define CLOSE if (found > 0) CALL(close, (fd))
/* A write that ends early ends in its first part. */
#define LIMIT_PARTS \
    struct iovec first = *parts; \
    LIMIT(first.iov_len); \
    if (first.iov_len < parts->iov_len) \
        parts = &first, count = 1
#define STEP if (clock == CLOCK_REALTIME && found == 0) return stepped_clock(now)
/* Nothing but waiting is broken off; a wake that fails would be a kernel's fault. */
#define ONLY_WAITS if ((act & FUTEX_CMD_MASK) != FUTEX_WAIT) found = 0
#define NAMES int at, const char *old, int to, const char *new
#define NONE (void)0

/* In the order of the table: name, result, parameters, arguments, what comes before the call. */
#define ENTRIES(X) \
    X(open, int, (int at, const char *path, int flags, uint32_t mode), \
      (at, path, flags, mode), NONE) \
    X(close, int, (int fd), (fd), CLOSE) \
    X(duplicate, int, (int fd), (fd), NONE) \
    X(linkat, int, (NAMES, int flags), (at, old, to, new, flags), NONE) \
    X(renameat2, int, (NAMES, uint32_t flags), (at, old, to, new, flags), NONE) \
    X(unlink, int, (int at, const char *path), (at, path), NONE) \
    X(mkdir, int, (int at, const char *path, uint32_t mode), (at, path, mode), NONE) \
    X(rmdir, int, (int at, const char *path), (at, path), NONE) \
    X(fchown, int, (int fd, uint32_t owner, uint32_t group), (fd, owner, group), NONE) \
    X(fchmod, int, (int fd, uint32_t mode), (fd, mode), NONE) \
    X(fstat, int, (int fd, struct stat *to), (fd, to), NONE) \
    X(link_count, int, (int fd), (fd), NONE) \
    X(statfs, int, (const char *path, struct statfs *to), (path, to), NONE) \
    X(lock, int, (int fd, int command, struct flock *lock), (fd, command, lock), NONE) \
    X(fallocate, int, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), NONE) \
    X(ftruncate, int, (int fd, off_t size), (fd, size), NONE) \
    X(lseek, off_t, (int fd, off_t offset, int whence), (fd, offset, whence), NONE) \
    X(pread, ssize_t, (int fd, void *to, size_t size, off_t at), (fd, to, size, at), LIMIT(size)) \
    X(pwrite, ssize_t, (int fd, const void *data, size_t size, off_t at), (fd, data, size, at), \
      LIMIT(size)) \
    X(pwritev2, ssize_t, (int fd, const struct iovec *parts, int count, off_t at, int flags), \
      (fd, parts, count, at, flags), LIMIT_PARTS) \
    X(fdatasync, int, (int fd), (fd), NONE) \
    X(fsync, int, (int fd), (fd), NONE) \
    X(syncfs, int, (int fd), (fd), NONE) \
    X(mmap, void *, (void *near, size_t size, int access, int flags, int fd, off_t at), \
      (near, size, access, flags, fd, at), NONE) \
    X(munmap, int, (void *address, size_t size), (address, size), NONE) \
    X(msync, int, (void *address, size_t size, int flags), (address, size, flags), NONE) \
    X(madvise, int, (void *address, size_t size, int advice), (address, size, advice), NONE) \
    X(mlock, int, (const void *address, size_t size), (address, size), NONE) \
    X(mlock2, int, (const void *address, size_t size, unsigned flags), \
      (address, size, flags), NONE) \
    X(munlock, int, (const void *address, size_t size), (address, size), NONE) \
    X(memfd_create, int, (const char *name, uint32_t flags), (name, flags), NONE) \
    X(futex, long, (uint32_t *word, int act, uint32_t value, const struct timespec *until), \
      (word, act, value, until), ONLY_WAITS) \
    X(clock_gettime, int, (int clock, struct timespec *now), (clock, now), STEP) \
    X(getpid, int, (void), (), NONE) \
    X(gettid, int, (void), (), NONE) \
    X(signal_event, int, (int fd), (fd), NONE) \
    X(send, ssize_t, (int fd, const void *data, size_t size, int flags), (fd, data, size, flags), \
      LIMIT(size)) \
    X(receive, ssize_t, (int fd, void *to, size_t size, int flags), (fd, to, size, flags), \
      LIMIT(size)) \
    X(shut_down, int, (int fd, int how), (fd, how), NONE) \
    X(give_way, int, (void), (), NONE)
/* Called while a mutex is held under which no Python code may run (D-33), or all the time. */
#define IS_QUIET(entry) ((entry) >= AT_futex)

#define NUMBER(name, ...) AT_##name,
enum { ENTRIES(NUMBER) ENTRY_COUNT };
#define NAME(name, ...) #name,
static const char *const entry_names[] = {ENTRIES(NAME)};
#define DECLARE(name, result, parameters, ...) \
    typedef result name##_result; \
    typedef result name##_call parameters;
ENTRIES(DECLARE)

static void *real[ENTRY_COUNT];
static int64_t calls[ENTRY_COUNT];
static int64_t (*ask)(int entry);
static int quiet_entry, quiet_errno;
static int64_t quiet_first, quiet_last;
static int64_t clock_step_ns;
static _Thread_local int inside;

#define CALL(name, arguments) ((name##_call *)real[AT_##name])arguments

static int stepped_clock(struct timespec *now)
{
    int result = CALL(clock_gettime, (CLOCK_REALTIME, now));
    int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec + __atomic_load_n(&clock_step_ns, 0);
    now->tv_sec = ns / 1000000000;
    now->tv_nsec = ns % 1000000000;
    return result;
}

static int64_t verdict(int entry)
{
    int64_t number = __atomic_fetch_add(&calls[entry], 1, __ATOMIC_RELAXED);
    if (IS_QUIET(entry)) {
        int chosen = number >= quiet_first && number < quiet_last;
        return chosen && entry == quiet_entry ? quiet_errno : 0;
    }
    if (inside || ask == NULL)
        return 0;
    inside = 1;
    int64_t found = ask(entry);
    inside = 0;
    return found;
}

#define WRAP(name, result, parameters, arguments, before) \
    static result wrapped_##name parameters \
    { \
        int64_t found = verdict(AT_##name); \
        before; \
        if (found > 0) { \
            errno = (int)found; \
            return (result)-1; \
        } \
        return CALL(name, arguments); \
    }
ENTRIES(WRAP)

#define WRAPPED(name, ...) (void *)wrapped_##name,
static void *const wrapped[] = {ENTRIES(WRAPPED)};

/* Every entry of the table is a pointer to a function, so the table is an array of such pointers. */
static int wrap_table(void **table, size_t size)
{
    if (size != sizeof real)
        return -1;
    for (int entry = 0; entry < ENTRY_COUNT; entry++) {
        if (table[entry] != wrapped[entry])
            real[entry] = table[entry];
        table[entry] = wrapped[entry];
    }
    return 0;
}
