/* Slots of our own checkpoint: how far the store is durable, closed by a CRC-32C (docs/format.md).
 */
#ifndef RS_CHECKPOINT_H
#define RS_CHECKPOINT_H

#include "rs_base.h"
#include "rs_crc32.h"
#include "rs_format.h"

typedef struct rs_checkpoint {
    uint64_t generation;
    int64_t flushed;
    int64_t dispatched;
    int64_t indexed;
    int64_t minimum;
    int64_t last_record_start;
    int64_t last_store_timestamp_ms;
    int64_t cut;
    int64_t max_unflushed;
    uint32_t segment_count;
    uint32_t segments_digest;
    uint32_t last_record_size;
    uint32_t last_record_crc;
    uint32_t tail_crc;
    uint32_t queue_count;
    uint32_t queues_digest;
    uint32_t clean;
    uint8_t boot_id[16];
    uint8_t run_id[16];
} rs_checkpoint;

/* Fills `slot`, RS_OWN_SLOT_STRIDE bytes: the fields, their checksum, zeros. */
void rs_checkpoint_encode(const rs_checkpoint *checkpoint, uint8_t *slot);

/* RS_OK; RS_BAD_MAGIC (never written, or another version) or RS_BAD_RECORD_CRC (torn). */
rs_status rs_checkpoint_decode(const uint8_t *slot, rs_checkpoint *checkpoint);

#endif
