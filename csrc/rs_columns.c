#include "rs_columns.h"
#include "rs_message_id.h"
#include "rs_properties.h"

#define VIEW_SIZE 16
#define VIEW_INLINE 12

/* What a row needs beyond its record. */
typedef struct row {
    int32_t topic;
    int32_t born_host;
    int32_t store_host;
    rs_span tags;
    rs_span keys;
} row;

/* TAGS and KEYS in one pass: later pieces win. */
static void find_tags_and_keys(rs_span properties, row *found)
{
    rs_property_walk walk = rs_properties_walk_sent(properties);
    rs_span name, value;
    while (rs_property_next(&walk, &name, &value)) {
        if (name.size != 4)
            continue;
        if (memcmp(name.bytes, "TAGS", 4) == 0)
            found->tags = value;
        else if (memcmp(name.bytes, "KEYS", 4) == 0)
            found->keys = value;
    }
}

/* Sets *number; false: no dictionary has the word, and the walk says which. *last is the number found
 * before, which most often is that of the next record, too. */
static bool number_of(rs_column_walk *walk, const rs_dictionary *dictionary, rs_span text,
                      uint32_t *last, int32_t *number)
{
    if (*last < dictionary->count && rs_same_text(dictionary->words[*last].text, text)) {
        *number = (int32_t)*last;
        return true;
    }
    *number = rs_dictionary_find(dictionary, text);
    if (*number >= 0) {
        *last = (uint32_t)*number;
        return true;
    }
    walk->unknown = text;
    walk->unknown_host = dictionary == walk->hosts;
    walk->asks = false;
    return false;
}

