/* The calls of libc that the recorder stands in front of. Each is made and written down under one lock, so
 * the trace has the order in which the files changed. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "recorder.h"

#ifndef RWF_DSYNC
#define RWF_DSYNC 2
#endif
#define EXPORTED __attribute__((visibility("default")))
/* `call`: libc's own function of that name. */
#define REAL(result, name, ...)                                             \
    static result (*call)(__VA_ARGS__);                                     \
    if (call == NULL && (call = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)) == NULL) \
    abort()

/* ---- files and names ---- */

static int opened(int fd, const char *path, int flags, bool was_there)
{
    bool directory = false;
    int64_t file = number_of(fd, &directory);
    if (file < 0 || directory)
        return fd;
    if ((flags & O_TMPFILE) == O_TMPFILE)
        event(CREATE, file, 0, 0, NULL, 0);
    else if (!was_there)
        named(CREATE, file, path);
    else if (flags & O_TRUNC)
        event(SIZE, file, 0, 0, NULL, 0);
    return fd;
}

/* The path of a name that is looked up in an open directory. */
static const char *whole_path(int at, const char *path, char room[PATH_MAX])
{
    char own[32];
    if (at == AT_FDCWD || path[0] == '/')
        return path;
    int before = errno;
    snprintf(own, sizeof own, "/proc/self/fd/%d", at);
    ssize_t size = readlink(own, room, PATH_MAX - strlen(path) - 2);
    errno = before;
    if (size < 0)
        return path;
    room[size] = '/';
    strcpy(room + size + 1, path);
    return room;
}

static int open_at(const char *name, int at, const char *last, int flags, mode_t mode)
{
    REAL(int, name, int, const char *, int, ...);
    char room[PATH_MAX];
    const char *path = whole_path(at, last, room);
    if (!below_root(path) || (flags & O_PATH))
        return call(at, last, flags, mode);
    begin();
    bool was_there = number_of_path(path) >= 0;
    int fd = call(at, last, flags, mode);
    if (fd >= 0)
        opened(fd, path, flags, was_there);
    end();
    return fd;
}

#define OPEN_MODE(last)                                                 \
    mode_t mode = 0;                                                    \
    if ((last & O_CREAT) || (last & O_TMPFILE) == O_TMPFILE) {          \
        va_list rest;                                                   \
        va_start(rest, last);                                           \
        mode = va_arg(rest, mode_t);                                    \
        va_end(rest);                                                   \
    }

EXPORTED int open(const char *path, int flags, ...)
{
    OPEN_MODE(flags)
    return open_at("openat", AT_FDCWD, path, flags, mode);
}

EXPORTED int open64(const char *path, int flags, ...)
{
    OPEN_MODE(flags)
    return open_at("openat", AT_FDCWD, path, flags, mode);
}

EXPORTED int openat(int at, const char *path, int flags, ...)
{
    OPEN_MODE(flags)
    return open_at("openat", at, path, flags, mode);
}

EXPORTED int openat64(int at, const char *path, int flags, ...)
{
    OPEN_MODE(flags)
    return open_at("openat", at, path, flags, mode);
}

EXPORTED int linkat(int old_at, const char *old, int new_at, const char *last, int flags)
{
    REAL(int, "linkat", int, const char *, int, const char *, int);
    char room[PATH_MAX];
    const char *path = whole_path(new_at, last, room);
    begin();
    int result = call(old_at, old, new_at, last, flags);
    if (result == 0 && below_root(path))
        named(LINK, number_of_path(path), path);
    end();
    return result;
}

EXPORTED int unlinkat(int at, const char *last, int flags)
{
    REAL(int, "unlinkat", int, const char *, int);
    char room[PATH_MAX];
    const char *path = whole_path(at, last, room);
    begin();
    struct stat found;
    bool directory = (flags & AT_REMOVEDIR) != 0;
    bool final = !directory && below_root(path) && stat(path, &found) == 0 && found.st_nlink == 1;
    int result = call(at, last, flags);
    if (result == 0 && below_root(path)) {
        named(directory ? REMOVE_DIRECTORY : UNLINK, 0, path);
        if (final)
            release((int64_t)found.st_ino);
    }
    end();
    return result;
}

