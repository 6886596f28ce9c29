/* Following consume queue units to their records (format.md 14.1, 15.2). Bytes are hostile throughout. */
#ifndef RS_UNIT_READER_H
#define RS_UNIT_READER_H

#include "rs_scan.h"

/* Which units of a queue are wanted, and what their records have to say. `tags_codes` are sorted;
 * `filtered` false takes all. */
typedef struct rs_unit_reader {
    rs_scan segment; /* where the records of this call lie */
    rs_span topic;
    const int64_t *tags_codes;
    size_t tags_code_count;
    bool filtered;
    int32_t queue_id;
    int64_t first_queue_offset; /* of units[0] */
    int64_t log_minimum; /* units of records below are passed over */
    int64_t log_limit; /* no record may end after this */
} rs_unit_reader;

/* Follows units[*next] … units[count - 1] to their records in `segment`, and puts up to `room` of
 * them to `records`. Pre-blanks, units below the minimum and units of other tags are passed over.
 *
 * RS_OK: all units are done, or `room` records were found. RS_END_OF_FILE: the record of
 * units[*next] does not lie in `segment`. RS_BAD_*: units[*next], or its record, does not hold
 * (equation 9). */
rs_status rs_units_read(const rs_unit_reader *reader, const uint8_t *units, size_t count,
                        size_t *next, rs_record *records, size_t room, size_t *found);

/* Whether the tags code of one of them is the address of an extension unit (format.md 6.5). */
bool rs_units_have_address(const uint8_t *units, size_t count);

/* What a check of units has seen so far. Zero it, set the two offsets to -1, and pass it on from call to
 * call. Pre-blanks have no offset. */
typedef struct rs_units_checked {
    uint64_t matching; /* units that agree with their record */
    uint64_t own; /* of those, of records that are of this queue by themselves */
    uint64_t pre_blanks;
    int64_t first_physical_offset; /* -1 none */
    int64_t last_physical_offset; /* the same */
} rs_units_checked;

/* Holds units[*next] … units[count - 1] against their records in `segment`: they rise, agree with them,
 * and, with `tags`, have their tags code. Answers as rs_units_read; RS_BAD_UNIT also where a tags code is
 * the address of an extension unit, which is not looked at here. The reader's tags are. */
rs_status rs_units_check(const rs_unit_reader *reader, const uint8_t *units, size_t count,
                         bool tags, size_t *next, rs_units_checked *checked);

#endif
