/* Consume queue units: 20 bytes a message, unit n of a queue at byte 20·n (format.md 6). */
#ifndef RS_QUEUE_FILE_H
#define RS_QUEUE_FILE_H

#include "rs_cursor.h"
#include "rs_format.h"

typedef struct rs_unit {
    int64_t physical_offset;
    int32_t size;
    int64_t tags_code;
} rs_unit;

/* Each field is read from memory once: the place that was compared is the one that is followed. The size
 * comes first, before an acquire fence: a unit with a size is whole, also while it is written. */
static inline rs_unit rs_unit_load(const uint8_t *at)
{
    int32_t size = (int32_t)rs_read_once(rs_load32(at + RS_UNIT_AT_SIZE));
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return (rs_unit){
        (int64_t)rs_read_once(rs_load64(at + RS_UNIT_AT_PHYSICAL_OFFSET)),
        size,
        (int64_t)rs_read_once(rs_load64(at + RS_UNIT_AT_TAGS_CODE)),
    };
}

/* The size goes last, after a release fence: a reader that sees a size sees the whole unit. */
static inline void rs_unit_store(uint8_t *at, rs_unit unit)
{
    rs_store64s(at + RS_UNIT_AT_PHYSICAL_OFFSET, unit.physical_offset);
    rs_store64s(at + RS_UNIT_AT_TAGS_CODE, unit.tags_code);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    rs_store32s(at + RS_UNIT_AT_SIZE, unit.size);
}

static inline bool rs_unit_written(rs_unit unit)
{
    return unit.physical_offset >= 0 && unit.size > 0;
}

/* Placeholder before a queue's first message, or where a message was lost (format.md 6.3). */
static inline bool rs_unit_pre_blank(rs_unit unit)
{
    return unit.physical_offset == 0 && unit.size == RS_PRE_BLANK_SIZE && unit.tags_code == 0;
}

/* Number of units before the first one that is not written, of `count` at `units`. */
size_t rs_units_written(const uint8_t *units, size_t count);

/* The first unit that is written, no pre-blank and points to `minimum` or beyond; `count` when
 * none. */
size_t rs_units_first_kept(const uint8_t *units, size_t count, int64_t minimum);

/* End of the record of the last unit that is no pre-blank; -1 when there is none. */
int64_t rs_units_physical_end(const uint8_t *units, size_t count);

void rs_units_fill_pre_blank(uint8_t *units, size_t count);

/* Clears every unit that points to `physical_offset` or beyond, and everything after the first of
 * them. Returns how many units are left in front. */
size_t rs_units_cut(uint8_t *units, size_t count, int64_t physical_offset);

#endif
