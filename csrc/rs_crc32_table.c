#include "rs_crc32_table.h"

/* A checksum is linear: the table entry of a byte is the exclusive or of the entries of its bits. So
 * a table of 256 is written down as its eight entries for 1, 2, 4 … 128 and unfolded by the compiler. */
#define RS_X0(x, a) (x), (x) ^ (a)
#define RS_X1(x, a, b) RS_X0(x, a), RS_X0((x) ^ (b), a)
#define RS_X2(x, a, b, c) RS_X1(x, a, b), RS_X1((x) ^ (c), a, b)
#define RS_X3(x, a, b, c, d) RS_X2(x, a, b, c), RS_X2((x) ^ (d), a, b, c)
#define RS_X4(x, a, b, c, d, e) RS_X3(x, a, b, c, d), RS_X3((x) ^ (e), a, b, c, d)
#define RS_X5(x, a, b, c, d, e, f) RS_X4(x, a, b, c, d, e), RS_X4((x) ^ (f), a, b, c, d, e)
#define RS_X6(x, a, b, c, d, e, f, g) \
    RS_X5(x, a, b, c, d, e, f), RS_X5((x) ^ (g), a, b, c, d, e, f)
#define RS_TABLE(a, b, c, d, e, f, g, h)              \
    {                                                 \
        RS_X6(0u, a##u, b##u, c##u, d##u, e##u, f##u, g##u), \
        RS_X6(h##u, a##u, b##u, c##u, d##u, e##u, f##u, g##u) \
    }

/* slices[k][b]: what byte b does to the checksum when k more bytes follow it. */
static const uint32_t slices[16][256] = {
    RS_TABLE(0x77073096, 0xEE0E612C, 0x076DC419, 0x0EDB8832,
             0x1DB71064, 0x3B6E20C8, 0x76DC4190, 0xEDB88320),
    RS_TABLE(0x191B3141, 0x32366282, 0x646CC504, 0xC8D98A08,
             0x4AC21251, 0x958424A2, 0xF0794F05, 0x3B83984B),
    RS_TABLE(0x01C26A37, 0x0384D46E, 0x0709A8DC, 0x0E1351B8,
             0x1C26A370, 0x384D46E0, 0x709A8DC0, 0xE1351B80),
    RS_TABLE(0xB8BC6765, 0xAA09C88B, 0x8F629757, 0xC5B428EF,
             0x5019579F, 0xA032AF3E, 0x9B14583D, 0xED59B63B),
    RS_TABLE(0x3D6029B0, 0x7AC05360, 0xF580A6C0, 0x30704BC1,
             0x60E09782, 0xC1C12F04, 0x58F35849, 0xB1E6B092),
    RS_TABLE(0xCB5CD3A5, 0x4DC8A10B, 0x9B914216, 0xEC53826D,
             0x03D6029B, 0x07AC0536, 0x0F580A6C, 0x1EB014D8),
    RS_TABLE(0xA6770BB4, 0x979F1129, 0xF44F2413, 0x33EF4E67,
             0x67DE9CCE, 0xCFBD399C, 0x440B7579, 0x8816EAF2),
    RS_TABLE(0xCCAA009E, 0x4225077D, 0x844A0EFA, 0xD3E51BB5,
             0x7CBB312B, 0xF9766256, 0x299DC2ED, 0x533B85DA),
    RS_TABLE(0x177B1443, 0x2EF62886, 0x5DEC510C, 0xBBD8A218,
             0xACC04271, 0x82F182A3, 0xDE920307, 0x6655004F),
    RS_TABLE(0xEFC26B3E, 0x04F5D03D, 0x09EBA07A, 0x13D740F4,
             0x27AE81E8, 0x4F5D03D0, 0x9EBA07A0, 0xE6050901),
    RS_TABLE(0xC18EDFC0, 0x586CB9C1, 0xB0D97382, 0xBAC3E145,
             0xAEF6C4CB, 0x869C8FD7, 0xD64819EF, 0x77E1359F),
    RS_TABLE(0x9BA54C6F, 0xEC3B9E9F, 0x03063B7F, 0x060C76FE,
             0x0C18EDFC, 0x1831DBF8, 0x3063B7F0, 0x60C76FE0),
    RS_TABLE(0xDD96D985, 0x605CB54B, 0xC0B96A96, 0x5A03D36D,
             0xB407A6DA, 0xB37E4BF5, 0xBD8D91AB, 0xA06A2517),
    RS_TABLE(0x9D0FE176, 0xE16EC4AD, 0x19AC8F1B, 0x33591E36,
             0x66B23C6C, 0xCD6478D8, 0x41B9F7F1, 0x8373EFE2),
    RS_TABLE(0xB9FBDBE8, 0xA886B191, 0x8A7C6563, 0xCF89CC87,
             0x44629F4F, 0x88C53E9E, 0xCAFB7B7D, 0x4E87F0BB),
    RS_TABLE(0xAE689191, 0x87A02563, 0xD4314C87, 0x73139F4F,
             0xE6273E9E, 0x173F7B7D, 0x2E7EF6FA, 0x5CFDEDF4),
};

/* The same for the Castagnoli polynomial 82F63B78, one byte a step. */
static const uint32_t castagnoli[256] = RS_TABLE(0xF26B8303, 0xE13B70F7, 0xC79A971F, 0x8AD958CF,
                                                 0x105EC76F, 0x20BD8EDE, 0x417B1DBC, 0x82F63B78);

/* The first byte in memory is the lowest. */
static inline uint32_t load_first_lowest32(const uint8_t *from)
{
    return __builtin_bswap32(rs_load32(from));
}

uint32_t rs_crc32_step(uint32_t crc, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ slices[0][(crc ^ bytes[i]) & 0xFF];
    return crc;
}

static inline uint32_t slice4(const uint32_t (*tables)[256], uint32_t word)
{
    return tables[3][word & 0xFF] ^ tables[2][word >> 8 & 0xFF] ^ tables[1][word >> 16 & 0xFF] ^
           tables[0][word >> 24];
}

uint32_t rs_crc32_slicing(uint32_t crc, const uint8_t *bytes, size_t size)
{
    crc = ~crc;
    for (; size >= 16; size -= 16, bytes += 16) {
        crc = slice4(slices + 12, crc ^ load_first_lowest32(bytes)) ^
              slice4(slices + 8, load_first_lowest32(bytes + 4)) ^
              slice4(slices + 4, load_first_lowest32(bytes + 8)) ^
              slice4(slices, load_first_lowest32(bytes + 12));
    }
    return ~rs_crc32_step(crc, bytes, size);
}

uint32_t rs_crc32c(uint32_t crc, const uint8_t *bytes, size_t size)
{
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ castagnoli[(crc ^ bytes[i]) & 0xFF];
    return ~crc;
}

uint32_t rs_crc32_of_eight(const uint8_t *bytes)
{
    return ~(slice4(slices + 4, ~load_first_lowest32(bytes)) ^
             slice4(slices, load_first_lowest32(bytes + 4)));
}
