"""Messages that need not have anything in common, on their way to the log together."""

cimport cython
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from rocketstore._native.append.appender cimport Log, record_max
from rocketstore._native.append.elsewhere cimport part_of
from rocketstore._native.put.body_buffers cimport body_copy
from rocketstore._native.format.csrc cimport (
    RS_OK, RS_PROPERTIES_MAX, rs_appended, rs_commit_record_encode, rs_commit_record_share,
    rs_log_fitting_messages, rs_message, rs_queue_state, rs_record_check, rs_record_size, rs_span,
    rs_status,
)
from rocketstore._native.append.guarded_append cimport append_call
from rocketstore._native.put.property_builder cimport (
    Text, selectable, text_add, text_free, text_keys, text_named, text_properties, text_span,
    text_start, text_tags, text_unique_id, id_in,
)
from rocketstore._native.append.put_result cimport PutResult, number_of, put_result, waiting
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.put.string_rows cimport RowText, Strings, describe_own, reject_row, row_of
from rocketstore._native.sync.futex cimport now_ns
from rocketstore._native.put.writer cimport Writer, bytes_span

from rocketstore.errors import (
    MessageRejectedError, MessageTooLargeError, PropertiesTooLargeError, RocketStoreError,
)

cdef int64_t NOW = INT64_MIN

cdef enum:
    RECORD_MORE = 64 << 10  # nothing but its body takes as much of a record
    TEXT_MORE = 12  # two names of four bytes, and two that end each name and value
    COMMIT_MORE = 512  # of a commit record and its place in the batch, but for messages and offsets
    COPY_MORE = 256  # of a message in the batch: fixed fields, checksum, blank


