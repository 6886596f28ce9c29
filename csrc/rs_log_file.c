#include "rs_log_file.h"
#include "rs_properties.h"

/* Where the byte at `offset` of the current segment is written. */
static inline uint8_t *rs_log_at(const rs_log *log, int64_t offset)
{
    if (log->ring)
        return log->ring + offset % log->ring_size;
    return log->segment.bytes + (offset - log->segment.start);
}

static inline int64_t rs_log_left(const rs_log *log)
{
    return log->segment.size ? log->segment.start + log->segment.size - log->wrote : 0;
}

static inline int64_t rs_log_segment_size(const rs_log *log)
{
    if (log->segment.size)
        return log->segment.size;
    return log->next.size ? log->next.size : log->file_size;
}

/* Up to here the files have blocks that a record can be stored to. The current file is stored to up to its very
 * end before the log goes on in the next one: its blank is there. */
static int64_t rs_log_blocks_end(const rs_log *log)
{
    if (log->segment.reserved < log->segment.size || !log->next.size)
        return log->segment.start + log->segment.reserved;
    return log->next.start + log->next.reserved;
}

/* RS_NO_BLOCKS, unless everything below `end` has some. `roll`: the current file is stored to up to its end. */
static rs_status rs_log_check_blocks(rs_log *log, int64_t end, bool roll)
{
    if (end <= rs_log_blocks_end(log))
        return RS_OK;
    bool current = log->segment.reserved < log->segment.size;
    log->wanted = roll && current ? log->segment.start + log->segment.size : end;
    return RS_NO_BLOCKS;
}

int64_t rs_log_refresh_limit(rs_log *log)
{
    int64_t flushed = rs_position_load(log->positions, RS_POSITIONS_AT_FLUSHED);
    int64_t limit = flushed + log->max_unflushed_bytes;
    int64_t dispatched = rs_position_load(log->positions, RS_POSITIONS_AT_DISPATCHED);
    if (dispatched + log->max_undispatched_bytes < limit)
        limit = dispatched + log->max_undispatched_bytes;
    if (log->ring) {
        int64_t committed = rs_position_load(log->positions, RS_POSITIONS_AT_COMMITTED);
        if (committed + log->ring_size < limit)
            limit = committed + log->ring_size;
    }
    int64_t blocks = rs_log_blocks_end(log);
    if (blocks < limit)
        limit = blocks;
    log->limit = limit;
    return limit;
}

/* A blank ends the segment; the next one becomes current. Its header always has its 8 bytes. */
static void rs_log_roll(rs_log *log)
{
    int64_t left = rs_log_left(log);
    if (left > 0) {
        uint8_t *blank = rs_log_at(log, log->wrote);
        if (log->zero_blank)
            memset(blank, 0, (size_t)left);
        rs_store32(blank, (uint32_t)left);
        __atomic_thread_fence(__ATOMIC_RELEASE);
        rs_store32(blank + RS_AT_MAGIC, RS_MAGIC_BLANK);
        log->last_record_start = log->wrote;
    }
    log->segment = log->next;
    log->next = (rs_segment){NULL, 0, 0, 0, -1};
    log->wrote = log->segment.start;
}

int64_t rs_log_record_max(const rs_log *log)
{
    int64_t segment_size = rs_log_segment_size(log);
    int64_t most = segment_size ? segment_size - RS_BLANK_SIZE_MIN : INT64_MAX;
    int64_t beside_blank = (log->ring_size - RS_BLANK_SIZE_MIN) / 2;
    return log->ring && beside_blank < most ? beside_blank : most;
}

/* Whether `wrote` may become `end`, in the next segment with `roll`; else what is missing. */
static rs_status rs_log_check_bounds(rs_log *log, int64_t end, bool roll)
{
    if (end <= log->limit || end <= rs_log_refresh_limit(log))
        return RS_OK;
    rs_status status = rs_log_check_blocks(log, end, roll);
    if (status != RS_OK)
        return status;
    /* One put is always let through when nothing is pending, whatever its size. */
    int64_t flushed = rs_position_load(log->positions, RS_POSITIONS_AT_FLUSHED);
    int64_t dispatched = rs_position_load(log->positions, RS_POSITIONS_AT_DISPATCHED);
    return flushed == log->wrote && dispatched == log->wrote ? RS_OK : RS_FULL;
}

