#include "rs_checkpoint.h"

#include "rs_crc32_table.h"

static_assert(RS_OWN_AT_RUN_ID == RS_OWN_AT_BOOT_ID + RS_RUN_ID_SIZE, "ids are 16 bytes");
static_assert(RS_OWN_AT_INDEX_FILES == RS_OWN_AT_RUN_ID + RS_RUN_ID_SIZE, "ids are 16 bytes");

bool rs_checkpoint_sane(const rs_checkpoint *checkpoint)
{
    return checkpoint->generation >= 0 && checkpoint->dispatched >= 0 && checkpoint->indexed >= 0 &&
           checkpoint->minimum >= 0 && checkpoint->max_unflushed >= 0 &&
           checkpoint->flushed >= RS_CHECKPOINT_MARK_MIN &&
           checkpoint->last_record_start >= RS_CHECKPOINT_MARK_MIN &&
           checkpoint->cut >= RS_CHECKPOINT_MARK_MIN;
}

void rs_checkpoint_encode(const rs_checkpoint *checkpoint, uint8_t *slot)
{
    memset(slot, 0, RS_OWN_SLOT_STRIDE);
    rs_store32(slot + RS_OWN_AT_MAGIC, RS_OWN_MAGIC);
    rs_store32(slot + RS_OWN_AT_VERSION, RS_OWN_VERSION);
    rs_store64s(slot + RS_OWN_AT_GENERATION, checkpoint->generation);
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
    rs_store32(slot + RS_OWN_AT_INDEX_FILES, checkpoint->index_files);
    rs_store32(slot + RS_OWN_AT_CLEAN, checkpoint->clean ? 1 : 0);
    memcpy(slot + RS_OWN_AT_BOOT_ID, checkpoint->boot_id, RS_RUN_ID_SIZE);
    memcpy(slot + RS_OWN_AT_RUN_ID, checkpoint->run_id, RS_RUN_ID_SIZE);
    rs_store32(slot + RS_OWN_AT_CRC, rs_crc32c(0, slot, RS_OWN_AT_CRC));
}

rs_status rs_checkpoint_decode(const uint8_t *bytes, size_t size, rs_checkpoint *checkpoint)
{
    rs_checkpoint found;
    if (size < RS_OWN_SLOT_SIZE)
        return RS_BAD_TRUNCATED;
    uint32_t magic = rs_load32(bytes + RS_OWN_AT_MAGIC);
    if (magic != RS_OWN_MAGIC)
        return magic == 0 ? RS_NOTHING : RS_BAD_MAGIC;
    if (rs_load32(bytes + RS_OWN_AT_CRC) != rs_crc32c(0, bytes, RS_OWN_AT_CRC))
        return RS_BAD_RECORD_CRC;
    if (rs_load32(bytes + RS_OWN_AT_VERSION) != RS_OWN_VERSION)
        return RS_BAD_MAGIC;
    uint32_t clean = rs_load32(bytes + RS_OWN_AT_CLEAN);
    found.generation = rs_load64s(bytes + RS_OWN_AT_GENERATION);
    found.flushed = rs_load64s(bytes + RS_OWN_AT_FLUSHED);
    found.dispatched = rs_load64s(bytes + RS_OWN_AT_DISPATCHED);
    found.indexed = rs_load64s(bytes + RS_OWN_AT_INDEXED);
    found.minimum = rs_load64s(bytes + RS_OWN_AT_MINIMUM);
    found.last_record_start = rs_load64s(bytes + RS_OWN_AT_LAST_RECORD_START);
    found.last_store_timestamp_ms = rs_load64s(bytes + RS_OWN_AT_LAST_STORE_TIMESTAMP);
    found.cut = rs_load64s(bytes + RS_OWN_AT_CUT);
    found.max_unflushed = rs_load64s(bytes + RS_OWN_AT_MAX_UNFLUSHED);
    found.segment_count = rs_load32(bytes + RS_OWN_AT_SEGMENT_COUNT);
    found.segments_digest = rs_load32(bytes + RS_OWN_AT_SEGMENTS_DIGEST);
    found.last_record_size = rs_load32(bytes + RS_OWN_AT_LAST_RECORD_SIZE);
    found.last_record_crc = rs_load32(bytes + RS_OWN_AT_LAST_RECORD_CRC);
    found.tail_crc = rs_load32(bytes + RS_OWN_AT_TAIL_CRC);
    found.queue_count = rs_load32(bytes + RS_OWN_AT_QUEUE_COUNT);
    found.queues_digest = rs_load32(bytes + RS_OWN_AT_QUEUES_DIGEST);
    found.index_files = rs_load32(bytes + RS_OWN_AT_INDEX_FILES);
    found.clean = clean == 1;
    memcpy(found.boot_id, bytes + RS_OWN_AT_BOOT_ID, RS_RUN_ID_SIZE);
    memcpy(found.run_id, bytes + RS_OWN_AT_RUN_ID, RS_RUN_ID_SIZE);
    if (clean > 1 || !rs_checkpoint_sane(&found))
        return RS_BAD_LENGTH;
    *checkpoint = found;
    return RS_OK;
}

void rs_times_encode(const rs_times *times, uint8_t *to)
{
    rs_store64s(to + RS_CHECKPOINT_AT_PHYSIC_TIMESTAMP, times->physic_timestamp_ms);
    rs_store64s(to + RS_CHECKPOINT_AT_LOGICS_TIMESTAMP, times->logics_timestamp_ms);
    rs_store64s(to + RS_CHECKPOINT_AT_INDEX_TIMESTAMP, times->index_timestamp_ms);
    rs_store64s(to + RS_CHECKPOINT_AT_MASTER_FLUSHED_OFFSET, times->master_flushed_offset);
    rs_store64s(to + RS_CHECKPOINT_AT_CONFIRM_OFFSET, times->confirm_offset);
    rs_store64s(to + RS_CHECKPOINT_AT_LOGICS_OFFSET, times->logics_offset);
}

void rs_times_decode(const uint8_t *bytes, size_t size, rs_times *times)
{
    uint8_t page[RS_TIMES_SIZE] = {0};
    if (size > 0)
        memcpy(page, bytes, size < sizeof page ? size : sizeof page);
    times->physic_timestamp_ms = rs_load64s(page + RS_CHECKPOINT_AT_PHYSIC_TIMESTAMP);
    times->logics_timestamp_ms = rs_load64s(page + RS_CHECKPOINT_AT_LOGICS_TIMESTAMP);
    times->index_timestamp_ms = rs_load64s(page + RS_CHECKPOINT_AT_INDEX_TIMESTAMP);
    times->master_flushed_offset = rs_load64s(page + RS_CHECKPOINT_AT_MASTER_FLUSHED_OFFSET);
    times->confirm_offset = rs_load64s(page + RS_CHECKPOINT_AT_CONFIRM_OFFSET);
    times->logics_offset = rs_load64s(page + RS_CHECKPOINT_AT_LOGICS_OFFSET);
}