@cython.final
@cython.auto_pickle(False)
cdef class Rows:
    def __cinit__(self):
        self.kept, self.notes, self.wanted = [], [], {}

    def __dealloc__(self):
        PyMem_RawFree(self.messages)
        PyMem_RawFree(self.queues)
        PyMem_RawFree(self.texts)

    cdef int reserve(self, size_t count) except -1:
        if count <= self.room:
            return 0
        cdef void *messages = PyMem_RawRealloc(self.messages, count * sizeof(rs_message))
        if messages is NULL:
            raise MemoryError(f"no memory for {count} messages")
        self.messages = <rs_message *>messages
        cdef void *queues = PyMem_RawRealloc(self.queues, count * sizeof(rs_queue_state *))
        if queues is NULL:
            raise MemoryError(f"no memory for {count} messages")
        self.queues = <rs_queue_state **>queues
        self.room = count
        return 0

    def begin(self, Writer writer not None, str transaction_id not None):
        """Makes them a transaction. The first row is for its commit record, which `seal` makes; what `add` adds
        says which message of the transaction it is."""
        if self.count:
            raise ValueError("a transaction begins before its rows")
        self.reserve(8)
        writer.fill(self.messages, writer.only, 0, None, 0, None)
        self.keep(writer, writer.only, b"", b"", None, None)
        self.opening = b"RS_TRANSACTION\x01%b." % transaction_id.encode()

    def add(self, Writer writer not None, body, tags, keys, properties, flag, born_time, shard_key,
            delay_level=None, deliver_at=None, deliver_after=None, unique_id=None, expected=None):
        """One more, checked as a put checks it. What it points at is kept. `expected`: the queue offset that
        it has to get."""
        cdef Text text
        cdef rs_message *message
        cdef QueueState queue = writer.pick(shard_key)
        cdef bytes data, texts
        delay = writer.delay_of(delay_level, deliver_at, deliver_after)
        if self.count == self.room:
            self.reserve(2 * self.room + 64)
        message = &self.messages[self.count]
        text_start(&text)
        try:
            writer.fill(message, queue, flag, born_time, 0, None)
            if unique_id is None and self.opening is None:
                writer.describe(message, &text, tags, keys, properties, shard_key)
            else:
                writer.describe_more(message, &text, tags, keys, properties, shard_key)
            if unique_id is not None:
                text_unique_id(&text, unique_id)
                message.properties = text_span(&text)
            if self.opening is not None:
                data = b"%b%d\x02" % (self.opening, self.count - 1)
                text_add(&text, bytes_span(data).bytes, bytes_span(data).size)
                message.properties = text_span(&text)
                if born_time is None:
                    message.born_timestamp_ms = writer.log.now_ms()
            if delay is not None:
                delay.check(expected)
                queue = writer.delay(message, &text, queue, delay)
                unique_id = id_in(message)
            data = body if PyBytes_CheckExact(body) else body_copy(body)
            message.body.bytes = <const uint8_t *>PyBytes_AS_STRING(data)
            message.body.size = <size_t>PyBytes_GET_SIZE(data)
            writer.check_body(message)
            texts = PyBytes_FromStringAndSize(<const char *>message.properties.bytes,
                                              <Py_ssize_t>message.properties.size)
        finally:
            text_free(&text)
        message.properties.bytes = <const uint8_t *>PyBytes_AS_STRING(texts)
        if expected is not None:
            self.wanted[self.count] = number_of("expected_queue_offset", expected, 0, INT64_MAX)
        self.keep(writer, queue, data, texts, delay, unique_id)

    def take(self, Writer writer not None, tuple row not None, expected=None):
        """One more that is a message of the log already, or of a guest, of a writer of its queue."""
        cdef rs_message *message
        cdef bytes texts = row[5], data = row[6]
        if self.count == self.room:
            self.reserve(2 * self.room + 64)
        message = &self.messages[self.count]
        writer.fill(message, writer.only, row[2], None, 0, None)
        message.sys_flag = <uint32_t>row[3]
        message.born_timestamp_ms = <int64_t>row[4]
        message.body = bytes_span(data)
        message.properties = bytes_span(texts)
        writer.check_body(message)
        if expected is not None:
            self.wanted[self.count] = expected
        self.keep(writer, writer.only, data, texts, None, None)

    def __len__(self):
        return <Py_ssize_t>self.count

    def needs(self, size_t rows=0, size_t size=0):
        """Bytes of the commit record, and of the batch with it, at most; with `rows` further messages that
        take `size` bytes of the record."""
        cdef size_t record = COMMIT_MORE + self.share + size, messages = self.count - 1 + rows
        return record, 2 * record - COMMIT_MORE + COPY_MORE * messages

    def chosen(self, list rows not None):
        """Others that have these rows of it; the first is the commit record of both."""
        cdef Rows found = Rows()
        cdef Py_ssize_t row
        cdef dict place = {one: n for n, one in enumerate(rows)}
        found.reserve(<size_t>len(rows))
        for row in rows:
            if not 0 <= row < len(self.kept):
                raise IndexError(f"row {row} of {len(self.kept)}")
            found.kept.append(self.kept[row])
            found.messages[found.count] = self.messages[row]
            found.queues[found.count] = self.queues[row]
            if row in self.wanted:
                found.wanted[found.count] = self.wanted[row]
            if row:
                found.share += rs_commit_record_share(&self.messages[row])
            found.count += 1
        found.notes = [(place[one[0]], one[1], one[2]) for one in self.notes if one[0] in place]
        found.opening, found.first = self.opening, self.first
        return found

    def seal(self, bytes head not None):
        """Makes the commit record: what it begins with, then the messages as they are."""
        if self.opening is None:
            raise ValueError("no transaction was begun")
        cdef Py_ssize_t size = len(head)
        cdef bytes body = PyBytes_FromStringAndSize(NULL, size + <Py_ssize_t>self.share)
        memcpy(PyBytes_AS_STRING(body), PyBytes_AS_STRING(head), <size_t>size)
        rs_commit_record_encode(<uint8_t *>PyBytes_AS_STRING(body) + size, self.messages + 1,
                                self.count - 1)
        self.messages.body, self.messages.born_timestamp_ms = bytes_span(body), NOW
        self.kept[0] = (self.first, body, b"")
        self.first.check_body(self.messages)

    cdef int keep(self, Writer writer, QueueState queue, bytes data, bytes texts, object delay,
                  object unique_id) except -1:
        self.kept.append((writer, data, texts))
        if self.opening is not None:
            self.share += rs_commit_record_share(&self.messages[self.count])
        if delay is not None or unique_id is not None:
            self.notes.append((self.count, delay, unique_id))
        self.queues[self.count] = &queue.state
        self.count += 1
        if self.first is None:
            self.first = writer
        return 0

    def put(self, durability, timeout_s, chunk=False):
        """Appends all of them in one segment; with `chunk` in as many parts as it takes."""
        if self.count == 0:
            raise MessageRejectedError("an empty batch: pass at least one message")
        cdef int asked = self.first.asked(durability, timeout_s)
        return self.append(self.first.log, asked, timeout_s, not chunk, "messages")

    cdef int check_sizes(self, Log log, str what) except -1:
        cdef size_t i, size
        cdef int64_t most
        most = record_max(log)
        if log.max_message_size_bytes <= most - RECORD_MORE:
            return 0
        for i in range(self.count):
            size = rs_record_size(&self.messages[i])
            if <int64_t>size > most:
                one = what.removesuffix("s")
                raise MessageTooLargeError(
                    f"{one} {i}: a record of {size} bytes, at most {most} in a file of the "
                    "log; open the store with a larger commit_log_file_size_bytes")
        return 0

    cdef PutResult append(self, Log log, int asked, object timeout_s, bint whole, str what):
        cdef rs_appended *appended = &self.appended
        cdef append_call call
        cdef PutResult result = None
        cdef size_t done = 0, part, i
        cdef bytes places = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(8 * self.count))
        cdef bytes rows = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(8 * self.count))
        cdef bytes ids = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(4 * self.count))
        cdef int64_t *offsets = <int64_t *>PyBytes_AS_STRING(places)
        cdef int64_t *queue_offsets = <int64_t *>PyBytes_AS_STRING(rows)
        cdef int32_t *queue_ids = <int32_t *>PyBytes_AS_STRING(ids)
        cdef int64_t now = log.now_ms(), started = now_ns() if asked > log.met else 0
        for i in range(self.count):
            if self.messages[i].born_timestamp_ms == NOW:
                self.messages[i].born_timestamp_ms = now
        if not whole:
            self.check_sizes(log, what)
        cdef bytes wanted = self.expected() if self.wanted else None
        memset(appended, 0, sizeof(appended[0]))
        try:
            while done < self.count:
                part = self.count - done
                if not whole:
                    log.ready()  # before the mutex, which a forked child may never get
                    with nogil:
                        log.mutex.lock()
                        part = rs_log_fitting_messages(&log.log, self.messages + done, part)
                        log.mutex.unlock()
                    part = max(part, <size_t>1)
                    if log.elsewhere is not None:
                        part = part_of(self.messages + done, NULL, self.count - done)
                self.messages[done].asked = asked if done + part == self.count else 0
                self.messages[done].limit_ms = self.first.limit_ms(timeout_s)
                memset(&call, 0, sizeof(call))
                call.message, call.queues = self.messages + done, self.queues + done
                call.count, call.offsets = part, offsets + done
                call.appended, call.split = appended, not whole
                if wanted is not None:
                    call.expected = <const int64_t *>PyBytes_AS_STRING(wanted) + done
                log.append_many(&call)
                if result is None:
                    result = put_result(appended, self.messages[0].queue_id,
                                        <int64_t>self.count, log.met,
                                        &self.first.template.store_host)
                done += part
                result.end_offset = appended.end_offset
        except RocketStoreError as error:
            error.add_note(f"{done} of {self.count} {what} were stored before this")
            raise
        finally:
            for row, delay, _ in self.notes:
                if delay is not None and row < done:
                    delay.note()
        for i in range(self.count):
            queue_offsets[i] = self.messages[i].queue_offset
            queue_ids[i] = self.messages[i].queue_id
        result.offsets, result.rows, result.ids = places, rows, ids
        self.first.finish(result, asked, timeout_s, started)
        return result

    cdef bytes expected(self):
        """The queue offset that each row has to get, -1 of those that may have any."""
        cdef bytes wanted = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(8 * self.count))
        memset(PyBytes_AS_STRING(wanted), 0xff, 8 * self.count)
        cdef int64_t *offsets = <int64_t *>PyBytes_AS_STRING(wanted)
        cdef size_t row
        for row in self.wanted:
            offsets[row] = self.wanted[row]
        return wanted

    def results(self, size_t first):
        """What a put of each row from `first` on would have given, once they are in the log."""
        cdef rs_appended each = self.appended
        cdef const rs_message *message
        cdef list found = []
        cdef size_t i
        for i in range(first, self.count):
            message = &self.messages[i]
            each.physical_offset, each.queue_offset = message.physical_offset, message.queue_offset
            each.end_offset = each.physical_offset + <int64_t>rs_record_size(message)
            found.append(put_result(&each, message.queue_id, 1, self.first.log.met,
                                    &message.store_host))
        for note in [one for one in self.notes if one[0] >= first]:
            waiting(found[note[0] - <Py_ssize_t>first], note[1], note[2])
        return found


