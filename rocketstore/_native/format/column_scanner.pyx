"""Records of a mapped log file as NumPy columns: one walk without the GIL, then one copy of what is wanted."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport INT64_MAX, INT64_MIN, SIZE_MAX, int32_t, int64_t, uint8_t, uint64_t

from rocketstore._native.format.codec cimport best_kernel
from rocketstore._native.format.csrc_columns cimport (
    rs_column_walk, rs_columns, rs_columns_gather, rs_columns_measure, rs_columns_message_ids,
    rs_columns_message_ids_size, rs_columns_take, rs_columns_views, rs_columns_walk, rs_dictionary,
)
from rocketstore._native.format.string_columns cimport Words, allocated, pairs_of, utf8
from rocketstore._native.format.csrc cimport RS_NOT_FOUND, RS_OK, rs_record, rs_span, rs_status
from rocketstore._native.format.filter_program cimport FilterProgram
from rocketstore._native.os.sigbus_guard cimport copied_bytes, guarded, raise_unread
from rocketstore._native.os.mapped_file cimport MappedFile
from rocketstore._native.format.message cimport Message
from rocketstore._native.format.status cimport status_text

import numpy as np

from rocketstore._native.format.codec import unpack_host

#: Columns that are there for each record, with their types.
NUMBERS = {
    "queue_id": "int32",
    "queue_offset": "int64",
    "physical_offset": "int64",
    "size": "int32",
    "body_size": "int32",
    "tags_code": "int64",
    "born_timestamp_ms": "int64",
    "store_timestamp_ms": "int64",
    "sys_flag": "uint32",
    "flag": "int32",
    "reconsume_times": "int32",
    "prepared_transaction_offset": "int64",
}
#: Columns of numbers into a list of texts.
CODED = ("topic", "born_host", "store_host")
#: Columns of bytes; `body_view` leaves them in the file.
TEXTS = ("body", "body_view", "tags", "keys", "properties", "message_id")

cdef enum:
    # A dictionary with more words is cleared at the next read.
    MANY_WORDS = 1 << 16
    BYTES_MAX = 1 << 30
    VIEW_SIZE = 16


cdef struct walk_call:
    rs_column_walk *walk
    rs_columns *columns
    size_t to
    uint64_t byte_limit
    rs_status status

cdef struct take_call:
    rs_column_walk *walk
    rs_columns *columns
    const rs_record *records
    size_t count
    rs_status status

cdef struct gather_call:
    const rs_span *spans
    size_t rows
    const int32_t *offsets
    const uint8_t *base   # NULL: a copy, else views from there
    uint8_t *to


cdef void walk_work(void *given) noexcept nogil:
    cdef walk_call *call = <walk_call *>given
    call.status = rs_columns_walk(call.walk, call.columns, call.to, call.byte_limit)


cdef void take_work(void *given) noexcept nogil:
    cdef take_call *call = <take_call *>given
    call.status = rs_columns_take(call.walk, call.columns, call.records, call.count)


cdef void gather_work(void *given) noexcept nogil:
    cdef gather_call *call = <gather_call *>given
    if call.base is NULL:
        rs_columns_gather(call.spans, call.rows, call.offsets, call.to)
    else:
        rs_columns_views(call.spans, call.rows, call.base, call.to)


@cython.final
@cython.auto_pickle(False)
cdef class ColumnScanner:
    """Reads parts of log files as columns. One thread at a time."""

    cdef rs_columns columns
    cdef rs_column_walk walk
    cdef Words topics
    cdef Words hosts
    cdef dict scratch
    cdef frozenset names
    cdef FilterProgram where
    cdef object accept
    cdef list tag_texts
    cdef rs_span *tag_spans
    cdef unsigned verify
    cdef readonly int64_t end_position
    cdef readonly str status

    def __cinit__(self, names, *, size_t room, unsigned verify, accept=None, tags=None,
                  FilterProgram where=None, int64_t from_ms=INT64_MIN, int64_t to_ms=INT64_MAX):
        cdef rs_span *span
        self.names = frozenset(names)
        unknown = self.names.difference(NUMBERS, CODED, TEXTS)
        if unknown:
            raise ValueError(f"no such column: {', '.join(sorted(unknown))}")
        if not 0 < room <= 1 << 24:
            raise ValueError(f"room = {room}: 1 … {1 << 24} rows")
        self.topics, self.hosts = Words(), Words()
        self.accept = accept
        self.walk.by_topic = accept is not None
        self.verify = verify
        self.scratch = {}
        self.status = "end"
        self.tag_texts = sorted(tags or ())
        self.tag_spans = <rs_span *>allocated(<size_t>len(self.tag_texts), sizeof(rs_span))
        for i, text in enumerate(self.tag_texts):
            span = &self.tag_spans[<size_t>i]
            span.bytes, span.size = <const uint8_t *>PyBytes_AS_STRING(text), <size_t>len(text)
        self.walk.tags, self.walk.tag_count = self.tag_spans, <size_t>len(self.tag_texts)
        self.walk.tagged = tags is not None
        self.walk.marked = any("\ufffd".encode() in text for text in self.tag_texts)
        self.where = where
        self.walk.filter = NULL if where is None else &where.filter
        self.walk.from_ms, self.walk.to_ms = from_ms, to_ms
        self.columns.room = room
        self.allocate()

    def __dealloc__(self):
        PyMem_RawFree(self.tag_spans)

    cdef void *place(self, str name, size_t size, str other="") except? NULL:
        """Scratch memory of a wanted column, NULL for one that is not."""
        if name not in self.names and other not in self.names:
            return NULL
        array = np.empty(self.columns.room * size, np.uint8)
        cdef uint8_t[::1] view = array
        self.scratch[name] = array
        return &view[0]

    cdef object numbers(self, str name, str dtype):
        """A new array with the content of the scratch memory of a column."""
        return self.scratch[name].view(dtype)[:self.columns.rows].copy()

    cdef int allocate(self) except -1:
        cdef rs_columns *columns = &self.columns
        columns.topic = <int32_t *>self.place("topic", 4)
        columns.born_host = <int32_t *>self.place("born_host", 4)
        columns.store_host = <int32_t *>self.place("store_host", 4, "message_id")
        columns.queue_id = <int32_t *>self.place("queue_id", 4)
        columns.size = <int32_t *>self.place("size", 4)
        columns.body_size = <int32_t *>self.place("body_size", 4)
        columns.flag = <int32_t *>self.place("flag", 4)
        columns.sys_flag = <int32_t *>self.place("sys_flag", 4)
        columns.reconsume_times = <int32_t *>self.place("reconsume_times", 4)
        columns.queue_offset = <int64_t *>self.place("queue_offset", 8)
        columns.physical_offset = <int64_t *>self.place("physical_offset", 8, "message_id")
        columns.born_timestamp_ms = <int64_t *>self.place("born_timestamp_ms", 8)
        columns.store_timestamp_ms = <int64_t *>self.place("store_timestamp_ms", 8)
        columns.prepared_transaction_offset = <int64_t *>self.place(
            "prepared_transaction_offset", 8)
        columns.tags_code = <int64_t *>self.place("tags_code", 8)
        columns.body = <rs_span *>self.place("body", sizeof(rs_span), "body_view")
        columns.tags = <rs_span *>self.place("tags", sizeof(rs_span))
        columns.keys = <rs_span *>self.place("keys", sizeof(rs_span))
        columns.properties = <rs_span *>self.place("properties", sizeof(rs_span))
        return 0

    @property
    def rows(self):
        return self.columns.rows

    @property
    def row_bytes(self):
        return self.columns.bytes

    @property
    def records(self):
        return self.walk.records

    @property
    def record_crc_mismatches(self):
        return self.walk.record_crc_mismatches

    def read(self, MappedFile file not None, int64_t from_position, int64_t to_position,
             int64_t limit, uint64_t byte_limit):
        cdef walk_call call
        cdef bint whole
        if not 0 <= from_position <= to_position <= limit <= file.size:
            raise ValueError(f"[{from_position}, {to_position}) below {limit} is no part of the "
                             f"{file.size} bytes of {file.path}")
        if not 0 < byte_limit <= BYTES_MAX:
            raise ValueError(f"byte_limit = {byte_limit}: 1 … {BYTES_MAX}")
        self.begin()
        self.walk.scan.bytes, self.walk.scan.size = file.base, <size_t>limit
        self.walk.scan.start_offset = file.start_offset
        self.walk.scan.verify, self.walk.scan.kernel = self.verify, best_kernel()
        self.walk.at = <size_t>from_position
        call.walk, call.columns = &self.walk, &self.columns
        call.to, call.byte_limit, call.status = <size_t>to_position, byte_limit, RS_NOT_FOUND
        while call.status == RS_NOT_FOUND:
            with nogil:
                whole = guarded(walk_work, &call)
            if not whole:
                raise_unread(file.path, "a record at or behind physical offset "
                             f"{file.start_offset + <int64_t>self.walk.at}")
            if call.status == RS_NOT_FOUND:
                self.learn()
        self.end_position = <int64_t>self.walk.at
        self.status = "full" if call.status == RS_OK else status_text(call.status)
        found = self.columns_of(file.path)
        if "body_view" in self.names:
            found["body_view"] = self.viewed(file)
        return found

    def fitting(self, list messages not None, uint64_t byte_limit):
        cdef size_t count = min(<size_t>len(messages), self.columns.room), i
        cdef uint64_t left = min(byte_limit, <uint64_t>BYTES_MAX)
        for i in range(count):
            if (<Message?>messages[i]).record.size > left and i:
                return i
            left -= min(left, <uint64_t>(<Message>messages[i]).record.size)
        return count

    def take(self, list messages not None):
        cdef take_call call
        cdef bint whole
        cdef size_t count = <size_t>len(messages), i
        if count > <size_t>self.fitting(messages, BYTES_MAX):
            raise ValueError(f"{count} messages: more than there is room for")
        if "body_view" in self.names:
            raise ValueError("body_view is of one file: not for messages")
        cdef rs_record *records = <rs_record *>allocated(count, sizeof(rs_record))
        try:
            for i in range(count):
                records[i] = (<Message?>messages[i]).record
            self.begin()
            call.walk, call.columns, call.records, call.count = (
                &self.walk, &self.columns, records, count)
            call.status = RS_NOT_FOUND
            while call.status == RS_NOT_FOUND:
                with nogil:
                    whole = guarded(take_work, &call)
                if not whole:
                    raise_unread("the log", "a message")
                if call.status == RS_NOT_FOUND:
                    self.learn()
        finally:
            PyMem_RawFree(records)
        if call.status != RS_OK:
            raise ValueError("a message that this scanner was told to leave out")
        return self.columns_of("the log")

    cdef int begin(self) except -1:
        """Nothing is read yet."""
        for words in (self.topics, self.hosts):
            if (<Words>words).table.count > MANY_WORDS:
                (<Words>words).clear()
        self.walk.topics, self.walk.hosts = &self.topics.table, &self.hosts.table
        self.walk.records = self.walk.record_crc_mismatches = 0
        self.walk.answered_at = SIZE_MAX
        self.columns.rows = 0
        self.columns.bytes = 0
        return 0

    cdef int learn(self) except -1:
        """The word that no dictionary has, or what the filter is not sure of."""
        cdef bytes word = copied_bytes(self.walk.unknown.bytes, self.walk.unknown.size, "a message")
        if self.walk.asks:
            self.walk.answer = self.where.answer(word)
            self.walk.answered_at = self.walk.at
            return 0
        if self.walk.unknown_host:
            return self.hosts.add(word, unpack_host(word), True, None)
        topic = word.decode("utf-8", "rocketstore.java")
        queue_ids = None
        wanted = True
        if self.accept is not None:
            queue_ids = self.accept(topic)
            wanted = queue_ids is not False
            queue_ids = None if isinstance(queue_ids, bool) else queue_ids
        return self.topics.add(word, topic, wanted, queue_ids)

    cdef dict columns_of(self, object path):
        cdef rs_columns *columns = &self.columns
        cdef size_t rows = columns.rows
        cdef dict found = {}
        for name, dtype in NUMBERS.items():
            if name in self.names:
                found[name] = self.numbers(name, dtype)
        if "topic" in self.names:
            found["topic"] = (self.numbers("topic", "int32"), self.topics.words())
        if "born_host" in self.names:
            found["born_host"] = (self.numbers("born_host", "int32"), self.hosts.words())
        if "store_host" in self.names:
            found["store_host"] = (self.numbers("store_host", "int32"), self.hosts.words())
        if "body" in self.names:
            found["body"] = self.gathered(path, columns.body)
        if "tags" in self.names:
            offsets, data = self.gathered(path, columns.tags)
            found["tags"] = (offsets, data, utf8(offsets, data))
        if "keys" in self.names:
            offsets, data = self.gathered(path, columns.keys)
            found["keys"] = (offsets, data, utf8(offsets, data))
        if "properties" in self.names:
            offsets, data = self.gathered(path, columns.properties)
            found["properties"] = pairs_of(offsets, data, rows)
        if "message_id" in self.names:
            found["message_id"] = self.message_ids()
        return found

    cdef tuple gathered(self, object path, const rs_span *spans):
        """Offsets and bytes of a column of spans, copied."""
        cdef gather_call call
        cdef bint whole
        cdef size_t total, rows = self.columns.rows
        cdef int32_t[::1] offsets = np.empty(rows + 1, np.int32)
        cdef int32_t *offsets_at = &offsets[0]
        with nogil:
            total = rs_columns_measure(spans, rows, offsets_at)
        data = np.empty(total, np.uint8)
        cdef uint8_t[::1] to = data
        call.spans, call.rows, call.offsets, call.base = spans, rows, offsets_at, NULL
        call.to = &to[0] if total else NULL
        with nogil:
            whole = guarded(gather_work, &call)
        if not whole:
            raise_unread(path, "bytes of a record")
        return offsets.base, data

    cdef tuple viewed(self, MappedFile file):
        """Arrow's views of the bodies, and the part of the file that they point into."""
        cdef gather_call call
        cdef bint whole
        cdef size_t rows = self.columns.rows, i
        cdef const rs_span *bodies = self.columns.body
        cdef uint8_t[::1] to
        cdef int64_t[::1] positions = np.empty(rows, np.int64)
        cdef int64_t first, end = 0
        views = np.empty(VIEW_SIZE * max(<size_t>1, rows), np.uint8)
        to = views
        first = bodies[0].bytes - file.base if rows else 0
        for i in range(rows):
            positions[i] = bodies[i].bytes - file.base
            end = max(end, positions[i] + <int64_t>bodies[i].size)
        call.spans, call.rows, call.offsets, call.base = bodies, rows, NULL, file.base + first
        call.to = &to[0]
        if end - first > (1 << 31) - 1:
            raise ValueError("the rows of one read lie further apart than views can say")
        with nogil:
            whole = guarded(gather_work, &call)
        if not whole:
            raise_unread(file.path, "bytes of a record")
        view = memoryview(file.mapping)[first:max(first, end)]
        return positions.base, views[:VIEW_SIZE * rows], view, first

    cdef tuple message_ids(self):
        cdef size_t rows = self.columns.rows
        cdef rs_dictionary *hosts = &self.hosts.table
        cdef size_t total = rs_columns_message_ids_size(hosts, self.columns.store_host, rows)
        cdef int32_t[::1] offsets = np.empty(rows + 1, np.int32)
        data = np.empty(total, np.uint8)
        cdef uint8_t[::1] to = data
        cdef uint8_t *to_at = &to[0] if total else NULL
        cdef int32_t *offsets_at = &offsets[0]
        with nogil:
            rs_columns_message_ids(hosts, self.columns.store_host, self.columns.physical_offset,
                                   rows, offsets_at, <char *>to_at)
        return offsets.base, data, True
