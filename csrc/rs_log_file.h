/* The end of the commit log: append with blank and roll, one writer at a time (format.md 3.2).
 *
 * The caller holds the append mutex around every function that takes an rs_log, except the loads of
 * `positions`. Nothing here waits, allocates or calls the system: when another segment or more room
 * is needed the status says so and no byte has changed. */
#ifndef RS_LOG_FILE_H
#define RS_LOG_FILE_H

#include "rs_key_watch.h"
#include "rs_positions.h"
#include "rs_record.h"

/* One commit log file. `bytes` is where its records are encoded: the mapping itself, a write buffer
 * of the same size, or NULL when the log writes through its ring. */
typedef struct rs_segment {
    uint8_t *bytes;
    int64_t start; /* physical offset of its first byte */
    int64_t size;
    int64_t reserved; /* bytes from its start that have blocks: nothing is stored after them */
    int fd; /* kept for the caller, which writes what was laid aside */
} rs_segment;

/* Next queue offset of one (topic, queue id), and what its puts add up to. Written under the mutex,
 * loaded by any thread. */
typedef struct rs_queue_state {
    int64_t next_offset;
    int64_t messages;
    int64_t bytes;
} rs_queue_state;

typedef struct rs_log {
    uint8_t *positions; /* this process's page; wrote is stored here */
    rs_crc32_kernel kernel;
    uint8_t *ring; /* mapped twice in a row, so any run of ring_size bytes is contiguous */
    int64_t ring_size;
    bool zero_blank; /* `bytes` or the ring may hold older bytes: what a blank covers is zeroed */
    rs_segment segment; /* size 0: there is none yet */
    rs_segment next; /* size 0: not ready */
    int64_t file_size; /* of a segment that is not there yet; 0: not known */
    int64_t wrote;
    int64_t last_record_start; /* record or blank that ends at `wrote`; -1 when unknown */
    int64_t last_store_timestamp_ms; /* never falls (D-28) */
    int64_t limit; /* `wrote` may reach this without looking at the positions again */
    int64_t wanted; /* after RS_NO_BLOCKS: the file with the byte before this offset needs blocks up to it */
    int64_t max_unflushed_bytes; /* D-14 */
    int64_t max_undispatched_bytes;
    /* Where batches are laid instead of in the segment, from `aside_least` to `aside_size` bytes long, and with
     * `aside_record_min` a record on average; NULL: none are. Up to `ready` the segment's pages are in memory, and
     * stored to. */
    uint8_t *aside;
    int64_t aside_least, aside_size, aside_record_min;
    int64_t ready;
    rs_key_watch *watch; /* NULL: nobody asks */
    int64_t
        notify_at; /* once `wrote` passes this, rs_appended.notify is set; then it is INT64_MAX */
} rs_log;

typedef struct rs_appended {
    int64_t physical_offset;
    int64_t end_offset;
    int64_t queue_offset;
    int64_t store_timestamp_ms;
    bool rolled; /* a blank was written and the next segment became the current one */
    bool notify; /* `notify_at` was passed */
    bool aside; /* the caller writes the batch to the segment's file, and calls rs_log_written */
    int64_t size; /* bytes that are, or were to be, appended */
    size_t placed; /* messages of rs_log_append_messages that have their queue offsets */
} rs_appended;

/* Mean size of the records of a batch from which it is laid aside, bytes, where a thread makes pages ready: smaller
 * records take longer to encode than their pages need. Without that thread all batches are laid aside
 * (bench/results/development.md, "Warm and cold pages"). */
#define RS_ASIDE_RECORD_MIN 512

/* Appends one record: sets its queue offset, physical offset and store timestamp, rolls when it
 * does not fit (totalSize + 8 must be free), publishes `wrote` with a release store. RS_OK;
 * RS_END_OF_FILE: needs `next`, nothing changed (D-16); RS_NO_BLOCKS: needs blocks up to `wanted`, nothing
 * changed; RS_FULL: beyond the bounds on unflushed, undispatched or uncommitted bytes; RS_RECORD_TOO_LARGE:
 * fits no segment or not the ring. RS_OK without a change of `appended`: `only_latest`, and a message of its key may
 * have been appended since the watch began, or nobody watches its key. */
