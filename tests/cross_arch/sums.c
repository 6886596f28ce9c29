/* What csrc makes of the same pseudo-random input, as one checksum for each part: lines that must be
 * the same on every machine, whatever its byte order, its signedness of char and its CRC kernels. */
#include "rs_checkpoint.h"
#include "rs_index_file.h"
#include "rs_log_file.h"
#include "rs_message_id.h"
#include "rs_properties.h"
#include "rs_queue_file.h"
#include "rs_queue_table.h"
#include "rs_scan.h"
#include "rs_dispatch.h"

#include <stdio.h>
#include <stdlib.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#define HWCAP_OF_CRC32 (1UL << 7)
#endif

enum { ROUNDS = 400, SEGMENT = 16384, SLOTS = 61, ENTRIES = 300 };

static uint64_t state;
static uint32_t sum;

static void need(bool holds, const char *what)
{
    if (!holds) {
        printf("FAILED: %s\n", what);
        exit(1);
    }
}

/* xorshift64*, by its high half. */
static uint32_t any(void)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (uint32_t)((state * UINT64_C(0x2545F4914F6CDD1D)) >> 32);
}

static int64_t any64(void)
{
    uint64_t high = any();
    return (int64_t)(high << 32 | any());
}

/* A checksum of its own: a bit at a time, so that it shares no table with what it judges. */
static void add_byte(uint8_t byte)
{
    sum ^= byte;
    for (int bit = 0; bit < 8; bit++)
        sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
}

static void add(const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        add_byte(((const uint8_t *)bytes)[i]);
}

static void add_number(int64_t number)
{
    for (int shift = 56; shift >= 0; shift -= 8)
        add_byte((uint8_t)((uint64_t)number >> shift));
}

static void add_span(rs_span span)
{
    add_number((int64_t)span.size);
    add(span.bytes, span.size);
}

static void begin(uint64_t seed)
{
    state = seed;
    sum = 0;
}

static void end(const char *name)
{
    printf("%s %08x\n", name, sum);
}

static rs_span text_of(uint8_t *room, size_t size, bool properties)
{
    for (size_t i = 0; i < size; i++)
        room[i] = (uint8_t)(properties && any() % 5 == 0 ? 1 + any() % 2 : any() % 256);
    return (rs_span){room, size};
}

static rs_host any_host(void)
{
    rs_host host = {.size = any() % 2 ? RS_HOST_V4_SIZE : RS_HOST_V6_SIZE};
    for (size_t i = 0; i < host.size; i++)
        host.bytes[i] = (uint8_t)any();
    return host;
}

static rs_message any_message(uint8_t rooms[3][1024])
{
    rs_message message = {
        .topic = text_of(rooms[0], 1 + any() % (any() % 8 ? 40 : 255), false),
        .body = text_of(rooms[1], any() % 700, false),
        .properties = text_of(rooms[2], any() % 90, true),
        .queue_offset = any64(),
        .physical_offset = any64(),
        .born_timestamp_ms = any64(),
        .store_timestamp_ms = any64(),
        .prepared_transaction_offset = any64(),
        .queue_id = (int32_t)any(),
        .flag = (int32_t)any(),
        .reconsume_times = (int32_t)any(),
        .sys_flag = any(),
        .born_host = any_host(),
        .store_host = any_host(),
        .record_crc = any() % 2,
    };
    return message;
}

static void add_record(const rs_record *record)
{
    add_number(record->size);
    add_number(record->magic);
    add_number(record->body_crc);
    add_number(record->queue_id);
    add_number(record->flag);
    add_number(record->queue_offset);
    add_number(record->physical_offset);
    add_number(record->sys_flag);
    add_number(record->born_timestamp_ms);
    add_span(rs_record_born_host(record));
    add_number(record->store_timestamp_ms);
    add_span(rs_record_store_host(record));
    add_number(record->reconsume_times);
    add_number(record->prepared_transaction_offset);
    add_span(record->body);
    add_span(record->topic);
    add_span(record->properties);
}

static void records(rs_crc32_kernel kernel)
{
    static uint8_t rooms[3][1024];
    static uint8_t bytes[4096];
    static const int64_t delays[] = {1000, 5000, 60000};
    begin(1);
    for (int i = 0; i < ROUNDS; i++) {
        rs_message message = any_message(rooms);
        size_t size = rs_record_encode(&message, bytes, kernel);
        rs_record record;
        need(size == rs_record_size(&message), "the size of a record");
        rs_record_publish(bytes, message.topic.size);
        add(bytes, size);
        need(rs_record_decode(bytes, size, &record) == RS_OK, "a record that was encoded");
        add_number(rs_record_verify(&record, message.physical_offset,
                                    RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC, kernel));
        add_record(&record);
        rs_dispatch_properties found;
        rs_dispatch_find(record.properties, &found);
        add_number(rs_dispatch_tags(&record, &found, delays, 3));
        char id[56];
        add(id, rs_message_id_encode(rs_record_store_host(&record), record.physical_offset, id));
        bytes[any() % size] ^= (uint8_t)(1u << any() % 8);
        rs_status status = rs_record_decode(bytes, size, &record);
        add_number(status);
        if (status == RS_OK)
            add_number(rs_record_verify(&record, message.physical_offset,
                                        RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC, kernel));
    }
    end("records");
}

