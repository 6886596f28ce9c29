"""The codec of csrc from Python, for tools, tests and cold paths; and the choice of the CRC kernel.

The hot paths (appender, scanner) call csrc themselves and take only `best_kernel` from here.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from rocketstore._native.format.csrc cimport (
    RS_OK, RS_VERIFY_BODY_CRC, RS_VERIFY_RECORD_CRC, rs_crc32, rs_crc32_kernel, rs_crc32c,
    rs_host, rs_java_hash, rs_load32s, rs_message, rs_message_id_encode, rs_properties_walk,
    rs_property_check, rs_property_next, rs_property_walk, rs_record, rs_record_born_host,
    rs_record_check, rs_record_crc_find, rs_record_decode, rs_record_encode, rs_record_publish,
    rs_record_size, rs_record_store_host, rs_record_verify, rs_span, rs_store32s,
    rs_tags_code,
)
from rocketstore._native.format.status cimport check

import ipaddress

from rocketstore.errors import MessageRejectedError

cdef extern from *:
    """
    #include "rs_crc32.h"
    #if defined(__x86_64__)
    #include <cpuid.h>
    #elif defined(__aarch64__) && defined(__linux__)
    #include <sys/auxv.h>
    #include <asm/hwcap.h>
    #endif

    /* Carry-less multiplication, or on aarch64 the CRC instruction. */
    static int rs_has_clmul(void)
    {
    #if defined(__x86_64__)
        unsigned a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_PCLMUL) && (c & bit_SSE4_1);
    #elif defined(__aarch64__) && defined(__linux__)
        return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
    #elif defined(__aarch64__) && defined(__APPLE__)
        return 1;
    #else
        return 0;
    #endif
    }

    /* The fastest kernel. For the wide ones the system must save the wide registers, too: XCR0 bits 1 and
     * 2 for 256 bits, and 5, 6, 7 for 512. */
    static rs_crc32_kernel rs_best_kernel(void)
    {
        if (!rs_has_clmul())
            return RS_CRC32_SLICING;
    #if defined(__x86_64__)
        unsigned a, b, c, d, low, high;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
            return RS_CRC32_CLMUL;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        if ((low & 6) == 6 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX2) &&
            (c & bit_VPCLMULQDQ))
            return (low & 0xE6) == 0xE6 && (b & bit_AVX512F) ? RS_CRC32_CLMUL512
                                                             : RS_CRC32_CLMUL256;
    #endif
        return RS_CRC32_CLMUL;
    }
    """
    rs_crc32_kernel rs_best_kernel() noexcept nogil

cdef rs_crc32_kernel BEST = rs_best_kernel()
# By name, in the order of their numbers: each needs what the one before does, and more.
cdef tuple KERNELS = ("slicing", "clmul", "clmul256", "clmul512")


cdef rs_crc32_kernel best_kernel() noexcept nogil:
    return BEST


cdef rs_crc32_kernel kernel_named(str name) except *:
    if name == "best":
        return BEST
    names = crc_kernels()
    if name not in names:
        raise ValueError(f"no CRC kernel {name!r} on this CPU; there are {names}")
    return <rs_crc32_kernel>(<int>names.index(name))


def crc_kernels():
    """Names of the CRC-32 kernels that this CPU can run, the fastest last."""
    return list(KERNELS[:<int>BEST + 1])


def crc32(data, uint32_t value=0, str kernel="best"):
    """CRC-32 as zlib.crc32(data, value)."""
    cdef rs_crc32_kernel chosen = kernel_named(kernel)
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len > 1 << 16:  # for less, giving up the GIL costs more than the checksum
            with nogil:
                value = rs_crc32(chosen, value, <const uint8_t *>view.buf, <size_t>view.len)
        else:
            value = rs_crc32(chosen, value, <const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)
    return value


def crc32c(data, uint32_t value=0):
    """CRC-32C of bytes-like data, continued from `value`."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return rs_crc32c(value, <const uint8_t *>view.buf, <size_t>view.len)
    finally:
        PyBuffer_Release(&view)


