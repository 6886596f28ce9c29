"""Mapped memory, counted: it stays mapped while anybody holds it, and not longer."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from libc.errno cimport EINTR, ENOMEM
from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.os.sigbus_guard cimport own_signal
from rocketstore._native.os.syscalls cimport done, outcome, sys

from rocketstore.values.limits import mappings_allowed

cdef extern from *:
    """
    static int64_t rs_mapped_files, rs_mapped_bytes;
    #define rs_count(counter, change) ((void)__atomic_add_fetch(&counter, (change), __ATOMIC_RELAXED))
    #define rs_counted(counter) __atomic_load_n(&counter, __ATOMIC_RELAXED)
    """
    int64_t rs_mapped_files
    int64_t rs_mapped_bytes
    void rs_count(int64_t counter, int64_t change) noexcept nogil
    int64_t rs_counted(int64_t counter) noexcept nogil

cdef enum:
    # Our share of the mappings that Linux allows a process: others want some, too (D-39). RocketMQ's own
    # set-up raises what is allowed, to 655,360.
    SHARE_PERCENT = 30


#: Files of stores that may be mapped in this process at a time.
MAPPED_FILES_MAX = mappings_allowed() * SHARE_PERCENT // 100


@cython.final
@cython.auto_pickle(False)
cdef class Mapping:
    """Mapped memory; exports itself read-only, and each export keeps it mapped (D-36, K-41)."""

    def __getbuffer__(self, Py_buffer *view, int flags):
        self.export(view, flags)

    cdef int export(self, Py_buffer *view, int flags) except -1:
        if flags & PyBUF_WRITABLE:
            raise BufferError("views of the store are read-only")
        view.buf = self.base
        view.obj = self
        view.len = self.size
        view.readonly = 1
        view.itemsize = 1
        view.format = NULL
        if flags & PyBUF_FORMAT:
            view.format = b"B"
        view.ndim = 1
        view.shape = &view.len if flags & PyBUF_ND else NULL
        view.strides = &view.itemsize if (flags & PyBUF_STRIDES) == PyBUF_STRIDES else NULL
        view.suboffsets = NULL
        view.internal = NULL
        return 0

    def __dealloc__(self):
        if self.base is NULL:
            return
        if self.counted:
            rs_count(rs_mapped_files, -1)
            rs_count(rs_mapped_bytes, -self.size)
        with nogil:
            sys.munmap(self.base, <size_t>self.size)


cdef Mapping map_memory(int fd, object path, int64_t size, int protection, int flags):
    cdef Mapping mapping = Mapping.__new__(Mapping)
    cdef void *base = NULL
    cdef int64_t result = -EINTR
    if fd >= 0 and rs_counted(rs_mapped_files) >= <int64_t>MAPPED_FILES_MAX:
        raise OSError(ENOMEM, f"{MAPPED_FILES_MAX} files of stores are mapped already: "
                              f"{SHARE_PERCENT} % of vm.max_map_count, which can be raised", path)
    while not done(result, path):
        with nogil:
            base = sys.mmap(NULL, <size_t>size, protection, flags, fd, 0)
            result = outcome(-1) if base == <void *>-1 else 0
    mapping.base = <uint8_t *>base
    mapping.size = size
    if fd >= 0:
        own_signal()
        mapping.counted = True
        rs_count(rs_mapped_files, 1)
        rs_count(rs_mapped_bytes, size)
    return mapping


def mapped_files():
    """Files that are mapped now, by live views too (S004-09)."""
    return rs_counted(rs_mapped_files)


def mapped_bytes():
    """Bytes of the files that are mapped now (S004-08)."""
    return rs_counted(rs_mapped_bytes)