static void checksums(rs_crc32_kernel kernel)
{
    static uint8_t bytes[1024], copy[1024];
    begin(2);
    for (int i = 0; i < ROUNDS; i++) {
        rs_span text = text_of(bytes, any() % sizeof bytes, false);
        uint32_t start = any();
        add_number(rs_crc32(kernel, start, text.bytes, text.size));
        add_number(rs_crc32_copy(kernel, copy, text.bytes, text.size));
        add(copy, text.size);
        add_number(rs_crc32c(start, text.bytes, text.size));
        add_number(rs_crc31(kernel, text.bytes, text.size));
    }
    end("checksums");
}

static void properties(void)
{
    static uint8_t room[1024];
    begin(3);
    for (int i = 0; i < 4 * ROUNDS; i++) {
        rs_span text = text_of(room, any() % 80, i % 2);
        rs_property_walk walk = rs_properties_walk(text);
        rs_span name, value;
        while (rs_property_next(&walk, &name, &value)) {
            add_span(name);
            add_span(value);
            add_number(rs_property_check(name, value));
        }
        int64_t number = 0;
        add_number(rs_java_hash(text));
        add_number(rs_tags_code(text));
        add_number(rs_parse_decimal(text, &number) ? number : -1);
        add_number(rs_index_key_hash(text, text));
    }
    end("properties");
}

static void message_ids(void)
{
    begin(4);
    for (int i = 0; i < ROUNDS; i++) {
        char text[56];
        uint8_t raw[28];
        rs_host host = any_host(), again;
        int64_t offset;
        size_t size = rs_message_id_encode((rs_span){host.bytes, host.size}, any64(), text);
        add(text, size);
        need(rs_message_id_decode(text, size, &again, &offset) == RS_OK, "a message id");
        add_number(offset);
        rs_unique_id id;
        add_number(rs_unique_id_decode(text, size, raw, &id));
        add_span(id.ip);
        add_number(id.process_id);
        add_number(id.class_loader_hash);
        add_number(id.month_ms);
        add_number(id.counter);
        add(text, rs_unique_id_encode(&id, text));
    }
    end("message ids");
}

static void queue_units(void)
{
    static uint8_t units[ROUNDS * RS_UNIT_SIZE];
    begin(5);
    int64_t offset = 0;
    for (int i = 0; i < ROUNDS; i++) {
        rs_unit unit = {offset, (int32_t)(100 + any() % 100), any64()};
        rs_unit_store(units + i * RS_UNIT_SIZE, unit);
        offset += unit.size;
    }
    rs_units_fill_pre_blank(units, 3);
    add(units, sizeof units);
    add_number(rs_units_physical_end(units, ROUNDS));
    add_number((int64_t)rs_units_first_kept(units, ROUNDS, offset / 3));
    add_number((int64_t)rs_units_cut(units, ROUNDS, offset / 2));
    add_number((int64_t)rs_units_written(units, ROUNDS));
    add(units, sizeof units);
    rs_queue_entry entries[64] = {0};
    rs_queue_table table = {.entries = entries, .capacity = 64};
    static const uint8_t names[40] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLM";
    for (int32_t i = 0; i < 60; i++)
        add_number(rs_queue_table_add(&table, (rs_span){names, 1 + (size_t)i % 40}, i) != NULL);
    for (int32_t i = 0; i < 60; i++)
        add_number(rs_queue_table_find(&table, (rs_span){names, 1 + (size_t)i % 40}, i) != NULL);
    end("queue units");
}

static void index_file(void)
{
    uint64_t size = rs_index_file_size(SLOTS, ENTRIES);
    uint8_t *base = aligned_alloc(64, (size + 63) / 64 * 64);
    need(base != NULL, "memory");
    memset(base, 0, size);
    begin(6);
    rs_index_header_init(base, 1000, 77);
    uint32_t hashes[ENTRIES];
    for (uint32_t i = 0; i < ENTRIES + 3; i++) {
        uint32_t hash = any() & 0x7FFFFFFF;
        if (i < ENTRIES)
            hashes[i] = hash;
        add_number(rs_index_put(base, SLOTS, ENTRIES, hash, 1000 + i * 200,
                                1700000000000 + i * 999));
    }
    add(base, size);
    for (uint32_t i = 0; i < ENTRIES - 1; i++) {
        rs_index_hit hit;
        rs_index_walk walk;
        rs_index_walk_start(&walk, base, SLOTS, ENTRIES, hashes[i], 0, INT64_MAX);
        need(rs_index_walk_next(&walk, &hit), "a key that was put");
        add_number(hit.physical_offset);
        add_number(hit.timestamp_ms);
    }
    uint32_t slots = 0, entries = 0;
    add_number(rs_index_deduce(base, size, &slots, &entries));
    add_number(slots);
    add_number(rs_index_validate(base, SLOTS, ENTRIES, false));
    add_number(rs_index_cut(base, SLOTS, ENTRIES, 1000 + ENTRIES * 100));
    add(base, size);
    free(base);
    end("index file");
}