def crc31(data):
    """What RocketMQ stores of a body: the CRC-32 without its top bit (format.md 0)."""
    return crc32(data) & 0x7FFFFFFF


cdef inline rs_span span(bytes data) noexcept:
    cdef rs_span result
    result.bytes = <const uint8_t *>PyBytes_AS_STRING(data)
    result.size = <size_t>len(data)
    return result


cdef inline bytes span_bytes(rs_span data):
    return PyBytes_FromStringAndSize(<const char *>data.bytes, <Py_ssize_t>data.size)


cdef inline str span_text(rs_span data):
    # As Java has it: what is not UTF-8 is replaced, never an error.
    return span_bytes(data).decode("utf-8", "rocketstore.java")


cdef bytes text_bytes(object text):
    return text if isinstance(text, bytes) else (<str?>text).encode()


def java_hash(text):
    """java.lang.String.hashCode. `bytes` are UTF-8, of which Java would replace what is malformed."""
    return rs_java_hash(span(text_bytes(text)))


def tags_code(tags):
    """The tags code of a consume queue unit (format.md 6.2); 0 for an empty text."""
    return rs_tags_code(span(text_bytes(tags)))


def encode_properties(properties):
    """The property text of a mapping; MessageRejectedError names the property that cannot be in it."""
    cdef list pieces = []
    cdef bytes name_bytes, value_bytes
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"property {name!r}: name and value must be str, not {value!r}")
        try:
            name_bytes, value_bytes = name.encode(), value.encode()
        except UnicodeEncodeError as error:
            raise MessageRejectedError(f"property {name!r} cannot be UTF-8: {error}") from None
        if rs_property_check(span(name_bytes), span(value_bytes)) != RS_OK:
            raise MessageRejectedError(
                f"property {name!r} = {value!r}: names and values must not be empty nor hold the "
                "characters 1 and 2, which separate properties")
        pieces += (name_bytes, b"\x01", value_bytes, b"\x02")
    return b"".join(pieces)


def decode_properties(bytes data not None):
    """The properties of any property text, as RocketMQ reads it: what is malformed is left out."""
    cdef rs_property_walk walk = rs_properties_walk(span(data))
    cdef rs_span name, value
    cdef dict found = {}
    while rs_property_next(&walk, &name, &value):
        found[span_text(name)] = span_text(value)
    return found


def pack_host(object text, str name="host"):
    """`1.2.3.4:10911` or `[::1]:10911` as it is in a record: address, then port as i32. `name`: for errors."""
    cdef str shown = f"{name} = {text!r}"
    if not isinstance(text, str):
        raise TypeError(f"{shown}: expected a str")
    address_text, colon, port_text = text.rpartition(":")
    if not colon:
        raise ValueError(f"{shown}: expected address:port")
    bracketed = address_text.startswith("[") and address_text.endswith("]")
    try:
        address = ipaddress.ip_address(
            address_text.removeprefix("[").removesuffix("]") if bracketed else address_text)
        port = int(port_text)
    except ValueError as error:
        raise ValueError(f"{shown}: {error}") from None
    if bracketed != (address.version == 6):
        raise ValueError(f"{shown}: brackets belong around an IPv6 address and nothing else")
    if not INT32_MIN <= port <= INT32_MAX:
        raise ValueError(f"{shown}: a port is a 32-bit number")
    cdef uint8_t encoded[4]
    rs_store32s(encoded, port)
    if address.version == 6 and address.ipv4_mapped is not None:
        address = address.ipv4_mapped  # as the JVM does
    return address.packed + encoded[:4]


def unpack_host(bytes data not None):
    """The text of 8 or 20 bytes of a record. Any 32-bit port is shown: damaged records have them."""
    cdef Py_ssize_t size = len(data)
    if size not in (8, 20):
        raise ValueError(f"a host has 8 or 20 bytes, not {size}")
    address = ipaddress.ip_address(data[:size - 4])
    port = rs_load32s(<const uint8_t *>PyBytes_AS_STRING(data) + size - 4)
    if size == 20 and address.ipv4_mapped is None:
        return f"[{address}]:{port}"
    return f"{address if size == 8 else address.ipv4_mapped}:{port}"


