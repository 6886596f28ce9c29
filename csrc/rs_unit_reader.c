#include "rs_unit_reader.h"
#include "rs_properties.h"
#include "rs_queue_file.h"

#define LIGHT_QUEUE_PREFIX "%LMQ%"
#define REPAIR_TOPIC '%'
#define STAND_IN_FLAG 1
#define MULTI_DISPATCH "INNER_MULTI_DISPATCH"
#define MULTI_QUEUE_OFFSET "INNER_MULTI_QUEUE_OFFSET"

/* Takes the text up to the next comma off `list`; false after the last. */
static bool next_item(rs_span *list, bool *ended, rs_span *item)
{
    if (*ended)
        return false;
    size_t size = 0;
    while (size < list->size && list->bytes[size] != ',')
        size++;
    *item = (rs_span){list->bytes, size};
    *ended = size == list->size;
    if (!*ended)
        *list = (rs_span){list->bytes + size + 1, list->size - size - 1};
    return true;
}

/* Whether a record is listed in a further queue (format.md 6.7): the name in one list, the queue
 * offset at the same place of the other. */
static bool listed(const rs_record *record, const rs_unit_reader *reader, int64_t queue_offset)
{
    const size_t prefix = sizeof LIGHT_QUEUE_PREFIX - 1;
    bool light = reader->topic.size >= prefix &&
                 memcmp(reader->topic.bytes, LIGHT_QUEUE_PREFIX, prefix) == 0;
    rs_span names, offsets, name, offset;
    bool names_ended = false, offsets_ended = false;
    int64_t number;
    if (reader->queue_id != (light ? 0 : record->queue_id))
        return false;
    if (!rs_property_find(record->properties, MULTI_DISPATCH, sizeof MULTI_DISPATCH - 1, &names) ||
        !rs_property_find(record->properties, MULTI_QUEUE_OFFSET, sizeof MULTI_QUEUE_OFFSET - 1,
                          &offsets))
        return false;
    while (next_item(&names, &names_ended, &name) && next_item(&offsets, &offsets_ended, &offset))
        if (rs_same_text(name, reader->topic) && rs_parse_decimal(offset, &number) &&
            number == queue_offset)
            return true;
    return false;
}

static bool wanted(const rs_unit_reader *reader, int64_t tags_code)
{
    size_t low = 0, high = reader->tags_code_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (reader->tags_codes[middle] < tags_code)
            low = middle + 1;
        else
            high = middle;
    }
    return low < reader->tags_code_count && reader->tags_codes[low] == tags_code;
}

/* Whether `repair` wrote a record for a unit whose own is lost (format.md 6.3). */
static bool stands_in(const rs_record *record)
{
    return rs_transaction_type(record->sys_flag) == RS_FLAG_ROLLBACK &&
           record->flag == STAND_IN_FLAG && record->topic.size == 1 &&
           record->topic.bytes[0] == REPAIR_TOPIC;
}

/* Equation 9: the record of a unit has its size, its queue offset and its queue. */
static rs_status agree(const rs_unit_reader *reader, const rs_record *record, uint32_t size,
                       int64_t queue_offset)
{
    if (record->size != size)
        return RS_BAD_UNIT;
    if (record->queue_id == reader->queue_id && record->queue_offset == queue_offset &&
        rs_same_text(record->topic, reader->topic))
        return RS_OK;
    if (stands_in(record))
        return RS_NOT_FOUND;
    return listed(record, reader, queue_offset) ? RS_OK : RS_BAD_UNIT;
}

/* The record of one unit: RS_OK, RS_NOT_FOUND (passed over), or why not. */
static rs_status follow(const rs_unit_reader *reader, rs_unit unit, int64_t queue_offset,
                        rs_record *record)
{
    const rs_scan *segment = &reader->segment;
    const int64_t offset = unit.physical_offset;
    if (rs_unit_pre_blank(unit))
        return RS_NOT_FOUND;
    if (!rs_unit_written(unit))
        return RS_BAD_UNIT;
    if (offset < reader->log_minimum || (reader->filtered && !wanted(reader, unit.tags_code)))
        return RS_NOT_FOUND;
    if (offset >= reader->log_limit || unit.size > reader->log_limit - offset)
        return RS_BAD_UNIT;
    if (offset < segment->start_offset ||
        (uint64_t)(offset - segment->start_offset) >= (uint64_t)segment->size)
        return RS_END_OF_FILE;
    rs_status status = rs_scan_record(segment, (size_t)(offset - segment->start_offset), record);
    if (status == RS_BLANK || status == RS_NOTHING)
        return RS_BAD_UNIT;
    return status == RS_OK ? agree(reader, record, (uint32_t)unit.size, queue_offset) : status;
}

