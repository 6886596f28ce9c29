# Loops over a range of mapped memory, under guard.

from libc.errno cimport EFAULT, EINVAL
from libc.stdint cimport int64_t, uint8_t

from rocketstore._native.os.sigbus_guard cimport guarded
from rocketstore._native.os.syscalls cimport outcome, page_size, sys

cdef extern from "rs_zeros.h" nogil:
    size_t rs_find_nonzero(const uint8_t *bytes, size_t size)

cdef extern from *:
    """
    #include <sys/mman.h>
    #ifndef MADV_POPULATE_READ
    #define MADV_POPULATE_READ 22
    #endif
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif

    /* Makes each page of [bytes, bytes + size) present and writable without changing it: another thread
     * may be storing to it, so a plain load and store would be wrong. */
    static inline void rs_touch(uint8_t *bytes, size_t size, size_t page)
    {
        for (size_t at = 0; at < size; at += page)
            __atomic_fetch_add((volatile uint8_t *)bytes + at, 0, __ATOMIC_SEQ_CST);
    }
    """
    enum:
        MADV_POPULATE_READ, MADV_POPULATE_WRITE
    void rs_touch(uint8_t *bytes, size_t size, size_t page) noexcept nogil

cdef struct range_call:
    uint8_t *bytes
    size_t size
    size_t page
    size_t found


cdef inline void find_work(void *given) noexcept nogil:
    cdef range_call *call = <range_call *>given
    call.found = rs_find_nonzero(call.bytes, call.size)


cdef inline void touch_work(void *given) noexcept nogil:
    cdef range_call *call = <range_call *>given
    rs_touch(call.bytes, call.size, call.page)


cdef inline int64_t find_nonzero(uint8_t *bytes, int64_t size) noexcept nogil:
    """Position of the first byte that is not zero, `size` without one, -1: a page cannot be read."""
    cdef range_call call
    call.bytes, call.size = bytes, <size_t>size
    return <int64_t>call.found if guarded(find_work, &call) else -1


cdef inline int64_t populate_pages(uint8_t *bytes, size_t size) noexcept nogil:
    """Makes pages present and writable; `bytes` begins one. 0, or the negated errno."""
    cdef range_call call
    cdef int64_t result = outcome(sys.madvise(bytes, size, MADV_POPULATE_WRITE))
    if result != -EINVAL:
        return result
    call.bytes, call.size, call.page = bytes, size, <size_t>page_size  # Linux before 5.14
    return 0 if guarded(touch_work, &call) else -EFAULT


cdef inline void read_page(uint8_t *page) noexcept nogil:
    """Has the kernel read a page, and what it reads ahead with it. No page is dirty of it; an older kernel than
    5.14 reads none."""
    sys.madvise(page, page_size, MADV_POPULATE_READ)
