/* Offsets, sizes and magics of the files that rocketstore reads or writes, each defined once.
 * docs/format.md describes them, and a test compares the two. Integers on disk are big-endian. */
#ifndef RS_FORMAT_H
#define RS_FORMAT_H

#include <assert.h>

/* Magics (format.md 0). */
#define RS_MAGIC_V1 0xDAA320A7u
#define RS_MAGIC_V2 0xDAA320ABu
#define RS_MAGIC_BLANK 0xCBD43194u

/* Commit log record: places up to the born host are fixed (format.md 2.1). */
#define RS_AT_TOTAL_SIZE 0
#define RS_AT_MAGIC 4
#define RS_AT_BODY_CRC 8
#define RS_AT_QUEUE_ID 12
#define RS_AT_FLAG 16
#define RS_AT_QUEUE_OFFSET 20
#define RS_AT_PHYSICAL_OFFSET 28
#define RS_AT_SYS_FLAG 36
#define RS_AT_BORN_TIMESTAMP 40
#define RS_AT_BORN_HOST 48
static_assert(RS_AT_MAGIC == RS_AT_TOTAL_SIZE + 4, "total size is an i32");
static_assert(RS_AT_BODY_CRC == RS_AT_MAGIC + 4, "magic is a u32");
static_assert(RS_AT_QUEUE_ID == RS_AT_BODY_CRC + 4, "body CRC is an i32");
static_assert(RS_AT_FLAG == RS_AT_QUEUE_ID + 4, "queue id is an i32");
static_assert(RS_AT_QUEUE_OFFSET == RS_AT_FLAG + 4, "flag is an i32");
static_assert(RS_AT_PHYSICAL_OFFSET == RS_AT_QUEUE_OFFSET + 8, "queue offset is an i64");
static_assert(RS_AT_SYS_FLAG == RS_AT_PHYSICAL_OFFSET + 8, "physical offset is an i64");
static_assert(RS_AT_BORN_TIMESTAMP == RS_AT_SYS_FLAG + 4, "sysFlag is a u32");
static_assert(RS_AT_BORN_HOST == RS_AT_BORN_TIMESTAMP + 8, "born timestamp is an i64");

/* After the born host (8 or 20 bytes) places are counted from its end. */
#define RS_HOST_V4_SIZE 8
#define RS_HOST_V6_SIZE 20
#define RS_AFTER_BORN_STORE_TIMESTAMP 0
#define RS_AFTER_BORN_STORE_HOST 8
/* After the store host. */
#define RS_AFTER_STORE_RECONSUME_TIMES 0
#define RS_AFTER_STORE_PREPARED_OFFSET 4
#define RS_AFTER_STORE_BODY_LENGTH 12
#define RS_AFTER_STORE_BODY 16
static_assert(RS_AFTER_BORN_STORE_HOST == RS_AFTER_BORN_STORE_TIMESTAMP + 8,
              "store timestamp is an i64");
static_assert(RS_AFTER_STORE_PREPARED_OFFSET == RS_AFTER_STORE_RECONSUME_TIMES + 4, "an i32");
static_assert(RS_AFTER_STORE_BODY_LENGTH == RS_AFTER_STORE_PREPARED_OFFSET + 8, "an i64");
static_assert(RS_AFTER_STORE_BODY == RS_AFTER_STORE_BODY_LENGTH + 4, "body length is an i32");

/* totalSize = RS_RECORD_FIXED + born host + store host + topic length field + body + topic +
 * properties. */
#define RS_RECORD_FIXED 74
#define RS_RECORD_SIZE_MIN 91
static_assert(RS_AT_BORN_HOST + 8 + RS_AFTER_STORE_BODY + 2 == RS_RECORD_FIXED,
              "parts of a record");
static_assert(RS_RECORD_FIXED + 2 * RS_HOST_V4_SIZE + 1 == RS_RECORD_SIZE_MIN, "empty V1 record");
#define RS_TOPIC_MAX_V1 127
#define RS_TOPIC_MAX_V2 255
#define RS_TOPIC_MAX_V2_READ 32767

/* sysFlag bits (format.md 2.2). */
#define RS_FLAG_COMPRESSED 0x1u
#define RS_FLAG_MULTI_TAGS 0x2u
#define RS_FLAG_TRANSACTION 0xCu
#define RS_FLAG_PREPARED 0x4u
#define RS_FLAG_COMMIT 0x8u
#define RS_FLAG_ROLLBACK 0xCu
#define RS_FLAG_BORN_HOST_V6 0x10u
#define RS_FLAG_STORE_HOST_V6 0x20u
#define RS_FLAG_NEED_UNWRAP 0x40u
#define RS_FLAG_INNER_BATCH 0x80u
#define RS_FLAG_COMPRESSION_TYPE 0x700u