def rows_of(Rows rows not None):
    """What `Rows.take` takes, of each: for a process that appends them."""
    cdef size_t i
    cdef const rs_message *one
    found = []
    for i in range(rows.count):
        one = &rows.messages[i]
        topic = (<const char *>one.topic.bytes)[:one.topic.size].decode()
        found.append((topic, one.queue_id, one.flag, one.sys_flag, one.born_timestamp_ms,
                      *rows.kept[i][2:0:-1]))
    return found


# ---- columns ----
cdef struct Columns:
    rs_message *messages
    rs_queue_state **queues
    rs_queue_state **states  # by queue id; of one queue: the first
    int32_t only             # the id of the one queue, -1: there are several
    rs_span head             # what comes before keys and tags of a row
    rs_span tail             # and after them
    rs_message common
    size_t most
    bint unselectable        # the row that is refused has tags that nobody could ask for
    rs_status status


cdef size_t fill_rows(Columns *columns, RowText *text, Strings bodies, Strings tags, Strings keys,
                      const int32_t[::1] queue_ids, const int64_t[::1] born_ms) noexcept nogil:
    """How many rows could be filled: all, or the place of the first that cannot be a message."""
    cdef size_t row, count = <size_t>(bodies.offsets.shape[0] - 1)
    cdef rs_message *message
    cdef rs_span tag
    columns.status = RS_OK
    for row in range(count):
        message = &columns.messages[row]
        message[0] = columns.common
        message.body = row_of(bodies.offsets, bodies.data, <Py_ssize_t>row)
        memcpy(text.bytes, columns.head.bytes, columns.head.size)
        text.size = columns.head.size
        if tags is not None:
            tag = row_of(tags.offsets, tags.data, <Py_ssize_t>row)
            if tag.size and not selectable(tag.bytes, tag.size):
                columns.unselectable = True
                return row
        columns.status = describe_own(text, <Py_ssize_t>row, keys, tags)
        if columns.status == RS_OK:
            memcpy(text.bytes + text.size, columns.tail.bytes, columns.tail.size)
            text.size += columns.tail.size
            message.properties.bytes, message.properties.size = text.bytes, text.size
            columns.status = rs_record_check(message, columns.most, True)
        if columns.status != RS_OK:
            return row
        text.bytes += text.size
        if queue_ids is None:
            columns.queues[row] = columns.states[0]
        else:
            message.queue_id = queue_ids[row]
            columns.queues[row] = columns.states[0 if columns.only >= 0 else queue_ids[row]]
        if born_ms is not None:
            message.born_timestamp_ms = born_ms[row]
    return count


