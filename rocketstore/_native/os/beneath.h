/* The directory of a name in a store, held open, so that no link put in place meanwhile leads out of it.
 *
 * The root is followed as the caller named it. A directory right in it may be a link of root or of the
 * store's owner; the link that was looked at is the one that is followed. No directory below is a link. */
#ifndef RS_BENEATH_H
#define RS_BENEATH_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RS_HELD_DIRECTORY (O_PATH | O_DIRECTORY | O_CLOEXEC)

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

/* ENOTDIR for a file; ELOOP for a link that is not followed. */
static int rs_step_into(int at, const char *name, bool may_be_link, uid_t owner)
{
    int fd = openat(at, name, RS_HELD_DIRECTORY | O_NOFOLLOW);
    if (fd >= 0 || (errno != ENOTDIR && errno != ELOOP))
        return fd;
    struct stat found;
    char target[PATH_MAX];
    int link = openat(at, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (link < 0)
        return -1;
    if (fstat(link, &found) != 0)
        return rs_close_with(link, errno);
    if (!S_ISLNK(found.st_mode))
        return rs_close_with(link, ENOTDIR);
    if (!may_be_link || (found.st_uid != 0 && found.st_uid != owner))
        return rs_close_with(link, ELOOP);
    ssize_t size = readlinkat(link, "", target, sizeof target - 1);
    rs_close_with(link, errno);
    if (size < 0)
        return -1;
    target[size] = 0;
    return openat(at, target, RS_HELD_DIRECTORY);
}

/* A descriptor of the directory in which `last`, the rest of `path`, is looked up: of the parent, or with
 * `whole` of the directory `path` itself. The first `root` bytes are the store's root. */
static int rs_hold_beneath(const char *path, size_t root, bool whole, const char **last)
{
    char room[PATH_MAX];
    size_t size = strlen(path);
    struct stat found;
    if (size >= sizeof room) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(room, path, size + 1);
    room[root] = 0;
    int fd = open(room, RS_HELD_DIRECTORY);
    if (fd < 0)
        return -1;
    if (fstat(fd, &found) != 0)
        return rs_close_with(fd, errno);
    bool first = true;
    char *name = room + root + 1;
    for (char *slash; (slash = strchr(name, '/')) != NULL || whole; first = false) {
        if (slash != NULL)
            *slash = 0;
        int next = rs_step_into(fd, name, first, found.st_uid);
        rs_close_with(fd, errno);
        if (next < 0)
            return -1;
        fd = next;
        if (slash == NULL) {
            *last = ".";
            return fd;
        }
        name = slash + 1;
    }
    *last = path + (name - room);
    return fd;
}

#endif
