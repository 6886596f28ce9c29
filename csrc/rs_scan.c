#include "rs_scan.h"

/* First bytes of the magics: DA A3 20 A7, DA A3 20 AB, CB D4 31 94. */
#define RECORD_FIRST 0xDA
#define RECORD_SECOND 0xA3
#define BLANK_FIRST 0xCB
#define BLANK_SECOND 0xD4

#define MAGIC_SIZE 4
#define BLOCK 256
/* A candidate of at most this many bytes is read whatever the budget: its own header is a good part of it. */
#define CHEAP 1024

static bool has_nul(rs_span text)
{
    for (size_t i = 0; i < text.size; i++)
        if (text.bytes[i] == 0)
            return true;
    return false;
}

/* A record CRC has no NUL in it, so that of a record written in part either fails or is seen here.
 */
static rs_status untorn(const rs_record *record)
{
    const rs_span end = record->properties;
    const bool cut = end.size && end.bytes[end.size - 1] == 0;
    if (has_nul(record->topic))
        return RS_BAD_TOPIC;
    return cut || rs_record_crc_blotted(record) ? RS_BAD_PROPERTIES : RS_OK;
}

rs_status rs_scan_judge(const rs_scan *scan, size_t position, rs_record *record, bool *stale)
{
    *stale = false;
    if (position > scan->size)
        return RS_BAD_TRUNCATED;
    rs_status status = rs_record_decode(scan->bytes + position, scan->size - position, record);
    if (status != RS_OK)
        return status;
    status = rs_record_verify(record, scan->start_offset + (int64_t)position, scan->verify,
                              scan->kernel);
    *stale = status == RS_BAD_RECORD_CRC && (scan->verify & RS_SCAN_LENIENT);
    if (*stale)
        status = RS_OK;
    if (status != RS_OK || !(scan->verify & RS_SCAN_UNTORN))
        return status;
    return untorn(record);
}

rs_status rs_scan_record(const rs_scan *scan, size_t position, rs_record *record)
{
    bool stale;
    return rs_scan_judge(scan, position, record, &stale);
}

rs_status rs_scan_walk(const rs_scan *scan, size_t from, size_t to, rs_walked *walked)
{
    rs_record record;
    bool stale;
    walked->end = from;
    while (walked->end < to) {
        rs_status status = rs_scan_judge(scan, walked->end, &record, &stale);
        if (status != RS_OK)
            return status;
        walked->record_crc_mismatches += stale;
        int64_t offset = scan->start_offset + (int64_t)walked->end;
        if (record.store_timestamp_ms < walked->last_store_timestamp_ms &&
            walked->first_time_fall < 0)
            walked->first_time_fall = offset;
        if (walked->records == 0)
            walked->first_store_timestamp_ms = record.store_timestamp_ms;
        walked->last_store_timestamp_ms = record.store_timestamp_ms;
        walked->last_record_start = offset;
        walked->records++;
        rs_scan_fetch_ahead(scan, walked->end, record.size);
        walked->end += record.size; /* decode has checked: not beyond the file */
    }
    return RS_END_OF_FILE;
}

static inline bool magic_at(const uint8_t *bytes)
{
    uint32_t magic = rs_load32(bytes);
    return magic == RS_MAGIC_V1 || magic == RS_MAGIC_V2 || magic == RS_MAGIC_BLANK;
}

size_t rs_scan_find_magic_plain(const uint8_t *bytes, size_t size, size_t from)
{
    for (size_t at = from; at < size && size - at >= MAGIC_SIZE; at++)
        if (magic_at(bytes + at))
            return at;
    return size;
}

/* Whether the first two bytes of a magic are anywhere in a block. No branch inside, so that the
 * compiler makes it compare a vector at a time. */
static inline bool maybe_magic(const uint8_t *bytes)
{
    uint8_t any = 0;
    for (size_t i = 0; i < BLOCK; i++) {
        uint8_t first = bytes[i], second = bytes[i + 1];
        uint8_t record = (uint8_t)((first ^ RECORD_FIRST) | (second ^ RECORD_SECOND));
        uint8_t blank = (uint8_t)((first ^ BLANK_FIRST) | (second ^ BLANK_SECOND));
        any = (uint8_t)(any | (record == 0) | (blank == 0));
    }
    return any != 0;
}

