"""Bytes of the two checkpoint files: slots of our own, and RocketMQ's page of times (format.md 8).

Which slot counts and when one is written is decided in `rocketstore.log.commitlog.checkpoint`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memset

from rocketstore._native.format.csrc cimport RS_OK, rs_crc32c, rs_status

cdef extern from "rs_checkpoint.h" nogil:
    enum:
        RS_CHECKPOINT_FILE_SIZE, RS_OWN_SLOT_STRIDE, RS_RUN_ID_SIZE, RS_TIMES_SIZE
    ctypedef struct rs_checkpoint:
        int64_t generation
        int64_t flushed
        int64_t dispatched
        int64_t indexed
        int64_t minimum
        int64_t last_record_start
        int64_t last_store_timestamp_ms
        int64_t cut
        int64_t max_unflushed
        uint32_t segment_count
        uint32_t segments_digest
        uint32_t last_record_size
        uint32_t last_record_crc
        uint32_t tail_crc
        uint32_t queue_count
        uint32_t queues_digest
        uint32_t index_files
        bint clean
        uint8_t boot_id[16]
        uint8_t run_id[16]
    ctypedef struct rs_times:
        int64_t physic_timestamp_ms
        int64_t logics_timestamp_ms
        int64_t index_timestamp_ms
        int64_t master_flushed_offset
        int64_t confirm_offset
        int64_t logics_offset
    bint rs_checkpoint_sane(const rs_checkpoint *checkpoint) noexcept
    void rs_checkpoint_encode(const rs_checkpoint *checkpoint, uint8_t *slot) noexcept
    rs_status rs_checkpoint_decode(const uint8_t *bytes, size_t size,
                                   rs_checkpoint *checkpoint) noexcept
    void rs_times_encode(const rs_times *times, uint8_t *to) noexcept
    void rs_times_decode(const uint8_t *bytes, size_t size, rs_times *times) noexcept

SLOT_BYTES = RS_OWN_SLOT_STRIDE
ROCKETMQ_BYTES = RS_CHECKPOINT_FILE_SIZE
ROCKETMQ_USED_BYTES = RS_TIMES_SIZE


def pack_slot(
    *, int64_t generation, int64_t flushed, int64_t dispatched, int64_t indexed, int64_t minimum,
    int64_t last_record_start, int64_t last_store_timestamp_ms, int64_t cut, int64_t max_unflushed,
    uint32_t segment_count, uint32_t segments_digest, uint32_t last_record_size,
    uint32_t last_record_crc, uint32_t tail_crc, uint32_t queue_count, uint32_t queues_digest,
    uint32_t index_files, bint clean, bytes boot_id not None, bytes run_id not None,
):
    """One slot of our checkpoint, 4096 bytes. ValueError for what `unpack_slot` would not accept."""
    cdef rs_checkpoint fields
    cdef bytes slot = PyBytes_FromStringAndSize(NULL, RS_OWN_SLOT_STRIDE)
    if len(boot_id) != RS_RUN_ID_SIZE or len(run_id) != RS_RUN_ID_SIZE:
        raise ValueError(f"boot_id and run_id have {RS_RUN_ID_SIZE} bytes")
    fields.generation = generation
    fields.flushed = flushed
    fields.dispatched = dispatched
    fields.indexed = indexed
    fields.minimum = minimum
    fields.last_record_start = last_record_start
    fields.last_store_timestamp_ms = last_store_timestamp_ms
    fields.cut = cut
    fields.max_unflushed = max_unflushed
    fields.segment_count = segment_count
    fields.segments_digest = segments_digest
    fields.last_record_size = last_record_size
    fields.last_record_crc = last_record_crc
    fields.tail_crc = tail_crc
    fields.queue_count = queue_count
    fields.queues_digest = queues_digest
    fields.index_files = index_files
    fields.clean = clean
    memcpy(fields.boot_id, PyBytes_AS_STRING(boot_id), RS_RUN_ID_SIZE)
    memcpy(fields.run_id, PyBytes_AS_STRING(run_id), RS_RUN_ID_SIZE)
    if not rs_checkpoint_sane(&fields):
        raise ValueError("an offset of the checkpoint is negative")
    rs_checkpoint_encode(&fields, <uint8_t *>PyBytes_AS_STRING(slot))
    return slot


def unpack_slot(bytes slot not None):
    """Fields of a slot by name; None when it is not whole: magic, version, checksum or a range."""
    cdef rs_checkpoint fields
    cdef const uint8_t *at = <const uint8_t *>PyBytes_AS_STRING(slot)
    if rs_checkpoint_decode(at, <size_t>len(slot), &fields) != RS_OK:
        return None
    return {
        "generation": fields.generation,
        "flushed": fields.flushed,
        "dispatched": fields.dispatched,
        "indexed": fields.indexed,
        "minimum": fields.minimum,
        "last_record_start": fields.last_record_start,
        "last_store_timestamp_ms": fields.last_store_timestamp_ms,
        "cut": fields.cut,
        "max_unflushed": fields.max_unflushed,
        "segment_count": fields.segment_count,
        "segments_digest": fields.segments_digest,
        "last_record_size": fields.last_record_size,
        "last_record_crc": fields.last_record_crc,
        "tail_crc": fields.tail_crc,
        "queue_count": fields.queue_count,
        "queues_digest": fields.queues_digest,
        "index_files": fields.index_files,
        "clean": bool(fields.clean),
        "boot_id": PyBytes_FromStringAndSize(<char *>fields.boot_id, RS_RUN_ID_SIZE),
        "run_id": PyBytes_FromStringAndSize(<char *>fields.run_id, RS_RUN_ID_SIZE),
    }


def pack_rocketmq(tuple values not None, bytes before=None):
    """RocketMQ's checkpoint, 4096 bytes: six numbers; every other byte stays as `before` has it."""
    cdef rs_times times
    cdef bytes page = PyBytes_FromStringAndSize(NULL, RS_CHECKPOINT_FILE_SIZE)
    cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(page)
    if len(values) != 6:
        raise ValueError(f"six numbers, not {len(values)}")
    memset(to, 0, RS_CHECKPOINT_FILE_SIZE)
    if before is not None:
        memcpy(to, PyBytes_AS_STRING(before),
               <size_t>min(len(before), <Py_ssize_t>RS_CHECKPOINT_FILE_SIZE))
    times.physic_timestamp_ms = values[0]
    times.logics_timestamp_ms = values[1]
    times.index_timestamp_ms = values[2]
    times.master_flushed_offset = values[3]
    times.confirm_offset = values[4]
    times.logics_offset = values[5]
    rs_times_encode(&times, to)
    return page


def unpack_rocketmq(bytes page not None):
    """The six numbers; what a short file does not have counts as zeros."""
    cdef rs_times times
    rs_times_decode(<const uint8_t *>PyBytes_AS_STRING(page), <size_t>len(page), &times)
    return (
        times.physic_timestamp_ms,
        times.logics_timestamp_ms,
        times.index_timestamp_ms,
        times.master_flushed_offset,
        times.confirm_offset,
        times.logics_offset,
    )


def crc32c(data, uint32_t value=0):
    """CRC-32C of bytes-like data, continued from `value`."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        return rs_crc32c(value, <const uint8_t *>buffer.buf, <size_t>buffer.len)
    finally:
        PyBuffer_Release(&buffer)