static void checkpoints(void)
{
    begin(7);
    for (int i = 0; i < ROUNDS; i++) {
        rs_checkpoint checkpoint = {
            .generation = any(), .flushed = any(), .dispatched = any(), .indexed = any(),
            .minimum = any(), .last_record_start = any(), .last_store_timestamp_ms = any(),
            .cut = -1, .max_unflushed = any(), .segment_count = any(), .segments_digest = any(),
            .last_record_size = any() >> 1, .last_record_crc = any(), .tail_crc = any(),
            .queue_count = any(), .queues_digest = any(), .index_files = any(), .clean = any() % 2,
        };
        uint8_t slot[RS_OWN_SLOT_STRIDE];
        rs_checkpoint_encode(&checkpoint, slot);
        add(slot, sizeof slot);
        add_number(rs_checkpoint_decode(slot, sizeof slot, &checkpoint));
        add_number(checkpoint.indexed);
        rs_times times;
        uint8_t page[RS_TIMES_SIZE];
        rs_times_decode(slot, sizeof slot, &times);
        add_number(times.index_timestamp_ms);
        rs_times_encode(&times, page);
        add(page, sizeof page);
    }
    end("checkpoints");
}

static void a_log(rs_crc32_kernel kernel)
{
    static uint8_t segments[2][SEGMENT], rooms[3][1024];
    static _Alignas(64) uint8_t page[RS_POSITIONS_PAGE_SIZE];
    rs_log log = {.positions = page, .kernel = kernel, .last_record_start = -1,
                  .limit = 0, .max_unflushed_bytes = INT64_MAX / 4,
                  .max_undispatched_bytes = INT64_MAX / 4, .notify_at = INT64_MAX};
    log.segment = (rs_segment){segments[0], 0, SEGMENT, SEGMENT, -1};
    log.next = (rs_segment){segments[1], SEGMENT, SEGMENT, SEGMENT, -1};
    rs_queue_state queue = {0};
    begin(8);
    for (;;) {
        rs_appended appended;
        rs_message message = any_message(rooms);
        int64_t offsets[3];
        rs_span bodies[3] = {message.body, message.topic, message.properties};
        rs_status status =
            any() % 4 ? rs_log_append(&log, &message, &queue, (int64_t)any(), &appended)
                      : rs_log_append_batch(&log, &message, bodies, 3, &queue, (int64_t)any(),
                                            offsets, &appended);
        add_number(status);
        if (status != RS_OK)
            break;
        add_number(appended.end_offset);
        add_number(appended.rolled);
    }
    need(queue.next_offset > 20, "messages in the log");
    add(segments, sizeof segments);
    rs_scan scan = {segments[0], SEGMENT, 0, RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC, kernel};
    rs_walked walked = {.last_record_start = -1, .first_time_fall = -1};
    add_number(rs_scan_walk(&scan, 0, SEGMENT, &walked));
    add_number((int64_t)walked.end);
    add_number((int64_t)walked.records);
    need(walked.records > 10, "records in the first file");
    for (int i = 0; i < 20; i++) {
        size_t at = any() % SEGMENT;
        segments[0][at] ^= 0x40;
        uint64_t budget = rs_scan_budget(SEGMENT);
        add_number((int64_t)rs_scan_resynchronise(&scan, at, SEGMENT, &budget));
        need(rs_scan_find_magic(segments[0], SEGMENT, at) ==
                 rs_scan_find_magic_plain(segments[0], SEGMENT, at),
             "the two searches for a magic");
    }
    end("log");
}

static void all(const char *name, rs_crc32_kernel kernel)
{
    printf("%s\n", name);
    records(kernel);
    checksums(kernel);
    properties();
    message_ids();
    queue_units();
    index_file();
    checkpoints();
    a_log(kernel);
}

int main(void)
{
    all("slicing", RS_CRC32_SLICING);
#if defined(__aarch64__)
    if (getauxval(AT_HWCAP) & HWCAP_OF_CRC32)
        all("instructions", RS_CRC32_CLMUL);
#elif defined(__x86_64__)
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        all("instructions", RS_CRC32_CLMUL);
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2"))
        all("256 bits", RS_CRC32_CLMUL256);
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f"))
        all("512 bits", RS_CRC32_CLMUL512);
#endif
    return 0;
}
