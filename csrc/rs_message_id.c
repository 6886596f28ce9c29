#include "rs_message_id.h"

#define RS_ID_V4_SIZE 16
#define RS_ID_V6_SIZE 28
#define RS_UNIQUE_AFTER_IP 12 /* process id, class loader hash, time, counter */

/* Eight upper-case digits at once, each a byte of `digits`: above 9 one is 7 further on than '0' says. */
static inline uint64_t rs_hex_of(uint32_t bytes)
{
    uint64_t digits = bytes;
    digits = (digits << 16 | digits) & 0x0000FFFF0000FFFFu;
    digits = (digits << 8 | digits) & 0x00FF00FF00FF00FFu;
    digits = (digits << 4 | digits) & 0x0F0F0F0F0F0F0F0Fu;
    const uint64_t letters = (digits + 0x0606060606060606u) >> 4 & 0x0101010101010101u;
    return digits + 0x3030303030303030u + 7 * letters;
}

static size_t rs_hex_encode(const uint8_t *bytes, size_t size, char *to)
{
    static_assert(RS_ID_V4_SIZE % 4 == 0 && RS_ID_V6_SIZE % 4 == 0, "four bytes a step");
    for (size_t i = 0; i < size; i += 4)
        rs_store64((uint8_t *)to + 2 * i, rs_hex_of(rs_load32(bytes + i)));
    return 2 * size;
}

/* Value of a hexadecimal digit of either case; 16 for anything else. */
static unsigned rs_hex_value(char digit)
{
    if (digit >= '0' && digit <= '9')
        return (unsigned)(digit - '0');
    if (digit >= 'A' && digit <= 'F')
        return (unsigned)(digit - 'A') + 10;
    if (digit >= 'a' && digit <= 'f')
        return (unsigned)(digit - 'a') + 10;
    return 16;
}

/* 32 or 56 characters into 16 or 28 bytes. */
static rs_status rs_hex_decode(const char *text, size_t size, uint8_t raw[RS_ID_V6_SIZE])
{
    if (size != 2 * RS_ID_V4_SIZE && size != 2 * RS_ID_V6_SIZE)
        return RS_NOT_FOUND;
    for (size_t i = 0; i < size / 2; i++) {
        unsigned high = rs_hex_value(text[2 * i]), low = rs_hex_value(text[2 * i + 1]);
        if (high > 15 || low > 15)
            return RS_NOT_FOUND;
        raw[i] = (uint8_t)(high << 4 | low);
    }
    return RS_OK;
}

size_t rs_message_id_encode(rs_span store_host, int64_t physical_offset, char to[56])
{
    uint8_t raw[RS_ID_V6_SIZE];
    size_t host_size = store_host.size == RS_HOST_V4_SIZE ? RS_HOST_V4_SIZE : RS_HOST_V6_SIZE;
    memcpy(raw, store_host.bytes, host_size);
    rs_store64s(raw + host_size, physical_offset);
    return rs_hex_encode(raw, host_size + 8, to);
}

rs_status rs_message_id_decode(const char *text, size_t size, rs_host *store_host,
                               int64_t *physical_offset)
{
    uint8_t raw[RS_ID_V6_SIZE];
    rs_status status = rs_hex_decode(text, size, raw);
    if (status != RS_OK)
        return status;
    store_host->size = size == 2 * RS_ID_V4_SIZE ? RS_HOST_V4_SIZE : RS_HOST_V6_SIZE;
    memcpy(store_host->bytes, raw, store_host->size);
    *physical_offset = rs_load64s(raw + store_host->size);
    return RS_OK;
}

rs_status rs_unique_id_decode(const char *text, size_t size, uint8_t raw[28], rs_unique_id *id)
{
    rs_status status = rs_hex_decode(text, size, raw);
    if (status != RS_OK)
        return status;
    size_t ip_size = size / 2 - RS_UNIQUE_AFTER_IP;
    const uint8_t *at = raw + ip_size;
    id->ip = (rs_span){raw, ip_size};
    id->process_id = rs_load16(at);
    id->class_loader_hash = rs_load32s(at + 2);
    id->month_ms = rs_load32(at + 6);
    id->counter = rs_load16(at + 10);
    return RS_OK;
}

size_t rs_unique_id_encode(const rs_unique_id *id, char to[56])
{
    uint8_t raw[RS_ID_V6_SIZE];
    size_t ip_size = id->ip.size == 4 ? 4 : 16;
    uint8_t *at = raw + ip_size;
    memcpy(raw, id->ip.bytes, ip_size);
    rs_store16(at, id->process_id);
    rs_store32s(at + 2, id->class_loader_hash);
    rs_store32(at + 6, id->month_ms);
    rs_store16(at + 10, id->counter);
    return rs_hex_encode(raw, ip_size + RS_UNIQUE_AFTER_IP, to);
}
