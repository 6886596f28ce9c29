/* Any bytes as a checkpoint slot and as RocketMQ's checkpoint: what is accepted is sane and is written
 * back as it was. */
#include "fuzz.h"
#include "rs_checkpoint.h"
#include "rs_crc32.h"

static void check_slot(const uint8_t *data, size_t size, bool mended)
{
    static const rs_checkpoint nothing;
    rs_checkpoint found = nothing;
    uint8_t slot[RS_OWN_SLOT_STRIDE];
    rs_status status = rs_checkpoint_decode(data, size, &found);
    if (status != RS_OK) {
        CHECK(!mended || status == RS_BAD_LENGTH);
        CHECK(memcmp(&found, &nothing, sizeof found) == 0);
        return;
    }
    CHECK(rs_checkpoint_sane(&found));
    rs_checkpoint_encode(&found, slot);
    CHECK(memcmp(slot, data, RS_OWN_SLOT_SIZE) == 0);
    for (size_t at = RS_OWN_SLOT_SIZE; at < sizeof slot; at++)
        CHECK(slot[at] == 0);
}

static void check_times(const uint8_t *data, size_t size)
{
    rs_times times;
    uint8_t page[RS_TIMES_SIZE];
    rs_times_decode(data, size, &times);
    rs_times_encode(&times, page);
    static const int at[] = {RS_CHECKPOINT_AT_PHYSIC_TIMESTAMP, RS_CHECKPOINT_AT_LOGICS_TIMESTAMP,
                             RS_CHECKPOINT_AT_INDEX_TIMESTAMP, RS_CHECKPOINT_AT_CONFIRM_OFFSET};
    for (size_t field = 0; field < sizeof at / sizeof *at; field++)
        for (size_t i = 0; i < 8; i++) {
            size_t position = (size_t)at[field] + i;
            CHECK(page[position] == (position < size ? data[position] : 0));
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_slot(data, size, false);
    check_times(data, size);
    if (size < RS_OWN_SLOT_SIZE)
        return 0;
    uint8_t *copy = exact_copy(data, size);
    rs_store32(copy + RS_OWN_AT_MAGIC, RS_OWN_MAGIC);
    rs_store32(copy + RS_OWN_AT_VERSION, RS_OWN_VERSION);
    rs_store32(copy + RS_OWN_AT_CRC, rs_crc32c(0, copy, RS_OWN_AT_CRC));
    check_slot(copy, size, true);
    free(copy);
    return 0;
}