EXPORTED int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

EXPORTED int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

EXPORTED int mkdirat(int at, const char *last, mode_t mode)
{
    REAL(int, "mkdirat", int, const char *, mode_t);
    char room[PATH_MAX];
    const char *path = whole_path(at, last, room);
    begin();
    int result = call(at, last, mode);
    if (result == 0 && below_root(path))
        named(MAKE_DIRECTORY, number_of_path(path), path);
    end();
    return result;
}

EXPORTED int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* renameat2 has no wrapper in an old libc, so the store reaches it through here. */
EXPORTED long syscall(long number, ...)
{
    REAL(long, "syscall", long, ...);
    va_list rest;
    va_start(rest, number);
    long a = va_arg(rest, long), b = va_arg(rest, long), c = va_arg(rest, long);
    long d = va_arg(rest, long), e = va_arg(rest, long), f = va_arg(rest, long);
    va_end(rest);
    if (number != SYS_renameat2)
        return call(number, a, b, c, d, e, f);
    begin();
    long result = call(number, a, b, c, d, e);
    char old_room[PATH_MAX], new_room[PATH_MAX];
    const char *old = whole_path((int)a, (const char *)b, old_room);          /* NOLINT */
    const char *new_name = whole_path((int)c, (const char *)d, new_room);     /* NOLINT */
    if (result == 0 && below_root(old) && below_root(new_name)) {
        named(RENAME, number_of_path(new_name), old);
        named(RENAME, number_of_path(new_name), new_name);
    }
    end();
    return result;
}

/* ---- sizes and bytes ---- */

static int sized(int (*call)(int, off_t), int fd, off_t size)
{
    begin();
    int64_t file = number_of(fd, NULL);
    int result = call(fd, size);
    if (result == 0 && file >= 0)
        event(SIZE, file, size, 0, NULL, 0);
    end();
    return result;
}

EXPORTED int ftruncate(int fd, off_t size)
{
    REAL(int, "ftruncate", int, off_t);
    return sized(call, fd, size);
}

EXPORTED int ftruncate64(int fd, off_t size)
{
    REAL(int, "ftruncate", int, off_t);
    return sized(call, fd, size);
}

static int allocated(int fd, int mode, off_t offset, off_t length)
{
    REAL(int, "fallocate", int, int, off_t, off_t);
    begin();
    int64_t file = number_of(fd, NULL);
    int result = -1;
    bool punches = (mode & FALLOC_FL_PUNCH_HOLE) != 0;
    if (file >= 0 && !punches && !allocate(file, offset, offset + length)) {
        errno = ENOSPC;
    } else {
        struct stat found;
        result = call(fd, mode, offset, length);
        if (result == 0 && file >= 0 && fstat(fd, &found) == 0)
            event(SIZE, file, found.st_size, 0, NULL, 0);
        if (result == 0 && file >= 0 && punches)
            punched(file, offset, offset + length);
    }
    end();
    return result;
}

EXPORTED int fallocate(int fd, int mode, off_t offset, off_t length)
{
    return allocated(fd, mode, offset, length);
}

EXPORTED int fallocate64(int fd, int mode, off_t offset, off_t length)
{
    return allocated(fd, mode, offset, length);
}

