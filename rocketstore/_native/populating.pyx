"""Pages ahead of a writer that is fast, made ready without the GIL: it holds that while it puts."""

from libc.errno cimport EAGAIN
from libc.stdint cimport int64_t

from rocketstore._native.core cimport RS_POSITIONS_AT_WROTE, rs_position_load
from rocketstore._native.mapped_file cimport MappedFile
from rocketstore._native.mapped_range cimport populate_pages
from rocketstore._native.positions cimport Positions
from rocketstore._native.syscalls cimport done

cdef enum:
    STEP = 2 << 20  # a large page


def populate_ahead(MappedFile file not None, Positions positions not None, int64_t populated,
                   int64_t window_bytes):
    """Follows the writer of `file` until pages are ready `window_bytes` ahead of it, or up to the end.

    From `populated` on, in large pages; where the writer is beyond that, from the next page behind it: what
    it stands in, it makes ready itself. The new physical offset up to which pages are ready. OSError when
    there is no room for them.
    """
    file.check_writable()
    file.check_range(populated - file.start_offset, 0)
    cdef int64_t low = populated - file.start_offset
    cdef int64_t wrote, high
    cdef int64_t result = 0
    while True:
        with nogil:
            while result == 0:
                wrote = rs_position_load(positions.page, RS_POSITIONS_AT_WROTE) - file.start_offset
                if low <= wrote:
                    low = (wrote + STEP) & -STEP
                if low >= min(wrote + window_bytes, file.size):
                    break
                high = min((low + STEP) & -STEP, file.size)
                result = populate_pages(file.base + low, <size_t>(high - low))
                if result == 0:
                    low = high
        if result == 0:
            return file.start_offset + min(low, file.size)
        if result == -EAGAIN or not done(result, file.path):
            result = 0  # nothing is known about the pages: once more