static bool has_queue(const rs_word *topic, int32_t queue_id)
{
    size_t low = 0, high = topic->queue_id_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (topic->queue_ids[middle] < queue_id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < topic->queue_id_count && topic->queue_ids[low] == queue_id;
}

/* It may hold messages of any tags and properties: the reader that splits it checks theirs. */
static bool is_inner_batch(const rs_record *record)
{
    const uint32_t bits = RS_FLAG_NEED_UNWRAP | RS_FLAG_INNER_BATCH;
    return (record->sys_flag & bits) == bits;
}

static bool has_tag(const rs_column_walk *walk, const rs_record *record, rs_span tags)
{
    if (is_inner_batch(record))
        return true;
    for (size_t i = 0; i < walk->tag_count; i++)
        if (rs_same_text(walk->tags[i], tags))
            return true;
    for (size_t i = 0; walk->marked && i < walk->tag_count; i++)
        if (rs_java_shown_as(tags, walk->tags[i]))
            return true;
    return false;
}

/* RS_OK: the filter takes it; else as choose(). */
static rs_status choose_properties(rs_column_walk *walk, const rs_record *record)
{
    rs_verdict verdict = RS_VERDICT_TRUE;
    if (walk->answered_at == walk->at)
        return walk->answer ? RS_OK : RS_NOTHING;
    if (!is_inner_batch(record))
        verdict = rs_filter_verdict(walk->filter, record->properties);
    if (verdict != RS_VERDICT_UNSURE)
        return verdict == RS_VERDICT_TRUE ? RS_OK : RS_NOTHING;
    walk->unknown = record->properties;
    walk->asks = true;
    return RS_NOT_FOUND;
}

/* RS_OK: its topic and queue are wanted; else as choose(). */
static rs_status choose_topic(rs_column_walk *walk, const rs_columns *columns,
                              const rs_record *record, row *found)
{
    if (!walk->by_topic && !columns->topic)
        return RS_OK;
    if (!number_of(walk, walk->topics, record->topic, &walk->last_topic, &found->topic))
        return RS_NOT_FOUND;
    const rs_word *topic = &walk->topics->words[found->topic];
    if (!topic->wanted || (topic->queue_ids && !has_queue(topic, record->queue_id)))
        return RS_NOTHING;
    return RS_OK;
}

/* RS_OK: a row. RS_NOT_FOUND: a topic or host is not known yet, or the filter is not sure. RS_NOTHING: not
 * wanted. */
static inline __attribute__((always_inline)) rs_status
choose(rs_column_walk *walk, const rs_columns *columns, const rs_record *record, row *found)
{
    if (record->store_timestamp_ms < walk->from_ms ||
        (record->store_timestamp_ms >= walk->to_ms && walk->to_ms != INT64_MAX))
        return RS_NOTHING;
    rs_status status = choose_topic(walk, columns, record, found);
    if (status != RS_OK)
        return status;
    if (walk->tagged || columns->tags || columns->keys || columns->tags_code)
        find_tags_and_keys(record->properties, found);
    if (walk->tagged && !has_tag(walk, record, found->tags))
        return RS_NOTHING;
    if (walk->filter && (status = choose_properties(walk, record)) != RS_OK)
        return status;
    if (columns->born_host &&
        !number_of(walk, walk->hosts, rs_record_born_host(record), &walk->last_born_host,
                   &found->born_host))
        return RS_NOT_FOUND;
    if (columns->store_host &&
        !number_of(walk, walk->hosts, rs_record_store_host(record), &walk->last_store_host,
                   &found->store_host))
        return RS_NOT_FOUND;
    return RS_OK;
}

/* Rows on their way to the columns. A column takes all of them before the next one does: whether it is wanted
 * is asked once for many rows. */
#define BLOCK_ROWS 16

typedef struct block {
    rs_record records[BLOCK_ROWS];
    row rows[BLOCK_ROWS];
    size_t count;
} block;

#define PUT(column, value)                                                                         \
    for (size_t i = 0; to->column && i < count; i++)                                               \
    to->column[to->rows + i] = (value)

static void put_numbers(const rs_columns *to, const rs_record *records, const row *rows,
                        size_t count)
{
    PUT(topic, rows[i].topic);
    PUT(born_host, rows[i].born_host);
    PUT(store_host, rows[i].store_host);
    PUT(queue_id, records[i].queue_id);
    PUT(size, (int32_t)records[i].size);
    PUT(body_size, (int32_t)records[i].body.size);
    PUT(flag, records[i].flag);
    PUT(sys_flag, (int32_t)records[i].sys_flag);
    PUT(reconsume_times, records[i].reconsume_times);
    PUT(queue_offset, records[i].queue_offset);
    PUT(physical_offset, records[i].physical_offset);
    PUT(born_timestamp_ms, records[i].born_timestamp_ms);
    PUT(store_timestamp_ms, records[i].store_timestamp_ms);
    PUT(prepared_transaction_offset, records[i].prepared_transaction_offset);
    PUT(tags_code, rows[i].tags.size ? rs_tags_code(rows[i].tags) : 0);
}

static void put_spans(const rs_columns *to, const rs_record *records, const row *rows, size_t count)
{
    PUT(body, records[i].body);
    PUT(tags, rows[i].tags);
    PUT(keys, rows[i].keys);
    PUT(properties, records[i].properties);
}

#undef PUT

static void put_rows(rs_columns *columns, const rs_record *records, const row *rows, size_t count)
{
    put_numbers(columns, records, rows, count);
    put_spans(columns, records, rows, count);
    columns->rows += count;
}

rs_status rs_columns_take(rs_column_walk *walk, rs_columns *columns, const rs_record *records,
                          size_t count)
{
    while (columns->rows < count) {
        const rs_record *next = records + columns->rows;
        const size_t left = count - columns->rows, most = left < BLOCK_ROWS ? left : BLOCK_ROWS;
        row rows[BLOCK_ROWS] = {0};
        rs_status status = RS_OK;
        size_t taken = 0;
        while (taken < most && status == RS_OK) {
            status = choose(walk, columns, &next[taken], &rows[taken]);
            if (status == RS_OK)
                columns->bytes += next[taken++].size;
        }
        put_rows(columns, next, rows, taken);
        if (status != RS_OK)
            return status;
    }
    return RS_OK;
}

static void put_block(rs_columns *columns, block *taken)
{
    put_rows(columns, taken->records, taken->rows, taken->count);
    taken->count = 0;
}

static rs_status walk_records(rs_column_walk *walk, rs_columns *columns, size_t to,
                              uint64_t byte_limit, block *taken)
{
    bool stale;
    while (walk->at < to) {
        if (columns->rows + taken->count == columns->room)
            return RS_OK;
        if (taken->count == BLOCK_ROWS)
            put_block(columns, taken);
        rs_record *record = &taken->records[taken->count];
        row *found = &taken->rows[taken->count];
        rs_status status = rs_scan_judge(&walk->scan, walk->at, record, &stale);
        if (status != RS_OK)
            return status;
        const uint32_t size = record->size;
        *found = (row){0};
        status = choose(walk, columns, record, found);
        if (status == RS_NOT_FOUND)
            return status;
        if (status == RS_OK) {
            if (columns->rows + taken->count && columns->bytes + size > byte_limit)
                return RS_OK;
            columns->bytes += size;
            taken->count++;
        }
        walk->records++;
        walk->record_crc_mismatches += stale;
        rs_scan_fetch_ahead(&walk->scan, walk->at, size);
        walk->at += size; /* decode has checked: not beyond the file */
    }
    return RS_END_OF_FILE;
}

rs_status rs_columns_walk(rs_column_walk *walk, rs_columns *columns, size_t to, uint64_t byte_limit)
{
    block taken;
    taken.count = 0;
    rs_status status = walk_records(walk, columns, to, byte_limit, &taken);
    put_block(columns, &taken);
    return status;
}

/* ---- bytes ---- */

size_t rs_columns_measure(const rs_span *spans, size_t rows, int32_t *offsets)
{
    size_t total = 0;
    for (size_t i = 0; i < rows; i++) {
        offsets[i] = (int32_t)total;
        total += spans[i].size;
    }
    offsets[rows] = (int32_t)total;
    return total;
}

void rs_columns_gather(const rs_span *spans, size_t rows, const int32_t *offsets, uint8_t *to)
{
    for (size_t i = 0; i < rows; i++)
        if (spans[i].size)
            memcpy(to + offsets[i], spans[i].bytes, spans[i].size);
}

void rs_columns_views(const rs_span *spans, size_t rows, const uint8_t *base, uint8_t *views)
{
    for (size_t i = 0; i < rows; i++) {
        uint8_t *view = views + VIEW_SIZE * i;
        const rs_span span = spans[i];
        const uint32_t size = (uint32_t)span.size;
        memset(view, 0, VIEW_SIZE);
        memcpy(view, &size, sizeof size); /* Arrow's numbers are those of the machine */
        if (span.size == 0)
            continue;
        memcpy(view + 4, span.bytes, span.size <= VIEW_INLINE ? span.size : 4);
        if (span.size > VIEW_INLINE) {
            const uint32_t place = (uint32_t)(span.bytes - base);
            memcpy(view + 12, &place, sizeof place);
        }
    }
}

size_t rs_columns_message_ids_size(const rs_dictionary *hosts, const int32_t *store_hosts,
                                   size_t rows)
{
    size_t total = 0;
    for (size_t i = 0; i < rows; i++)
        total += 2 * (hosts->words[store_hosts[i]].text.size + 8);
    return total;
}

void rs_columns_message_ids(const rs_dictionary *hosts, const int32_t *store_hosts,
                            const int64_t *physical_offsets, size_t rows, int32_t *offsets,
                            char *to)
{
    size_t total = 0;
    for (size_t i = 0; i < rows; i++) {
        char text[56];
        const rs_span host = hosts->words[store_hosts[i]].text;
        const size_t size = rs_message_id_encode(host, physical_offsets[i], text);
        offsets[i] = (int32_t)total;
        memcpy(to + total, text, size);
        total += size;
    }
    offsets[rows] = (int32_t)total;
}

/* ---- texts ---- */

static bool continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

/* Bytes of the character at `at`, 0 when none is there: no overlong form, no surrogate, nothing
 * beyond U+10FFFF. */
static size_t character(const uint8_t *at, size_t left)
{
    const uint8_t lead = at[0];
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4)
        return 0;
    const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (left < size)
        return 0;
    for (size_t i = 1; i < size; i++)
        if (!continues(at[i]))
            return 0;
    if ((lead == 0xE0 && at[1] < 0xA0) || (lead == 0xED && at[1] > 0x9F) ||
        (lead == 0xF0 && at[1] < 0x90) || (lead == 0xF4 && at[1] > 0x8F))
        return 0;
    return size;
}

static bool is_ascii(const uint8_t *bytes, size_t size)
{
    uint8_t all = 0;
    for (size_t i = 0; i < size; i++)
        all = (uint8_t)(all | bytes[i]);
    return all < 0x80;
}

bool rs_columns_are_utf8(const uint8_t *bytes, const int32_t *offsets, size_t rows)
{
    if (is_ascii(bytes, (size_t)offsets[rows]))
        return true;
    for (size_t i = 0; i < rows; i++) {
        const size_t end = (size_t)offsets[i + 1];
        for (size_t at = (size_t)offsets[i]; at < end;) {
            const size_t size = character(bytes + at, end - at);
            if (size == 0)
                return false;
            at += size;
        }
    }
    return true;
}