static ssize_t written(int fd, const void *data, size_t size, off_t offset, int flags)
{
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (flags & RWF_DSYNC)
        sync_pause();
    begin();
    int64_t file = number_of(fd, NULL);
    ssize_t result = -1;
    if (file >= 0 && !allocate(file, offset, offset + (off_t)size)) {
        errno = ENOSPC;
    } else {
        result = call(fd, data, size, offset);
        if (result > 0 && file >= 0) {
            event(WRITE, file, offset, 0, data, (size_t)result);
            refresh(file, offset, data, result);
        }
        if (result > 0 && file >= 0 && (flags & RWF_DSYNC)) {
            bool fails = sync_fails(file);
            event(fails ? SYNC_FAILED : SYNC_RANGE, file, offset, offset + result, NULL, 0);
            if (fails) {
                errno = EIO;
                result = -1;
            }
        }
    }
    int error = errno;
    end();
    errno = error;
    return result;
}

EXPORTED ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return written(fd, data, size, offset, 0);
}

EXPORTED ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset)
{
    return written(fd, data, size, offset, 0);
}

EXPORTED ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    if (count < 1 || (flags & ~RWF_DSYNC)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    if (count == 1)
        return written(fd, parts->iov_base, parts->iov_len, offset, flags);
    size_t size = 0, done = 0;
    for (int at = 0; at < count; at++)
        size += parts[at].iov_len;
    char *whole = malloc(size);
    if (whole == NULL)
        return -1;
    for (int at = 0; at < count; done += parts[at++].iov_len)
        memcpy(whole + done, parts[at].iov_base, parts[at].iov_len);
    ssize_t result = written(fd, whole, size, offset, flags);
    int error = errno;
    free(whole);
    errno = error;
    return result;
}

EXPORTED ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off_t offset, int flags)
{
    return pwritev2(fd, parts, count, offset, flags);
}

/* ---- syncs: done at once, for nothing here survives but the trace ---- */

static int synced(int fd)
{
    sync_pause();
    begin();
    bool directory = false;
    int64_t file = number_of(fd, &directory);
    bool fails = file >= 0 && sync_fails(file);
    if (directory)
        event(SYNC_DIRECTORY, file, 0, 0, NULL, 0);
    else if (file >= 0)
        event(fails ? SYNC_FAILED : SYNC_FILE, file, 0, INT64_MAX, NULL, 0);
    end();
    if (fails)
        errno = EIO;
    return fails ? -1 : 0;
}

EXPORTED int fsync(int fd) { return synced(fd); }

EXPORTED int fdatasync(int fd) { return synced(fd); }

EXPORTED int syncfs(int fd)
{
    (void)fd;
    sync_pause();
    begin();
    if (number_of(fd, NULL) >= 0)
        event(SYNC_ALL, 0, 0, 0, NULL, 0);
    end();
    return 0;
}

EXPORTED int msync(void *address, size_t size, int flags)
{
    int64_t file = -1, offset = 0;
    bool fails = false;
    (void)flags;
    sync_pause();
    begin();
    if (find_mapping(address, &file, &offset)) {
        fails = sync_fails(file);
        event(fails ? SYNC_FAILED : SYNC_RANGE, file, offset, offset + (int64_t)size, NULL, 0);
    }
    end();
    if (fails)
        errno = EIO;
    return fails ? -1 : 0;
}

/* ---- mappings ---- */

static void *mapped(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    REAL(void *, "mmap", void *, size_t, int, int, int, off_t);
    int64_t file = (flags & MAP_SHARED) && (protection & PROT_WRITE) ? number_of(fd, NULL) : -1;
    if (file < 0)
        return call(at, size, protection, flags, fd, offset);
    begin();
    void *base = call(at, size, protection, flags, fd, offset);
    if (base != MAP_FAILED)
        add_mapping(base, size, file, offset);
    end();
    return base;
}

EXPORTED void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return mapped(at, size, protection, flags, fd, offset);
}

EXPORTED void *mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return mapped(at, size, protection, flags, fd, offset);
}

EXPORTED int munmap(void *base, size_t size)
{
    REAL(int, "munmap", void *, size_t);
    begin();
    remove_mapping(base);
    int result = call(base, size);
    end();
    return result;
}
