#include "rs_queue_table.h"

/* FNV-1a over the topic, then the queue id: short names, no attacker (names are checked before). */
static uint64_t rs_queue_hash(rs_span topic, int32_t queue_id)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < topic.size; i++)
        hash = (hash ^ topic.bytes[i]) * 0x100000001B3u;
    hash = (hash ^ (uint32_t)queue_id) * 0x100000001B3u;
    return hash ^ (hash >> 29);
}

static rs_queue_entry *rs_queue_table_place(const rs_queue_table *table, rs_span topic,
                                            int32_t queue_id)
{
    size_t mask = table->capacity - 1;
    size_t at = (size_t)rs_queue_hash(topic, queue_id) & mask;
    for (;; at = (at + 1) & mask) {
        rs_queue_entry *entry = &table->entries[at];
        if (!entry->topic.bytes)
            return entry;
        if (entry->queue_id == queue_id && entry->topic.size == topic.size &&
            memcmp(entry->topic.bytes, topic.bytes, topic.size) == 0)
            return entry;
    }
}

rs_queue_entry *rs_queue_table_find(const rs_queue_table *table, rs_span topic, int32_t queue_id)
{
    if (table->count == 0)
        return NULL;
    rs_queue_entry *entry = rs_queue_table_place(table, topic, queue_id);
    return entry->topic.bytes ? entry : NULL;
}

rs_queue_entry *rs_queue_table_add(rs_queue_table *table, rs_span topic, int32_t queue_id)
{
    if (4 * (table->count + 1) > 3 * table->capacity)
        return NULL;
    rs_queue_entry *entry = rs_queue_table_place(table, topic, queue_id);
    if (!entry->topic.bytes) {
        *entry = (rs_queue_entry){topic, queue_id, NULL, 0, 0, 0, INT64_MAX, NULL, false};
        table->count++;
    }
    return entry;
}
