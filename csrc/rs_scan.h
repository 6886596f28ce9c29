/* Walking the records of one commit log file, and finding the next one after damage (format.md 15).
 * Bytes are hostile throughout. */
#ifndef RS_SCAN_H
#define RS_SCAN_H

#include "rs_record.h"

/* One file and how its records are judged. `verify` is RS_VERIFY_* bits; with RS_SCAN_LENIENT a
 * record CRC that does not hold is no error, a walk counts it: a RocketMQ at defaults can put our
 * message again with a stale property. */
typedef struct rs_scan {
    const uint8_t *bytes;
    size_t size;
    int64_t start_offset; /* physical offset of bytes[0] */
    unsigned verify;
    rs_crc32_kernel kernel;
} rs_scan;

/* RS_SCAN_UNTORN refuses a record with a NUL in its topic, at the end of its properties or in its
 * record CRC. Where the ground was zeroed before, that is how a record looks that was written in part. */
enum { RS_SCAN_LENIENT = 4, RS_SCAN_UNTORN = 8 };

/* What a walk has seen. Zero it, set the two offsets to -1, and pass it on from walk to walk: times
 * are compared over file ends. */
typedef struct rs_walked {
    size_t end; /* position after the last good record: where the walk stopped */
    uint64_t records;
    int64_t last_record_start; /* physical offset; -1 none */
    int64_t first_store_timestamp_ms; /* of the first record of all; nothing without one */
    int64_t last_store_timestamp_ms;
    int64_t first_time_fall; /* physical offset of the first record older than the one before; -1
                                none */
    uint64_t record_crc_mismatches; /* with RS_SCAN_LENIENT */
} rs_walked;

/* Judges what is at `position`: rs_record_decode and rs_record_verify with its own place. */
rs_status rs_scan_record(const rs_scan *scan, size_t position, rs_record *record);
/* The same; *stale says that a record CRC does not hold where RS_SCAN_LENIENT allows that. */
rs_status rs_scan_judge(const rs_scan *scan, size_t position, rs_record *record, bool *stale);

/* How far ahead of a walk bytes are fetched, and how many at most for one record: the CPU's own
 * prefetch starts again at each page. */
#define RS_SCAN_AHEAD 4096
#define RS_SCAN_AHEAD_MAX 2048
/* The same for a walk that leaves bodies alone: of records that are not small it needs the end and the head of
 * the next, this many records ahead, as if all were as large as this one. */
#define RS_SCAN_RECORDS_AHEAD 6
#define RS_SCAN_END_SIZE 128
#define RS_SCAN_HEAD_SIZE 128

/* For such a walk that goes on after the `size` bytes at `at`, and ends `left` bytes after `at`: another
 * processor may be writing what lies there. */
static inline __attribute__((always_inline)) void rs_scan_fetch_ends(const uint8_t *at, size_t left,
                                                                     size_t size)
{
    size_t ahead = RS_SCAN_AHEAD;
    if (size >= RS_SCAN_END_SIZE + RS_SCAN_HEAD_SIZE) {
        ahead = RS_SCAN_RECORDS_AHEAD * size - RS_SCAN_END_SIZE;
        size = RS_SCAN_END_SIZE + RS_SCAN_HEAD_SIZE;
    }
    if (left > ahead + size)
        rs_fetch(at + ahead, size);
}

/* For a walk that goes on after the `size` bytes at `position`. */
static inline __attribute__((always_inline)) void rs_scan_fetch_ahead(const rs_scan *scan,
                                                                      size_t position, size_t size)
{
    const size_t left = scan->size - position;
    if (!(scan->verify & (RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC))) {
        rs_scan_fetch_ends(scan->bytes + position, left, size);
        return;
    }
    size = size < RS_SCAN_AHEAD_MAX ? size : RS_SCAN_AHEAD_MAX;
    if (left > RS_SCAN_AHEAD + size)
        rs_fetch(scan->bytes + position + RS_SCAN_AHEAD, size);
}

/* Walks from record to record until `to` or the first thing that is none. RS_END_OF_FILE: `to` is
 * reached (the last record may end after it); RS_BLANK, RS_NOTHING or RS_BAD_*: that is at
 * walked->end. */
rs_status rs_scan_walk(const rs_scan *scan, size_t from, size_t to, rs_walked *walked);

/* Bytes that all searches of a file may read to judge candidates, as a multiple of its size: hostile
 * bytes can hold a candidate in every header that claims a large body, and a record before each
 * few that has the next search begin. */
#define RS_SCAN_BUDGET_FACTOR 64
#define RS_SCAN_BUDGET_MIN (1u << 20)

static inline uint64_t rs_scan_budget(size_t size)
{
    return RS_SCAN_BUDGET_MIN + (uint64_t)RS_SCAN_BUDGET_FACTOR * size;
}

/* The first place in [from, to) where a record or blank can be believed after damage: equations 1–4
 * and a record, blank or the end after it (format.md 15.3); `to` when there is none. When a record
 * with a sound frame begins one byte before `from`, the end of its frame comes first: its body is
 * not searched for copies of records. What is read for candidates beyond 1 KiB is taken off *budget; one
 * larger than what is left of it is passed over. */
size_t rs_scan_resynchronise(const rs_scan *scan, size_t from, size_t to, uint64_t *budget);

/* Position of the first byte at or after `from` where a magic of a record or blank begins, `size`
 * when there is none. The plain loop is the reference for the other one. */
size_t rs_scan_find_magic(const uint8_t *bytes, size_t size, size_t from);
size_t rs_scan_find_magic_plain(const uint8_t *bytes, size_t size, size_t from);

#endif
