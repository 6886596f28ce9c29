#include "rs_crc32.h"

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

/* Running checksum, not inverted. */
static inline uint32_t step_bytes(uint32_t crc, const uint8_t *bytes, size_t size)
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
    return ~step_bytes(crc, bytes, size);
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

#if defined(__x86_64__)

#include <immintrin.h>

#define RS_CLMUL __attribute__((target("pclmul,sse4.1")))
#define RS_INLINE static inline __attribute__((always_inline))

/* Method: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ" (Intel, 2009).
 * Bits are reflected: bit i of a 128-bit vector is the coefficient of x^(127 - i), and a carry-less
 * product of two halves comes out multiplied by x. With G = 104C11DB7 and reflect() over 64 bits, the
 * pair that moves a vector d bits towards the end of the message is
 *     low half:  reflect(x^(d + 63) mod G),    high half: reflect(x^(d - 1) mod G). */
#define RS_FOLD_128 _mm_set_epi64x((long long)0x9BA54C6F00000000, 0x65673B4600000000)
#define RS_FOLD_256 _mm_set_epi64x(0x01B5FD1D00000000, (long long)0x9570D49500000000)
#define RS_FOLD_384 _mm_set_epi64x(0x2A28386200000000, 0x69CCFC0D00000000)
#define RS_FOLD_512 _mm_set_epi64x((long long)0xCAD38E8F00000000, 0x653D982200000000)
#define RS_FOLD_1024 _mm_set_epi64x(0x7406FA9500000000, 0x7D657A1000000000)

/* 16 times "nothing", the bytes in order, 16 times "nothing": loaded at an offset, it is the shuffle
 * that moves a vector up (to the end) or down by any number of bytes. */
static const uint8_t moves[48] = {
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
};

RS_CLMUL static inline __m128i load128(const uint8_t *from)
{
    return _mm_loadu_si128((const __m128i *)(const void *)from);
}

/* Kernels take a distance from the bytes to where they are copied on the way; 0 copies nothing. Each
 * byte is loaded once: copy and checksum agree even while another thread changes the bytes. */
RS_CLMUL static inline __m128i take128(const uint8_t *from, uintptr_t shift)
{
    __m128i x = load128(from);
    if (shift)
        _mm_storeu_si128((__m128i *)((uintptr_t)from + shift), x);
    return x;
}

/* The first `size` (below 16) bytes of a vector. */
RS_CLMUL static inline void put_short(uintptr_t to, __m128i x, size_t size)
{
    uint64_t rest = (uint64_t)_mm_cvtsi128_si64(x);
    uint8_t *at = (uint8_t *)to;
    if (size & 8) {
        memcpy(at, &rest, 8);
        rest = (uint64_t)_mm_extract_epi64(x, 1);
        at += 8;
    }
    if (size & 4) {
        memcpy(at, &rest, 4);
        rest >>= 32;
        at += 4;
    }
    if (size & 2) {
        memcpy(at, &rest, 2);
        rest >>= 16;
        at += 2;
    }
    if (size & 1)
        *at = (uint8_t)rest;
}

RS_CLMUL static inline __m128i fold(__m128i x, __m128i by)
{
    return _mm_xor_si128(_mm_clmulepi64_si128(x, by, 0x00), _mm_clmulepi64_si128(x, by, 0x11));
}

/* x · x^32 mod G by two steps: the first half joins the second (factor x^95 mod G), leaving 96 bits;
 * of these Barrett's quotient of the upper 64, with floor(x^96 / G) / x and G · x^31 reflected. */
RS_CLMUL static inline uint32_t reduce(__m128i x)
{
    const __m128i join = _mm_set_epi64x(0, (long long)0xCCAA009E00000000);
    const __m128i barrett = _mm_set_epi64x(0x00000001DB710641, (long long)0xB4E5B025F7011641);
    __m128i high = _mm_slli_si128(_mm_srli_si128(x, 8), 4);
    x = _mm_xor_si128(_mm_clmulepi64_si128(x, join, 0x00), high);
    __m128i quotient = _mm_clmulepi64_si128(_mm_srli_si128(x, 4), barrett, 0x00);
    __m128i product = _mm_clmulepi64_si128(quotient, barrett, 0x10);
    return (uint32_t)(_mm_extract_epi32(x, 3) ^ _mm_extract_epi32(product, 2));
}