/* What was stored so far is stored before the caller's memory is read, where a page may be missing. */
static inline void rs_log_before_reading(void)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Makes `size` bytes and a blank header available at log->wrote, or says what is missing. */
static rs_status rs_log_make_room(rs_log *log, int64_t size, rs_appended *appended)
{
    if (size > rs_log_record_max(log))
        return RS_RECORD_TOO_LARGE;
    int64_t left = rs_log_left(log);
    bool roll = size + RS_BLANK_SIZE_MIN > left;
    if (roll && !log->next.size)
        return RS_END_OF_FILE;
    int64_t end = roll ? log->next.start + size : log->wrote + size;
    rs_status status = rs_log_check_bounds(log, end, roll);
    if (status != RS_OK)
        return status;
    if (roll)
        rs_log_roll(log);
    appended->rolled = roll;
    appended->aside = false;
    appended->size = size;
    appended->placed = 0;
    rs_log_before_reading();
    return RS_OK;
}

static void rs_log_advance(rs_log *log, int64_t end, rs_appended *appended)
{
    log->wrote = end;
    rs_position_store(log->positions, RS_POSITIONS_AT_WROTE, end);
    appended->end_offset = end;
    appended->notify = end >= log->notify_at;
    if (appended->notify)
        log->notify_at = INT64_MAX;
}

/* Where `count` records of `size` bytes are laid, with room made for it. The kernel makes fresh pages for a write of
 * many at once for half of what it costs to make each for a store: it neither zeroes nor maps them. */
static uint8_t *rs_log_place(const rs_log *log, int64_t size, size_t count, rs_appended *appended)
{
    appended->aside = log->aside && log->wrote + size > log->ready && size >= log->aside_least &&
                      size <= log->aside_size && size >= (int64_t)count * log->aside_record_min;
    rs_log_before_reading();
    return appended->aside ? log->aside : rs_log_at(log, log->wrote);
}

static void rs_log_advance_batch(rs_log *log, int64_t size, rs_appended *appended)
{
    if (appended->aside)
        appended->end_offset = log->wrote + size;
    else
        rs_log_advance(log, log->wrote + size, appended);
}

void rs_log_written(rs_log *log, rs_appended *appended)
{
    rs_log_advance(log, appended->end_offset, appended);
}

/* Types prepared and rollback consume no queue offset (format.md 2.4). */
static bool rs_log_queued(const rs_message *message)
{
    uint32_t type = rs_transaction_type(message->sys_flag);
    return type == 0 || type == RS_FLAG_COMMIT;
}

/* Any thread reads these without the mutex, so that each is stored whole. */
static inline void rs_add(int64_t *to, int64_t more)
{
    __atomic_store_n(to, *to + more, __ATOMIC_RELAXED);
}

static inline void rs_queue_add(rs_queue_state *queue, int64_t offsets, int64_t messages,
                                int64_t bytes)
{
    rs_add(&queue->next_offset, offsets);
    rs_add(&queue->messages, messages);
    rs_add(&queue->bytes, bytes);
}

/* Fields that only the log knows. */
static bool rs_log_stamp(rs_log *log, rs_message *message, const rs_queue_state *queue,
                         int64_t now_ms, rs_appended *appended)
{
    bool queued = rs_log_queued(message);
    uint8_t bit, *watched = rs_key_watch_at(log->watch, message, &bit);
    if (watched)
        *watched |= bit;
    if (now_ms > log->last_store_timestamp_ms)
        log->last_store_timestamp_ms = now_ms;
    message->queue_offset = queued ? queue->next_offset : 0;
    message->physical_offset = log->wrote;
    message->store_timestamp_ms = log->last_store_timestamp_ms;
    appended->physical_offset = log->wrote;
    appended->queue_offset = message->queue_offset;
    appended->store_timestamp_ms = message->store_timestamp_ms;
    return queued;
}

