/* Property text: name 01 value 02 name 01 value 02 … (format.md 2.6). */
#ifndef RS_PROPERTIES_H
#define RS_PROPERTIES_H

#include <assert.h>

#include "rs_base.h"

#define RS_NAME_VALUE_SEPARATOR 0x01
#define RS_PROPERTY_SEPARATOR 0x02
#define RS_PROPERTIES_MAX 32767

/* Walks the pieces of a property text. Start with {text, text + size}. */
typedef struct rs_property_walk {
    const uint8_t *at;
    const uint8_t *end;
} rs_property_walk;

static inline rs_property_walk rs_properties_walk(rs_span text)
{
    return (rs_property_walk){text.bytes, text.bytes ? text.bytes + text.size : text.bytes};
}

/* The same without a record CRC at the end: that is the store's, and most texts hold little else. */
rs_property_walk rs_properties_walk_sent(rs_span text);

/* The next readable name and value; false at the end. Skips pieces shorter than 3 bytes, without a
 * separator, with an empty name or an empty value. Does not remove duplicates: later pieces win. */
bool rs_property_next(rs_property_walk *walk, rs_span *name, rs_span *value);

/* Value of the last piece called `name` (later pieces win); false when there is none. */
bool rs_property_find(rs_span text, const char *name, size_t name_size, rs_span *value);

typedef struct rs_pair {
    rs_span name;
    rs_span value;
} rs_pair;

/* Pieces that a property text can have at most. */
#define RS_PAIRS_MAX 8192
static_assert(4 * RS_PAIRS_MAX - 1 >= RS_PROPERTIES_MAX, "a piece has 3 bytes and a separator");

/* The properties of a text, each name once: where it comes first, with its last value. Without the record
 * CRC, which is the store's. `pairs` has RS_PAIRS_MAX places, the text at most RS_PROPERTIES_MAX bytes.
 * Takes 32 KiB of the stack. */
size_t rs_property_pairs(rs_span text, rs_pair *pairs);

/* java.lang.String.hashCode of a UTF-8 text, over its UTF-16 code units. What is not UTF-8 counts as
 * Java's decoder replaces it and never fails: one U+FFFD for the longest beginning of a character, and
 * one for all three bytes of an encoded surrogate. */
int32_t rs_java_hash(rs_span utf8);
/* The same, continued: hash of (previous text + this text). */
int32_t rs_java_hash_continue(int32_t hash, rs_span utf8);

/* Whether `raw` is `shown` once Java's decoder has replaced what is not UTF-8; `shown` is UTF-8. */
bool rs_java_shown_as(rs_span raw, rs_span shown);

/* Tag code of a consume queue unit: sign-extended hash of the TAGS value, 0 without one. */
int64_t rs_tags_code(rs_span tags);

/* RS_OK, or RS_PROPERTY_ILLEGAL when a name or value is empty or holds 01 or 02. */
rs_status rs_property_check(rs_span name, rs_span value);

/* Plain decimal i64 (optional '-'), whole span; false when it is anything else or does not fit. */
bool rs_parse_decimal(rs_span text, int64_t *value);

#endif
