"""One stored message: a decoded header, pointers into the mapped file, all else on demand."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketstore._native.format.codec cimport best_kernel
from rocketstore._native.format.csrc cimport (
    RS_VERIFY_BODY_CRC, RS_VERIFY_RECORD_CRC, rs_message_id_encode, rs_properties_walk,
    rs_property_find, rs_property_next, rs_property_walk, rs_record, rs_record_born_host,
    rs_record_decode, rs_record_store_host, rs_record_verify, rs_span, rs_tags_code,
)
from rocketstore._native.os.sigbus_guard cimport copied_bytes, guarded, guarded_copy, raise_unread
from rocketstore._native.os.mapping cimport Mapping
from rocketstore._native.format.status cimport check

import datetime

from rocketstore._native.format.codec import unpack_host
from rocketstore.errors import CorruptRecordError

cdef extern from *:
    """
    static PyObject *rs_new_refused(PyTypeObject *type, PyObject *args, PyObject *named)
    {
        (void)type, (void)args, (void)named;
        PyErr_SetString(PyExc_TypeError, "a Message is not made by __new__");
        return NULL;
    }
    #define rs_refuse_new(type) (((PyTypeObject *)(type))->tp_new = rs_new_refused)
    #define rs_name(type, name) (((PyTypeObject *)(type))->tp_name = (name))
    """
    void rs_refuse_new(object type)
    void rs_name(object type, const char *name)

cdef enum:
    SHOWN_BYTES = 32   # of the body, in a repr
    SHORT_TEXT = 512   # decoded without another object in between

cdef object EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
cdef object MILLISECOND = datetime.timedelta(milliseconds=1)


# Everything below the header lies in a mapped file, from which nothing is read but under guard.

cdef inline bytes span_bytes(rs_span span):
    return copied_bytes(span.bytes, span.size, "a message")


cdef str span_text(rs_span span):
    # As Java has it: what is not UTF-8 is replaced, never an error.
    cdef char[SHORT_TEXT] text
    if span.size > SHORT_TEXT:
        return span_bytes(span).decode("utf-8", "rocketstore.java")
    if not guarded_copy(text, span.bytes, span.size):
        raise_unread("the log", "a message")
    return text[:span.size].decode("utf-8", "rocketstore.java") if span.size else ""


cdef inline rs_span span_over(bytes copy) noexcept:
    cdef rs_span span
    span.bytes, span.size = <const uint8_t *>PyBytes_AS_STRING(copy), <size_t>len(copy)
    return span


cdef struct find_call:
    rs_span properties
    const char *name
    size_t size
    rs_span value
    bint found


cdef void find_work(void *given) noexcept nogil:
    cdef find_call *call = <find_call *>given
    call.found = rs_property_find(call.properties, call.name, call.size, &call.value)


cdef Message make_message(object owner, const rs_record *record):
    cdef Message message = Message.__new__(Message)
    message.owner = owner
    message.record = record[0]
    return message


cdef list make_messages(object owner, const rs_record *records, Py_ssize_t count):
    cdef list messages = PyList_New(count)
    cdef Message message
    cdef Py_ssize_t i
    for i in range(count):
        message = Message.__new__(Message)
        message.owner = owner
        message.record = records[i]
        Py_INCREF(message)  # the list takes this one over
        PyList_SET_ITEM(messages, i, message)
    return messages


# Without the collector: a message refers to memory only, which refers to nothing.
@cython.final
@cython.freelist(512)
@cython.no_gc
@cython.auto_pickle(False)
cdef class Message:
    """A message as it lies in the log. Immutable; its file stays mapped while it lives.

    `body` is a copy, `body_view` the bytes themselves. Two messages are equal when their records
    are. `bytes(message)` is the record, which `Message.from_bytes` reads back; pickles hold it,
    too.
    """

    def __init__(self):
        raise TypeError("a Message is read from a store, or made by Message.from_bytes")

    @staticmethod
    def from_bytes(record, *, bint verify=True):
        """The message of one whole record; its checksums are tested unless `verify` is False.

        Raises:
            CorruptRecordError: not a record, or bytes are left over.
        """
        cdef bytes data = bytes(memoryview(record))
        cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(data)
        cdef rs_record decoded
        cdef unsigned what = RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC if verify else 0
        check(rs_record_decode(at, <size_t>len(data), &decoded), -1)
        check(rs_record_verify(&decoded, -1, what, best_kernel()), decoded.physical_offset)
        if decoded.size != len(data):
            raise CorruptRecordError(decoded.physical_offset, "length")
        return make_message(data, &decoded)

    # ---- content ----

    @property
    def topic(self):
        """Name of the topic."""
        return span_text(self.record.topic)

    @property
    def body(self):
        """The body, copied."""
        return span_bytes(self.record.body)

    @property
    def body_view(self):
        """The body without a copy, read-only; its file stays mapped while the view lives."""
        cdef const uint8_t *base
        if isinstance(self.owner, Mapping):
            base = (<Mapping>self.owner).base
        else:
            base = <const uint8_t *>PyBytes_AS_STRING(self.owner)
        start = self.record.body.bytes - base
        return memoryview(self.owner)[start:start + self.record.body.size]

    @property
    def properties(self):
        """All properties but the record's checksum; a new dict each time."""
        cdef bytes text = span_bytes(self.record.properties)
        cdef rs_property_walk walk = rs_properties_walk(span_over(text))
        cdef rs_span name, value
        cdef dict found = {}
        while rs_property_next(&walk, &name, &value):
            found[span_text(name)] = span_text(value)
        found.pop("__CRC32#", None)  # the store's checksum, not the sender's
        return found

    @property
    def tags(self):
        """The tag, or None."""
        return self.property_text(b"TAGS")

    @property
    def keys(self):
        """The keys, one text each; an empty tuple for a message without keys."""
        text = self.property_text(b"KEYS")
        return () if text is None else tuple([key for key in text.split(" ") if key])

    @property
    def unique_id(self):
        """What the sender's client gave the message, property UNIQ_KEY."""
        return self.property_text(b"UNIQ_KEY")

    cdef bint find_property(self, bytes name, rs_span *value) except -1:
        cdef find_call call
        call.properties = self.record.properties
        call.name, call.size = PyBytes_AS_STRING(name), <size_t>len(name)
        if not guarded(find_work, &call):
            raise_unread("the log", "a message")
        value[0] = call.value
        return call.found

    cdef property_text(self, bytes name):
        cdef rs_span value
        return span_text(value) if self.find_property(name, &value) else None

    @property
    def tags_code(self):
        """Java's hash of `tags`, 0 without: what a consume queue unit holds to filter by."""
        cdef rs_span value
        if not self.find_property(b"TAGS", &value):
            return 0
        tags = span_bytes(value)
        return rs_tags_code(span_over(tags))

    # ---- header ----

    @property
    def queue_id(self):
        """Number of the queue within the topic."""
        return self.record.queue_id

    @property
    def queue_offset(self):
        """Number of the message within its queue."""
        return self.record.queue_offset

    @property
    def physical_offset(self):
        """Byte address of the record in the log."""
        return self.record.physical_offset

    @property
    def size(self):
        """Bytes of the record in the log."""
        return self.record.size

    @property
    def flag(self):
        """A number that the sender gave; the store does not read it."""
        return self.record.flag

    @property
    def sys_flag(self):
        """Bits of RocketMQ: compression, transaction, kind of addresses, batch (format.md 2.2)."""
        return self.record.sys_flag

    @property
    def born_timestamp_ms(self):
        """When the sender made the message, in milliseconds since 1970."""
        return self.record.born_timestamp_ms

    @property
    def store_timestamp_ms(self):
        """When the store stored it, in milliseconds since 1970."""
        return self.record.store_timestamp_ms

    @property
    def born_time(self):
        """Aware UTC. OverflowError when a damaged record's time is outside the years 1 to 9999."""
        return EPOCH + self.record.born_timestamp_ms * MILLISECOND

    @property
    def store_time(self):
        """Aware UTC. OverflowError when a damaged record's time is outside the years 1 to 9999."""
        return EPOCH + self.record.store_timestamp_ms * MILLISECOND

    @property
    def due_time(self):
        """When a message that waits is due, aware UTC; None for all others.

        A message of SCHEDULE_TOPIC_XXXX has it where it was read from its queue, whose unit holds the
        time."""
        return EPOCH + self.due_ms * MILLISECOND if self.due_ms else None

    def _due_at(self, int64_t due_ms):
        """Called once by what read the unit, before anybody else has the message."""
        self.due_ms = due_ms

    @property
    def born_host(self):
        """The sender, as `1.2.3.4:5678` or `[::1]:5678`."""
        return unpack_host(span_bytes(rs_record_born_host(&self.record)))

    @property
    def store_host(self):
        """Address of the store, as `1.2.3.4:5678` or `[::1]:5678`."""
        return unpack_host(span_bytes(rs_record_store_host(&self.record)))

    @property
    def reconsume_times(self):
        """How often RocketMQ has delivered the message again."""
        return self.record.reconsume_times

    @property
    def prepared_transaction_offset(self):
        """Physical offset of a transaction's first half; 0 without one."""
        return self.record.prepared_transaction_offset

    @property
    def message_id(self):
        """RocketMQ's offset message id: store host and physical offset in hexadecimal."""
        cdef char text[56]
        host = span_bytes(rs_record_store_host(&self.record))
        cdef size_t size = rs_message_id_encode(
            span_over(host), self.record.physical_offset, text)
        return text[:size].decode("ascii")

    # ---- value ----

    def __bytes__(self):
        return copied_bytes(self.record.start, self.record.size, "a message")

    def __eq__(self, other):
        if not isinstance(other, Message):
            return NotImplemented
        cdef Message that = <Message>other
        return self.record.size == that.record.size and bytes(self) == bytes(that)

    def __hash__(self):
        return hash((self.record.physical_offset, self.record.size, self.record.body_crc))

    def __reduce__(self):
        return restore_message, (bytes(self),)

    def __repr__(self):
        cdef rs_span body = self.record.body, shown_span = body
        shown_span.size = min(<size_t>SHOWN_BYTES, body.size)
        shown = repr(span_bytes(shown_span))
        more = f"… {body.size} bytes" if body.size > <size_t>SHOWN_BYTES else ""
        tags = f", tags={self.tags!r}" if self.tags is not None else ""
        keys = f", keys={self.keys!r}" if self.keys else ""
        return (f"Message(topic={self.topic!r}, queue_id={self.queue_id}, "
                f"queue_offset={self.queue_offset}, physical_offset={self.physical_offset}, "
                f"size={self.size}, body={shown}{more}{tags}{keys})")


rs_refuse_new(Message)
rs_name(Message, "rocketstore.Message")  # for pickles, help and tracebacks


def restore_message(bytes record not None):
    """What Message.__reduce__ says, back as a Message. Checksums were looked at when it was read."""
    return Message.from_bytes(record, verify=False)


restore_message.__module__ = "rocketstore"
