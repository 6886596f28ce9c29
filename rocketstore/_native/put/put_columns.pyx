"""Columns of messages, each with a topic and a queue of its own."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memset

from rocketstore._native.append.appender cimport Log
from rocketstore._native.format.csrc cimport (
    RS_HOST_V6_SIZE, RS_OK, RS_RECORD_FIXED, rs_message, rs_record_check, rs_status,
)
from rocketstore._native.append.put_result cimport set_host
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.put.string_rows cimport RowText, Strings, describe, reject_row, row_of
from rocketstore._native.put.batch_append cimport Rows
from rocketstore._native.put.writer cimport Writer

from rocketstore._native.format.codec import pack_host
from rocketstore.values.durability import check_port
from rocketstore.errors import MessageRejectedError

cdef enum:
    PROPERTY_MORE = 6  # a name of four bytes, and two that end name and value


cdef Py_ssize_t bytes_of(Strings column, Py_ssize_t first, Py_ssize_t last, Py_ssize_t more):
    """Those of rows first … last - 1, and `more` for each."""
    if column is None:
        return 0
    return column.offsets[last] - column.offsets[first] + more * (last - first)


cdef bint other(const int32_t[::1] column, Py_ssize_t rows):
    """Whether there is a column, of more or fewer rows."""
    return column is not None and column.shape[0] != rows


@cython.final
@cython.auto_pickle(False)
cdef class MessageColumns:
    """`topics[topic_rows[i]]` is the topic of row i. The caller has checked shapes and topics, and names what is
    wrong with them; here they are looked at once more, since all that follows reads memory by them. `refused`
    raises for a property name that no row may have."""

    def __cinit__(self, Strings bodies not None, tuple topics not None,
                  const int32_t[::1] topic_rows not None, const int32_t[::1] queue_ids not None,
                  const int64_t[::1] born_ms not None, *, const int32_t[::1] flags=None,
                  const int32_t[::1] sys_flags=None, const int32_t[::1] reconsume_times=None,
                  Strings tags=None, Strings keys=None,
                  const int64_t[::1] property_places=None, Strings names=None,
                  Strings values=None, str born_host not None, int64_t max_body, object refused):
        self.bodies, self.topics, self.topic_rows = bodies, topics, topic_rows
        self.queue_ids, self.born_ms = queue_ids, born_ms
        self.flags, self.sys_flags, self.reconsume_times = flags, sys_flags, reconsume_times
        self.tags, self.keys = tags, keys
        self.property_places, self.names, self.values = property_places, names, values
        self.max_body, self.refused = max_body, refused
        self.check_shapes()
        memset(&self.common, 0, sizeof(self.common))
        set_host(&self.common.born_host, pack_host(born_host, "born_host"))
        check_port("born_host", born_host)
        self.common.store_host = self.common.born_host
        self.common.record_crc = True  # the log may add it: there must be room

    cdef int check_shapes(self) except -1:
        cdef Py_ssize_t rows = self.bodies.rows, row, entries = 0
        cdef Py_ssize_t topics = len(self.topics)
        if (self.born_ms.shape[0] != rows or other(self.topic_rows, rows)
                or other(self.queue_ids, rows) or other(self.flags, rows)
                or other(self.sys_flags, rows) or other(self.reconsume_times, rows)
                or (self.tags is not None and self.tags.rows != rows)
                or (self.keys is not None and self.keys.rows != rows)):
            raise ValueError(f"a column of more or fewer than {rows} rows")
        for row in range(rows):
            if not 0 <= self.topic_rows[row] < topics:
                raise ValueError(f"row {row}: topic {self.topic_rows[row]} of {topics}")
        if self.property_places is None:
            return 0
        if self.names is None or self.values is None or self.names.rows != self.values.rows:
            raise ValueError("properties: as many values as names")
        entries = self.names.rows
        if self.property_places.shape[0] != rows + 1 or self.property_places[0] < 0:
            raise ValueError(f"properties: {rows + 1} offsets for {rows} rows")
        for row in range(rows):
            if self.property_places[row + 1] < self.property_places[row]:
                raise ValueError(f"properties: offsets fall at row {row}")
        if self.property_places[rows] > entries:
            raise ValueError(f"properties: offsets beyond {entries} entries")
        return 0

    cdef Py_ssize_t texts_bound(self):
        cdef Py_ssize_t rows = self.bodies.rows, first, last
        cdef Py_ssize_t bound = bytes_of(self.tags, 0, rows, PROPERTY_MORE)
        bound += bytes_of(self.keys, 0, rows, PROPERTY_MORE)
        if self.property_places is not None:
            first, last = self.property_places[0], self.property_places[rows]
            bound += bytes_of(self.names, first, last, 1) + bytes_of(self.values, first, last, 1)
        return bound

    cdef Py_ssize_t frames_bound(self):
        cdef Py_ssize_t each = RS_RECORD_FIXED + 2 * RS_HOST_V6_SIZE + 2  # 2: of the topic's length
        each += max(map(len, self.topics), default=0)
        return bytes_of(self.bodies, 0, self.bodies.rows, each) + self.texts_bound()

    cdef rs_status fill(self, Py_ssize_t row, rs_message *message, RowText *text) except *:
        cdef bytes topic = self.topics[self.topic_rows[row]]
        cdef rs_status status
        message[0] = self.common
        message.topic.bytes = <const uint8_t *>PyBytes_AS_STRING(topic)
        message.topic.size = <size_t>PyBytes_GET_SIZE(topic)
        message.body = row_of(self.bodies.offsets, self.bodies.data, row)
        message.queue_id = self.queue_ids[row]
        message.born_timestamp_ms = self.born_ms[row]
        if self.flags is not None:
            message.flag = self.flags[row]
        if self.sys_flags is not None:
            message.sys_flag = <uint32_t>self.sys_flags[row]
        if self.reconsume_times is not None:
            message.reconsume_times = self.reconsume_times[row]
        status = describe(text, row, self.tags, self.keys, self.names, self.values,
                          self.property_places, self.refused)
        message.properties.bytes = text.bytes
        message.properties.size = text.size
        if status == RS_OK:
            status = rs_record_check(message, <size_t>self.max_body, True)
        return status


def put_message_columns(Log log not None, MessageColumns columns not None, object writer_of, *,
                        bint record_crc, durability, timeout_s):
    """Appends the message of every row, in order, in as many segments as it takes, once all are checked.
    `writer_of(topic, queue_id)` gives the plain writer of a queue, or refuses it."""
    cdef Rows rows = Rows()
    cdef RowText text
    cdef dict writers = {}  # holds the queue states that the messages point at
    cdef Writer writer
    cdef QueueState queue = None
    cdef rs_message *message
    cdef rs_status status
    cdef Py_ssize_t row
    cdef int32_t topic = -1, queue_id = -1
    if columns.bodies.rows == 0:
        raise MessageRejectedError("no rows: pass at least one")
    memset(&text, 0, sizeof(text))
    rows.reserve(<size_t>columns.bodies.rows)
    rows.texts = text.bytes = <uint8_t *>PyMem_RawMalloc(<size_t>columns.texts_bound() + 1)
    if rows.texts is NULL:
        raise MemoryError("no memory for the property texts")
    for row in range(columns.bodies.rows):
        message = &rows.messages[row]
        status = columns.fill(row, message, &text)
        if status != RS_OK:
            reject_row(&text, message, status, columns.max_body, row)
        text.bytes += text.size
        if queue is None or columns.topic_rows[row] != topic or message.queue_id != queue_id:
            topic, queue_id = columns.topic_rows[row], message.queue_id
            writer = writers.get((topic, queue_id))
            if writer is None:
                writer = writer_of(columns.topics[topic], queue_id)
                writers[topic, queue_id] = writer
                if rows.first is None:
                    rows.first = writer
            queue = writer.queues[0]
        rows.queues[row] = &queue.state
        message.record_crc = record_crc
        message.store_host = log.store_host
    rows.count = <size_t>columns.bodies.rows
    return rows.append(log, rows.first.asked(durability, timeout_s), timeout_s, False, "rows")
