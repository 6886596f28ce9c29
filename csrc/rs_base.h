/* Statuses and big-endian loads and stores that every other file of csrc uses. */
#ifndef RS_BASE_H
#define RS_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum rs_status {
    RS_OK = 0,
    /* Not errors: how the log and its files say where something ends. */
    RS_END_OF_FILE, /* the record does not fit in what is left of this file */
    RS_BLANK,       /* the filler that ends a commit log file is here */
    RS_NOTHING,     /* zeros: nothing was written here */
    RS_FULL,        /* no room left in a table or an index file */
    RS_NOT_FOUND,
    /* A record that cannot be believed, by the first rule it breaks (format.md 14.1, 15.2). */
    RS_BAD_TRUNCATED,       /* fewer bytes left than the record needs */
    RS_BAD_MAGIC,           /* neither V1, V2 nor blank */
    RS_BAD_LENGTH,          /* the parts do not add up to totalSize */
    RS_BAD_TOPIC,           /* topic length out of range for the version */
    RS_BAD_PROPERTIES,      /* properties length negative or beyond the record */
    RS_BAD_PHYSICAL_OFFSET, /* the record says that it belongs elsewhere */
    RS_BAD_BODY_CRC,
    RS_BAD_RECORD_CRC,
    RS_BAD_UNIT,  /* queue unit or index entry that points nowhere */
    /* Input that is refused before anything is written. */
    RS_TOPIC_ILLEGAL,
    RS_BODY_TOO_LARGE,
    RS_PROPERTIES_TOO_LARGE,
    RS_PROPERTY_ILLEGAL,
    RS_RECORD_TOO_LARGE,
    RS_NO_BLOCKS, /* the file has no blocks there yet */
    RS_STATUS_COUNT
} rs_status;

/* Borrowed bytes; nobody frees them. `bytes` may be NULL when `size` is 0. */
typedef struct rs_span {
    const uint8_t *bytes;
    size_t size;
} rs_span;

#define RS_CACHE_LINE 64

/* Asks for bytes that will soon be read. Inlined by force: GCC drops calls of a function that does nothing
 * but this. */
static inline __attribute__((always_inline)) void rs_fetch(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += RS_CACHE_LINE)
        __builtin_prefetch(bytes + i);
}

/* The same for bytes that will soon be written: another processor, which made their page, has them. */
static inline __attribute__((always_inline)) void rs_fetch_to_write(uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i += RS_CACHE_LINE)
#if defined(__x86_64__)
        __asm__ volatile("prefetchw %0" : : "m"(bytes[i])); /* GCC's own only reads, for this CPU */
#else
        __builtin_prefetch(bytes + i, 1);
#endif
}

static inline uint16_t rs_load16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap16(value);
#endif
    return value;
}

static inline uint32_t rs_load32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    return value;
}

static inline uint64_t rs_load64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

/* Topics, hosts, tags and names are short: a call of memcmp takes longer than this. The last loads of each
 * length overlap. */
static inline bool rs_same_text(rs_span a, rs_span b)
{
    const size_t size = a.size;
    if (size != b.size)
        return false;
    if (size >= 8) {
        for (size_t at = 0; at < size - 8; at += 8)
            if (rs_load64(a.bytes + at) != rs_load64(b.bytes + at))
                return false;
        return rs_load64(a.bytes + size - 8) == rs_load64(b.bytes + size - 8);
    }
    if (size >= 4)
        return rs_load32(a.bytes) == rs_load32(b.bytes) &&
               rs_load32(a.bytes + size - 4) == rs_load32(b.bytes + size - 4);
    for (size_t at = 0; at < size; at++)
        if (a.bytes[at] != b.bytes[at])
            return false;
    return true;
}

static inline int32_t rs_load32s(const uint8_t *from)
{
    return (int32_t)rs_load32(from);
}

static inline int64_t rs_load64s(const uint8_t *from)
{
    return (int64_t)rs_load64(from);
}

static inline void rs_store16(uint8_t *to, uint16_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap16(value);
#endif
    memcpy(to, &value, sizeof value);
}

static inline void rs_store32(uint8_t *to, uint32_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap32(value);
#endif
    memcpy(to, &value, sizeof value);
}

static inline void rs_store64(uint8_t *to, uint64_t value)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    memcpy(to, &value, sizeof value);
}

static inline void rs_store32s(uint8_t *to, int32_t value)
{
    rs_store32(to, (uint32_t)value);
}

static inline void rs_store64s(uint8_t *to, int64_t value)
{
    rs_store64(to, (uint64_t)value);
}

#endif
