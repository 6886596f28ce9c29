from libc.stdint cimport int64_t, uint8_t, uint32_t

from rocketstore._native.format.csrc_peer cimport rs_answer
from rocketstore._native.sync.futex cimport Mutex

cdef enum:
    # What became of a request; the last one: of sending it, not as a whole, so that the host does not do it.
    UNANSWERED = 0
    ANSWERED = 1
    BROKEN = 2  # no answer will come
    CALLED = 3  # to read for all
    UNSENT = 4

# A request whose answer is not there yet, on the stack of the thread that asked.
cdef struct pending:
    uint32_t number
    uint32_t state  # a futex word
    uint32_t asked  # messages
    rs_answer answer
    uint8_t *tail  # what came after the answer, in memory of its own
    pending *next


cdef class Line:
    cdef object sock
    cdef int fd
    cdef int users  # threads that may use `fd`; changes with the GIL
    cdef int broken
    cdef bint led  # a thread reads for all
    cdef Mutex sending
    cdef Mutex table
    cdef pending *first
    cdef uint32_t last_number
    cdef uint8_t *buffer
    cdef size_t room
    cdef size_t used
    cdef int64_t idle_ns  # how long the spin was in vain lately

    cdef int send(self, pending *me, uint8_t *request, size_t size,
                  int64_t deadline) noexcept nogil
    cdef int wait(self, pending *me, int64_t deadline) noexcept nogil
    cdef void lead(self, pending *me, int64_t until) noexcept nogil
    cdef bint take_answers(self) noexcept nogil
    cdef void forget(self, pending *me) noexcept nogil
    cdef void unlink(self, pending *me) noexcept nogil
    cdef void fail(self) noexcept nogil
    cdef int settle(self) except -1


# Memory for `wanted` pieces of a size; False without it.
cdef bint reserve(void **memory, size_t *room, size_t wanted, size_t size) noexcept nogil

# Polls `receive` for a moment, then sleeps in it: bytes, 0 at the end, or minus an errno. `idle_ns` is how long the
# polls were in vain lately: a thread that waits longer sleeps at once.
cdef int64_t receive_awake(int fd, uint8_t *to, size_t room, int64_t *idle_ns) noexcept nogil
