"""The puts of a guest at the host: frames become messages, and those go to the log.

Runs without the GIL. It takes it for what needs Python: a queue that it does not know yet, the next segment,
a unique id, a delayed message, an error.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from rocketstore._native.append.appender cimport Log
from rocketstore._native.append.guarded_append cimport append_call
from rocketstore._native.append.guest_line cimport reserve
from rocketstore._native.append.put_result cimport DISK, OS, PutResult, put_result
from rocketstore._native.format.codec cimport best_kernel
from rocketstore._native.format.csrc cimport (
    RS_OK, rs_appended, rs_crc32_kernel, rs_frame_take, rs_log_fitting_messages, rs_message,
    rs_property_find, rs_queue_entry, rs_queue_state, rs_queue_table_add, rs_queue_table_find,
    rs_record_check, rs_span, rs_status,
)
from rocketstore._native.format.csrc_peer cimport (
    RS_ASK_EXPECTED, RS_ASK_UNIQUE, RS_ASK_WHOLE, rs_ask,
)
from rocketstore._native.format.queue_table cimport grow_table, topic_span
from rocketstore._native.sync.queue_positions cimport QueueState

from rocketstore.errors import MessageRejectedError, QueueOffsetMismatchError

cdef enum:
    REFUSED_FLAGS = 0xC0  # inner batches and wrapped messages (format.md 2.2)
    TABLE_PLACES = 64


@cython.final
@cython.auto_pickle(False)
cdef class HostPuts:
    """The puts of one line; belongs to the thread of that."""

    def __cinit__(self, Log log not None, desk):
        self.log, self.desk, self.kept, self.record_crc = log, desk, [], desk.record_crc

    def __dealloc__(self):
        PyMem_RawFree(self.messages)
        PyMem_RawFree(self.queues)
        PyMem_RawFree(self.expected)
        PyMem_RawFree(self.offsets)
        PyMem_RawFree(self.told)
        PyMem_RawFree(self.table.entries)

    cdef bint put(self, const rs_ask *ask, const uint8_t *bytes) noexcept nogil:
        memset(&self.first, 0, sizeof(rs_appended))
        memset(&self.appended, 0, sizeof(rs_appended))
        self.stored, self.again, self.due_ms = 0, False, 0
        cdef size_t count = ask.count, done = 0, part
        cdef bint places = ask.flags & RS_ASK_EXPECTED
        if not (reserve(<void **>&self.messages, &self.message_room, count, sizeof(rs_message))
                and reserve(<void **>&self.queues, &self.queue_room, count, sizeof(void *))
                and reserve(<void **>&self.expected, &self.expected_room, count, 8)
                and reserve(<void **>&self.offsets, &self.offset_room, count, 8)
                and reserve(<void **>&self.told, &self.told_room, count, sizeof(bint))):
            return self.refuse("the host has no memory for as many messages", 0, ask.count)
        if places:
            memcpy(self.expected, bytes, 8 * count)
        if not self.read_frames(bytes + (8 * count if places else 0),
                                ask.size - (8 * count if places else 0), count):
            return False
        if ask.flags & RS_ASK_UNIQUE:
            if not self.put_once(places):
                return False
            done = self.stored = 1
        while done < count:
            part = count - done
            if not ask.flags & RS_ASK_WHOLE and part > 1:
                self.log.mutex.lock()
                part = rs_log_fitting_messages(&self.log.log, self.messages + done, part)
                self.log.mutex.unlock()
                part = max(part, <size_t>1)
            if not self.append(done, part, places):
                return False
            if done == 0:
                self.first = self.appended
            done += part
            self.stored = <uint32_t>done
        return self.again or self.tell(count)

    cdef bint refuse(self, const char *text, size_t at, int64_t value) noexcept with gil:
        what = f"message {at} of the request: {text.decode()} ({value})"
        self.failure = MessageRejectedError(what)
        return False

    cdef void ends_before(self, int64_t end_offset) noexcept with gil:
        self.failure = ValueError(
            f"end_offset = {end_offset}: the log ends at {self.log.positions.wrote}")

    cdef bint read_frames(self, const uint8_t *bytes, size_t size, size_t count) noexcept nogil:
        """The messages, and their queues; they point into the request."""
        cdef size_t i, at = 0, taken = 0
        cdef rs_crc32_kernel kernel = best_kernel()
        cdef rs_queue_entry *entry
        cdef rs_message *message
        cdef int fault
        for i in range(count):
            message = &self.messages[i]
            fault = rs_frame_take(bytes + at, size - at, REFUSED_FLAGS, kernel, message, &taken)
            if fault == RS_OK:
                message.record_crc = self.record_crc
                fault = rs_record_check(message, <size_t>self.log.max_message_size_bytes, True)
            if fault != RS_OK:
                return self.refuse("no record that the store takes, fault", i, fault)
            at += taken
            entry = rs_queue_table_find(&self.table, message.topic, message.queue_id)
            if entry is NULL:
                entry = self.new_queue(message)
                if entry is NULL:
                    return False
            self.queues[i], self.told[i] = <rs_queue_state *>entry.published, entry.moved
        return at == size or self.refuse("bytes follow the last", count, <int64_t>(size - at))

    cdef rs_queue_entry *new_queue(self, const rs_message *message) noexcept with gil:
        """An entry whose `published` is the state of a queue, and `moved` whether the desk wants to hear of its
        messages; NULL: `failure` says why."""
        cdef QueueState state
        cdef rs_queue_entry *entry
        cdef bytes topic
        try:
            topic = (<const char *>message.topic.bytes)[:message.topic.size]
            state, told = self.desk.queue_of(topic, message.queue_id)
            topic = state.topic_bytes
            if 4 * (self.table.count + 1) > 3 * self.table.capacity:
                grow_table(&self.table, max(2 * self.table.capacity, <size_t>TABLE_PLACES), 0)
            entry = rs_queue_table_add(&self.table, topic_span(topic), message.queue_id)
            self.kept.append((topic, state))
            entry.published, entry.moved = <int64_t *>&state.state, told
            return entry
        except BaseException as error:
            self.failure = error
            return NULL

    cdef bint append(self, size_t begin, size_t count, bint places) noexcept nogil:
        """Some of the messages, in one segment, whatever that takes: a roll, blocks, room."""
        cdef append_call call
        cdef rs_status status
        memset(&call, 0, sizeof(call))
        call.log, call.message, call.appended = &self.log.log, self.messages + begin, &self.appended
        if count == 1 and not places:
            call.queue = self.queues[begin]
        else:
            call.queues, call.count, call.offsets = self.queues + begin, count, self.offsets + begin
            call.expected = self.expected + begin if places else NULL
        while True:
            self.log.mutex.lock()
            status = (self.log.append_many_locked(&call) if count > 1
                      else self.log.append_locked(&call))
            self.log.mutex.unlock()
            if status == RS_OK:
                if call.queues is NULL:
                    self.offsets[begin] = self.appended.physical_offset
                    self.messages[begin].queue_offset = self.appended.queue_offset
                if not self.log.visible_when_flushed and not self.log.buffered:
                    self.log.dispatch_signal.notify_c()
            elif self.prepare(status, &call):
                continue
            else:
                return False
            if self.appended.rolled or self.appended.notify or self.log.woken is not None:
                return self.attend()
            return True

    cdef bint attend(self) noexcept with gil:
        """After an append that rolled, or came to a mark."""
        try:
            self.log.after(&self.appended)
            return True
        except BaseException as error:
            self.failure = error
            return False

    cdef bint prepare(self, rs_status status, append_call *call) noexcept with gil:
        """What an append that did not happen needs before it is tried again; False: `failure` says why not."""
        try:
            self.log.ready()
            self.log.react(status, call)
            return True
        except BaseException as error:
            self.failure = error
        try:
            if isinstance(self.failure, QueueOffsetMismatchError):  # consumers see those before it
                self.log.wait_level(self.log.log.wrote,
                                    DISK if self.log.visible_when_flushed else OS,
                                    self.log.sync_flush_timeout_ms)
        except BaseException as error:
            self.failure = error
        return False

    cdef bint put_once(self, bint places) noexcept with gil:
        """One message, unless its topic has one with its unique id."""
        cdef PutResult result
        cdef rs_span unique_id, topic = self.messages.topic
        try:
            if not rs_property_find(self.messages.properties, "UNIQ_KEY", 8, &unique_id):
                raise MessageRejectedError("the message has no unique id")
            if self.told[0]:  # it waits, and belongs elsewhere
                rs_property_find(self.messages.properties, "REAL_TOPIC", 10, &topic)
            result = self.desk.unique_put(
                (<const char *>topic.bytes)[:topic.size].decode(),
                (<const char *>unique_id.bytes)[:unique_id.size].decode(),
                self._append_expected if places else self._append_one,
                (<const char *>self.messages.topic.bytes)[:self.messages.topic.size].decode(),
                self.messages.queue_id,
                (<const char *>self.messages.properties.bytes)[:self.messages.properties.size])
            self.again, self.due_ms = result.again, result.due_ms
            self.first.physical_offset = result.physical_offset
            self.first.end_offset = result.end_offset
            self.first.queue_offset = result.queue_offset
            self.first.store_timestamp_ms = result.store_timestamp_ms
            self.appended = self.first
            return True
        except BaseException as error:
            self.failure = error
            return False

    def _append_one(self, bint places=False):
        cdef bint done
        with nogil:
            done = self.append(0, 1, places)
        if not done:
            error, self.failure = self.failure, None
            raise error
        return put_result(&self.appended, self.messages.queue_id, 1, self.log.met,
                          &self.messages.store_host)

    def _append_expected(self):
        return self._append_one(True)

    cdef bint tell(self, size_t count) noexcept nogil:
        """The desk hears of messages that have to wait."""
        cdef size_t i
        for i in range(count):
            if self.told[i] and not self.tell_one(&self.messages[i]):
                return False
        return True

    cdef bint tell_one(self, const rs_message *message) noexcept with gil:
        try:
            self.desk.told((<const char *>message.topic.bytes)[:message.topic.size],
                           message.queue_id,
                           (<const char *>message.properties.bytes)[:message.properties.size])
            return True
        except BaseException as error:
            self.failure = error
            return False
