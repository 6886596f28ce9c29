/* Any bytes as a commit log file: walks end and stay inside, a walk in two parts is one walk, what is
 * found behind damage can be believed, and the fast search of magics is the plain one. */
#include "fuzz.h"
#include "rs_scan.h"

enum { START = 1 << 20 };

static bool believed(rs_status status)
{
    return status == RS_OK || status == RS_BLANK;
}

static rs_walked walk(const rs_scan *scan, size_t from, size_t to, rs_status *status)
{
    rs_walked walked = {.last_record_start = -1, .first_time_fall = -1};
    *status = rs_scan_walk(scan, from, to, &walked);
    CHECK(walked.end >= from && walked.end <= scan->size);
    CHECK(*status != RS_END_OF_FILE || walked.end >= to);
    CHECK(*status == RS_END_OF_FILE || walked.end < to);
    CHECK((walked.records == 0) == (walked.last_record_start < 0));
    return walked;
}

static void check_parts(const rs_scan *scan, size_t cut)
{
    rs_status whole_status, status;
    rs_walked whole = walk(scan, 0, scan->size, &whole_status);
    rs_walked first = walk(scan, 0, cut, &status);
    if (status != RS_END_OF_FILE) {
        CHECK(status == whole_status && first.end == whole.end);
        return;
    }
    CHECK(rs_scan_walk(scan, first.end, scan->size, &first) == whole_status);
    CHECK(first.end == whole.end && first.records == whole.records);
    CHECK(first.last_record_start == whole.last_record_start);
    CHECK(first.first_time_fall == whole.first_time_fall);
    CHECK(first.record_crc_mismatches == whole.record_crc_mismatches);
}

/* From damage to damage until the end: as often as there are bytes, at the most. */
static void check_resynchronise(const rs_scan *scan)
{
    uint64_t budget = rs_scan_budget(scan->size), before;
    size_t at = 0;
    while (at < scan->size) {
        rs_status status;
        rs_record record;
        rs_walked walked = walk(scan, at, scan->size, &status);
        if (status == RS_END_OF_FILE)
            return;
        before = budget;
        size_t found = rs_scan_resynchronise(scan, walked.end + 1, scan->size, &budget);
        CHECK(found > walked.end && budget <= before);
        if (found >= scan->size)
            return;
        CHECK(believed(rs_scan_record(scan, found, &record)));
        at = found + (record.magic == RS_MAGIC_BLANK ? 1 : 0);
    }
}

static void check_magics(const uint8_t *data, size_t size)
{
    size_t from = 0;
    for (int steps = 0; steps < 64 && from <= size; steps++) {
        size_t found = rs_scan_find_magic(data, size, from);
        CHECK(found == rs_scan_find_magic_plain(data, size, from));
        from = found + 1;
    }
}

/* Mutations seldom leave places and checksums right: they are put right record by record. */
static void mend(uint8_t *data, size_t size, unsigned keep)
{
    rs_record record;
    for (size_t at = 0; at < size; at += record.size) {
        if (rs_record_decode(data + at, size - at, &record) != RS_OK)
            return;
        if (keep++ % 5 == 0)
            continue; /* damaged ones are wanted, too */
        rs_store64s(data + at + RS_AT_PHYSICAL_OFFSET, START + (int64_t)at);
        rs_store32(data + at + RS_AT_BODY_CRC,
                   rs_crc31(RS_CRC32_SLICING, record.body.bytes, record.body.size));
    }
}

static void check_all(const uint8_t *data, size_t size, unsigned verify)
{
    rs_scan scan = {data, size, START, verify, RS_CRC32_SLICING};
    check_parts(&scan, size ? data[size / 2] * size / 256 : 0);
    check_resynchronise(&scan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const unsigned both = RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC;
    static const unsigned kinds[] = {
        0, RS_VERIFY_BODY_CRC, both, both | RS_SCAN_LENIENT, both | RS_SCAN_UNTORN,
        both | RS_SCAN_LENIENT | RS_SCAN_UNTORN,
    };
    unsigned verify = kinds[(size ? data[size - 1] : 0) % (sizeof kinds / sizeof *kinds)];
    check_magics(data, size);
    check_all(data, size, verify);
    uint8_t *copy = exact_copy(data, size);
    mend(copy, size, size ? data[0] : 0);
    check_all(copy, size, verify);
    free(copy);
    return 0;
}
