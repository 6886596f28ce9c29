/* The directory in which a name is looked up, held open, so that no link put in place meanwhile leads astray.
 *
 * On the way a link is followed if root or the user of this process made it, and no other link: the owner
 * of its directory does not matter. The link that was looked at is the one that is followed. */
#ifndef RS_BENEATH_H
#define RS_BENEATH_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RS_HELD_DIRECTORY (O_PATH | O_DIRECTORY | O_CLOEXEC)
/* openat2(2) of Linux 5.6, which older headers lack; the number is that of all architectures. */
#define RS_OPENAT2 437
#define RS_RESOLVE_NO_SYMLINKS 0x04
/* As many as the kernel follows. */
#define RS_LINKS_MOST 40

static inline int rs_close_with(int fd, int error)
{
    close(fd);
    errno = error;
    return -1;
}

static inline void rs_let_go(int fd)
{
    if (fd >= 0)
        close(fd);
}

static int rs_walk(int at, const char *path, size_t free, bool whole, int *links,
                   const char **last);

/* ENOTDIR for a file; ELOOP for a link that is not followed. */
static int rs_step_into(int at, const char *name, bool may_be_link, int *links)
{
    int fd = openat(at, name, RS_HELD_DIRECTORY | O_NOFOLLOW);
    if (fd >= 0 || (errno != ENOTDIR && errno != ELOOP))
        return fd;
    struct stat found;
    char target[PATH_MAX];
    const char *last;
    int link = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (link < 0)
        return -1;
    if (fstat(link, &found) != 0)
        return rs_close_with(link, errno);
    if (!S_ISLNK(found.st_mode))
        return rs_close_with(link, ENOTDIR);
    if (!may_be_link || ++*links > RS_LINKS_MOST ||
        (found.st_uid != 0 && found.st_uid != geteuid()))
        return rs_close_with(link, ELOOP);
    ssize_t size = readlinkat(link, "", target, sizeof target - 1);
    rs_close_with(link, errno);
    if (size < 0)
        return -1;
    target[size] = 0;
    return rs_walk(at, target, SIZE_MAX, true, links, &last);
}

/* From `at`. Only a component that begins within the first `free` bytes may be a link. */
static int rs_walk(int at, const char *path, size_t free, bool whole, int *links,
                   const char **last)
{
    const char *name = path + strspn(path, "/");
    int fd = openat(at, name > path ? "/" : ".", RS_HELD_DIRECTORY);
    while (fd >= 0) {
        char one[NAME_MAX + 1];
        size_t size = strcspn(name, "/");
        const char *next = name + size + strspn(name + size, "/");
        *last = size ? name : ".";
        if (size == 0 || (!*next && !whole))
            return fd;
        if (size > NAME_MAX)
            return rs_close_with(fd, ENAMETOOLONG);
        memcpy(one, name, size);
        one[size] = 0;
        int entered = rs_step_into(fd, one, (size_t)(name - path) <= free, links);
        rs_close_with(fd, errno);
        fd = entered;
        name = next;
    }
    return -1;
}

/* As rs_hold in one call, where no link is on the way; -1 where one may be, or the call is unknown. */
static int rs_hold_plain(const char *path, bool whole, const char **last)
{
    char directory[PATH_MAX];
    const uint64_t how[] = {RS_HELD_DIRECTORY, 0, RS_RESOLVE_NO_SYMLINKS}; /* struct open_how */
    size_t size = strlen(path);
    while (!whole && size && path[size - 1] == '/')
        size--;
    while (!whole && size && path[size - 1] != '/')
        size--;
    if (size == 0 || size >= sizeof directory)
        return -1;
    memcpy(directory, path, size);
    directory[size] = 0;
    *last = whole ? "." : path + size;
    return (int)syscall(RS_OPENAT2, AT_FDCWD, directory, how, sizeof how);
}

/* A descriptor of the directory in which `last`, the rest of `path`, is looked up: of the parent, or with
 * `whole` of the directory `path` itself. After the first `free` bytes no link is followed at all. */
static int rs_hold(const char *path, size_t free, bool whole, const char **last)
{
    int links = 0;
    if (!*path) {
        errno = ENOENT;
        return -1;
    }
    int fd = rs_hold_plain(path, whole, last);
    return fd >= 0 ? fd : rs_walk(AT_FDCWD, path, free, whole, &links, last);
}

#endif
