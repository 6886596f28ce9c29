"""What a put gives back, and the promises a put can have met."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.number cimport PyIndex_Check, PyNumber_Index
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from rocketstore._native.format.csrc cimport rs_appended, rs_host, rs_message_id_encode, rs_span

from rocketstore.values.timestamps import moment_of

cdef extern from *:
    """
    #define rs_name(type, name) (((PyTypeObject *)(type))->tp_name = (name))
    """
    void rs_name(object type, const char *name)

cdef tuple DURABILITIES = ("memory", "os", "disk", *[f"replicas({n})" for n in range(2, 10)])


cpdef str durability_name(int level):
    if not 0 <= level < len(DURABILITIES):
        raise ValueError(f"level = {level}: 0 … {len(DURABILITIES) - 1}")
    return DURABILITIES[level]


cpdef int durability_level(object name) except -1:
    for level in range(DISK + 1):
        if name == DURABILITIES[level]:
            return level
    if name in DURABILITIES:
        return DURABILITIES.index(name)
    if name == "replicas":
        return DISK + 1
    raise ValueError(
        f"durability = {name!r}: one of 'memory', 'os', 'disk', 'replicas(2)' … 'replicas(9)'")


cdef int64_t number_of(str name, object value, int64_t low, int64_t high) except? -1:
    """A whole number between the bounds, both included. Raises TypeError, ValueError."""
    if not PyIndex_Check(value):
        raise TypeError(f"{name} = {value!r}: expected a whole number")
    number = PyNumber_Index(value)
    if not low <= number <= high:
        raise ValueError(f"{name} = {number}: {low} … {high}")
    return number


@cython.final
@cython.freelist(64)
@cython.auto_pickle(False)
cdef class PutResult:
    """Where a message (or the `count` messages of a batch) went, and which promise was met.

    `physical_offset` is the byte address of the record in the log; `end_offset` is the first byte
    after it, which `store.wait_flushed` takes. `queue_id` and `queue_offset` are its queue and its
    number in it, `store_timestamp_ms` is the time at which the store stored it. For a batch they
    are those of its first message; `physical_offsets`, `queue_offsets` and `queue_ids` give all of
    them, in the order in which they were given.

    `id` is the unique id of a message, by which `store.delayed` cancels one that waits; None without
    one. Of a message that waits, the place is where it waits.
    """

    @property
    def duplicate(self):
        """Whether the put had the `unique_id` of a message that was there, which this is about: nothing was stored."""
        return self.again != 0

    @property
    def due_time(self):
        """When a delayed message is delivered; None of a message that does not wait."""
        return moment_of(self.due_ms) if self.due_ms else None

    @property
    def size(self):
        """Bytes of the log from the first to the last byte of the record, or of the whole batch."""
        return self.end_offset - self.physical_offset

    @property
    def durability(self):
        """ "memory", "os", "disk" or "replicas(n)": the promise that was met when the call returned."""
        return DURABILITIES[self.level]

    @property
    def message_id(self):
        """RocketMQ's offset message id: store host and physical offset in hexadecimal; "" of an
        empty batch."""
        cdef char text[56]
        cdef rs_span host
        if self.count == 0:
            return ""
        host.bytes = self.store_host.bytes
        host.size = self.store_host.size
        cdef size_t size = rs_message_id_encode(host, self.physical_offset, text)
        return text[:size].decode("ascii")

    @property
    def physical_offsets(self):
        """Byte address of each message of the batch."""
        cdef const int64_t *offsets
        if self.offsets is None:
            return [self.physical_offset]
        offsets = <const int64_t *><const char *>self.offsets
        return [offsets[i] for i in range(self.count)]

    @property
    def queue_offsets(self):
        """Number of each message in its queue.

        They are consecutive, unless there were several queues, or rows of a column went to two
        segments and another writer put a message in between.
        """
        cdef const int64_t *rows
        if self.rows is None:
            return range(self.queue_offset, self.queue_offset + self.count)
        rows = <const int64_t *><const char *>self.rows
        return [rows[i] for i in range(self.count)]

    @property
    def queue_ids(self):
        """Queue of each message of the batch."""
        cdef const int32_t *ids
        if self.ids is None:
            return [self.queue_id] * self.count
        ids = <const int32_t *><const char *>self.ids
        return [ids[i] for i in range(self.count)]

    cdef int add_rows(self, const rs_appended *appended, int64_t done, int64_t part,
                      bytes given) except -1:
        """`part` more rows after `done` ones: another writer may have put to the queue in between. `given`:
        all queue offsets, where they are known."""
        cdef int64_t *rows
        self.end_offset = appended.end_offset
        if given is not None:
            self.rows = given
            return 0
        if self.rows is None:
            if appended.queue_offset == self.queue_offset + done:
                return 0
            self.rows = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(8 * self.count))
            rows = <int64_t *>PyBytes_AS_STRING(self.rows)
            for i in range(done):
                rows[i] = self.queue_offset + i
        rows = <int64_t *>PyBytes_AS_STRING(self.rows)
        for i in range(part):
            rows[done + i] = appended.queue_offset + i
        return 0

    def __repr__(self):
        many = f", count={self.count}" if self.count != 1 else ""
        again = ", duplicate=True" if self.duplicate else ""
        again += f", due_time={self.due_time}" if self.due_ms else ""
        return (f"PutResult(physical_offset={self.physical_offset}, queue_id={self.queue_id}, "
                f"queue_offset={self.queue_offset}{many}, size={self.size}, "
                f"durability={self.durability!r}{again})")

    def __eq__(self, other):
        if not isinstance(other, PutResult):
            return NotImplemented
        return self.__reduce__() == other.__reduce__()

    def __hash__(self):
        return hash((self.physical_offset, self.end_offset))

    def __reduce__(self):
        host = (<char *>self.store_host.bytes)[:self.store_host.size]
        return (restore_put_result, (
            self.physical_offset, self.end_offset, self.queue_id, self.queue_offset,
            self.store_timestamp_ms, self.count, self.level, host, self.offsets, self.rows,
            self.ids, self.duplicate, self.due_ms, self.id))


cdef bint is_column(bytes column, object size, object count):
    """Whether there is none, or one of `count` numbers of `size` bytes."""
    return column is None or len(column) == size * count


def restore_put_result(int64_t physical_offset, int64_t end_offset, int32_t queue_id,
                       int64_t queue_offset, int64_t store_timestamp_ms, int64_t count, int level,
                       bytes store_host not None, bytes offsets, bytes rows=None,
                       bytes ids=None, bint duplicate=False, int64_t due_ms=0, object id=None):
    """What PutResult.__reduce__ says, back as a PutResult."""
    cdef PutResult result = PutResult.__new__(PutResult)
    # As Python numbers: 8 * count of a count from elsewhere may not fit 64 bits.
    if (not 0 <= level < len(DURABILITIES) or len(store_host) not in (0, 8, 20)
            or (count != 1 and offsets is None)
            or not is_column(offsets, 8, count) or not is_column(rows, 8, count)
            or not is_column(ids, 4, count)):
        raise ValueError("not the pickle of a PutResult")
    result.physical_offset = physical_offset
    result.end_offset = end_offset
    result.queue_id = queue_id
    result.queue_offset = queue_offset
    result.store_timestamp_ms = store_timestamp_ms
    result.count = count
    result.level = <short>level
    result.offsets, result.rows, result.ids = offsets, rows, ids
    result.again, result.due_ms, result.id = duplicate, due_ms, id
    set_host(&result.store_host, store_host)
    return result


def as_duplicate(PutResult result not None):
    """The result of a put that found the message of this one."""
    fields = result.__reduce__()[1]
    return restore_put_result(*fields[:11], True, *fields[12:])


cdef PutResult waiting(PutResult result, object delay, object unique_id):
    result.id = unique_id
    if delay is not None:
        result.due_ms = delay.due_ms or result.store_timestamp_ms + delay.span_ms
    return result


def as_waiting(PutResult result not None, object delay, object unique_id):
    """The same, for Python."""
    return waiting(result, delay, unique_id)


def as_met(list results not None, int level):
    """Notes the promise that is met of them."""
    cdef PutResult result
    for result in results:
        result.level = <short>max(<int>result.level, level)


rs_name(PutResult, "rocketstore.PutResult")  # for pickles, help and tracebacks
restore_put_result.__module__ = "rocketstore"


cdef PutResult put_result(const rs_appended *appended, int32_t queue_id, int64_t count, int level,
                          const rs_host *store_host):
    """`level` is the promise that is met already."""
    cdef PutResult result = PutResult.__new__(PutResult)
    result.physical_offset = appended.physical_offset
    result.end_offset = appended.end_offset
    result.queue_id = queue_id
    result.queue_offset = appended.queue_offset
    result.store_timestamp_ms = appended.store_timestamp_ms
    result.count = count
    result.level = <short>level
    result.store_host = store_host[0]
    return result


cpdef PutResult nothing_put(object durability, int32_t queue_id=0):
    """The result of an empty batch: no message, no place, and any promise is met."""
    cdef PutResult result = PutResult.__new__(PutResult)
    result.level, result.queue_id = <short>durability_level(durability), queue_id
    result.offsets = b""
    return result


cdef int set_host(rs_host *host, bytes packed) except -1:
    memset(host, 0, sizeof(host[0]))
    memcpy(host.bytes, <const char *>packed, len(packed))
    host.size = <uint8_t>len(packed)
    return 0