rs_status rs_log_append(rs_log *log, rs_message *message, rs_queue_state *queue, int64_t now_ms,
                        rs_appended *appended);

/* Appends `count` records that differ only in their body, all in one segment; `offsets` receives
 * their physical offsets. The first record's magic is stored last: after the death of the process
 * all of them are there or none (D-37). Statuses as above; RS_RECORD_TOO_LARGE when the batch fits
 * no segment.
 *
 * With appended->aside the batch is in log->aside, and nothing is published: the caller writes it to the
 * file, its first page last, before rs_log_written. Until then nothing else may be appended; where writing
 * fails, nothing at all any more. */
rs_status rs_log_append_batch(rs_log *log, rs_message *message, const rs_span *bodies, size_t count,
                              rs_queue_state *queue, int64_t now_ms, int64_t *offsets,
                              rs_appended *appended);

/* What was laid aside, `appended`, is in the file: only now anybody may see it. */
void rs_log_written(rs_log *log, rs_appended *appended);

/* As rs_log_append for a record that is also listed in `count` light queues (format.md 6.7): `text`
 * holds the message's properties and has `room` bytes; INNER_MULTI_QUEUE_OFFSET with their next
 * offsets is added after them. Prepared and rollback take none of these, as none of their own queue.
 * RS_PROPERTIES_TOO_LARGE when it does not fit, nothing changed. */
rs_status rs_log_append_lights(rs_log *log, rs_message *message, rs_queue_state *queue,
                               rs_queue_state *const *lights, size_t count, uint8_t *text,
                               size_t room, int64_t now_ms, rs_appended *appended);

/* As rs_log_append_batch for records that have nothing in common: messages[i] goes to queues[i], which
 * several may share. */
rs_status rs_log_append_messages(rs_log *log, rs_message *messages, rs_queue_state *const *queues,
                                 size_t count, int64_t now_ms, int64_t *offsets,
                                 rs_appended *appended);

/* Whether `address`, at which an append could not load or store, is of the log; any other is of the caller. */
bool rs_log_owns(const rs_log *log, const void *address);

/* Takes back an append that was left while it read the caller's memory: queue offsets of rs_log_append_messages
 * (`messages`, `queues`), and what it had stored after `wrote`. Nothing of it was published. A roll stays. */
void rs_log_take_back(rs_log *log, const rs_message *messages, rs_queue_state *const *queues,
                      const rs_appended *appended);

/* The largest record, or batch, that a segment and the ring can take. */
int64_t rs_log_record_max(const rs_log *log);

/* How many of `messages` fit in what is left of the current segment, or in the next one when the first does not
 * (0: not even there, or nothing is known of it). */
size_t rs_log_fitting_messages(const rs_log *log, const rs_message *messages, size_t count);

/* The same of `bodies`. */
size_t rs_log_fitting(const rs_log *log, const rs_message *message, const rs_span *bodies,
                      size_t count);

/* Appends bytes as they are, at exactly `start` (replication). Never rolls inside: the bytes must
 * fit in the current segment. RS_BAD_PHYSICAL_OFFSET when the log ends elsewhere. Their last record begins at
 * `last_record`, -1 when unknown, and was stored at `stored_ms`.
 *
 * With appended->aside nothing was stored: the caller writes `bytes` as it writes a batch that is laid aside. That
 * is so whatever their size: one store to a fresh page has the kernel read zeros ahead of the dispatcher, 8 MiB each
 * time, which took a third of the processor of a copy that catches up. */
rs_status rs_log_append_raw(rs_log *log, int64_t start, rs_span bytes, int64_t last_record,
                            int64_t stored_ms, rs_appended *appended);

/* How far `wrote` may go at present: the smallest of the bounds, blocks included. Refreshes log->limit. */
int64_t rs_log_refresh_limit(rs_log *log);

#endif
