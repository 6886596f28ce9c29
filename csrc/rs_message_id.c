#include "rs_message_id.h"

#define RS_ID_V4_SIZE 16
#define RS_ID_V6_SIZE 28

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

size_t rs_message_id_encode(rs_span store_host, int64_t physical_offset, char to[56])
{
    uint8_t raw[RS_ID_V6_SIZE];
    size_t host_size = store_host.size == RS_HOST_V4_SIZE ? RS_HOST_V4_SIZE : RS_HOST_V6_SIZE;
    memcpy(raw, store_host.bytes, host_size);
    rs_store64s(raw + host_size, physical_offset);
    return rs_hex_encode(raw, host_size + 8, to);
}
