"""Zeros of the file that the log needs next, without the GIL and with regard for threads that wait for the disk."""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from libc.errno cimport EIO
from libc.stdint cimport int64_t, uint8_t, uint32_t

from rocketstore._native.format.csrc cimport RS_POSITIONS_AT_WROTE, rs_position_load
from rocketstore._native.sync.positions cimport Positions
from rocketstore._native.os.syscalls cimport done, outcome, sys
from rocketstore._native.sync.futex cimport futex_wait, now_ns

cdef enum:
    PIECE = 256 << 10
    REST_NS = 2_000_000  # at most


cdef int64_t write_piece(int fd, const uint8_t *zeros, int64_t *at, int64_t size,
                         int64_t used) noexcept nogil:
    """0, or the negated errno. `used`: bytes of the file before that the log has used."""
    cdef uint32_t never = 0
    cdef int64_t began = now_ns()
    cdef int64_t result = outcome(sys.pwrite(fd, zeros, <size_t>min(size - at[0], PIECE), at[0]))
    if result <= 0:
        return result if result < 0 else -EIO  # neither progress nor a reason
    at[0] += result
    if at[0] <= used:
        return 0
    result = outcome(sys.fdatasync(fd))
    futex_wait(&never, 0, min(2 * (now_ns() - began), REST_NS), False)
    return result


def prewrite(int fd, int64_t size, Positions positions not None, int64_t start_offset):
    """Writes `size` zeros from the beginning of a file that the log has from `start_offset` on.

    While more is done of it than the log has used of the file before, each piece is synced by itself, and the
    disk left to others for twice as long as that took. Else a file of zeros holds up puts that wait for the
    disk (bench/results/development.md, "What a durable put waits for"). OSError as of pwrite and fdatasync; the
    caller syncs the whole.
    """
    cdef int64_t before = start_offset - size
    cdef int64_t at = 0, result
    cdef uint8_t *zeros = <uint8_t *>PyMem_RawCalloc(1, PIECE)
    if zeros is NULL:
        raise MemoryError("no memory for zeros")
    try:
        while at < size:
            with nogil:
                result = 0
                while at < size and result == 0:
                    result = write_piece(
                        fd, zeros, &at, size,
                        rs_position_load(positions.page, RS_POSITIONS_AT_WROTE) - before)
            done(result, fd)  # raises; or was interrupted, and goes on
    finally:
        PyMem_RawFree(zeros)