cdef rs_host host_of(bytes packed):
    cdef rs_host host
    host.size = <uint8_t>len(packed)
    memcpy(host.bytes, PyBytes_AS_STRING(packed), host.size)
    return host


def encode_record(
    *,
    topic,
    bytes body not None,
    bytes properties=b"",
    int32_t queue_id=0,
    int32_t flag=0,
    int64_t queue_offset=0,
    int64_t physical_offset=0,
    uint32_t sys_flag=0,
    int64_t born_timestamp_ms=0,
    str born_host="0.0.0.0:0",
    int64_t store_timestamp_ms=0,
    str store_host="0.0.0.0:0",
    int32_t reconsume_times=0,
    int64_t prepared_transaction_offset=0,
    bint record_crc=False,
):
    """One record, published. V2 iff the topic has more than 127 bytes; refusals are the put's own."""
    cdef bytes topic_bytes = text_bytes(topic)
    cdef rs_message message
    message.topic = span(topic_bytes)
    message.body = span(body)
    message.properties = span(properties)
    message.queue_offset = queue_offset
    message.physical_offset = physical_offset
    message.born_timestamp_ms = born_timestamp_ms
    message.store_timestamp_ms = store_timestamp_ms
    message.prepared_transaction_offset = prepared_transaction_offset
    message.queue_id = queue_id
    message.flag = flag
    message.reconsume_times = reconsume_times
    message.sys_flag = sys_flag
    message.born_host = host_of(pack_host(born_host))
    message.store_host = host_of(pack_host(store_host))
    message.record_crc = record_crc
    check(rs_record_check(&message, INT32_MAX - (1 << 16), True), physical_offset)
    cdef bytes record = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>rs_record_size(&message))
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(record)
    rs_record_encode(&message, to, BEST)
    rs_record_publish(to, message.topic.size)
    return record


def decode_record(bytes data not None, int64_t physical_offset=-1, bint verify=True):
    """Every field of the record that `data` begins with; CorruptRecordError when it is none.

    `physical_offset` is compared unless negative; `verify` checks body CRC and record CRC.
    """
    cdef rs_record record
    cdef uint32_t number = 0
    cdef unsigned what = (RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC) if verify else 0
    check(rs_record_decode(data, <size_t>len(data), &record), physical_offset)
    check(rs_record_verify(&record, physical_offset, what, BEST), physical_offset)
    return {
        "total_size": record.size,
        "magic": record.magic,
        "body_crc": record.body_crc,
        "queue_id": record.queue_id,
        "flag": record.flag,
        "queue_offset": record.queue_offset,
        "physical_offset": record.physical_offset,
        "sys_flag": record.sys_flag,
        "born_timestamp_ms": record.born_timestamp_ms,
        "born_host": unpack_host(span_bytes(rs_record_born_host(&record))),
        "store_timestamp_ms": record.store_timestamp_ms,
        "store_host": unpack_host(span_bytes(rs_record_store_host(&record))),
        "reconsume_times": record.reconsume_times,
        "prepared_transaction_offset": record.prepared_transaction_offset,
        "body": span_bytes(record.body),
        "topic": span_text(record.topic),
        "properties": span_bytes(record.properties),
        "record_crc": number if rs_record_crc_find(&record, &number) else None,
        "message_id": host_message_id(rs_record_store_host(&record), record.physical_offset),
    }


cdef str host_message_id(rs_span store_host, int64_t physical_offset):
    cdef char text[56]
    cdef size_t size = rs_message_id_encode(store_host, physical_offset, text)
    return text[:size].decode("ascii")


def message_id(str host not None, int64_t physical_offset):
    """The offset message id of a record on the store host `host` (format.md 5)."""
    cdef bytes packed = pack_host(host)
    return host_message_id(span(packed), physical_offset)
