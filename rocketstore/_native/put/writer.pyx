"""The hot path of a put: arguments to bytes in the log, with no Python object but the result."""

cimport cython
from cpython.buffer cimport PyBuffer_Release
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t
from libc.string cimport memset

from rocketstore._native.append.appender cimport Log, put_took, record_max, unawaited
from rocketstore._native.append.elsewhere cimport part_of
from rocketstore._native.put.body_buffers cimport (
    Bodies, bodies_close, bodies_open, body_open, several_bodies,
)
from rocketstore._native.format.csrc cimport (
    RS_BODY_TOO_LARGE, RS_OK, RS_PROPERTIES_TOO_LARGE, rs_appended, rs_java_hash, rs_log_fitting,
    rs_message, rs_record_check, rs_record_size, rs_span, rs_status,
)
from rocketstore._native.put.plain_entry cimport rs_put_install
from rocketstore._native.put.property_builder cimport (
    Text, checked, text_add, text_free, text_keys, text_named, text_properties, text_property,
    text_span, text_start, text_tags, text_unique_id, id_in,
)
from rocketstore._native.sync.queue_positions cimport QueueState
from rocketstore._native.append.copies cimport check_level
from rocketstore._native.append.too_large cimport refuse_row
from rocketstore._native.append.put_result cimport (
    DISK, OS, PutResult, durability_level, durability_name, nothing_put, number_of, put_result,
    set_host, waiting,
)
from rocketstore._native.sync.futex cimport now_ns, timeout_ms

from functools import partial

from rocketstore._native.format.codec import pack_host
from rocketstore.errors import (
    MessageRejectedError, MessageTooLargeError, PropertiesTooLargeError, QueueOffsetMismatchError,
    RocketStoreError,
)
from rocketstore.values.arguments import whole_number

cdef int64_t NOW = INT64_MIN
cdef object ZERO = 0
cdef enum:
    # With a separator and the record CRC after them still no more than a record can hold.
    PROPERTIES_SURE = 32767 - 21
    # Of puts that wait for nothing the time of the first, second, fourth … is taken, and of every 1,024th.
    UNTIMED_MOST = 1023


