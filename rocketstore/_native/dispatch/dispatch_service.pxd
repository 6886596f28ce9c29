from libc.stdint cimport int64_t, uint32_t

from rocketstore._native.dispatch.dispatch_loop cimport DispatchLoop, walk_call
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.sync.positions cimport Positions
from rocketstore._native.sync.signal_safe_lock cimport SignalSafeLock
from rocketstore._native.sync.futex cimport EventCount

cdef class DispatchService:
    cdef DispatchLoop loop
    cdef readonly Positions positions
    cdef Positions shared
    cdef EventCount arrival
    cdef MappedFile segment
    cdef readonly SignalSafeLock turn
    cdef int paused_now
    cdef int indexing
    cdef uint32_t never

    cdef bint round(self) noexcept nogil
    cdef bint caught_up(self, int64_t most=*) noexcept nogil
    cdef void take_up(self, MappedFile segment, Positions shared) noexcept
    cdef bint publish(self, int64_t offset) noexcept nogil
    cdef void serve_c(self, EventCount signal, int64_t limit_ns, bint indexing) noexcept nogil
