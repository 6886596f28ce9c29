/* Checkpoints: the two slots of our own (rs_format.h, RS_OWN_*) and RocketMQ's page (format.md 8).
 *
 * A slot is believed when magic, version, checksum and ranges hold; which of two slots is newer, and
 * when one may be written, is policy and lives in Python. RocketMQ's page has no checksum: any bytes
 * are an answer. */
#ifndef RS_CHECKPOINT_H
#define RS_CHECKPOINT_H

#include "rs_base.h"
#include "rs_format.h"

#define RS_RUN_ID_SIZE 16
/* `flushed`, `last_record_start` and `cut` may be marks instead of offsets: -1 is none, and two more
 * are left to recovery, which takes a checkpoint back with them. */
#define RS_CHECKPOINT_MARK_MIN (-3)

/* Offsets are physical ones. */
typedef struct rs_checkpoint {
    int64_t generation; /* grows with each store; the greater one of two valid slots counts */
    int64_t flushed;    /* D: everything below is durable */
    int64_t dispatched;
    int64_t indexed;
    int64_t minimum;
    int64_t last_record_start; /* -1: no record ends at D */
    int64_t last_store_timestamp_ms;
    int64_t cut;           /* -1: no cut is under way (D-22) */
    int64_t max_unflushed; /* bytes */
    uint32_t segment_count;
    uint32_t segments_digest;
    uint32_t last_record_size;
    uint32_t last_record_crc;
    uint32_t tail_crc;
    uint32_t queue_count;
    uint32_t queues_digest;
    uint32_t index_files;
    bool clean;
    uint8_t boot_id[RS_RUN_ID_SIZE];
    uint8_t run_id[RS_RUN_ID_SIZE];
} rs_checkpoint;

/* Whether every value is one that a decoder accepts. */
bool rs_checkpoint_sane(const rs_checkpoint *checkpoint);

/* Writes RS_OWN_SLOT_STRIDE bytes: the slot and zeros after it. */
void rs_checkpoint_encode(const rs_checkpoint *checkpoint, uint8_t *slot);

/* RS_OK; RS_BAD_TRUNCATED, RS_NOTHING (never written), RS_BAD_MAGIC (magic or version),
 * RS_BAD_RECORD_CRC, RS_BAD_LENGTH (checksum right, a value out of range). `checkpoint` is filled
 * only for RS_OK. */
rs_status rs_checkpoint_decode(const uint8_t *bytes, size_t size, rs_checkpoint *checkpoint);

typedef struct rs_times {
    int64_t physic_timestamp_ms;
    int64_t logics_timestamp_ms;
    int64_t index_timestamp_ms;
    int64_t master_flushed_offset; /* since 5.0.0 */
    int64_t confirm_offset;        /* since 5.1.1 */
    int64_t logics_offset;         /* since 5.5.0: start of the last record with durable units */
} rs_times;

/* Bytes of the page that have a meaning; the bytes after them are kept as they are. */
#define RS_TIMES_SIZE (RS_CHECKPOINT_AT_LOGICS_OFFSET + 8)

/* Writes RS_TIMES_SIZE bytes. */
void rs_times_encode(const rs_times *times, uint8_t *to);

/* Bytes that are missing count as zeros, as when Java maps a short file. */
void rs_times_decode(const uint8_t *bytes, size_t size, rs_times *times);

#endif