@cython.auto_pickle(False)
cdef class Writer:
    """A handle for one topic: `put` appends, in one queue, round robin or by shard key."""

    def __cinit__(self, Log log not None, str topic not None, bytes topic_bytes not None,
                  tuple queues not None, *, object properties=None, object tags=None,
                  object keys=None, object durability, int64_t timeout_ms, bint record_crc,
                  str born_host not None, object reserved, object to_ms, object delays=None,
                  object unique_ids=None):
        cdef Text text
        if not queues or not all(isinstance(queue, QueueState) for queue in queues):
            raise TypeError(f"queues = {queues!r}: one QueueState, or several")
        self.log, self.queues = log, queues
        self.topic, self.topic_bytes = topic, topic_bytes
        self.reserved, self.to_ms = reserved, to_ms
        self.delays, self.unique_ids = delays, unique_ids
        self.tags = tags
        self.keys = keys
        if isinstance(keys, (bytes, bytearray, memoryview)):
            raise TypeError(f"keys = {keys!r}: expected a str, or several")
        if hasattr(keys, "__iter__") and not isinstance(keys, str):
            self.keys = list(keys)  # an iterator would be empty at the second put
        self.level = check_level(log.group.copies, durability_level(durability))
        self.durability = durability_name(self.level)
        self.timeout_ms = timeout_ms
        self.template.topic.bytes = <const uint8_t *>PyBytes_AS_STRING(topic_bytes)
        self.template.topic.size = <size_t>len(topic_bytes)
        self.template.record_crc = record_crc
        self.template.limit_ms = self.limit_ms(None)
        self.template.store_host = log.store_host
        set_host(&self.template.born_host, pack_host(born_host))
        text_start(&text)
        try:
            if properties:
                text_properties(&text, properties, reserved)
            self.own_properties = PyBytes_FromStringAndSize(<char *>text.bytes,
                                                            <Py_ssize_t>text.size)
            self.name_it(&text, None, None)
            self.constant_text = PyBytes_FromStringAndSize(<char *>text.bytes,
                                                           <Py_ssize_t>text.size)
        finally:
            text_free(&text)
        self.template.properties = bytes_span(self.constant_text)
        self.only = queues[0] if len(queues) == 1 else None

    @cython.final
    cdef inline QueueState pick(self, object shard_key):
        if shard_key is None and self.only is not None:
            return self.only
        return self.pick_of_several(shard_key)

    @cython.final
    cdef QueueState pick_of_several(self, object shard_key):
        cdef rs_span key
        cdef Py_ssize_t size, turn, count = len(self.queues)
        cdef int64_t hashed
        if shard_key is not None:
            key.bytes = checked("__SHARDINGKEY", shard_key, &size)
            key.size = <size_t>size
            hashed = rs_java_hash(key)
            # Without its sign, as SelectMessageQueueByHash: a key has one queue, whichever client sends it.
            return self.queues[(-hashed if hashed < 0 else hashed) % count]
        turn = self.turn
        self.turn = turn + 1 if turn + 1 < count else 0
        return self.queues[turn]

    @cython.final
    cdef inline int name_it(self, Text *text, object tags, object keys) except -1:
        """Adds keys and tags: those given, else the writer's."""
        if keys is None:
            keys = self.keys
        if keys is not None:
            text_keys(text, keys)
        if tags is None:
            tags = self.tags
        if tags is not None:
            text_tags(text, tags)
        return 0

    @cython.final
    cdef inline int describe(self, rs_message *message, Text *text, object tags, object keys,
                             object properties, object shard_key) except -1:
        """The property text of one put, where it has more than the constant properties."""
        if tags is None and keys is None and properties is None and shard_key is None:
            return 0
        return self.describe_more(message, text, tags, keys, properties, shard_key)

    @cython.final
    cdef int describe_more(self, rs_message *message, Text *text, object tags, object keys,
                           object properties, object shard_key) except -1:
        if self.own_properties:
            text_add(text, <const uint8_t *>PyBytes_AS_STRING(self.own_properties),
                     <size_t>PyBytes_GET_SIZE(self.own_properties))
        if properties is not None:
            text_properties(text, properties, self.reserved)
        self.name_it(text, tags, keys)
        if shard_key is not None:
            text_named(text, "__SHARDINGKEY", b"__SHARDINGKEY\x01", shard_key)
        message.properties = text_span(text)
        return 0

    @cython.final
    cdef inline object delay_of(self, object delay_level, object deliver_at, object deliver_after):
        """What a put has to add to a message that has to wait; None for one that has not."""
        if delay_level is None and deliver_at is None and deliver_after is None:
            return None
        return self.delays.delay(delay_level, deliver_at, deliver_after)

    @cython.final
    cdef QueueState delay(self, rs_message *message, Text *text, QueueState real, object delay):
        """Turns a message that was described into one of RocketMQ's topics of delays, which names its
        real place; gives the queue that it goes to."""
        cdef QueueState queue = delay.queue
        cdef bytes given = b"\x02" + PyBytes_FromStringAndSize(
            <const char *>message.properties.bytes, <Py_ssize_t>message.properties.size)
        if message.properties.bytes == <const uint8_t *>PyBytes_AS_STRING(self.constant_text):
            text_add(text, message.properties.bytes, message.properties.size)
        for name, value in delay.own:
            text_property(text, name, value)
        for name, value in delay.defaults:
            if b"\x02%b\x01" % name.encode() not in given:
                text_property(text, name, value)
        text_property(text, "REAL_TOPIC", self.topic)
        text_property(text, "REAL_QID", str(real.queue_id))
        message.properties = text_span(text)
        message.topic = bytes_span(queue.topic_bytes)
        message.queue_id = queue.queue_id
        return queue

    @cython.final
    cdef inline int fill(self, rs_message *message, QueueState queue, object flag, object born_time,
                         int asked, object timeout_s) except -1:
        message[0] = self.template
        message.queue_id, message.asked = queue.queue_id, asked
        if timeout_s is not None:
            message.limit_ms = self.limit_ms(timeout_s)
        if flag is not ZERO:
            message.flag = <int32_t>number_of("flag", flag, INT32_MIN, INT32_MAX)
        message.born_timestamp_ms = NOW if born_time is None else self.to_ms("born_time", born_time)
        return 0

    @cython.final
    cdef int32_t limit_ms(self, object given) except -1:
        return <int32_t>min(self.timeout_ms if given is None else timeout_ms(given), INT32_MAX)

    @cython.final
    cdef inline int check_body(self, const rs_message *message) except -1:
        if (message.body.size <= <size_t>self.log.max_message_size_bytes
                and message.properties.size <= PROPERTIES_SURE):
            return 0  # the topic was checked when the writer was made
        return self.check_record(message)

    @cython.final
    cdef int check_record(self, const rs_message *message) except -1:
        cdef size_t body_max = <size_t>self.log.max_message_size_bytes
        cdef rs_status status = rs_record_check(message, body_max, True)
        if status == RS_OK:
            return 0
        if status == RS_BODY_TOO_LARGE:
            raise MessageTooLargeError(
                f"body of {message.body.size} bytes: at most max_message_size_bytes = "
                f"{self.log.max_message_size_bytes}")
        if status == RS_PROPERTIES_TOO_LARGE:
            raise PropertiesTooLargeError(
                f"properties of {message.properties.size} bytes, encoded: at most 32767 with "
                f"separators{' and the 20 bytes of the record CRC' if message.record_crc else ''}")
        raise MessageRejectedError(f"message refused (status {<int>status})")

    @cython.final
    cdef inline int asked(self, object durability, object timeout_s) except -1:
        """The promise to wait for: before anything is appended, since it, or the time, may be none."""
        if durability is None and timeout_s is None:
            return self.level
        return self.asked_for(durability, timeout_s)

    @cython.final
    cdef int asked_for(self, object durability, object timeout_s) except -1:
        if timeout_s is not None:
            timeout_ms(timeout_s)
        return check_level(self.log.group.copies,
                           self.level if durability is None else durability_level(durability))

    @cython.final
    cdef inline int64_t begun(self, int asked) noexcept:
        """The time, where that of a single put is to be taken, else 0."""
        if asked <= self.log.met:
            self.untimed -= 1
            if self.untimed >= 0:
                return 0
            self.untimed = self.untimed_next
            self.untimed_next = min(2 * self.untimed_next + 1, <int>UNTIMED_MOST)
        return now_ns()

    @cython.final
    cdef inline int finish(self, PutResult result, int asked, object timeout_s,
                           int64_t started) except -1:
        """Waits for the promise that was asked for and notes which one was met, and the time since `started`,
        unless that is 0."""
        if asked > result.level:
            return self.wait(result, asked, timeout_s, started)
        if started:
            put_took(self.log, started, False)
        return unawaited(self.log)

    @cython.final
    cdef int wait(self, PutResult result, int asked, object timeout_s, int64_t started) except -1:
        cdef int64_t left_ms = self.timeout_ms if timeout_s is None else timeout_ms(timeout_s)
        try:
            self.log.await_promise(result.end_offset, asked, left_ms, timeout_s is not None, result)
        finally:
            put_took(self.log, started, True)
        return 0

    @property
    def _log(self):
        return self.log

    @property
    def _queues(self):
        return self.queues

    def put(self, body, *, tags=None, keys=None, properties=None, flag=0, born_time=None,
            shard_key=None, durability=None, timeout_s=None, expected_queue_offset=None,
            unique_id=None, delay_level=None, deliver_at=None, deliver_after=None):
        """Appends one message and waits for the promise (`durability`, default the writer's).

        MessageRejectedError and its kin, BackpressureError, DiskFullError: nothing was stored. DurabilityTimeoutError:
        stored (`error.result`), but not known to be on disk after `timeout_s`. QueueOffsetMismatchError: it would not
        get `expected_queue_offset`; consumers see those before it. With `unique_id` a second put gives what the first
        one did. `delay_level`, `deliver_at`, `deliver_after`: consumers see the message later."""
        # A put with no more than the arguments of _put_plain goes there: see rs_writer_put.
        cdef PutResult result
        delay = self.delay_of(delay_level, deliver_at, deliver_after)
        if expected_queue_offset is None and unique_id is None and delay is None:
            return self._put_plain(
                body, tags=tags, keys=keys, properties=properties, flag=flag, born_time=born_time,
                shard_key=shard_key, durability=durability, timeout_s=timeout_s)
        cdef int asked = self.asked(durability, timeout_s)
        if delay is not None:
            delay.check(expected_queue_offset)
        at = self.expected(expected_queue_offset, shard_key)
        append = partial(self._append_if, body, at, unique_id, tags, keys, properties, flag,
                         born_time, shard_key, delay, asked, timeout_s)
        try:
            result = (append() if unique_id is None
                      else self.unique_ids.put(self.topic, unique_id, append))
        except QueueOffsetMismatchError:
            self.log.wait_level(self.log.log.wrote, DISK if self.log.visible_when_flushed else OS,
                                self.timeout_ms if timeout_s is None else timeout_ms(timeout_s))
            raise
        result.level = <short>max(<int>result.level, self.log.met)
        self.finish(result, asked, timeout_s, now_ns() if asked > result.level else 0)
        return result

    @cython.final
    cdef int64_t expected(self, object queue_offset, object shard_key) except? -1:
        """The queue offset that a put has to get, or -1."""
        if queue_offset is None:
            return -1
        at = whole_number("expected_queue_offset", queue_offset, 0, INT64_MAX)
        if self.only is None and shard_key is None:
            raise MessageRejectedError(
                f"expected_queue_offset = {at}: of which of {len(self.queues)} queues? Give a "
                "shard_key, or a writer of one queue")
        return at

    def _put_plain(self, body, *, tags=None, keys=None, properties=None, flag=0, born_time=None,
                   shard_key=None, durability=None, timeout_s=None):
        """`put` without a condition and without a delay."""
        cdef rs_message message
        cdef rs_appended appended
        cdef Py_buffer view
        cdef bint held = False
        cdef Text text
        cdef PutResult result
        cdef int asked = self.asked(durability, timeout_s)
        cdef QueueState queue = self.pick(shard_key)
        cdef int64_t started = self.begun(asked)
        text_start(&text)
        try:
            self.fill(&message, queue, flag, born_time, asked, timeout_s)
            self.describe(&message, &text, tags, keys, properties, shard_key)
            held = body_open(&view, &message.body, body)
            self.check_body(&message)
            self.log.append(&message, queue, NULL, &appended)
        finally:
            text_free(&text)
            if held:
                PyBuffer_Release(&view)
        result = put_result(&appended, queue.queue_id, 1, self.log.met, &self.template.store_host)
        self.finish(result, asked, timeout_s, started)
        return result

    def _append_if(self, body, int64_t expected, unique_id, tags=None, keys=None, properties=None,
                   flag=0, born_time=None, shard_key=None, delay=None, int asked=0, timeout_s=None):
        """`put` without the wait. `expected`: the queue offset that it has to get, or -1; `unique_id`: or None."""
        cdef rs_message message
        cdef rs_appended appended
        cdef Py_buffer view
        cdef bint held = False
        cdef Text text
        cdef QueueState queue = self.pick(shard_key)
        text_start(&text)
        try:
            self.fill(&message, queue, flag, born_time, asked, timeout_s)
            self.describe_more(&message, &text, tags, keys, properties, shard_key)
            if unique_id is not None:
                text_unique_id(&text, unique_id)
                message.properties = text_span(&text)
            if delay is not None:
                queue = self.delay(&message, &text, queue, delay)
                unique_id = id_in(&message)
            held = body_open(&view, &message.body, body)
            self.check_body(&message)
            self.log.append_at(&message, queue, expected, NULL, &appended)
        finally:
            text_free(&text)
            if held:
                PyBuffer_Release(&view)
        if delay is not None:
            delay.note()
        result = put_result(&appended, queue.queue_id, 1, self.log.met, &self.template.store_host)
        return waiting(result, delay, unique_id)

    @cython.final
    cdef PutResult append_spans(self, rs_message *message, const rs_span *spans, size_t count,
                                QueueState queue, bint whole, str what):
        """Appends them: all in one segment, or `whole` is false and in as many parts as it takes."""
        cdef rs_appended appended
        cdef PutResult result = None
        cdef size_t done = 0, part = count
        cdef bytes places = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(8 * count)), rows = None
        cdef int64_t *row = NULL
        if self.log.elsewhere is not None and not whole:
            rows = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(8 * count))
            row = <int64_t *>PyBytes_AS_STRING(rows)
        try:
            while done < count:
                if not whole:
                    self.log.ready()  # before the mutex, which a forked child may never get
                    with nogil:
                        self.log.mutex.lock()
                        part = rs_log_fitting(&self.log.log, message, spans + done, count - done)
                        self.log.mutex.unlock()
                    part = max(part, <size_t>1)
                    if row is not NULL:
                        part = part_of(message, spans + done, count - done)
                self.log.append_batch(message, spans + done, part, queue,
                                      <int64_t *>PyBytes_AS_STRING(places) + done,
                                      NULL if row is NULL else row + done, &appended)
                if result is None:
                    result = put_result(&appended, queue.queue_id, <int64_t>count, self.log.met,
                                        &self.template.store_host)
                    result.offsets = places
                result.add_rows(&appended, <int64_t>done, <int64_t>part, rows)
                done += part
        except RocketStoreError as error:
            if not whole:
                error.add_note(f"{done} of {count} {what} were stored before this")
            raise
        return result

    def put_batch(self, bodies, *, tags=None, keys=None, properties=None, flag=0, born_time=None,
                  shard_key=None, durability=None, timeout_s=None, chunk=False):
        """Appends several bodies to one queue, back to back in one segment, and waits once.

        After the death of the process all of them are there or none; an unacknowledged batch may survive a power cut
        in part, from its beginning (D-37). No bodies are no messages: the result has `count` 0. With `chunk` it is put
        in parts where it does not fit into what is left of a segment, each all or none. Errors are as of `put`; those
        of `chunk` note how many were stored."""
        cdef rs_message message
        cdef Bodies opened
        cdef Text text
        cdef PutResult result
        cdef int64_t room
        cdef int asked = self.asked(durability, timeout_s)
        cdef QueueState queue = self.pick(shard_key)
        cdef int64_t started = now_ns() if asked > self.log.met else 0
        cdef list items = several_bodies(bodies)
        cdef size_t count = <size_t>len(items)
        if count == 0:
            self.log.ready()
            return nothing_put(durability_name(asked), queue.queue_id)
        memset(&opened, 0, sizeof(opened))
        text_start(&text)
        try:
            self.fill(&message, queue, flag, born_time, asked, timeout_s)
            self.describe(&message, &text, tags, keys, properties, shard_key)
            bodies_open(&opened, items)
            room = record_max(self.log) - <int64_t>rs_record_size(&message)
            message.body = opened.spans[opened.largest]
            self.check_body(&message)
            if chunk and <int64_t>message.body.size > room:  # before the first part
                refuse_row(self.log.max_message_size_bytes, opened.largest, message.body.size, room)
            result = self.append_spans(&message, opened.spans, count, queue, not chunk, "messages")
        finally:
            bodies_close(&opened)
            text_free(&text)
        self.finish(result, asked, timeout_s, started)
        return result

    def _put_column(self, const uint8_t[::1] data not None, const int64_t[::1] offsets not None, *,
                   tags=None, keys=None, properties=None, flag=0, born_time=None, shard_key=None,
                   durability=None, timeout_s=None):
        """Appends rows data[offsets[i]:offsets[i + 1]], as many segments as it takes. Offsets are
        read once, and checked."""
        cdef rs_message message
        cdef Text text
        cdef PutResult result
        cdef int asked = self.asked(durability, timeout_s)
        cdef QueueState queue = self.pick(shard_key)
        cdef int64_t started = now_ns() if asked > self.log.met else 0
        cdef size_t i, count = <size_t>max(offsets.shape[0] - 1, 0)
        cdef int64_t room, end, following
        cdef rs_span *spans = NULL
        cdef const uint8_t *start = &data[0] if data.shape[0] else NULL
        if count == 0:
            raise MessageRejectedError("offsets: an empty column; n messages need n + 1 offsets")
        text_start(&text)
        try:
            spans = <rs_span *>PyMem_RawMalloc(count * sizeof(rs_span))
            if spans is NULL:
                raise MemoryError("no memory for the rows")
            self.fill(&message, queue, flag, born_time, asked, timeout_s)
            self.describe(&message, &text, tags, keys, properties, shard_key)
            self.check_body(&message)  # what all rows have
            room = record_max(self.log)
            room -= <int64_t>rs_record_size(&message)
            end = offsets[0]
            for i in range(count):
                following = offsets[i + 1]
                if end < 0 or following < end or following > data.shape[0]:
                    raise MessageRejectedError(
                        f"offsets: row {i}: {end} to {following}: offsets rise, from 0 to at most "
                        f"{data.shape[0]}, the bytes of data")
                spans[i].bytes = start + end
                spans[i].size = <size_t>(following - end)
                end = following
                if <int64_t>spans[i].size > min(self.log.max_message_size_bytes, room):
                    refuse_row(self.log.max_message_size_bytes, i, spans[i].size, room)
            result = self.append_spans(&message, spans, count, queue, False, "rows")
        finally:
            PyMem_RawFree(spans)
            text_free(&text)
        self.finish(result, asked, timeout_s, started)
        return result

rs_put_install(
    Writer.__dict__["put"], Writer.__dict__["_put_plain"],
    ("tags", "keys", "properties", "flag", "born_time", "shard_key", "durability", "timeout_s"))