/* How far after a record the log is fetched for records to come, and how much at most for each. The CPU's own
 * prefetch starts again at each page; a page that another processor has just zeroed takes as long to arrive as a
 * put of 100 B (bench/results/development.md, "Warm and cold pages"). */
#define RS_LOG_AHEAD 1024
#define RS_LOG_AHEAD_MAX 2048

static inline void rs_log_fetch_ahead(uint8_t *end, size_t size)
{
    rs_fetch_to_write(end + RS_LOG_AHEAD, size < RS_LOG_AHEAD_MAX ? size : RS_LOG_AHEAD_MAX);
}

rs_status rs_log_append(rs_log *log, rs_message *message, rs_queue_state *queue, int64_t now_ms,
                        rs_appended *appended)
{
    if (message->only_latest) {
        uint8_t bit, *watched = rs_key_watch_at(log->watch, message, &bit);
        if (!watched || *watched & bit)
            return RS_OK;
    }
    int64_t size = (int64_t)rs_record_size(message);
    rs_status status = rs_log_make_room(log, size, appended);
    if (status != RS_OK)
        return status;
    bool queued = rs_log_stamp(log, message, queue, now_ms, appended);
    uint8_t *record = rs_log_at(log, log->wrote);
    rs_record_lay(message, (size_t)size, record, log->kernel);
    if (message->record_crc)
        rs_record_seal(record, (size_t)size, message->topic.size, log->kernel);
    rs_record_publish(record, message->topic.size);
    rs_log_fetch_ahead(record + size, (size_t)size);
    log->last_record_start = log->wrote;
    rs_queue_add(queue, queued, 1, size);
    rs_log_advance(log, log->wrote + size, appended);
    return RS_OK;
}

static int64_t rs_log_size_without_body(const rs_message *message)
{
    rs_message empty = *message;
    empty.body.size = 0;
    return (int64_t)rs_record_size(&empty);
}

/* Records of a batch that are laid before their record CRCs are computed: by then the stores of the
 * first have reached the cache, which loads of other sizes must wait for. */
enum { RS_BATCH_GROUP = 8 };

/* At `record`, of which the end is returned. The very first record of a batch stays unpublished. */
static uint8_t *rs_log_append_group(rs_log *log, rs_message *message, const rs_span *bodies,
                                    size_t count, int64_t fixed, bool queued, int64_t *offsets,
                                    uint8_t *record, bool first)
{
    const rs_crc32_kernel kernel = log->kernel;
    const size_t topic_size = message->topic.size;
    uint8_t *laid = record;
    for (size_t i = 0; i < count; i++) {
        size_t size = (size_t)fixed + bodies[i].size;
        message->body = bodies[i];
        offsets[i] = message->physical_offset;
        rs_record_lay(message, size, laid, kernel);
        rs_log_fetch_ahead(laid + size, size);
        message->physical_offset += (int64_t)size;
        message->queue_offset += queued;
        laid += size;
    }
    for (size_t i = 0; i < count; i++) {
        size_t size = (size_t)fixed + bodies[i].size;
        if (message->record_crc)
            rs_record_seal(record, size, topic_size, kernel);
        if (!(first && i == 0))
            rs_record_publish(record, topic_size);
        record += size;
    }
    return record;
}

