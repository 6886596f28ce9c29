"""How far several machines have the log on their disks, and the puts that wait for that.

The log knows no peer. The master's service sends it to other machines, and says here how far they are.
"""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport INT64_MAX, int64_t, uint64_t

from rocketstore._native.append.put_result cimport (
    DISK, PutResult, durability_level, durability_name,
)
from rocketstore._native.os.syscalls cimport check_forked
from rocketstore._native.format.csrc_atomic cimport (
    rs_load_int, rs_load_int64, rs_store_int64, rs_store_max,
)
from rocketstore._native.sync.futex cimport now_ns
from rocketstore._native.sync.wait_queue cimport WaitQueue, waiter

from rocketstore.errors import (
    ConfigError, DurabilityTimeoutError, ReplicasUnavailableError, ReplicaTimeoutError,
)
from rocketstore.values.kept_errors import without_frames


@cython.final
@cython.auto_pickle(False)
cdef class Copies:
    """What a log with replicas has more than one without. `timeout_ms` bounds the wait of a put, and
    `max_lag_bytes` how far a machine that is worth one may lag."""

    def __cinit__(self):
        cdef int copies
        self.lines = [WaitQueue() for _ in range(COPIES_MAX + 1)]
        for copies in range(COPIES_MAX + 1):
            self.near[copies] = NOT_NEAR

    def confirm(self, int copies, int64_t offset, int64_t begin=0):
        """`copies` machines that are connected, this one included, have everything in [begin, offset) on disk;
        offset -1: there are fewer. What was confirmed once stays so."""
        cdef int64_t before
        cdef WaitQueue line
        if not 2 <= copies <= COPIES_MAX:
            raise ValueError(f"copies = {copies}: 2 … {COPIES_MAX}")
        rs_store_int64(&self.near[copies], offset)
        before = rs_load_int64(&self.confirmed[copies])
        if offset <= before:
            return
        if begin > before:  # a put that waits may be in between
            if not self.lacked_to[copies]:
                rs_store_int64(&self.lacked_from[copies], before)
            rs_store_int64(&self.lacked_to[copies], begin)
        line = self.lines[copies]
        with nogil:
            rs_store_max(&self.confirmed[copies], offset)
            line.release(offset)

    def end(self, error not None):
        """No put is confirmed from here on: those that wait, and later ones, raise the first `error` given."""
        if self.error is None:
            self.error = without_frames(error)

    def confirmed_offset(self, int copies):
        """Below it `copies` machines had everything on disk."""
        if not 2 <= copies <= COPIES_MAX:
            raise ValueError(f"copies = {copies}: 2 … {COPIES_MAX}")
        return rs_load_int64(&self.confirmed[copies])

    def met(self, int64_t end_offset, int level):
        """Whether the machines of a level have everything below an offset."""
        return self.reached(machines(self, level), end_offset)

    cdef bint reached(self, int copies, int64_t end_offset) noexcept nogil:
        if rs_load_int64(&self.confirmed[copies]) < end_offset:
            return False
        return (end_offset > rs_load_int64(&self.lacked_to[copies])
                or end_offset <= rs_load_int64(&self.lacked_from[copies]))

    cdef bint worth_a_wait(self, int copies, int64_t end_offset) noexcept nogil:
        cdef int64_t near = rs_load_int64(&self.near[copies])
        return near >= 0 and end_offset - near < self.max_lag_bytes

    cdef int check(self) except -1:
        if self.error is not None:
            raise without_frames(self.error)
        return 0

    cdef void stand(self, WaitQueue line, int copies, int64_t end_offset, int64_t deadline,
                    const int *stirred, int stirs) noexcept nogil:
        cdef waiter place
        cdef int64_t left
        line.goes_on(False)
        line.join(&place, end_offset)
        left = deadline - now_ns()
        if left > 0 and not self.reached(copies, end_offset) and rs_load_int(stirred) == stirs:
            line.sleep(&place, left)
        line.leave(&place)
        line.let_pass()

    cdef int wait(self, object owner, uint64_t token, const int *stirred, int64_t end_offset,
                  int copies, int64_t timeout_ms, PutResult result) except -1:
        cdef int stirs
        cdef WaitQueue line = self.lines[copies]
        cdef int64_t deadline = now_ns() + timeout_ms * 1_000_000
        if self.reached(copies, end_offset):
            return 0
        self.check()
        if not self.worth_a_wait(copies, end_offset):
            raise self.shortfall(result, copies, TOO_FEW, 0, end_offset)
        while True:
            stirs = rs_load_int(stirred)
            check_forked(token)
            self.check()
            owner.check_waitable()
            with nogil:
                self.stand(line, copies, end_offset, deadline, stirred, stirs)
            line.goes_on(True)
            PyErr_CheckSignals()
            if self.reached(copies, end_offset):
                return 0
            if now_ns() >= deadline:
                raise self.shortfall(result, copies, LATE, timeout_ms, end_offset)

    cdef void stir(self):
        cdef WaitQueue line
        for line in self.lines:
            line.release(INT64_MAX)

    cdef str counted(self, int64_t end_offset):
        """How many replicas are near, and how many are connected, of as many as a promise can name."""
        cdef int copies, near = 0, connected = 0
        for copies in range(2, COPIES_MAX + 1):
            near += self.worth_a_wait(copies, end_offset)
            connected += rs_load_int64(&self.near[copies]) != NOT_NEAR
        return f"{near} of {connected} that are connected"

    cdef object shortfall(self, PutResult result, int copies, Shortfall why, int64_t waited_ms,
                          int64_t end_offset):
        """The error of a put whose promise is not met."""
        cdef str where = "on the disk of this machine"
        if result is not None:
            where = f"stored at physical offset {result.physical_offset}, {where}"
        if why == TOO_FEW:
            return ReplicasUnavailableError(
                f"{where}; replicas({copies}) needs {copies - 1} connected replicas that are less "
                f"than max_lag_bytes = {self.max_lag_bytes} behind, and has "
                f"{self.counted(end_offset)}: connect one, or promise less; "
                "do not put it again", result)
        return ReplicaTimeoutError(
            f"{where}; {copies - 1} replicas did not say within {waited_ms} ms that they have it, "
            "too: it may come to them later; do not put it again", result)


cdef object not_on_disk(int64_t end_offset, int64_t waited_ms, PutResult result):
    what = "flushed" if result is None else f"stored at physical offset {result.physical_offset}"
    return DurabilityTimeoutError(
        f"{what}, but not known to be on disk after {waited_ms} ms; wait again with "
        f"store.wait_flushed({end_offset}), do not put it again", result)


cdef int check_level(Copies copies, int level) except -1:
    if level > DISK and copies is None:
        raise ConfigError("durability", durability_name(level),
                          "needs replicas; open the store with replication=Master(…)")
    return level


cdef int machines(Copies copies, int level) except -1:
    if not 2 <= copies_of(level) <= COPIES_MAX:
        raise ValueError(f"level = {level}: {DISK + 1} … {COPIES_MAX + 1}")
    return copies_of(check_level(copies, level))


cdef WaitQueue line_of(Copies copies, int level):
    cdef int named = machines(copies, level)
    return copies.lines[named]


def check_promise(Copies copies, str durability not None):
    """Raises ConfigError for a promise of other machines in a log without replicas, whose `copies` are None."""
    check_level(copies, durability_level(durability))