/* Fewer than 16 bytes, as the end of a vector that begins with zeros; those change nothing. */
RS_CLMUL RS_INLINE uint32_t short_body(uint32_t crc, const uint8_t *bytes, size_t size,
                                       uintptr_t shift)
{
    uint64_t low = 0, high = 0;
    if (size >= 8) {
        unsigned half = 4 * (unsigned)(16 - size);
        memcpy(&low, bytes, 8);
        memcpy(&high, bytes + size - 8, 8);
        high = high >> half >> half; /* twice: 64 at once is undefined */
    } else if (size >= 4) {
        uint32_t first, last;
        memcpy(&first, bytes, 4);
        memcpy(&last, bytes + size - 4, 4);
        last = (uint32_t)((uint64_t)last >> 8 * (8 - size));
        low = first | (uint64_t)last << 32;
    } else {
        for (size_t i = 0; i < size; i++)
            low |= (uint64_t)bytes[i] << 8 * i;
    }
    __m128i x = _mm_set_epi64x((long long)high, (long long)low);
    if (shift)
        put_short((uintptr_t)bytes + shift, x, size);
    if (size < 4) { /* shorter than the checksum that they are added to */
        for (; size; size--, low >>= 8)
            crc = crc >> 8 ^ slices[0][(crc ^ low) & 0xFF];
        return crc;
    }
    x = _mm_xor_si128(x, _mm_cvtsi32_si128((int)crc));
    return reduce(_mm_shuffle_epi8(x, load128(moves + size)));
}

/* What is left when fewer than 16 bytes follow the vector: both as two vectors, where the end of the
 * second is the end of the message. `bytes` has at least 16 bytes before its end. */
RS_CLMUL RS_INLINE uint32_t end_body(__m128i x, const uint8_t *bytes, size_t size, uintptr_t shift)
{
    if (size) {
        __m128i down = load128(moves + 16 + size), last = load128(bytes + size - 16);
        __m128i first = _mm_shuffle_epi8(x, load128(moves + size));
        __m128i second = _mm_blendv_epi8(_mm_shuffle_epi8(x, down), last, down);
        if (shift)
            put_short((uintptr_t)bytes + shift,
                      _mm_shuffle_epi8(last, load128(moves + 32 - size)), size);
        x = _mm_xor_si128(fold(first, RS_FOLD_128), second);
    }
    return ~reduce(x);
}

RS_CLMUL RS_INLINE uint32_t clmul_body(uint32_t crc, const uint8_t *bytes, size_t size,
                                       uintptr_t shift)
{
    const __m128i fold128 = RS_FOLD_128;
    crc = ~crc;
    if (size < 16)
        return ~short_body(crc, bytes, size, shift);
    __m128i x = _mm_xor_si128(take128(bytes, shift), _mm_cvtsi32_si128((int)crc));
    if (size >= 64) {
        const __m128i fold512 = RS_FOLD_512;
        __m128i b = take128(bytes + 16, shift), c = take128(bytes + 32, shift);
        __m128i d = take128(bytes + 48, shift);
        for (bytes += 64, size -= 64; size >= 64; bytes += 64, size -= 64) {
            x = _mm_xor_si128(fold(x, fold512), take128(bytes, shift));
            b = _mm_xor_si128(fold(b, fold512), take128(bytes + 16, shift));
            c = _mm_xor_si128(fold(c, fold512), take128(bytes + 32, shift));
            d = _mm_xor_si128(fold(d, fold512), take128(bytes + 48, shift));
        }
        x = _mm_xor_si128(fold(x, RS_FOLD_384), fold(b, RS_FOLD_256));
        x = _mm_xor_si128(x, _mm_xor_si128(fold(c, fold128), d));
    } else {
        bytes += 16;
        size -= 16;
    }
    for (; size >= 16; bytes += 16, size -= 16)
        x = _mm_xor_si128(fold(x, fold128), take128(bytes, shift));
    return end_body(x, bytes, size, shift);
}

RS_CLMUL uint32_t rs_crc32_clmul(uint32_t crc, const uint8_t *bytes, size_t size)
{
    return clmul_body(crc, bytes, size, 0);
}

/* The same, two vectors a step: carry-less multiplication is what limits the kernel above on CPUs that
 * start one only every second cycle. */
#define RS_WIDE __attribute__((target("avx2,vpclmulqdq,pclmul")))

RS_WIDE static inline __m256i take256(const uint8_t *from, uintptr_t shift)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)from);
    if (shift)
        _mm256_storeu_si256((__m256i *)((uintptr_t)from + shift), x);
    return x;
}

