/* Any bytes as consume queue units, and as units with the log that they point to: every answer is the
 * one of a plain loop, a cut leaves what was in front of it, records lie in the log. */
#include "fuzz.h"
#include "rs_queue_file.h"
#include "rs_unit_reader.h"

enum { UNITS_MAX = 64, LOG_START = 4096 };

static void check_units(uint8_t *units, size_t count)
{
    int64_t end = -1, minimum = 0;
    if (count)
        minimum = rs_unit_load(units + count / 2 * RS_UNIT_SIZE).physical_offset;
    size_t written = 0, kept;
    while (written < count && rs_unit_written(rs_unit_load(units + written * RS_UNIT_SIZE)))
        written++;
    CHECK(rs_units_written(units, count) == written);
    kept = rs_units_first_kept(units, count, minimum);
    CHECK(kept <= count);
    if (kept < count)
        CHECK(rs_unit_load(units + kept * RS_UNIT_SIZE).physical_offset >= minimum);
    for (size_t n = 0; n < kept && kept < count; n++) {
        rs_unit unit = rs_unit_load(units + n * RS_UNIT_SIZE);
        CHECK(!rs_unit_written(unit) || rs_unit_pre_blank(unit) ||
              unit.physical_offset < minimum);
    }
    end = rs_units_physical_end(units, count);
    CHECK(end >= -1);
    uint8_t *copy = exact_copy(units, count * RS_UNIT_SIZE);
    size_t left = rs_units_cut(copy, count, minimum);
    CHECK(left <= written && memcmp(copy, units, left * RS_UNIT_SIZE) == 0);
    for (size_t at = left * RS_UNIT_SIZE; at < count * RS_UNIT_SIZE; at++)
        CHECK(copy[at] == 0);
    CHECK(rs_units_cut(copy, count, minimum) == left);
    rs_units_fill_pre_blank(copy, left);
    CHECK(rs_units_physical_end(copy, count) == -1 && rs_units_written(copy, count) == left);
    free(copy);
}

/* What a unit tells is put right for some, so that they lead to their records. */
static void lead(uint8_t *units, size_t count, const uint8_t *log, size_t size,
                 rs_unit_reader *reader)
{
    rs_record record;
    size_t n = 0;
    for (size_t at = 0; at < size && n < count; at += record.size, n++) {
        if (rs_record_decode(log + at, size - at, &record) != RS_OK)
            return;
        if (n == 0) {
            reader->topic = record.topic;
            reader->queue_id = record.queue_id;
            /* From the name of a file, so far below the greatest i64. */
            reader->first_queue_offset = record.queue_offset & (INT64_MAX >> 4);
        }
        if (rs_load32(units + n * RS_UNIT_SIZE) % 4 == 3)
            continue;
        rs_unit_store(units + n * RS_UNIT_SIZE,
                      (rs_unit){LOG_START + (int64_t)at, (int32_t)record.size, (int64_t)n % 3});
    }
}

static void check_reading(const uint8_t *units, size_t count, rs_unit_reader *reader)
{
    rs_record records[8];
    const rs_scan *log = &reader->segment;
    size_t next = 0;
    while (next < count) {
        size_t found = 0, before = next;
        rs_status status = rs_units_read(reader, units, count, &next, records, 8, &found);
        CHECK(found <= 8 && next >= before + found && next <= count);
        for (size_t i = 0; i < found; i++) {
            CHECK(records[i].start >= log->bytes);
            CHECK(records[i].start + records[i].size <= log->bytes + log->size);
        }
        if (status == RS_OK) {
            CHECK(next == count || found == 8);
            continue;
        }
        CHECK(next < count);
        next++; /* over the unit that does not hold */
    }
}

/* Units that a check calls sound are those that a reader finds, one for one. */
static void check_checking(const uint8_t *units, size_t count, rs_unit_reader *reader, bool tags)
{
    rs_record records[UNITS_MAX];
    rs_units_checked checked = {.first_physical_offset = -1, .last_physical_offset = -1};
    size_t next = 0, read = 0, found = 0;
    rs_status status = rs_units_check(reader, units, count, tags, &next, &checked);
    CHECK(next <= count && (status == RS_OK) == (next == count));
    CHECK(checked.own <= checked.matching && checked.matching + checked.pre_blanks <= next);
    CHECK(checked.first_physical_offset <= checked.last_physical_offset);
    CHECK(rs_units_read(reader, units, next, &read, records, UNITS_MAX, &found) == RS_OK);
    CHECK(read == next && found == checked.matching);
    for (size_t i = 1; i < found; i++)
        CHECK(records[i].start > records[i - 1].start);
}

static void check_log(const uint8_t *data, size_t count, const uint8_t *log, size_t size,
                      unsigned kind)
{
    static const int64_t codes[] = {-1, 0, 2};
    uint8_t *units = exact_copy(data, count * RS_UNIT_SIZE);
    uint8_t *copy = exact_copy(log, size);
    rs_record record;
    for (size_t at = 0; at < size; at += record.size) {
        if (rs_record_decode(copy + at, size - at, &record) != RS_OK)
            break;
        rs_store64s(copy + at + RS_AT_PHYSICAL_OFFSET, LOG_START + (int64_t)at);
    }
    rs_unit_reader reader = {
        .segment = {copy, size, LOG_START, kind & 3, RS_CRC32_SLICING},
        .tags_codes = codes,
        .tags_code_count = sizeof codes / sizeof *codes,
        .filtered = kind & 4,
        .log_minimum = kind & 8 ? LOG_START + 100 : 0,
        .log_limit = LOG_START + (int64_t)size,
    };
    lead(units, count, copy, size, &reader);
    check_reading(units, count, &reader);
    check_checking(units, count, &reader, kind & 16);
    free(copy);
    free(units);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    unsigned kind = data[1];
    size_t count = data[0] % (UNITS_MAX + 1);
    data += 2;
    size -= 2;
    if (count > size / RS_UNIT_SIZE)
        count = size / RS_UNIT_SIZE;
    const uint8_t *log = data + count * RS_UNIT_SIZE;
    uint8_t *units = exact_copy(data, count * RS_UNIT_SIZE);
    check_units(units, count);
    free(units);
    check_log(data, count, log, size - count * RS_UNIT_SIZE, kind);
    return 0;
}
