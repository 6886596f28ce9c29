#include "rs_queue_table.h"
#include "rs_text_hash.h"

static inline bool rs_is_queue(const rs_queue_entry *entry, rs_span topic, int32_t queue_id)
{
    return entry->queue_id == queue_id && rs_same_text(entry->topic, topic);
}

static rs_queue_entry *rs_queue_table_place(const rs_queue_table *table, rs_span topic,
                                            int32_t queue_id)
{
    size_t mask = table->capacity - 1;
    /* A seed that is known: names are checked before, and no attacker gives them. */
    size_t at = (size_t)rs_text_hash((uint32_t)queue_id, topic) & mask;
    for (;; at = (at + 1) & mask) {
        rs_queue_entry *entry = &table->entries[at];
        if (!entry->topic.bytes || rs_is_queue(entry, topic, queue_id))
            return entry;
    }
}

rs_queue_entry *rs_queue_table_find(rs_queue_table *table, rs_span topic, int32_t queue_id)
{
    if (table->count == 0)
        return NULL;
    rs_queue_entry *last = &table->entries[table->last];
    if (last->topic.bytes && rs_is_queue(last, topic, queue_id))
        return last;
    rs_queue_entry *entry = rs_queue_table_place(table, topic, queue_id);
    if (!entry->topic.bytes)
        return NULL;
    table->last = (size_t)(entry - table->entries);
    return entry;
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
