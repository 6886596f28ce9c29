#include "rs_checkpoint.h"

void rs_checkpoint_encode(const rs_checkpoint *checkpoint, uint8_t *slot)
{
    memset(slot, 0, RS_OWN_SLOT_STRIDE);
    rs_store32(slot + RS_OWN_AT_MAGIC, RS_OWN_MAGIC);
    rs_store32(slot + RS_OWN_AT_VERSION, RS_OWN_VERSION);
    rs_store64(slot + RS_OWN_AT_GENERATION, checkpoint->generation);
    rs_store64s(slot + RS_OWN_AT_FLUSHED, checkpoint->flushed);
    rs_store64s(slot + RS_OWN_AT_DISPATCHED, checkpoint->dispatched);
    rs_store64s(slot + RS_OWN_AT_INDEXED, checkpoint->indexed);
    rs_store64s(slot + RS_OWN_AT_MINIMUM, checkpoint->minimum);
    rs_store64s(slot + RS_OWN_AT_LAST_RECORD_START, checkpoint->last_record_start);
    rs_store64s(slot + RS_OWN_AT_LAST_STORE_TIMESTAMP, checkpoint->last_store_timestamp_ms);
    rs_store64s(slot + RS_OWN_AT_CUT, checkpoint->cut);
    rs_store64s(slot + RS_OWN_AT_MAX_UNFLUSHED, checkpoint->max_unflushed);
    rs_store32(slot + RS_OWN_AT_SEGMENT_COUNT, checkpoint->segment_count);
    rs_store32(slot + RS_OWN_AT_SEGMENTS_DIGEST, checkpoint->segments_digest);
    rs_store32(slot + RS_OWN_AT_LAST_RECORD_SIZE, checkpoint->last_record_size);
    rs_store32(slot + RS_OWN_AT_LAST_RECORD_CRC, checkpoint->last_record_crc);
    rs_store32(slot + RS_OWN_AT_TAIL_CRC, checkpoint->tail_crc);
    rs_store32(slot + RS_OWN_AT_QUEUE_COUNT, checkpoint->queue_count);
    rs_store32(slot + RS_OWN_AT_QUEUES_DIGEST, checkpoint->queues_digest);
    rs_store32(slot + RS_OWN_AT_CLEAN, checkpoint->clean);
    memcpy(slot + RS_OWN_AT_BOOT_ID, checkpoint->boot_id, sizeof checkpoint->boot_id);
    memcpy(slot + RS_OWN_AT_RUN_ID, checkpoint->run_id, sizeof checkpoint->run_id);
    rs_store32(slot + RS_OWN_AT_CRC, rs_crc32c(0, slot, RS_OWN_AT_CRC));
}

rs_status rs_checkpoint_decode(const uint8_t *slot, rs_checkpoint *checkpoint)
{
    if (rs_load32(slot + RS_OWN_AT_MAGIC) != RS_OWN_MAGIC)
        return RS_BAD_MAGIC;
    if (rs_load32(slot + RS_OWN_AT_VERSION) != RS_OWN_VERSION)
        return RS_BAD_MAGIC;
    if (rs_load32(slot + RS_OWN_AT_CRC) != rs_crc32c(0, slot, RS_OWN_AT_CRC))
        return RS_BAD_RECORD_CRC;
    checkpoint->generation = rs_load64(slot + RS_OWN_AT_GENERATION);
    checkpoint->flushed = rs_load64s(slot + RS_OWN_AT_FLUSHED);
    checkpoint->dispatched = rs_load64s(slot + RS_OWN_AT_DISPATCHED);
    checkpoint->indexed = rs_load64s(slot + RS_OWN_AT_INDEXED);
    checkpoint->minimum = rs_load64s(slot + RS_OWN_AT_MINIMUM);
    checkpoint->last_record_start = rs_load64s(slot + RS_OWN_AT_LAST_RECORD_START);
    checkpoint->last_store_timestamp_ms = rs_load64s(slot + RS_OWN_AT_LAST_STORE_TIMESTAMP);
    checkpoint->cut = rs_load64s(slot + RS_OWN_AT_CUT);
    checkpoint->max_unflushed = rs_load64s(slot + RS_OWN_AT_MAX_UNFLUSHED);
    checkpoint->segment_count = rs_load32(slot + RS_OWN_AT_SEGMENT_COUNT);
    checkpoint->segments_digest = rs_load32(slot + RS_OWN_AT_SEGMENTS_DIGEST);
    checkpoint->last_record_size = rs_load32(slot + RS_OWN_AT_LAST_RECORD_SIZE);
    checkpoint->last_record_crc = rs_load32(slot + RS_OWN_AT_LAST_RECORD_CRC);
    checkpoint->tail_crc = rs_load32(slot + RS_OWN_AT_TAIL_CRC);
    checkpoint->queue_count = rs_load32(slot + RS_OWN_AT_QUEUE_COUNT);
    checkpoint->queues_digest = rs_load32(slot + RS_OWN_AT_QUEUES_DIGEST);
    checkpoint->clean = rs_load32(slot + RS_OWN_AT_CLEAN);
    memcpy(checkpoint->boot_id, slot + RS_OWN_AT_BOOT_ID, sizeof checkpoint->boot_id);
    memcpy(checkpoint->run_id, slot + RS_OWN_AT_RUN_ID, sizeof checkpoint->run_id);
    return RS_OK;
}
