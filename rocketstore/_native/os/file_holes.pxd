# Holes of a file: where they lie, and memory in their place.

from libc.errno cimport ENXIO, errno
from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.os.syscalls cimport file_system_stat, page_size, sys

cdef extern from *:
    """
    #include <sys/mman.h>
    #include <unistd.h>
    """
    enum:
        MAP_ANONYMOUS, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, SEEK_DATA, SEEK_HOLE

cdef enum:
    TMPFS_MAGIC = 0x01021994  # linux/magic.h
    # Holes of a file that get memory of their own, a count: each takes one or two of the process's mappings.
    COVERED_HOLES_MAX = 64

cdef struct data_range:
    int64_t begin
    int64_t end


cdef inline data_range next_data(int fd, int64_t position, int64_t end) noexcept nogil:
    """The first part of [position, end) that is no hole, begin == end without one; all of it where that is
    not known."""
    cdef data_range found
    found.begin, found.end = position, end
    if fd < 0 or position >= end:
        return found
    found.begin = sys.lseek(fd, position, SEEK_DATA)
    if found.begin < 0:
        # ENXIO: a hole up to the end of the file; else a file system that does not know its holes.
        found.begin = end if errno == ENXIO else position
        return found
    if found.begin >= end:
        found.begin = end
        return found
    found.end = sys.lseek(fd, found.begin, SEEK_HOLE)
    if not found.begin < found.end < end:
        found.end = end
    return found


cdef inline void cover_holes(uint8_t *base, int fd, int64_t size, int protection) noexcept nogil:
    """Private memory in place of the holes of a private mapping nobody has used yet: a tmpfs takes a page even
    to read a hole, and a full one has none. What gets none stays as it is."""
    cdef data_range data
    cdef int64_t hole = 0, low, high
    cdef int count
    for count in range(COVERED_HOLES_MAX):
        data = next_data(fd, hole, size)
        low = (hole + page_size - 1) & -page_size
        high = data.begin & -page_size if data.begin < size else size
        if low < high and sys.mmap(
            base + low, <size_t>(high - low), protection,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0,
        ) == <void *>-1:
            return
        if data.begin >= size or data.end >= size:
            return
        hole = data.end


cdef inline bint takes_room_to_read(const char *path) noexcept nogil:
    """Whether a hole that is read takes a page, as on tmpfs."""
    cdef file_system_stat found
    return sys.statfs(path, &found) == 0 and found.f_type == TMPFS_MAGIC
