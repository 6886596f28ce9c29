/* One commit log record: measure, encode, decode, verify (format.md 2). */
#ifndef RS_RECORD_H
#define RS_RECORD_H

#include "rs_base.h"
#include "rs_crc32.h"
#include "rs_format.h"

/* Address bytes and port as they are in a record: 8 bytes (IPv4) or 20 (IPv6). */
typedef struct rs_host {
    uint8_t bytes[20];
    uint8_t size; /* 8 or 20 */
} rs_host;

/* What the encoder takes. Spans are borrowed. `properties` is the property text without the record CRC,
 * with its last separator (the encoder adds a missing one only when it appends the record CRC).
 * sys_flag bits 10 and 20 are set by the encoder from the host sizes. V2 is written iff topic.size > 127. */
typedef struct rs_message {
    rs_span topic;
    rs_span body;
    rs_span properties;
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t born_timestamp_ms;
    int64_t store_timestamp_ms;
    int64_t prepared_transaction_offset;
    int32_t queue_id;
    int32_t flag;
    int32_t reconsume_times;
    uint32_t sys_flag;
    rs_host born_host;
    rs_host store_host;
    int32_t asked;    /* the promise that its put waits for, and how long, ms: for a log in another process */
    int32_t limit_ms;
    bool record_crc; /* append the __CRC32# property */
    bool only_latest; /* append it only if no message of its key was appended since the log's key watch began */
} rs_message;

/* What the decoder gives: every field, spans into the record itself. Without gaps, and without the hosts,
 * whose places follow from sys_flag: readers keep one for each message. */
typedef struct rs_record {
    const uint8_t *start;
    uint32_t size; /* totalSize */
    uint32_t magic;
    uint32_t body_crc;
    int32_t queue_id;
    int32_t flag;
    uint32_t sys_flag;
    int64_t queue_offset;
    int64_t physical_offset;
    int64_t born_timestamp_ms;
    int64_t store_timestamp_ms;
    int64_t prepared_transaction_offset;
    int32_t reconsume_times;
    rs_span body;
    rs_span topic;
    rs_span properties;
} rs_record;

/* Bytes that rs_record_encode will write; 0 never. Cannot overflow for spans below 2^31 bytes. */
size_t rs_record_size(const rs_message *message);

/* RS_OK, or the refusal: RS_TOPIC_ILLEGAL (empty, > 255 bytes, or > 127 with wide_topics false),
 * RS_PROPERTIES_TOO_LARGE (> 32,767 with separator and record CRC), RS_BODY_TOO_LARGE (> max_body_size). */
rs_status rs_record_check(const rs_message *message, size_t max_body_size, bool wide_topics);

/* Writes rs_record_size(message) bytes at `to`, all but the 4 magic bytes, which are left as they are.
 * rs_record_publish writes them, after a release fence: only then can the record be recognised.
 * Returns the size. `kernel` computes the body CRC and the record CRC. */
size_t rs_record_encode(const rs_message *message, uint8_t *to, rs_crc32_kernel kernel);
void rs_record_publish(uint8_t *record, size_t topic_size);

/* The two halves of rs_record_encode, for callers that have more than one record to write: all but magic
 * and record CRC; then the record CRC, of a message that has one. `size` is rs_record_size(message). */
void rs_record_lay(const rs_message *message, size_t size, uint8_t *to, rs_crc32_kernel kernel);
void rs_record_seal(uint8_t *record, size_t size, size_t topic_size, rs_crc32_kernel kernel);

/* Address and port of a decoded record. */
static inline rs_span rs_record_born_host(const rs_record *record)
{
    bool v6 = record->sys_flag & RS_FLAG_BORN_HOST_V6;
    return (rs_span){record->start + RS_AT_BORN_HOST, v6 ? RS_HOST_V6_SIZE : RS_HOST_V4_SIZE};
}

static inline rs_span rs_record_store_host(const rs_record *record)
{
    rs_span born = rs_record_born_host(record);
    bool v6 = record->sys_flag & RS_FLAG_STORE_HOST_V6;
    return (rs_span){born.bytes + born.size + RS_AFTER_BORN_STORE_HOST,
                     v6 ? RS_HOST_V6_SIZE : RS_HOST_V4_SIZE};
}

/* Reads a record that begins at `at`, of which at most `left` bytes may be touched (left = bytes to the
 * end of the file). RS_OK and *record; RS_BLANK (record->size = its length field); RS_NOTHING when the
 * size and magic are zero; else the RS_BAD_* of the first rule broken. Checks structure only: sizes
 * add up (equation 1), topic and properties lengths in range (equation 4). Works on copies of the lengths,
 * so bytes that change underneath cannot lead it outside [at, at + left). */
rs_status rs_record_decode(const uint8_t *at, size_t left, rs_record *record);

enum { RS_VERIFY_BODY_CRC = 1, RS_VERIFY_RECORD_CRC = 2 };

/* A decoded record against its place and its checksums: physical offset (equation 2; skipped when
 * physical_offset is negative), body CRC (3; an empty body is not checked), record CRC when present. */
rs_status rs_record_verify(const rs_record *record, int64_t physical_offset, unsigned what,
                           rs_crc32_kernel kernel);

/* True when the last 20 bytes of the properties have the form of the __CRC32# property; *crc is its
 * number, UINT32_MAX (which no CRC-31 equals) when its ten bytes are no number. The byte before is not
 * looked at: were it, a change of that separator would take the protection away and pass unnoticed. */
bool rs_record_crc_find(const rs_record *record, uint32_t *crc);

/* Whether zeros lie over the record CRC: each of its bytes is zero or one that it can have. A record
 * that was written in part looks so, and one that lost its end; no other has such properties. */
bool rs_record_crc_blotted(const rs_record *record);

/* Transaction type bits of a sysFlag: 0 none, 4 prepared, 8 commit, 12 rollback. */
static inline uint32_t rs_transaction_type(uint32_t sys_flag)
{
    return sys_flag & 0xCu;
}

#endif