rs_status rs_log_append_batch(rs_log *log, rs_message *message, const rs_span *bodies, size_t count,
                              rs_queue_state *queue, int64_t now_ms, int64_t *offsets,
                              rs_appended *appended)
{
    int64_t fixed = rs_log_size_without_body(message);
    int64_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += fixed + (int64_t)bodies[i].size;
        if (size > INT32_MAX)
            return RS_RECORD_TOO_LARGE;
    }
    rs_status status = rs_log_make_room(log, size, appended);
    if (status != RS_OK)
        return status;
    bool queued = rs_log_stamp(log, message, queue, now_ms, appended);
    uint8_t *first = rs_log_place(log, size, count, appended);
    uint8_t *record = first;
    for (size_t i = 0; i < count; i += RS_BATCH_GROUP) {
        size_t some = count - i < RS_BATCH_GROUP ? count - i : RS_BATCH_GROUP;
        record = rs_log_append_group(log, message, bodies + i, some, fixed, queued, offsets + i,
                                     record, i == 0);
    }
    rs_record_publish(first, message->topic.size);
    log->last_record_start = offsets[count - 1];
    rs_queue_add(queue, queued ? (int64_t)count : 0, (int64_t)count, size);
    rs_log_advance_batch(log, size, appended);
    return RS_OK;
}

rs_status rs_log_append_messages(rs_log *log, rs_message *messages, rs_queue_state *const *queues,
                                 size_t count, int64_t now_ms, int64_t *offsets,
                                 rs_appended *appended)
{
    int64_t size = 0;
    for (size_t i = 0; i < count; i++) {
        size += (int64_t)rs_record_size(&messages[i]);
        if (size > INT32_MAX)
            return RS_RECORD_TOO_LARGE;
    }
    rs_status status = rs_log_make_room(log, size, appended);
    if (status != RS_OK)
        return status;
    uint8_t *first = rs_log_place(log, size, count, appended);
    uint8_t *record = first;
    rs_appended each;
    for (size_t i = 0; i < count; i++) {
        rs_message *message = &messages[i];
        bool queued = rs_log_stamp(log, message, queues[i], now_ms, &each);
        if (i == 0) {
            appended->queue_offset = each.queue_offset;
            appended->physical_offset = each.physical_offset;
            appended->store_timestamp_ms = each.store_timestamp_ms;
        }
        message->physical_offset = log->wrote + (record - first);
        offsets[i] = message->physical_offset;
        size_t written = rs_record_encode(message, record, log->kernel);
        if (i)
            rs_record_publish(record, message->topic.size);
        rs_log_fetch_ahead(record + written, written);
        rs_queue_add(queues[i], queued, 1, (int64_t)written);
        record += written;
        appended->placed = i + 1;
        rs_log_before_reading();
    }
    rs_record_publish(first, messages[0].topic.size);
    log->last_record_start = offsets[count - 1];
    rs_log_advance_batch(log, size, appended);
    return RS_OK;
}

bool rs_log_owns(const rs_log *log, const void *address)
{
    const struct {
        const uint8_t *bytes;
        int64_t size;
    } parts[] = {{log->positions, RS_POSITIONS_PAGE_SIZE},
                 {log->ring, 2 * log->ring_size},
                 {log->segment.bytes, log->segment.size},
                 {log->next.bytes, log->next.size}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].bytes &&
            (uintptr_t)address - (uintptr_t)parts[i].bytes < (size_t)parts[i].size)
            return true;
    return false;
}

void rs_log_take_back(rs_log *log, const rs_message *messages, rs_queue_state *const *queues,
                      const rs_appended *appended)
{
    for (size_t i = 0; i < appended->placed; i++)
        rs_queue_add(queues[i], -(int64_t)rs_log_queued(&messages[i]), -1,
                     -(int64_t)rs_record_size(&messages[i]));
    if (!log->zero_blank && !appended->aside)
        memset(rs_log_at(log, log->wrote), 0, (size_t)appended->size);
}