size_t rs_scan_find_magic(const uint8_t *bytes, size_t size, size_t from)
{
    size_t at = from;
    while (at < size && size - at >= BLOCK + MAGIC_SIZE) {
        if (maybe_magic(bytes + at))
            for (size_t i = 0; i < BLOCK; i++)
                if (bytes[at + i] >= BLANK_FIRST && magic_at(bytes + at + i))
                    return at + i;
        at += BLOCK;
    }
    return rs_scan_find_magic_plain(bytes, size, at);
}

/* A blank that reaches exactly to the end of the file: 64 bits that have to agree. */
static bool blank_fits(const rs_scan *scan, size_t position)
{
    size_t left = scan->size - position;
    const uint8_t *at = scan->bytes + position;
    return left >= RS_BLANK_SIZE_MIN && rs_load32(at + RS_AT_MAGIC) == RS_MAGIC_BLANK &&
           rs_load32(at + RS_AT_TOTAL_SIZE) == left;
}

/* Whether the log may go on, or end, at `position`: a record or blank, the end of the file, or
 * nothing written yet. Checksums are not looked at: the walk judges what is here when it comes to it.
 */
static bool may_follow(const rs_scan *scan, size_t position)
{
    rs_record record;
    if (position == scan->size)
        return true;
    rs_status status = rs_record_decode(scan->bytes + position, scan->size - position, &record);
    if (status == RS_OK)
        return record.physical_offset == scan->start_offset + (int64_t)position;
    if (status == RS_BLANK)
        return blank_fits(scan, position);
    return status == RS_NOTHING;
}

/* Whether a record or blank can be believed at `position`: something that may follow it does, or its own
 * record CRC holds. `budget` bounds what is read for it. */
static bool believable(const rs_scan *scan, size_t position, uint64_t *budget)
{
    rs_record record;
    uint32_t crc;
    if (blank_fits(scan, position))
        return true;
    const int64_t offset = scan->start_offset + (int64_t)position;
    rs_status status = rs_record_decode(scan->bytes + position, scan->size - position, &record);
    if (status != RS_OK || record.physical_offset != offset)
        return false;
    const bool alone = !may_follow(scan, position + record.size);
    if (alone && !rs_record_crc_find(&record, &crc))
        return false;
    if (record.size > CHEAP) {
        if (record.size > *budget)
            return false;
        *budget -= record.size;
    }
    if (alone && rs_record_verify(&record, offset, RS_VERIFY_RECORD_CRC, scan->kernel) != RS_OK)
        return false;
    return rs_scan_record(scan, position, &record) == RS_OK;
}

/* The position after a record whose lengths and place are right: only its content is damaged. */
static bool follow_frame(const rs_scan *scan, size_t position, size_t to, uint64_t *budget,
                         size_t *found)
{
    rs_record record;
    rs_status status = rs_record_decode(scan->bytes + position, scan->size - position, &record);
    if (status != RS_OK || record.physical_offset != scan->start_offset + (int64_t)position)
        return false;
    *found = position + record.size;
    return *found < to && believable(scan, *found, budget);
}

size_t rs_scan_resynchronise(const rs_scan *scan, size_t from, size_t to, uint64_t *budget)
{
    size_t found, limit = to < scan->size ? to : scan->size;
    if (from >= limit)
        return to;
    if (from > 0 && follow_frame(scan, from - 1, limit, budget, &found))
        return found;
    /* Magics are searched; records begin four bytes before theirs. */
    const size_t behind = RS_AT_MAGIC + MAGIC_SIZE - 1;
    const size_t end = scan->size - limit > behind ? limit + behind : scan->size;
    size_t at = from + RS_AT_MAGIC;
    for (;;) {
        at = rs_scan_find_magic(scan->bytes, end, at);
        if (at >= end)
            return to;
        if (believable(scan, at - RS_AT_MAGIC, budget))
            return at - RS_AT_MAGIC;
        at++;
    }
}