/* Units that a record is fetched into the cache ahead of its turn, and how much of it: the CPU's own
 * prefetch starts again at each record and each page. */
#define AHEAD_UNITS 8
#define AHEAD_BYTES 2048

/* For a walk that is at units[next]. Of a body whose checksum is not looked at no more than its ends. */
static inline __attribute__((always_inline)) void fetch_ahead(const rs_scan *segment,
                                                              const uint8_t *units, size_t count,
                                                              size_t next)
{
    if (count - next <= AHEAD_UNITS)
        return;
    const rs_unit unit = rs_unit_load(units + (next + AHEAD_UNITS) * RS_UNIT_SIZE);
    const uint64_t position = (uint64_t)unit.physical_offset - (uint64_t)segment->start_offset;
    if (position >= segment->size || unit.size <= 0 ||
        (uint64_t)unit.size > segment->size - position)
        return;
    const uint8_t *at = segment->bytes + position;
    size_t size = (size_t)unit.size;
    if (!segment->verify && size > RS_SCAN_HEAD_SIZE + RS_SCAN_END_SIZE) {
        rs_fetch(at + size - RS_SCAN_END_SIZE, RS_SCAN_END_SIZE);
        size = RS_SCAN_HEAD_SIZE;
    }
    rs_fetch(at, size < AHEAD_BYTES ? size : AHEAD_BYTES);
}

rs_status rs_units_read(const rs_unit_reader *reader, const uint8_t *units, size_t count,
                        size_t *next, rs_record *records, size_t room, size_t *found)
{
    while (*next < count && *found < room) {
        const rs_unit unit = rs_unit_load(units + *next * RS_UNIT_SIZE);
        int64_t queue_offset = reader->first_queue_offset + (int64_t)*next;
        fetch_ahead(&reader->segment, units, count, *next);
        rs_status status = follow(reader, unit, queue_offset, &records[*found]);
        if (status == RS_OK)
            ++*found;
        else if (status != RS_NOT_FOUND)
            return status;
        ++*next;
    }
    return RS_OK;
}

/* Up to here a tags code is the address of an extension unit; hashes and times are larger. */
static bool is_address(int64_t tags_code)
{
    return tags_code < INT32_MIN;
}

bool rs_units_have_address(const uint8_t *units, size_t count)
{
    bool found = false;
    for (size_t i = 0; i < count; i++)
        found |= is_address(rs_load64s(units + i * RS_UNIT_SIZE + RS_UNIT_AT_TAGS_CODE));
    return found;
}

static int64_t tags_code_of(const rs_record *record)
{
    rs_span tags;
    return rs_property_find(record->properties, "TAGS", 4, &tags) ? rs_tags_code(tags) : 0;
}

rs_status rs_units_check(const rs_unit_reader *reader, const uint8_t *units, size_t count,
                         bool tags, size_t *next, rs_units_checked *checked)
{
    rs_record record;
    for (; *next < count; ++*next) {
        const rs_unit unit = rs_unit_load(units + *next * RS_UNIT_SIZE);
        if (rs_unit_pre_blank(unit)) {
            checked->pre_blanks++;
            continue;
        }
        if (unit.physical_offset <= checked->last_physical_offset || is_address(unit.tags_code))
            return RS_BAD_UNIT;
        fetch_ahead(&reader->segment, units, count, *next);
        int64_t queue_offset = reader->first_queue_offset + (int64_t)*next;
        rs_status status = follow(reader, unit, queue_offset, &record);
        if (status == RS_OK) {
            if (tags && unit.tags_code != tags_code_of(&record))
                return RS_BAD_UNIT;
            checked->matching++;
            checked->own += rs_same_text(record.topic, reader->topic);
        } else if (status != RS_NOT_FOUND) {
            return status;
        }
        checked->last_physical_offset = unit.physical_offset;
        if (checked->first_physical_offset < 0)
            checked->first_physical_offset = unit.physical_offset;
    }
    return RS_OK;
}