/* Record CRC property: "__CRC32#" 01 ten digits 02, always the last 20 bytes (format.md 2.6). */
#define RS_RECORD_CRC_NAME "__CRC32#"
#define RS_RECORD_CRC_SIZE 20
#define RS_RECORD_CRC_AT_DIGITS 9
#define RS_RECORD_CRC_DIGITS 10
static_assert(sizeof RS_RECORD_CRC_NAME - 1 + 1 == RS_RECORD_CRC_AT_DIGITS, "name and separator");
static_assert(RS_RECORD_CRC_AT_DIGITS + RS_RECORD_CRC_DIGITS + 1 == RS_RECORD_CRC_SIZE,
              "digits and separator");

/* Blank (format.md 3.1): size, magic, then anything. */
#define RS_BLANK_SIZE_MIN 8

/* Consume queue unit (format.md 6.1). */
#define RS_UNIT_SIZE 20
#define RS_UNIT_AT_PHYSICAL_OFFSET 0
#define RS_UNIT_AT_SIZE 8
#define RS_UNIT_AT_TAGS_CODE 12
#define RS_PRE_BLANK_SIZE 0x7FFFFFFF
static_assert(RS_UNIT_AT_SIZE == RS_UNIT_AT_PHYSICAL_OFFSET + 8, "physical offset is an i64");
static_assert(RS_UNIT_AT_TAGS_CODE == RS_UNIT_AT_SIZE + 4, "size is an i32");
static_assert(RS_UNIT_SIZE == RS_UNIT_AT_TAGS_CODE + 8, "tags code is an i64");

/* Index file (format.md 7). */
#define RS_INDEX_HEADER_SIZE 40
#define RS_INDEX_AT_BEGIN_TIMESTAMP 0
#define RS_INDEX_AT_END_TIMESTAMP 8
#define RS_INDEX_AT_BEGIN_OFFSET 16
#define RS_INDEX_AT_END_OFFSET 24
#define RS_INDEX_AT_SLOT_COUNT 32
#define RS_INDEX_AT_INDEX_COUNT 36
#define RS_INDEX_SLOT_SIZE 4
#define RS_INDEX_ENTRY_SIZE 20
#define RS_ENTRY_AT_KEY_HASH 0
#define RS_ENTRY_AT_PHYSICAL_OFFSET 4
#define RS_ENTRY_AT_TIME_DIFF 12
#define RS_ENTRY_AT_PREVIOUS 16
static_assert(RS_INDEX_AT_INDEX_COUNT + 4 == RS_INDEX_HEADER_SIZE,
              "header ends with the index count");
static_assert(RS_ENTRY_AT_PREVIOUS + 4 == RS_INDEX_ENTRY_SIZE,
              "entry ends with the previous number");

/* RocketMQ's checkpoint (format.md 8). */
#define RS_CHECKPOINT_FILE_SIZE 4096

/* Our own checkpoint: two slots, each alone in a 4 KiB block (D-40). Fields of one slot: */
#define RS_OWN_CHECKPOINT_FILE_SIZE 8192
#define RS_OWN_SLOT_STRIDE 4096

/* Positions page: memory that processes of one machine share. Host byte order, one value a cache
 * line, never durable state (D-30). */
#define RS_POSITIONS_PAGE_SIZE 4096
#define RS_POSITIONS_MAGIC 0x7273706f73310001ull
#define RS_POSITIONS_AT_MAGIC 0
#define RS_POSITIONS_AT_WROTE 64
#define RS_POSITIONS_AT_COMMITTED 128
#define RS_POSITIONS_AT_FLUSHED 192
#define RS_POSITIONS_AT_VISIBLE 256
#define RS_POSITIONS_AT_DISPATCHED 320
#define RS_POSITIONS_AT_INDEXED 384
#define RS_POSITIONS_AT_MINIMUM 448
#define RS_POSITIONS_AT_STATE 512 /* 0 none, 1 recovering, 2 live */
#define RS_POSITIONS_AT_PID 520
#define RS_POSITIONS_AT_RUN_ID 576
#define RS_POSITIONS_AT_BOOT_ID 592
#define RS_POSITIONS_AT_CHANGES 640 /* futex word: counts publications, 32 bits */

#endif
