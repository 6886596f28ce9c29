/* (topic, queue id) → where the dispatcher writes the next unit. The caller supplies the memory. */
#ifndef RS_QUEUE_TABLE_H
#define RS_QUEUE_TABLE_H

#include "rs_base.h"

typedef struct rs_queue_entry {
    rs_span topic; /* borrowed; NULL bytes: the place is free */
    int32_t queue_id;
    uint8_t *units; /* the current file, NULL: none yet */
    int64_t first_unit; /* queue offset of units[0] */
    int64_t unit_limit; /* units that have blocks on disk in this file */
    int64_t next_offset; /* after the last unit of the queue */
    int64_t dirty_from; /* smallest queue offset written since the last sync; INT64_MAX: none */
    int64_t *published; /* where readers look how far they may; NULL: none read it */
    bool moved; /* next_offset has changed since it was published */
} rs_queue_entry;

typedef struct rs_queue_table {
    rs_queue_entry *entries;
    size_t capacity; /* a power of two */
    size_t count;
    size_t last; /* place of the entry that was found last: most often the next one, too */
} rs_queue_table;

/* The entry, or NULL. */
rs_queue_entry *rs_queue_table_find(rs_queue_table *table, rs_span topic, int32_t queue_id);

/* The entry of a new queue, or NULL when three quarters of the places are taken: grow, then add
 * again. */
rs_queue_entry *rs_queue_table_add(rs_queue_table *table, rs_span topic, int32_t queue_id);

#endif
