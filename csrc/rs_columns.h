/* Records of one commit log file as columns: one walk that fills an array for each wanted field, and what
 * turns spans of the mapped file into bytes of the caller's. Memory is the caller's throughout. */
#ifndef RS_COLUMNS_H
#define RS_COLUMNS_H

#include "rs_dictionary.h"
#include "rs_filter.h"
#include "rs_scan.h"

/* One array of `room` places for each wanted column, NULL for the others. Spans point into the file;
 * `tags` and `keys` have size 0 where a record has none. */
typedef struct rs_columns {
    size_t room;
    size_t rows;
    uint64_t bytes; /* of the records that became rows */
    int32_t *topic; /* number in walk->topics */
    int32_t *born_host; /* number in walk->hosts */
    int32_t *store_host;
    int32_t *queue_id;
    int32_t *size;
    int32_t *body_size;
    int32_t *flag;
    int32_t *sys_flag;
    int32_t *reconsume_times;
    int64_t *queue_offset;
    int64_t *physical_offset;
    int64_t *born_timestamp_ms;
    int64_t *store_timestamp_ms;
    int64_t *prepared_transaction_offset;
    int64_t *tags_code;
    rs_span *body;
    rs_span *tags;
    rs_span *keys;
    rs_span *properties;
} rs_columns;

/* A walk over one file. `tags` with `tagged`: only records whose TAGS is one of these, and
 * inner batches. Times are [from_ms, to_ms), where INT64_MAX is no end. Every record is judged,
 * also one that does not become a row. */
typedef struct rs_column_walk {
    rs_scan scan;
    size_t at; /* position of the next record */
    const rs_dictionary *topics;
    const rs_dictionary *hosts;
    bool by_topic; /* else all topics are wanted, and looked up only for their column */
    const rs_span *tags;
    size_t tag_count;
    bool tagged;
    bool marked; /* a wanted tag has U+FFFD: tags that are not UTF-8 may be shown as it */
    int64_t from_ms;
    int64_t to_ms;
    uint32_t last_topic; /* numbers that were found last: a guess, so any value will do */
    uint32_t last_born_host;
    uint32_t last_store_host;
    uint64_t records; /* seen, rows or not */
    uint64_t record_crc_mismatches; /* with RS_SCAN_LENIENT */
    rs_span unknown; /* with RS_NOT_FOUND */
    bool unknown_host; /* else a topic, or with `asks` properties */
    const rs_filter *filter; /* only records that it takes, and inner batches; NULL takes all */
    bool asks; /* with RS_NOT_FOUND: the filter is not sure of `unknown` */
    size_t answered_at; /* the record at this position is taken if `answer` says so */
    bool answer;
} rs_column_walk;

/* Goes on at walk->at until one of these: RS_OK the room, or `byte_limit` bytes of records, are used up
 * (one record is taken whatever its size); RS_END_OF_FILE `to` is reached; RS_NOT_FOUND a word that no
 * dictionary has, the record with it is not taken yet; RS_BLANK, RS_NOTHING, RS_BAD_* are at walk->at. */
rs_status rs_columns_walk(rs_column_walk *walk, rs_columns *columns, size_t to,
                          uint64_t byte_limit);

/* The same for records that were read another way, the columns->rows'th and those after it, of a walk that
 * wants all; there is room for `count` rows. RS_OK; RS_NOT_FOUND: a word that no dictionary has. */
rs_status rs_columns_take(rs_column_walk *walk, rs_columns *columns, const rs_record *records,
                          size_t count);

/* Bytes of all spans; with offsets, their ends: `rows` + 1 numbers that begin with 0. The caller has seen
 * to it that the sum is below 2^31. */
size_t rs_columns_measure(const rs_span *spans, size_t rows, int32_t *offsets);
/* Copies all spans to where their offsets say. */
void rs_columns_gather(const rs_span *spans, size_t rows, const int32_t *offsets, uint8_t *to);
/* Arrow's 16 bytes for each span: its size, then its bytes (up to 12) or its first four, buffer 0 and its
 * place from `base`. Spans lie within 2^31 bytes from there. */
void rs_columns_views(const rs_span *spans, size_t rows, const uint8_t *base, uint8_t *views);

/* Message ids of rows by the numbers of their store hosts. */
void rs_columns_message_ids(const rs_dictionary *hosts, const int32_t *store_hosts,
                            const int64_t *physical_offsets, size_t rows, int32_t *offsets,
                            char *to);
size_t rs_columns_message_ids_size(const rs_dictionary *hosts, const int32_t *store_hosts,
                                   size_t rows);

/* Whether each of the texts is UTF-8 by itself, as Python's decoder has it. */
bool rs_columns_are_utf8(const uint8_t *bytes, const int32_t *offsets, size_t rows);

#endif
