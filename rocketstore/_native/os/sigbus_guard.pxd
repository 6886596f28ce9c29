# SIGBUS in our own loops over mapped files as a result (D-34). Users cimport these; the handler and what
# it keeps exist once, in sigbus_guard.pyx.

ctypedef void (*guarded_work)(void *given) noexcept nogil

# Runs work(given). False: a page could not be had and work was left where it stood, so it takes no lock,
# owns no memory and touches no Python object.
cdef bint guarded(guarded_work work, void *given) noexcept nogil

# memcpy, either side of which may be a mapping; and memset.
cdef bint guarded_copy(void *to, const void *from_, size_t size) noexcept nogil
cdef bint guarded_zero(void *to, size_t size) noexcept nogil
# The same copy for callers with the GIL, which a long one gives up.
cdef bint copied(void *to, const void *from_, size_t size) noexcept

# Where the last guard of this thread that returned False was stopped.
cdef const void *fault_address() noexcept nogil

# Takes the signal unless it is ours already: whenever a file is mapped.
cdef void own_signal() noexcept nogil

# A copy; ReadFailedError with `what` where the bytes cannot be read.
cdef bytes copied_bytes(const void *from_, size_t size, object what)

# What False means to a caller: bytes that are not there, or a store that cannot be trusted any more.
cdef int raise_unread(object path, object what) except -1
cdef int raise_unwritten(object path) except -1

# Memory that a caller gave cannot be read, and nothing was stored: MessageRejectedError.
cdef int raise_no_body() except -1

# The same, unless the memory of `data` can be read: for what is read without a guard. Only of what has a buffer.
cpdef int check_readable(object data) except -1