cdef int refuse_row(Columns *columns, const RowText *text, size_t row) except -1:
    if columns.unselectable:
        raise MessageRejectedError(
            f"row {row}: tags: one tag, without '||' in it and without blanks around it: no "
            "consumer could ask for it")
    return reject_row(text, &columns.messages[row], columns.status, <int64_t>columns.most,
                      <Py_ssize_t>row)


cdef bytes head_text(Writer writer, object properties, object keys, bint own_keys):
    """What is the same for all rows, before their keys and tags."""
    cdef Text text
    text_start(&text)
    try:
        if properties is not None:
            text_properties(&text, properties, writer.reserved)
        if own_keys and keys is None:
            keys = writer.keys
        if own_keys and keys is not None:
            text_keys(&text, keys)
        return writer.own_properties + text.bytes[:text.size]
    finally:
        text_free(&text)


cdef bytes tail_text(Writer writer, object tags, bint own_tags, object shard_key):
    cdef Text text
    text_start(&text)
    try:
        if own_tags and tags is None:
            tags = writer.tags
        if own_tags and tags is not None:
            text_tags(&text, tags)
        if shard_key is not None:
            text_named(&text, "__SHARDINGKEY", b"__SHARDINGKEY\x01", shard_key)
        return text.bytes[:text.size]
    finally:
        text_free(&text)


