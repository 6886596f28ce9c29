/* Any bytes as a commit log record: nothing outside them is read, what is accepted adds up and is
 * written back byte for byte, every prefix of an accepted record is refused, all kernels agree. */
#include "fuzz.h"
#include "rs_message_id.h"
#include "rs_properties.h"
#include "rs_record.h"

static rs_crc32_kernel kernels[4];
static size_t kernel_count;

static void find_kernels(void)
{
    kernels[kernel_count++] = RS_CRC32_SLICING;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
        kernels[kernel_count++] = RS_CRC32_CLMUL;
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2"))
        kernels[kernel_count++] = RS_CRC32_CLMUL256;
    if (__builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f"))
        kernels[kernel_count++] = RS_CRC32_CLMUL512;
#endif
}

static void check_kernels(const uint8_t *data, size_t size)
{
    uint32_t start = size ? data[0] * 0x01010101u : 0;
    uint32_t expected = rs_crc32_slicing(start, data, size);
    CHECK(size < 8 || rs_crc32_of_eight(data) == rs_crc32_slicing(0, data, 8));
    for (size_t i = 0; i < kernel_count; i++) {
        size_t cut = size ? data[size - 1] % size : 0;
        CHECK(rs_crc32(kernels[i], start, data, size) == expected);
        uint32_t first = rs_crc32(kernels[i], start, data, cut);
        CHECK(rs_crc32(kernels[i], first, data + cut, size - cut) == expected);
        uint8_t *copy = malloc(size ? size : 1);
        CHECK(copy);
        CHECK(rs_crc32_copy(kernels[i], copy, data, size) == rs_crc32_slicing(0, data, size));
        CHECK(size == 0 || memcmp(copy, data, size) == 0);
        free(copy);
    }
}

static void check_inside(rs_span span, const uint8_t *data, size_t size)
{
    CHECK(span.size == 0 || (span.bytes >= data && span.bytes + span.size <= data + size));
}

static rs_host host_of(rs_span span)
{
    rs_host host = {.size = (uint8_t)span.size};
    CHECK(span.size == RS_HOST_V4_SIZE || span.size == RS_HOST_V6_SIZE);
    memcpy(host.bytes, span.bytes, span.size);
    return host;
}

/* The record written anew, from its fields, into a block of its exact size. Its body CRC is right;
 * `whole` says that its record CRC is, too. */
static void check_written_back(const rs_record *record, bool whole)
{
    uint32_t crc;
    rs_message message = {
        .topic = record->topic,
        .body = record->body,
        .properties = record->properties,
        .queue_offset = record->queue_offset,
        .physical_offset = record->physical_offset,
        .born_timestamp_ms = record->born_timestamp_ms,
        .store_timestamp_ms = record->store_timestamp_ms,
        .prepared_transaction_offset = record->prepared_transaction_offset,
        .queue_id = record->queue_id,
        .flag = record->flag,
        .reconsume_times = record->reconsume_times,
        .sys_flag = record->sys_flag,
        .born_host = host_of(rs_record_born_host(record)),
        .store_host = host_of(rs_record_store_host(record)),
    };
    bool v2 = record->magic == RS_MAGIC_V2;
    if (v2 != (record->topic.size > RS_TOPIC_MAX_V1) || record->topic.size > RS_TOPIC_MAX_V2)
        return; /* readable, but nothing that we write */
    CHECK(rs_record_check(&message, record->size, true) == RS_OK);
    for (int with_crc = 0; with_crc < 2; with_crc++) {
        if (with_crc) {
            if (!whole || !rs_record_crc_find(record, &crc))
                return;
            message.properties.size -= RS_RECORD_CRC_SIZE;
            message.record_crc = true;
            if (message.properties.size &&
                message.properties.bytes[message.properties.size - 1] != RS_PROPERTY_SEPARATOR)
                return; /* the encoder would put a separator in between */
        }
        size_t size = rs_record_size(&message);
        uint8_t *written = malloc(size);
        CHECK(written && size == record->size);
        memset(written, 0xA5, size);
        CHECK(rs_record_encode(&message, written, kernels[kernel_count - 1]) == size);
        CHECK(rs_load32(written + RS_AT_MAGIC) == 0xA5A5A5A5u);
        rs_record_publish(written, message.topic.size);
        CHECK(memcmp(written, record->start, size) == 0);
        free(written);
    }
}

/* Mutations seldom leave a body CRC right: it is put right in a copy, so that the rest is tested. */
static void check_mended(const uint8_t *data, const rs_record *record, bool whole)
{
    rs_record again;
    uint8_t *copy = exact_copy(data, record->size);
    rs_store32(copy + RS_AT_BODY_CRC,
               rs_crc31(kernels[0], record->body.bytes, record->body.size));
    CHECK(rs_record_decode(copy, record->size, &again) == RS_OK);
    CHECK(rs_record_verify(&again, again.physical_offset, RS_VERIFY_BODY_CRC, kernels[0]) == RS_OK);
    check_written_back(&again, whole && memcmp(copy, data, record->size) == 0);
    free(copy);
}

static void check_message_id(const rs_record *record)
{
    static const char digits[] = "0123456789ABCDEF";
    char text[56];
    uint8_t raw[28];
    const rs_span host = rs_record_store_host(record);
    memcpy(raw, host.bytes, host.size);
    rs_store64s(raw + host.size, record->physical_offset);
    size_t size = rs_message_id_encode(host, record->physical_offset, text);
    CHECK(size == 2 * (host.size + 8));
    for (size_t i = 0; i < size; i++)
        CHECK(text[i] == digits[i % 2 ? raw[i / 2] & 15 : raw[i / 2] >> 4]);
}

static void check_prefixes(const uint8_t *data, size_t size)
{
    size_t step = size > 512 ? size / 97 : 1;
    for (size_t left = 0; left < size; left += step) {
        rs_record record;
        uint8_t *prefix = exact_copy(data, left);
        CHECK(rs_record_decode(prefix, left, &record) == RS_BAD_TRUNCATED);
        free(prefix);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rs_record record;
    unsigned what = RS_VERIFY_BODY_CRC | RS_VERIFY_RECORD_CRC;
    if (!kernel_count)
        find_kernels();
    check_kernels(data, size);
    rs_status status = rs_record_decode(data, size, &record);
    CHECK(status != RS_BLANK || rs_load32(data + RS_AT_MAGIC) == RS_MAGIC_BLANK);
    if (status != RS_OK)
        return 0;
    CHECK(record.size <= size && record.start == data);
    check_inside(record.topic, data, record.size);
    check_inside(record.body, data, record.size);
    check_inside(record.properties, data, record.size);
    CHECK(record.properties.size == 0 ||
          record.properties.bytes + record.properties.size == data + record.size);
    rs_status verified = rs_record_verify(&record, -1, what, kernels[0]);
    for (size_t i = 1; i < kernel_count; i++)
        CHECK(rs_record_verify(&record, -1, what, kernels[i]) == verified);
    check_mended(data, &record, verified == RS_OK);
    check_message_id(&record);
    check_prefixes(data, record.size);
    return 0;
}
