"""Whether a message with a unique id may be there, without Python where none is."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rocketstore._native.dispatch.dispatch_service cimport DispatchService
from rocketstore._native.format.csrc cimport (
    RS_POSITIONS_AT_INDEXED, RS_POSITIONS_AT_VISIBLE, rs_index_key_hash, rs_index_may_have,
    rs_position_load, rs_span,
)
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.os.sigbus_guard cimport guarded
from rocketstore._native.os.syscalls cimport check_forked, process_token
from rocketstore._native.sync.futex cimport Mutex, now_ns
from rocketstore._native.sync.signal_safe_lock cimport SignalSafeLock

from collections import deque

from rocketstore.errors import ConfigError, MessageRejectedError
from rocketstore.values.arguments import text

cdef enum:
    TOPICS = 3          # in which a message with an id may be: its own, and those of delays
    CHAIN_MOST = 16     # entries of a chain that are looked at here
    RECENT_MOST = 1000  # results that wait for the dispatcher's thread

cdef struct look_call:
    const uint8_t *base
    uint32_t slots
    uint32_t entries
    uint32_t[TOPICS] hashes
    bint perhaps

cdef class UniqueClaims


cdef void look_work(void *given) noexcept nogil:
    cdef look_call *call = <look_call *>given
    for i in range(TOPICS):
        call.perhaps |= rs_index_may_have(call.base, call.slots, call.entries, call.hashes[i],
                                          CHAIN_MOST)


@cython.final
@cython.auto_pickle(False)
@cython.no_gc  # else the collector could clear what it gives back
cdef class Turn:
    """For `with`: one thread at a time has an id, from the look for it to its place in the log."""

    cdef UniqueClaims claims
    cdef tuple claim
    cdef SignalSafeLock lock

    def __cinit__(self, UniqueClaims claims not None, tuple claim not None):
        self.claims, self.claim = claims, claim

    def __enter__(self):
        cdef SignalSafeLock lock = SignalSafeLock("a unique id", self.claims.max_wait_ms)
        cdef int64_t until = 0
        lock.take(False)
        while self.claims.turns_taken.setdefault(self.claim, lock) is not lock:
            until = until or now_ns() + 1_000_000 * self.claims.max_wait_ms
            self.claims._await_turn(self.claim, until)
        self.lock = lock  # no code of Python runs between the two

    def __exit__(self, kind, error, trace):
        self.leave()

    def __dealloc__(self):
        self.leave()

    cdef void leave(self) noexcept:
        cdef SignalSafeLock lock = self.lock
        if lock is not None:
            self.lock = None
            del self.claims.turns_taken[self.claim]
            lock.give()


@cython.auto_pickle(False)
cdef class UniqueClaims:
    """The ids of puts of one store that are under way, or that the index may lack yet."""

    cdef DispatchService service
    cdef object index
    cdef tuple waiting_in
    cdef uint64_t token
    cdef readonly int64_t max_wait_ms
    # Ids whose put is under way, each with the lock that the thread has.
    cdef readonly dict turns_taken
    # The results of messages that the index may lack yet, and their ids about in the order of the log.
    cdef readonly dict recent
    cdef readonly object order
    # Ids whose append was interrupted: nobody knows whether the log has the message.
    cdef readonly set unsure
    # Of what follows: a range of the log whose messages are all among the results, or were.
    cdef Mutex mutex
    cdef int64_t known_from
    cdef int64_t known_to

    def __init__(self, DispatchService service not None, object index, tuple waiting_in not None,
                 int64_t max_wait_ms):
        """`index`: None: the store has none. `waiting_in`: the two topics of messages that wait. `max_wait_ms`:
        how long a put waits for that of another thread with its id."""
        self.service, self.index, self.waiting_in = service, index, waiting_in
        self.mutex = Mutex()
        self.max_wait_ms, self.token = max(max_wait_ms, 1), process_token()
        self.turns_taken, self.recent, self.order, self.unsure = {}, {}, deque(), set()

    cpdef tuple claim(self, object topic, object unique_id):
        """Checks an id, before anything waits for it."""
        if self.index is None:
            raise ConfigError("index_enabled", False, "unique_id needs the index")
        if type(unique_id) is not str:
            unique_id = text("unique_id", unique_id)
        if not unique_id:
            raise MessageRejectedError("unique_id = '': give an id, or None")
        check_forked(self.token)  # before the lock, which a forked child may never get
        return topic, unique_id

    @cython.nonecheck(True)
    cpdef object first(self, tuple claim):
        """The result of the message that is there with this id."""
        cdef const uint8_t *page = self.service.positions.page
        cdef int64_t indexed = rs_position_load(page, RS_POSITIONS_AT_INDEXED)
        cdef int64_t visible = rs_position_load(page, RS_POSITIONS_AT_VISIBLE)
        cdef bint known
        self.mutex.lock()
        try:
            while self.order:
                result = self.recent.get(self.order[0])
                if result is not None and result.end_offset > indexed:
                    break
                self.recent.pop(self.order.popleft(), None)
            known = (self.known_from <= indexed and visible <= self.known_to
                     and len(self.order) < RECENT_MOST)
        finally:
            self.mutex.unlock()
        if (claim in self.recent or claim in self.unsure or not (known or self.service.caught_up())
                or self.may_have(claim) or self.index.short is not None):
            return self._look(claim)
        return None

    @cython.nonecheck(True)
    cpdef bint may_have(self, tuple claim) except -1:
        """Whether the index may have an entry for the id in its topic, or for one that waits."""
        cdef look_call call
        cdef tuple files
        cdef bytes topic, unique_id = claim[1].encode("utf-8", "surrogateescape")
        cdef rs_span key = rs_span(<const uint8_t *>unique_id, <size_t>len(unique_id))
        cdef bint whole = True
        cdef MappedFile file
        topics = (claim[0].encode("utf-8", "surrogateescape"), *self.waiting_in)
        for i, topic in enumerate(topics):
            call.hashes[i] = rs_index_key_hash(
                rs_span(<const uint8_t *>topic, <size_t>len(topic)), key)
        call.perhaps = False
        files = self.index.files
        for segment in files:
            file, (call.slots, call.entries) = segment.file, segment.shape
            call.base = file.base
            if len(files) == 1:
                whole = guarded(look_work, &call)
            else:  # some may not be in memory
                with nogil:
                    whole = guarded(look_work, &call)
            if not whole or call.perhaps:
                return True
        return False

    @cython.nonecheck(True)
    cpdef note(self, tuple claim, object result):
        """The message is in the log."""
        cdef int64_t begin = result.physical_offset, end = result.end_offset
        self.recent[claim] = result
        self.order.append(claim)
        self.mutex.lock()
        self.known_from = self.known_from if begin == self.known_to else begin
        self.known_to = end
        self.mutex.unlock()
