/* Any bytes as a log file, read as columns: the rows are the records that a plain walk finds, and what is
 * gathered from their spans fits into exactly the room that was measured. */
#include "fuzz.h"
#include "rs_columns.h"
#include "rs_properties.h"

enum { ROOM = 4, WORDS = 1 << 12 };

static rs_word topic_words[WORDS], host_words[WORDS];
static uint32_t topic_slots[2 * WORDS], host_slots[2 * WORDS];

static rs_dictionary empty_dictionary(rs_word *words, uint32_t *slots)
{
    memset(slots, 0, 2 * WORDS * sizeof *slots);
    return (rs_dictionary){words, 0, slots, 2 * WORDS, 12345};
}

static void learn(rs_dictionary *dictionary, rs_span word)
{
    rs_word added = {.text = word, .wanted = true};
    CHECK(rs_dictionary_find(dictionary, word) == -1);
    rs_dictionary_add(dictionary, added);
    CHECK(rs_dictionary_find(dictionary, word) == (int32_t)dictionary->count - 1);
}

static void check_pairs(rs_span text)
{
    static rs_pair pairs[RS_PAIRS_MAX];
    size_t count = rs_property_pairs(text, pairs);
    for (size_t i = 0; i < count; i++) {
        CHECK(pairs[i].name.size && pairs[i].value.size);
        CHECK(pairs[i].name.bytes >= text.bytes);
        CHECK(pairs[i].value.bytes + pairs[i].value.size <= text.bytes + text.size);
        for (size_t j = 0; j < i && count < 100; j++)
            CHECK(pairs[i].name.size != pairs[j].name.size ||
                  memcmp(pairs[i].name.bytes, pairs[j].name.bytes, pairs[i].name.size) != 0);
    }
}

static void check_gathered(const rs_span *spans, size_t rows, const uint8_t *base)
{
    int32_t offsets[ROOM + 1];
    uint8_t views[16 * ROOM];
    size_t total = rs_columns_measure(spans, rows, offsets);
    uint8_t *copy = malloc(total ? total : 1);
    CHECK(copy);
    rs_columns_gather(spans, rows, offsets, copy);
    rs_columns_views(spans, rows, base, views);
    for (size_t i = 0; i < rows; i++) {
        uint32_t size;
        memcpy(&size, views + 16 * i, sizeof size);
        CHECK(size == spans[i].size && (size_t)(offsets[i + 1] - offsets[i]) == spans[i].size);
        if (size)
            CHECK(memcmp(copy + offsets[i], spans[i].bytes, size) == 0);
    }
    rs_columns_are_utf8(copy, offsets, rows);
    free(copy);
}

static void check_ids(const rs_dictionary *hosts, const int32_t *store_hosts,
                      const int64_t *physical_offsets, size_t rows)
{
    int32_t offsets[ROOM + 1];
    size_t total = rs_columns_message_ids_size(hosts, store_hosts, rows);
    char *text = malloc(total ? total : 1);
    CHECK(text);
    rs_columns_message_ids(hosts, store_hosts, physical_offsets, rows, offsets, text);
    CHECK((size_t)offsets[rows] == total);
    free(text);
}

static rs_scan scan_over(const uint8_t *bytes, size_t size, unsigned verify)
{
    /* The first record says where the file begins, so that it is where it should be. */
    int64_t start = size >= 36 ? rs_load64s(bytes + RS_AT_PHYSICAL_OFFSET) & 0xFFFFFFFFFFFF : 0;
    return (rs_scan){bytes, size, start, verify, RS_CRC32_SLICING};
}

static uint64_t read_all(const uint8_t *bytes, size_t size, unsigned verify, rs_status *last)
{
    rs_dictionary topics = empty_dictionary(topic_words, topic_slots);
    rs_dictionary hosts = empty_dictionary(host_words, host_slots);
    int32_t topic[ROOM], born_host[ROOM], store_host[ROOM], body_size[ROOM];
    int64_t physical_offset[ROOM], tags_code[ROOM];
    rs_span body[ROOM], tags[ROOM], keys[ROOM], properties[ROOM];
    rs_columns columns = {.room = ROOM, .topic = topic, .born_host = born_host,
                          .store_host = store_host, .body_size = body_size, .body = body,
                          .physical_offset = physical_offset, .tags_code = tags_code,
                          .tags = tags, .keys = keys, .properties = properties};
    rs_column_walk walk = {.scan = scan_over(bytes, size, verify), .topics = &topics,
                           .hosts = &hosts, .from_ms = INT64_MIN, .to_ms = INT64_MAX};
    uint64_t rows = 0;
    do {
        *last = rs_columns_walk(&walk, &columns, size, 4096);
        if (*last == RS_NOT_FOUND) {
            learn(walk.unknown_host ? &hosts : &topics, walk.unknown);
            continue;
        }
        CHECK(walk.at <= size && columns.rows <= ROOM);
        for (size_t i = 0; i < columns.rows; i++) {
            CHECK(topic[i] >= 0 && (size_t)topic[i] < topics.count);
            CHECK((size_t)body_size[i] == body[i].size);
            check_pairs(properties[i]);
        }
        check_gathered(body, columns.rows, bytes);
        check_gathered(tags, columns.rows, bytes);
        check_gathered(keys, columns.rows, bytes);
        check_gathered(properties, columns.rows, bytes);
        check_ids(&hosts, store_host, physical_offset, columns.rows);
        rows += columns.rows;
        CHECK(columns.rows || *last != RS_OK);
        columns.rows = 0;
        columns.bytes = 0;
    } while (*last == RS_OK || *last == RS_NOT_FOUND);
    CHECK(rows == walk.records);
    return rows;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = exact_copy(data, size);
    for (unsigned verify = 0; verify < 8; verify++) {
        rs_scan scan = scan_over(copy, size, verify);
        rs_walked walked = {.last_record_start = -1, .first_time_fall = -1};
        rs_status status = rs_scan_walk(&scan, 0, size, &walked), last;
        CHECK(read_all(copy, size, verify, &last) == walked.records);
        CHECK(last == status);
    }
    free(copy);
    return 0;
}
