"""How far a log has got: a page of 64-bit values, each with one writer, each on its own cache line."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.errno cimport EFAULT, EINVAL, ENOSYS
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

from rocketstore._native.format.csrc cimport (
    RS_POSITIONS_AT_BOOT_ID, RS_POSITIONS_AT_CHANGES, RS_POSITIONS_AT_COMMITTED,
    RS_POSITIONS_AT_DISPATCHED, RS_POSITIONS_AT_FLUSHED, RS_POSITIONS_AT_INDEXED,
    RS_POSITIONS_AT_MAGIC, RS_POSITIONS_AT_MINIMUM, RS_POSITIONS_AT_PID, RS_POSITIONS_AT_RUN_ID,
    RS_POSITIONS_AT_STATE, RS_POSITIONS_AT_VISIBLE, RS_POSITIONS_AT_WROTE, RS_POSITIONS_PAGE_SIZE,
    rs_position_load, rs_position_store,
)
from rocketstore._native.os.sigbus_guard cimport (
    copied, copied_bytes, guarded, raise_unread, raise_unwritten,
)
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.sync.futex cimport Mutex, futex_wait, futex_wake, now_ns

import io

cdef extern from "rs_format.h" nogil:
    uint64_t RS_POSITIONS_MAGIC

cdef extern from *:
    """
    #define rs_load_count(p) __atomic_load_n((const uint32_t *)(const void *)(p), __ATOMIC_ACQUIRE)
    #define rs_add_count(p) ((void)__atomic_add_fetch((uint32_t *)(void *)(p), 1, __ATOMIC_RELEASE))
    """
    uint32_t rs_load_count(const uint8_t *where) noexcept nogil
    void rs_add_count(uint8_t *where) noexcept nogil

MAGIC = RS_POSITIONS_MAGIC
PAGE_SIZE = RS_POSITIONS_PAGE_SIZE

cdef enum:
    ID_SIZE = 16
    # One sleep of `wait_change`; a signal, or a writer that died, is noticed after it.
    SLEEP_NS = 200_000_000
    # The same where the kernel cannot wait on the page.
    POLL_NS = 5_000_000


cdef void position_work(void *given) noexcept nogil:
    cdef position_call *call = <position_call *>given
    if call.what == LOAD:
        call.value = rs_position_load(call.page, call.at)
    elif call.what == STORE:
        rs_position_store(call.page, call.at, call.value)
    elif call.what == FORMAT:
        memset(call.page, 0, RS_POSITIONS_PAGE_SIZE)
        rs_position_store(call.page, RS_POSITIONS_AT_MAGIC, <int64_t>RS_POSITIONS_MAGIC)
    elif call.what == COUNT:
        call.changes = rs_load_count(call.page + RS_POSITIONS_AT_CHANGES)
    else:
        if call.what == PUBLISH:
            publish(call.source, call.page)
        rs_add_count(call.page + RS_POSITIONS_AT_CHANGES)


cdef void publish(const uint8_t *source, uint8_t *page) noexcept nogil:
    """From the hindmost to the foremost, and stored the other way round."""
    cdef size_t[6] order = [
        RS_POSITIONS_AT_INDEXED, RS_POSITIONS_AT_DISPATCHED, RS_POSITIONS_AT_VISIBLE,
        RS_POSITIONS_AT_FLUSHED, RS_POSITIONS_AT_COMMITTED, RS_POSITIONS_AT_WROTE,
    ]
    cdef int64_t[6] values
    cdef int at
    for at in range(6):
        values[at] = rs_position_load(source, order[at])
    for at in range(5, -1, -1):
        rs_position_store(page, order[at], values[at])
    rs_position_store(page, RS_POSITIONS_AT_MINIMUM,
                      rs_position_load(source, RS_POSITIONS_AT_MINIMUM))


@cython.final
@cython.auto_pickle(False)
cdef class Positions:
    """A private page of this process, or one that lies in a mapped file and is shared with others.

    Stores are releases and loads acquires: a thread that sees a position sees the bytes below it.
    """

    def __cinit__(self):
        self.page = NULL
        self.publishing = Mutex()
        self.memory = PyMem_RawMalloc(RS_POSITIONS_PAGE_SIZE + 64)
        if self.memory is NULL:
            raise MemoryError()
        self.page = <uint8_t *>((<uintptr_t>self.memory + 63) & ~<uintptr_t>63)
        self.writable = True
        self.format()

    @staticmethod
    def over(MappedFile file not None):
        """The page at the start of a mapped file, which it keeps mapped."""
        file.check_range(0, RS_POSITIONS_PAGE_SIZE)
        cdef Positions positions = Positions.__new__(Positions)
        PyMem_RawFree(positions.memory)
        positions.memory = NULL
        positions.page = file.base
        positions.writable = file.writable
        positions.file = file
        return positions

    def __dealloc__(self):
        PyMem_RawFree(self.memory)

    cdef int check_writable(self) except -1:
        if not self.writable:
            raise io.UnsupportedOperation("this page of positions is open for reading only")
        if self.file is not None:
            self.file.check_writable()
        return 0

    cdef int64_t load(self, size_t at) except? -1:
        """One position. Of a page that other processes map, under guard: they may cut its file."""
        cdef position_call call
        if self.file is None:
            return rs_position_load(self.page, at)
        call.what, call.page, call.at = LOAD, self.page, at
        if not guarded(position_work, &call):
            raise_unread(self.file.path, "the page of positions")
        return call.value

    cdef int store(self, position_call *call) except -1:
        self.check_writable()
        call.page = self.page
        if not guarded(position_work, call):
            raise_unwritten(self.file.path if self.file is not None else None)
        return 0

    cdef int set(self, size_t at, int64_t value) except -1:
        cdef position_call call
        call.what, call.at, call.value = STORE, at, value
        return self.store(&call)

    @property
    def magic(self):
        """MAGIC once the page was formatted."""
        return <uint64_t>self.load(RS_POSITIONS_AT_MAGIC)

    def format(self):
        """Zeroes everything, then says that this is a page of positions."""
        cdef position_call call
        call.what = FORMAT
        self.store(&call)

    @property
    def wrote(self):
        """End of what was appended. Writer: the append path, under its lock."""
        return self.load(RS_POSITIONS_AT_WROTE)

    @wrote.setter
    def wrote(self, int64_t value):
        self.set(RS_POSITIONS_AT_WROTE, value)

    @property
    def committed(self):
        """End of what is in the files' pages. Writer: the append path or, with a buffer, the flusher."""
        return self.load(RS_POSITIONS_AT_COMMITTED)

    @committed.setter
    def committed(self, int64_t value):
        self.set(RS_POSITIONS_AT_COMMITTED, value)

    @property
    def flushed(self):
        """End of what is on disk. Writer: the flusher."""
        return self.load(RS_POSITIONS_AT_FLUSHED)

    @flushed.setter
    def flushed(self, int64_t value):
        self.set(RS_POSITIONS_AT_FLUSHED, value)

    @property
    def visible(self):
        """End of what readers are shown. Writer: the thread that moves the position that it follows."""
        return self.load(RS_POSITIONS_AT_VISIBLE)

    @visible.setter
    def visible(self, int64_t value):
        self.set(RS_POSITIONS_AT_VISIBLE, value)

    @property
    def dispatched(self):
        """End of what has its queue units. Writer: the dispatcher."""
        return self.load(RS_POSITIONS_AT_DISPATCHED)

    @dispatched.setter
    def dispatched(self, int64_t value):
        self.set(RS_POSITIONS_AT_DISPATCHED, value)

    @property
    def indexed(self):
        """End of what has its index entries. Writer: the dispatcher."""
        return self.load(RS_POSITIONS_AT_INDEXED)

    @indexed.setter
    def indexed(self, int64_t value):
        self.set(RS_POSITIONS_AT_INDEXED, value)

    @property
    def minimum(self):
        """Start of the log. Writer: retention."""
        return self.load(RS_POSITIONS_AT_MINIMUM)

    @minimum.setter
    def minimum(self, int64_t value):
        self.set(RS_POSITIONS_AT_MINIMUM, value)

    @property
    def state(self):
        """0 nobody writes, 1 recovering, 2 live (`rocketstore.log.layout.positions_page.State`)."""
        return self.load(RS_POSITIONS_AT_STATE)

    @state.setter
    def state(self, int64_t value):
        self.set(RS_POSITIONS_AT_STATE, value)

    @property
    def pid(self):
        """Process of the writer, for messages only (D-30)."""
        return self.load(RS_POSITIONS_AT_PID)

    @pid.setter
    def pid(self, int64_t value):
        self.set(RS_POSITIONS_AT_PID, value)

    @property
    def run_id(self):
        """16 random bytes of the writer's open; a reader that sees new ones looks at everything again."""
        return self.id_at(RS_POSITIONS_AT_RUN_ID)

    @run_id.setter
    def run_id(self, bytes value not None):
        self.set_id(RS_POSITIONS_AT_RUN_ID, value)

    @property
    def boot_id(self):
        """16 bytes: the boot in which the page was written."""
        return self.id_at(RS_POSITIONS_AT_BOOT_ID)

    @boot_id.setter
    def boot_id(self, bytes value not None):
        self.set_id(RS_POSITIONS_AT_BOOT_ID, value)

    cdef int set_id(self, size_t at, bytes value) except -1:
        if len(value) != ID_SIZE:
            raise ValueError(f"an id has {ID_SIZE} bytes, not {len(value)}")
        self.check_writable()
        if not copied(self.page + at, <const char *>value, ID_SIZE):
            raise_unwritten(self.file.path)
        return 0

    cdef bytes id_at(self, size_t at):
        return copied_bytes(self.page + at, ID_SIZE, "the page of positions")

    @property
    def changes(self):
        """Counts publications, modulo 2^32."""
        return self.count_changes()

    cdef uint32_t count_changes(self) except? 0:
        cdef position_call call
        call.what, call.page = COUNT, self.page
        if not guarded(position_work, &call):
            raise_unread(self.file.path if self.file is not None else None, "the page of positions")
        return call.changes

    def publish_to(self, Positions shared not None):
        """Copies the positions to the page that other processes map, and wakes them.

        Loaded from the hindmost to the foremost and stored the other way round: a reader that loads
        `indexed` or `dispatched` first and `wrote` last always sees dispatched <= visible <= committed
        <= wrote, whatever moves meanwhile.
        """
        shared.check_writable()
        # It waits for nothing, so the GIL stays: to get it again from a thread that puts takes 5 ms.
        if not self.publish_c(shared):
            raise_unwritten(shared.file.path if shared.file is not None else None)

    cdef bint publish_c(self, Positions shared) noexcept nogil:
        cdef position_call call
        cdef bint done
        call.what, call.source, call.page = PUBLISH, self.page, shared.page
        shared.publishing.lock()  # several threads publish: an older copy must not come last
        done = guarded(position_work, &call)
        shared.publishing.unlock()
        if done:
            shared.wake()
        return done

    cdef void wake(self) noexcept nogil:
        futex_wake(<uint32_t *>(self.page + RS_POSITIONS_AT_CHANGES), INT32_MAX, True)

    def notify(self):
        """Counts a change and wakes the threads that wait for one, in any process."""
        cdef position_call call
        call.what = ANNOUNCE
        self.store(&call)
        self.wake()

    def wait_change(self, uint32_t seen, int64_t timeout_ms):
        """`changes` once it is no longer `seen`, or `seen` after the time. Signals are served.

        A writer that dies wakes nobody, so the time is not optional.
        """
        cdef uint32_t *word = <uint32_t *>(self.page + RS_POSITIONS_AT_CHANGES)
        cdef int64_t deadline = now_ns() + max(0, min(timeout_ms, 1 << 40)) * 1_000_000
        cdef int64_t left, result
        cdef uint32_t never = 0, now
        cdef bint polling = False
        while True:
            now = self.count_changes()
            if now != seen:
                return now
            left = deadline - now_ns()
            if left <= 0:
                return seen
            with nogil:
                if polling:
                    futex_wait(&never, 0, min(left, POLL_NS), False)
                else:
                    result = futex_wait(word, seen, min(left, SLEEP_NS), True)
                    # A page that may only be read, or a kernel without futexes on such memory.
                    polling = result in (-EFAULT, -EINVAL, -ENOSYS)
            PyErr_CheckSignals()
