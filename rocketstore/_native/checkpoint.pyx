"""Bytes of the two checkpoint files: ours, slot by slot, and RocketMQ's page of times."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from rocketstore._native.core cimport RS_OK, rs_crc32c, rs_load64s, rs_status, rs_store64s

cdef extern from "rs_checkpoint.h" nogil:
    ctypedef struct rs_checkpoint:
        uint64_t generation
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
        uint32_t clean
        uint8_t boot_id[16]
        uint8_t run_id[16]
    enum:
        RS_OWN_SLOT_STRIDE
        RS_CHECKPOINT_FILE_SIZE
    void rs_checkpoint_encode(const rs_checkpoint *checkpoint, uint8_t *slot)
    rs_status rs_checkpoint_decode(const uint8_t *slot, rs_checkpoint *checkpoint)

SLOT_BYTES = RS_OWN_SLOT_STRIDE
ROCKETMQ_BYTES = RS_CHECKPOINT_FILE_SIZE


def pack_slot(*, generation, flushed, dispatched, indexed, minimum, last_record_start,
              last_store_timestamp_ms, cut, max_unflushed, segment_count, segments_digest,
              last_record_size, last_record_crc, tail_crc, queue_count, queues_digest, clean,
              bytes boot_id not None, bytes run_id not None):
    """One slot of our checkpoint, 4096 bytes."""
    cdef rs_checkpoint fields
    cdef uint8_t slot[4096]
    if len(boot_id) != 16 or len(run_id) != 16:
        raise ValueError("boot_id and run_id have 16 bytes")
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
    fields.clean = 1 if clean else 0
    memcpy(fields.boot_id, <const char *>boot_id, 16)
    memcpy(fields.run_id, <const char *>run_id, 16)
    rs_checkpoint_encode(&fields, slot)
    return (<char *>slot)[:RS_OWN_SLOT_STRIDE]


def unpack_slot(bytes slot not None):
    """Fields of a slot by name; None when it is not whole (magic, version or checksum)."""
    cdef rs_checkpoint fields
    if len(slot) < RS_OWN_SLOT_STRIDE:
        return None
    if rs_checkpoint_decode(<const uint8_t *><const char *>slot, &fields) != RS_OK:
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
        "clean": fields.clean == 1,
        "boot_id": (<char *>fields.boot_id)[:16],
        "run_id": (<char *>fields.run_id)[:16],
    }


def pack_rocketmq(tuple values not None, bytes before=None):
    """RocketMQ's checkpoint: five numbers (format.md 8); other bytes stay as `before` has them."""
    cdef uint8_t page[4096]
    cdef int i
    memset(page, 0, 4096)
    if before is not None:
        memcpy(page, <const char *>before, min(len(before), 4096))
    for i in range(5):
        rs_store64s(page + 8 * i, values[i])
    return (<char *>page)[:4096]


def unpack_rocketmq(bytes page not None):
    """The five numbers; what a short file does not have counts as 0."""
    cdef bytes whole = page[:40].ljust(40, b"\0")
    cdef const uint8_t *start = <const uint8_t *><const char *>whole
    cdef int i
    return tuple([rs_load64s(start + 8 * i) for i in range(5)])


def crc32c(const uint8_t[::1] data not None, uint32_t value=0):
    """CRC-32C of bytes-like data, continued from `value`."""
    if data.shape[0] == 0:
        return value
    return rs_crc32c(value, &data[0], <size_t>data.shape[0])
