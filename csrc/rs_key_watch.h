/* Which keys were appended since a moment. */
#ifndef RS_KEY_WATCH_H
#define RS_KEY_WATCH_H

#include "rs_properties.h"
#include "rs_record.h"

/* One bit for a hash of topic and KEYS, so that a key may pass for another one, by the salt for another one in each
 * watch. */
typedef struct rs_key_watch {
    uint64_t salt;
    uint8_t bits[1 << 17];
} rs_key_watch;

/* The byte with the bit of a message's key; NULL: nobody watches, or it has no key. */
static inline uint8_t *rs_key_watch_at(rs_key_watch *watch, const rs_message *message, uint8_t *bit)
{
    if (!watch)
        return NULL;
    rs_property_walk walk = rs_properties_walk_sent(message->properties);
    rs_span name, value, keys = {NULL, 0};
    while (rs_property_next(&walk, &name, &value))
        if (name.size == 4 && memcmp(name.bytes, "KEYS", 4) == 0)
            keys = value;
    uint64_t hash = watch->salt; /* FNV-1a, mixed once more: a last byte hardly reaches its high bits */
    const rs_span parts[] = {message->topic, keys};
    for (size_t part = 0; part < 2; part++)
        for (size_t i = 0; i < parts[part].size; i++)
            hash = (hash ^ parts[part].bytes[i]) * 0x100000001b3u;
    hash = (hash ^ hash >> 32) * 0x9e3779b97f4a7c15u;
    *bit = (uint8_t)(1u << (hash >> 61));
    return keys.size ? &watch->bits[(hash >> 44) % sizeof watch->bits] : NULL;
}

#endif