cdef size_t size_of(Strings column):
    if column is None:
        return 0
    return <size_t>(column.offsets[column.offsets.shape[0] - 1] - column.offsets[0])


def put_columns(Writer writer not None, Strings bodies not None, *, Strings row_tags,
                Strings row_keys, const int32_t[::1] queue_ids, const int64_t[::1] born_ms, tags,
                keys, properties, flag, born_time, shard_key, durability, timeout_s):
    """Appends one message a row, in as many segments as it takes, once all are checked. The caller has
    checked that all columns have as many rows, and that the queues are the writer's."""
    cdef Rows rows = Rows()
    cdef Columns columns
    cdef RowText text
    cdef int asked = writer.asked(durability, timeout_s)
    cdef size_t count = <size_t>(bodies.offsets.shape[0] - 1), filled, room
    cdef QueueState queue
    cdef tuple states = writer.queues
    cdef bytes head = head_text(writer, properties, keys, row_keys is None)
    cdef bytes tail = tail_text(writer, tags, row_tags is None, shard_key)
    memset(&columns, 0, sizeof(columns))
    memset(&text, 0, sizeof(text))
    if queue_ids is None:
        queue = writer.pick(shard_key)
        states = (queue,)
    queue = states[0]
    writer.fill(&columns.common, queue, flag, born_time, 0, None)
    columns.head.bytes, columns.head.size = <const uint8_t *>PyBytes_AS_STRING(head), len(head)
    columns.tail.bytes, columns.tail.size = <const uint8_t *>PyBytes_AS_STRING(tail), len(tail)
    columns.most = <size_t>writer.log.max_message_size_bytes
    columns.only = queue.queue_id if len(states) == 1 else -1
    if columns.head.size + columns.tail.size > RS_PROPERTIES_MAX:
        raise PropertiesTooLargeError(
            f"properties of {len(head) + len(tail)} bytes, encoded: at most 32767 with separators")
    rows.reserve(count)
    rows.first = writer
    room = count * (columns.head.size + columns.tail.size + TEXT_MORE)
    rows.texts = <uint8_t *>PyMem_RawMalloc(room + size_of(row_tags) + size_of(row_keys) + 1)
    columns.states = <rs_queue_state **>PyMem_RawMalloc(len(states) * sizeof(rs_queue_state *))
    try:
        if rows.texts is NULL or columns.states is NULL:
            raise MemoryError("no memory for the property texts")
        for place, state in enumerate(states):
            queue = state
            columns.states[<size_t>place] = &queue.state
        text.bytes = rows.texts
        columns.messages, columns.queues = rows.messages, rows.queues
        with nogil:
            filled = fill_rows(&columns, &text, bodies, row_tags, row_keys, queue_ids, born_ms)
        if filled < count:
            refuse_row(&columns, &text, filled)
    finally:
        PyMem_RawFree(columns.states)
    rows.count = count
    return rows.append(writer.log, asked, timeout_s, False, "rows")
