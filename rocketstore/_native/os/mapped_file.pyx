"""One file of the store in memory: the raw pointer, the descriptor, and what keeps them alive."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, EINVAL, ESTALE
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint64_t
from posix.fcntl cimport O_RDONLY, O_RDWR

from rocketstore._native.os.file_holes cimport (
    cover_holes, data_range, next_data, takes_room_to_read,
)
from rocketstore._native.os.sigbus_guard cimport copied, guarded_zero, raise_unread, raise_unwritten
from rocketstore._native.os.mapped_range cimport find_nonzero, populate_pages
from rocketstore._native.os.mapping cimport Mapping, map_memory
from rocketstore._native.os.syscalls cimport (
    check_forked, done, file_stat, outcome, page_size, process_token, sys,
)

import io
import os
import stat

from rocketstore._native.os import syscalls as system
from rocketstore.errors import StoreClosedError

cdef extern from *:
    """
    #include <sys/mman.h>
    #include <unistd.h>
    #ifndef MADV_COLD
    #define MADV_COLD 20
    #endif
    """
    enum:
        MADV_COLD, MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_NORMAL
        MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE
        MAP_SHARED, MS_SYNC, PROT_READ, PROT_WRITE

cdef extern from *:
    int64_t load_whole "__atomic_load_n"(const int64_t *at, int order) noexcept nogil
    void store_whole "__atomic_store_n"(int64_t *at, int64_t value, int order) noexcept nogil
    enum:
        ACQUIRE "__ATOMIC_ACQUIRE"
        RELEASE "__ATOMIC_RELEASE"

cdef enum:
    MLOCK_ONFAULT = 1  # linux/mman.h

ADVICE = {
    "normal": MADV_NORMAL,
    "random": MADV_RANDOM,
    "sequential": MADV_SEQUENTIAL,
    "willneed": MADV_WILLNEED,
    "cold": MADV_COLD,
    "dontneed": MADV_DONTNEED,
    "hugepage": MADV_HUGEPAGE,
    "nohugepage": MADV_NOHUGEPAGE,
}


cdef int check_unit(int64_t start_offset, int64_t size) except -1:
    if size <= 0 or start_offset < 0 or start_offset > INT64_MAX - size:
        raise ValueError(f"no file starts at {start_offset} with {size} bytes")
    return 0


cdef int check_file(int fd, object path, int64_t size, file_stat *found) except -1:
    """A mapping beyond the end of its file would be a signal later; say so now."""
    done(outcome(sys.fstat(fd, found)), path)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(EINVAL, system.NO_FILE, path)
    if found.st_size < size:
        raise ValueError(f"{path} has {found.st_size} bytes, {size} were to be mapped")
    return 0


cdef MappedFile describe(Mapping mapping, int fd, str path, int64_t start_offset, bint writable,
                         bint shared):
    cdef MappedFile file = MappedFile.__new__(MappedFile)
    file.mapping = mapping
    file.base = mapping.base
    file.size = file.blocks = mapping.size
    file.start_offset = start_offset
    file.fd = fd
    file.path = path
    file.writable = writable
    file.shared = shared
    file.token = process_token()
    file.closed = False
    return file


@cython.final
@cython.auto_pickle(False)
cdef class MappedFile:
    """`size` bytes whose first one has offset `start_offset` in their log or queue.

    `write`: shared with the file. `read`: the same, not writable. `private`: writable, the file never
    changes (what recovery would do, without doing it). Made by `open`, `adopt` and `anonymous`.
    """

    def __cinit__(self):
        self.fd = -1
        self.path = ""
        self.closed = True

    def __init__(self):
        raise TypeError("a MappedFile is made by MappedFile.open, adopt or anonymous")

    @staticmethod
    def open(path, int64_t start_offset, int64_t size, str access):
        """Maps a file that exists. ValueError when it is shorter than `size`."""
        cdef str name = os.fspath(path)
        cdef bint shared = access != "private"
        cdef int protection = PROT_READ if access == "read" else PROT_READ | PROT_WRITE
        cdef int flags = MAP_SHARED if shared else MAP_PRIVATE | MAP_NORESERVE
        cdef file_stat found
        if access not in ("write", "read", "private"):
            raise ValueError(f"access = {access!r}: one of 'write', 'read', 'private'")
        check_unit(start_offset, size)
        cdef int fd = system.open(name, O_RDWR if access == "write" else O_RDONLY)
        try:
            check_file(fd, name, size, &found)
            mapping = map_memory(fd, name, size, protection, flags)
            if not shared and takes_room_to_read(os.fsencode(name)):
                cover_holes(mapping.base, fd, size, protection)
            file = describe(mapping, fd, name, start_offset, access != "read", shared)
            return file.identify(&found)
        except BaseException:
            sys.close(fd)
            raise

    @staticmethod
    def adopt(int fd, path, int64_t start_offset, int64_t size):
        """Maps a file that is open for reading and writing; owns `fd` from here on unless it raises."""
        cdef str name = os.fspath(path)
        cdef file_stat found
        check_unit(start_offset, size)
        check_file(fd, name, size, &found)
        mapping = map_memory(fd, name, size, PROT_READ | PROT_WRITE, MAP_SHARED)
        return describe(mapping, fd, name, start_offset, True, True).identify(&found)

    @staticmethod
    def anonymous(int64_t start_offset, int64_t size):
        """Zeroed private memory without a file."""
        check_unit(start_offset, size)
        mapping = map_memory(-1, None, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS)
        return describe(mapping, -1, "", start_offset, True, False)

    def part(self, int64_t start_offset, int64_t size):
        """The first `size` bytes of this memory without a file, as another part of a log or queue."""
        check_unit(start_offset, size)
        if self.fd >= 0 or self.path or size > self.mapping.size:
            raise ValueError(f"{size} bytes of memory without a file: this has {self.mapping.size}")
        cdef MappedFile found = describe(self.mapping, -1, "", start_offset, True, False)
        found.size = found.blocks = size
        return found

    @property
    def end_offset(self):
        return self.start_offset + self.size

    cdef int64_t reserved_bytes(self) noexcept nogil:
        return load_whole(&self.blocks, ACQUIRE)

    @property
    def reserved(self):
        """Bytes from its start that its writer may store to, since they have blocks: all of them, unless the writer
        says otherwise."""
        return self.reserved_bytes()

    @reserved.setter
    def reserved(self, int64_t size):
        store_whole(&self.blocks, size, RELEASE)

    @property
    def name(self):
        return os.path.basename(self.path)

    @property
    def memory_locked(self):
        return self.mapping is not None and self.mapping.locked

    def __len__(self):
        return self.size

    def __repr__(self):
        state = " closed" if self.closed else ""
        return f"<MappedFile {self.path or 'anonymous'} {self.start_offset}+{self.size}{state}>"

    # ---- access ----

    cdef int check_range(self, int64_t position, int64_t size) except -1:
        if self.closed:
            raise StoreClosedError(f"{self.path or 'memory'} is closed")
        if position < 0 or size < 0 or size > self.size - position:
            raise ValueError(f"{size} bytes at {position} are outside {self.path or 'memory'} "
                             f"of {self.size} bytes")
        return 0

    cdef int check_writable(self) except -1:
        if not self.writable:
            raise io.UnsupportedOperation(f"{self.path} is open for reading only")
        return check_forked(self.token)

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.check_range(0, 0)
        self.mapping.export(view, flags)

    def view(self, int64_t position, int64_t size):
        """The bytes themselves, read-only; they stay mapped while the view lives, closed or not."""
        self.check_range(position, size)
        return memoryview(self.mapping)[position:position + size]

    def read(self, int64_t position, int64_t size):
        """A copy."""
        self.check_range(position, size)
        cdef bytes copy = PyBytes_FromStringAndSize(NULL, size)
        cdef MappedFile other
        if not copied(PyBytes_AS_STRING(copy), self.base + position, <size_t>size):
            other = self.without_holes()
            if other is None or not copied(
                PyBytes_AS_STRING(copy), other.base + position, <size_t>size
            ):
                raise_unread(self.path, f"{size} bytes at {position}")
        return copy

    def write(self, int64_t position, data):
        """Stores into the mapping; on disk after `sync`."""
        cdef Py_buffer source
        self.check_writable()
        PyObject_GetBuffer(data, &source, PyBUF_SIMPLE)
        try:
            self.check_range(position, source.len)
            if not copied(self.base + position, source.buf, <size_t>source.len):
                raise_unwritten(self.path)
        finally:
            PyBuffer_Release(&source)

    def zero(self, int64_t position, int64_t size):
        self.check_writable()
        self.check_range(position, size)
        cdef bint whole
        with nogil:
            whole = guarded_zero(self.base + position, <size_t>size)
        if not whole:
            raise_unwritten(self.path)

    def find_data(self, int64_t position, int64_t end, *, bint unwritten=False):
        """Position of the first byte in [position, end) that is not zero, `end` when there is none.
        `unwritten`: nobody wrote through this mapping, so a private one has the holes of its file."""
        self.check_range(position, end - position)
        cdef int fd = -1
        cdef int64_t found
        if self.shared or (unwritten and self.path):  # else it may hold what its file does not
            try:
                fd = self.open_descriptor()
            except OSError:
                pass  # its holes are read like everything else
        with nogil:
            found = self.find(fd, position, end)
            if fd >= 0:
                sys.close(fd)
        if found < 0:
            raise_unread(self.path, f"a page of [{position}, {end})")
        return found

    cdef int64_t find(self, int fd, int64_t position, int64_t end) noexcept nogil:
        """`fd` may be -1: then holes are read like everything else. -1: a page cannot be read."""
        cdef data_range range_, following
        cdef int64_t found
        range_ = next_data(fd, position, end)
        while range_.begin < end:
            # Asked before the range is read: what the kernel reads ahead then counts as data, although
            # nobody ever wrote it, and that would go on up to the end of the file.
            following = next_data(fd, range_.end, end)
            found = find_nonzero(self.base + range_.begin, range_.end - range_.begin)
            if found < range_.end - range_.begin:
                return found if found < 0 else range_.begin + found
            range_ = following
        return end

    cdef MappedFile without_holes(self):
        """The bytes of the file as they are now, its holes as memory of our own: where a page could not be had
        since a tmpfs is full, this can be read. None where that cannot be tried, or was, or the file was cut."""
        cdef file_stat found
        cdef int fd
        if not self.shared:
            return None
        try:
            fd = self.open_descriptor()
        except OSError:
            return None
        try:
            if sys.fstat(fd, &found) != 0 or found.st_size < self.size:
                return None
            mapping = map_memory(fd, self.path, self.size, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_NORESERVE)
            cover_holes(mapping.base, fd, self.size, PROT_READ | PROT_WRITE)
            return describe(mapping, -1, self.path, self.start_offset, True, False)
        except OSError:
            return None
        finally:
            sys.close(fd)

    # ---- memory and disk ----

    cdef int check_shared(self) except -1:
        if not self.shared:
            raise io.UnsupportedOperation("private memory has no file to go to")
        return 0

    def sync(self, int64_t from_position, int64_t to_position):
        """On disk when this returns. Any error is final for the file: the kernel may have dropped the
        pages, so that a second sync would say OK (K-01); the caller must not try again."""
        self.check_writable()
        self.check_shared()
        self.check_range(from_position, to_position - from_position)
        cdef int64_t low = from_position & -page_size
        cdef int64_t result = 0 if to_position == from_position else -EINTR
        while not done(result, self.path):  # EINTR says nothing about the pages: they are still dirty
            with nogil:
                result = outcome(sys.msync(self.base + low, <size_t>(to_position - low), MS_SYNC))

    def lock_memory(self, *, bint on_fault=False):
        """Whether the memory is locked now; refused beyond RLIMIT_MEMLOCK, which is no error (D-39).
        `on_fault`: each page when it is first used, instead of making all of them present."""
        self.check_range(0, 0)
        cdef int result
        with nogil:
            if on_fault:
                result = sys.mlock2(self.base, <size_t>self.size, MLOCK_ONFAULT)
            else:
                result = sys.mlock(self.base, <size_t>self.size)
        self.mapping.locked = result == 0
        return result == 0

    def unlock_memory(self):
        self.check_range(0, 0)
        with nogil:
            sys.munlock(self.base, <size_t>self.size)
        self.mapping.locked = False

    def advise(self, str kind):
        """Advises the kernel how the memory will be used. Whether it took the advice."""
        if kind not in ADVICE:
            raise ValueError(f"kind = {kind!r}: one of {', '.join(ADVICE)}")
        self.check_range(0, 0)
        cdef int advice = ADVICE[kind]
        cdef int result
        if advice == MADV_DONTNEED:
            self.check_shared()  # it would drop the only copy
        with nogil:
            result = sys.madvise(self.base, <size_t>self.size, advice)
        return result == 0

    def populate(self, int64_t from_position, int64_t to_position):
        """Makes the pages present and writable without changing a byte; another thread may write there.
        OSError when there is no room for them."""
        self.check_writable()
        self.check_range(from_position, to_position - from_position)
        cdef int64_t low = from_position & -page_size
        cdef size_t count = <size_t>(to_position - low)
        cdef int64_t result = -EINTR
        if to_position == from_position:
            return
        while result == -EINTR or result == -EAGAIN:
            with nogil:
                result = populate_pages(self.base + low, count)
            if result == -EINTR:
                done(result)
        done(result, self.path)

    # ---- descriptor ----

    cdef MappedFile identify(self, const file_stat *found):
        self.device = <uint64_t>found.st_dev
        self.inode = <uint64_t>found.st_ino
        return self

    def open_descriptor(self):
        """A new descriptor of the file, which the caller closes.

        OSError: it cannot be opened again, or another file has its name by now (ESTALE).
        """
        cdef int fd
        cdef file_stat found
        with cython.critical_section(self):  # else `close` could give the number to another file
            fd = sys.duplicate(self.fd)
        if fd >= 0:
            return fd
        fd = system.open(self.path, O_RDWR if self.writable and self.shared else O_RDONLY)
        if sys.fstat(fd, &found) == 0:
            if found.st_ino == self.inode and found.st_dev == self.device:
                return fd
        system.close(fd)
        raise OSError(ESTALE, "another file has the name by now", self.path)

    def keep_descriptor(self):
        """From here on the file has a descriptor of its own again."""
        cdef int fd
        if self.fd < 0:
            fd = self.open_descriptor()
            with cython.critical_section(self):
                if self.fd < 0:
                    self.fd, fd = fd, -1
            if fd >= 0:
                system.close(fd)  # another thread was here meanwhile, and its one may be in use

    # ---- end ----

    def close_descriptor(self):
        """Gives the descriptor back and keeps the mapping: enough for a file that is only read or synced.
        A store may have more files than a process may have descriptors."""
        cdef int fd
        with cython.critical_section(self):
            fd = self.fd
            self.fd = -1
        if fd >= 0:
            system.close(fd)

    def close(self):
        """The descriptor goes now, the memory when the last view, message or reader lets go."""
        self.closed = True
        self.close_descriptor()

    def __dealloc__(self):
        if self.fd >= 0:
            sys.close(self.fd)
