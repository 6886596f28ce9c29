/* A hash of a text, for tables in memory. Where others choose the texts the seed is random. */
#ifndef RS_TEXT_HASH_H
#define RS_TEXT_HASH_H

#include "rs_base.h"

static inline uint64_t rs_hash_mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

/* All bytes of a text shorter than eight, in few loads: those of its two ends may overlap. */
static inline uint64_t rs_short_text(rs_span text)
{
    const uint8_t *bytes = text.bytes;
    const size_t size = text.size;
    if (size >= 4)
        return (uint64_t)rs_load32(bytes) << 32 | rs_load32(bytes + size - 4);
    if (size == 0)
        return 0;
    return (uint64_t)bytes[0] << 16 | (uint64_t)bytes[size / 2] << 8 | bytes[size - 1];
}

static inline uint64_t rs_text_hash(uint64_t seed, rs_span text)
{
    uint64_t hash = rs_hash_mixed(seed, text.size);
    if (text.size < 8)
        return rs_hash_mixed(hash, rs_short_text(text));
    for (size_t at = 0; at < text.size - 8; at += 8)
        hash = rs_hash_mixed(hash, rs_load64(text.bytes + at));
    return rs_hash_mixed(hash, rs_load64(text.bytes + text.size - 8));
}

#endif
