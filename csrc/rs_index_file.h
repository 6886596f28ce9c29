/* The key index: hash slots, each the head of a chain of entries (format.md 7).
 *
 * One writer per file; readers, also in other processes, may look while it writes. Everywhere
 * below `base` is the first byte of a whole file, 8-byte aligned, of exactly
 * rs_index_file_size(slots, entries) bytes, and slots >= 1, entries >= 1. What the file holds is
 * untrusted; what the caller says about its shape is not. */
#ifndef RS_INDEX_FILE_H
#define RS_INDEX_FILE_H

#include "rs_base.h"
#include "rs_format.h"

/* Entry numbers are i32 on disk; entry 0 is never used, so a file holds entries - 1 keys. */
#define RS_INDEX_ENTRIES_MAX 0x7FFFFFFFu
#define RS_INDEX_SLOTS_MAX 0x7FFFFFFFu
/* The largest that the options index_slots and index_entries take; RocketMQ's files end before 2 GiB. */
#define RS_INDEX_SLOTS_OPTION_MAX 0x10000000u
#define RS_INDEX_ENTRIES_OPTION_MAX 100000000u
#define RS_INDEX_TIME_DIFF_MAX 0x7FFFFFFF

typedef struct rs_index_header {
    int64_t begin_timestamp_ms;
    int64_t end_timestamp_ms;
    int64_t begin_offset;
    int64_t end_offset;
    int32_t slot_count;
    uint32_t index_count; /* number of the next entry: 1 in a file without keys */
} rs_index_header;

typedef struct rs_index_entry {
    int32_t key_hash;
    int64_t physical_offset;
    int32_t time_diff_s;
    int32_t previous;
} rs_index_entry;

typedef struct rs_index_hit {
    int64_t physical_offset;
    int64_t timestamp_ms; /* as the entry has it: up to 999 ms early */
} rs_index_hit;

/* A look-up in one file, resumable. Fill it with rs_index_walk_start, then call
 * rs_index_walk_next. */
typedef struct rs_index_walk {
    const uint8_t *base;
    uint32_t slots;
    uint32_t key_hash;
    uint32_t number; /* of the entry to look at next; 0: the chain has ended */
    int64_t begin_ms;
    int64_t end_ms;
    int64_t file_begin_ms;
    int64_t last_offset; /* of the last hit: a record that was indexed twice is one hit */
} rs_index_walk;

static inline uint64_t rs_index_file_size(uint32_t slots, uint32_t entries)
{
    return RS_INDEX_HEADER_SIZE + (uint64_t)slots * RS_INDEX_SLOT_SIZE +
           (uint64_t)entries * RS_INDEX_ENTRY_SIZE;
}

/* Position of entry `number` in its file. */
static inline uint64_t rs_index_entry_at(uint32_t slots, uint32_t number)
{
    return rs_index_file_size(slots, number);
}

/* |Java string hash of topic separator text|; the hash whose absolute value overflows gives 0
 * (K-59). */
uint32_t rs_index_hash(rs_span topic, rs_span separator, rs_span text);

static inline uint32_t rs_index_key_hash(rs_span topic, rs_span key)
{
    return rs_index_hash(topic, (rs_span){(const uint8_t *)"#", 1}, key);
}

/* RocketMQ 5.4 and later indexes the tags of a record, too. */
static inline uint32_t rs_index_tags_hash(rs_span topic, rs_span tags)
{
    return rs_index_hash(topic, (rs_span){(const uint8_t *)"#T#", 3}, tags);
}

/* A fresh file carries the end of the full one before it, or zeros (format.md 7.2, Q-22). */
void rs_index_header_init(uint8_t *base, int64_t previous_end_timestamp_ms,
                          int64_t previous_end_offset);

/* Decodes the first RS_INDEX_HEADER_SIZE bytes. RS_BAD_UNIT when the next entry's number is
 * beyond `entries`; the header is filled all the same, index_count held at `entries`. A count <=
 * 0 means 1. */
rs_status rs_index_header_load(const uint8_t *base, uint32_t entries, rs_index_header *header);

/* Adds one key (format.md 7.5), or RS_FULL without a change. `entries` may be smaller than what
 * the file has: the writer passes how many of them have blocks on disk. The entry is whole
 * before its slot names it, and the slot before the header counts it, so a reader never follows
 * a half-written entry. */
rs_status rs_index_put(uint8_t *base, uint32_t slots, uint32_t entries, uint32_t key_hash,
                       int64_t physical_offset, int64_t store_timestamp_ms);

/* Entry `number` as the file has it, each field read from memory once: what was compared is what is used. */
void rs_index_entry_load(const uint8_t *base, uint32_t slots, uint32_t number,
                         rs_index_entry *entry);

/* Starts at the newest entry of the hash's slot. The window is [begin_ms, end_ms]; widening
 * `begin_ms` by the second that entries lose is the caller's. */
void rs_index_walk_start(rs_index_walk *walk, const uint8_t *base, uint32_t slots, uint32_t entries,
                         uint32_t key_hash, int64_t begin_ms, int64_t end_ms);

/* The next older entry with the hash and a time in the window; false at the end. Ends on every
 * input: entry numbers only fall. Other keys of the same hash are hits too; only the record
 * has its keys. */
bool rs_index_walk_next(rs_index_walk *walk, rs_index_hit *hit);

/* Whether an entry may have the hash: also where its chain has more than `most` entries, or is not sane. */
bool rs_index_may_have(const uint8_t *base, uint32_t slots, uint32_t entries, uint32_t key_hash,
                       uint32_t most);

/* Whether the first and last entries of a file lie where slots and entries say, are named by
 * their slots, and begin and end where the header has it. A file without keys fits any shape; a
 * torn one may fit none. */
bool rs_index_plausible(const uint8_t *base, uint32_t slots, uint32_t entries);

/* The one shape of a file of `size` bytes that is plausible; RS_NOT_FOUND when there is none or
 * more. */
rs_status rs_index_deduce(const uint8_t *base, uint64_t size, uint32_t *slots, uint32_t *entries);

/* RS_OK when the header's count fits, every entry is sane and reachable from its own slot
 * exactly once, and offsets do not fall; else RS_BAD_UNIT. Reads the whole file. `growing`: somebody
 * puts keys meanwhile; entries from the count on that slots name already are passed over. */
rs_status rs_index_validate(const uint8_t *base, uint32_t slots, uint32_t entries, bool growing);

/* Drops the entries of records at `from_offset` and beyond, and everything from the first entry
 * that cannot be believed, then rebuilds slots and header: the number of the next entry. Kept
 * entries keep hash, offset and time, so a cut that was interrupted is finished by the same cut.
 * The time of the new last entry is known to the second only; the header gets the end of that
 * second. */
uint32_t rs_index_cut(uint8_t *base, uint32_t slots, uint32_t entries, int64_t from_offset);

#endif