RS_WIDE static inline __m256i fold_wide(__m256i x, __m256i by, __m256i next)
{
    __m256i low = _mm256_clmulepi64_epi128(x, by, 0x00);
    __m256i high = _mm256_clmulepi64_epi128(x, by, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, next), high);
}

RS_WIDE static inline __m256i twice(__m128i x)
{
    return _mm256_broadcastsi128_si256(x);
}

RS_WIDE RS_INLINE uint32_t clmul256_body(uint32_t crc, const uint8_t *bytes, size_t size,
                                         uintptr_t shift)
{
    if (size < 32)
        return clmul_body(crc, bytes, size, shift);
    const __m256i start = _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)~crc));
    const __m256i fold256 = twice(RS_FOLD_256);
    __m256i a = _mm256_xor_si256(take256(bytes, shift), start);
    bytes += 32;
    size -= 32;
    if (size >= 32) {
        const __m256i fold512 = twice(RS_FOLD_512);
        __m256i b = take256(bytes, shift);
        bytes += 32;
        size -= 32;
        if (size >= 192) {
            const __m256i fold1024 = twice(RS_FOLD_1024);
            __m256i c = take256(bytes, shift), d = take256(bytes + 32, shift);
            for (bytes += 64, size -= 64; size >= 128; bytes += 128, size -= 128) {
                a = fold_wide(a, fold1024, take256(bytes, shift));
                b = fold_wide(b, fold1024, take256(bytes + 32, shift));
                c = fold_wide(c, fold1024, take256(bytes + 64, shift));
                d = fold_wide(d, fold1024, take256(bytes + 96, shift));
            }
            a = fold_wide(a, fold512, c);
            b = fold_wide(b, fold512, d);
        }
        for (; size >= 64; bytes += 64, size -= 64) {
            a = fold_wide(a, fold512, take256(bytes, shift));
            b = fold_wide(b, fold512, take256(bytes + 32, shift));
        }
        a = fold_wide(a, fold256, b);
    }
    if (size >= 32) {
        a = fold_wide(a, fold256, take256(bytes, shift));
        bytes += 32;
        size -= 32;
    }
    __m128i x = fold(_mm256_castsi256_si128(a), RS_FOLD_128);
    x = _mm_xor_si128(x, _mm256_extracti128_si256(a, 1));
    if (size >= 16) {
        x = _mm_xor_si128(fold(x, RS_FOLD_128), take128(bytes, shift));
        bytes += 16;
        size -= 16;
    }
    return end_body(x, bytes, size, shift);
}

RS_WIDE uint32_t rs_crc32_clmul256(uint32_t crc, const uint8_t *bytes, size_t size)
{
    return clmul256_body(crc, bytes, size, 0);
}

RS_WIDE static uint32_t copy_clmul256(uint8_t *to, const uint8_t *from, size_t size)
{
    return clmul256_body(0, from, size, (uintptr_t)to - (uintptr_t)from);
}

RS_CLMUL static uint32_t copy_clmul(uint8_t *to, const uint8_t *from, size_t size)
{
    return clmul_body(0, from, size, (uintptr_t)to - (uintptr_t)from);
}

#elif defined(__aarch64__)

/* By assembler text, because compilers disagree about which header offers the instruction without the
 * feature being switched on for the whole file. */
static inline uint32_t crc32x(uint32_t crc, const uint8_t *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    __asm__(".arch_extension crc\n\tcrc32x %w0, %w0, %x1" : "+r"(crc) : "r"(word));
    return crc;
}

uint32_t rs_crc32_clmul(uint32_t crc, const uint8_t *bytes, size_t size)
{
    crc = ~crc;
    for (; size >= 32; bytes += 32, size -= 32) {
        crc = crc32x(crc, bytes);
        crc = crc32x(crc, bytes + 8);
        crc = crc32x(crc, bytes + 16);
        crc = crc32x(crc, bytes + 24);
    }
    for (; size >= 8; bytes += 8, size -= 8)
        crc = crc32x(crc, bytes);
    return ~step_bytes(crc, bytes, size);
}

#endif

uint32_t rs_crc32_copy(rs_crc32_kernel kernel, uint8_t *to, const uint8_t *from, size_t size)
{
#if defined(__x86_64__)
    if (kernel == rs_crc32_clmul256)
        return copy_clmul256(to, from, size);
    if (kernel == rs_crc32_clmul)
        return copy_clmul(to, from, size);
#endif
    if (size)
        memcpy(to, from, size);
    return kernel(0, to, size);
}
