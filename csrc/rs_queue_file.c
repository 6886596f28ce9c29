#include "rs_queue_file.h"

size_t rs_units_written(const uint8_t *units, size_t count)
{
    size_t n = 0;
    while (n < count && rs_unit_written(rs_unit_load(units + n * RS_UNIT_SIZE)))
        n++;
    return n;
}

size_t rs_units_first_kept(const uint8_t *units, size_t count, int64_t minimum)
{
    size_t n = 0;
    for (; n < count; n++) {
        rs_unit unit = rs_unit_load(units + n * RS_UNIT_SIZE);
        if (rs_unit_written(unit) && !rs_unit_pre_blank(unit) && unit.physical_offset >= minimum)
            break;
    }
    return n;
}

int64_t rs_units_physical_end(const uint8_t *units, size_t count)
{
    while (count > 0) {
        rs_unit unit = rs_unit_load(units + --count * RS_UNIT_SIZE);
        if (rs_unit_written(unit) && !rs_unit_pre_blank(unit))
            return unit.physical_offset > INT64_MAX - unit.size ? INT64_MAX
                                                                : unit.physical_offset + unit.size;
    }
    return -1;
}

void rs_units_fill_pre_blank(uint8_t *units, size_t count)
{
    for (size_t n = 0; n < count; n++)
        rs_unit_store(units + n * RS_UNIT_SIZE, (rs_unit){0, RS_PRE_BLANK_SIZE, 0});
}

size_t rs_units_cut(uint8_t *units, size_t count, int64_t physical_offset)
{
    size_t n = 0;
    for (; n < count; n++) {
        rs_unit unit = rs_unit_load(units + n * RS_UNIT_SIZE);
        if (!rs_unit_written(unit))
            break;
        if (!rs_unit_pre_blank(unit) && unit.physical_offset >= physical_offset)
            break;
    }
    static const uint8_t nothing[RS_UNIT_SIZE];
    for (size_t left = n; left < count; left++) {
        uint8_t *at = units + left * RS_UNIT_SIZE;
        if (memcmp(at, nothing, sizeof nothing) != 0) /* untouched pages stay untouched */
            memset(at, 0, sizeof nothing);
    }
    return n;
}