static size_t rs_decimal(int64_t value, uint8_t to[20])
{
    uint8_t digits[20];
    size_t count = 0;
    do {
        digits[count++] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    for (size_t i = 0; i < count; i++)
        to[i] = digits[count - 1 - i];
    return count;
}

rs_status rs_log_append_lights(rs_log *log, rs_message *message, rs_queue_state *queue,
                               rs_queue_state *const *lights, size_t count, uint8_t *text,
                               size_t room, int64_t now_ms, rs_appended *appended)
{
    static const char name[] = "INNER_MULTI_QUEUE_OFFSET\x01";
    size_t size = message->properties.size;
    /* Nineteen digits and a comma for each queue, at most. */
    if (size + sizeof name + 20 * count > room)
        return RS_PROPERTIES_TOO_LARGE;
    memcpy(text + size, name, sizeof name - 1);
    size += sizeof name - 1;
    for (size_t i = 0; i < count; i++) {
        if (i)
            text[size++] = ',';
        size += rs_decimal(lights[i]->next_offset, text + size);
    }
    text[size++] = RS_PROPERTY_SEPARATOR;
    size_t before = message->properties.size;
    message->properties = (rs_span){text, size};
    rs_status status = rs_record_check(message, SIZE_MAX, true);
    if (status == RS_OK)
        status = rs_log_append(log, message, queue, now_ms, appended);
    message->properties.size = before;
    bool appends = status == RS_OK && appended->end_offset == log->wrote; /* false: not the latest */
    bool queued = appends && rs_log_queued(message);
    for (size_t i = 0; i < count; i++)
        rs_add(&lights[i]->next_offset, queued);
    return status;
}

/* For records of which the first has `first` bytes. One that is appended alone where a segment begins would be stored
 * to its fresh page, for which the kernel reads ahead: 8 MiB of zeros, and then on ahead of the dispatcher. */
static int64_t rs_log_room(const rs_log *log, int64_t first)
{
    int64_t left = rs_log_left(log) - RS_BLANK_SIZE_MIN;
    int64_t pending = log->ring ? log->ring_size / 4 : (int64_t)INT32_MAX;
    if (first > left)
        left = rs_log_segment_size(log) - RS_BLANK_SIZE_MIN;
    return left < pending ? left : pending;
}

size_t rs_log_fitting(const rs_log *log, const rs_message *message, const rs_span *bodies,
                      size_t count)
{
    int64_t fixed = rs_log_size_without_body(message);
    int64_t left = count ? rs_log_room(log, fixed + (int64_t)bodies[0].size) : 0;
    size_t fitting = 0;
    while (fitting < count && fixed + (int64_t)bodies[fitting].size <= left) {
        left -= fixed + (int64_t)bodies[fitting].size;
        fitting++;
    }
    return fitting;
}

size_t rs_log_fitting_messages(const rs_log *log, const rs_message *messages, size_t count)
{
    int64_t left = count ? rs_log_room(log, (int64_t)rs_record_size(&messages[0])) : 0;
    size_t fitting = 0;
    while (fitting < count && (int64_t)rs_record_size(&messages[fitting]) <= left)
        left -= (int64_t)rs_record_size(&messages[fitting++]);
    return fitting;
}

rs_status rs_log_append_raw(rs_log *log, int64_t start, rs_span bytes, int64_t last_record,
                            int64_t stored_ms, rs_appended *appended)
{
    int64_t size = (int64_t)bytes.size;
    if (log->segment.size && rs_log_left(log) == 0) {
        if (!log->next.size)
            return RS_END_OF_FILE;
        rs_log_roll(log);
        appended->rolled = true;
    }
    if (!log->segment.size && !log->next.size)
        return RS_END_OF_FILE;
    if (!log->segment.size)
        rs_log_roll(log);
    if (start != log->wrote)
        return RS_BAD_PHYSICAL_OFFSET;
    if (size > rs_log_left(log) || (log->ring && size > log->ring_size))
        return RS_RECORD_TOO_LARGE;
    rs_status status = rs_log_check_bounds(log, start + size, false);
    if (status != RS_OK)
        return status;
    appended->aside = log->aside && start + size > log->ready;
    if (!appended->aside)
        memcpy(rs_log_at(log, start), bytes.bytes, bytes.size);
    log->last_record_start = last_record;
    if (stored_ms > log->last_store_timestamp_ms)
        log->last_store_timestamp_ms = stored_ms;
    appended->physical_offset = start;
    rs_log_advance_batch(log, size, appended);
    return RS_OK;
}
