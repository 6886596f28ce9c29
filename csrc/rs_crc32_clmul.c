#include "rs_crc32_clmul.h"

#include "rs_crc32_table.h"

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
#define RS_FOLD_2048 _mm_set_epi64x(0x03F9F86300000000, 0x7CC8E1E700000000)

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
    if (size < 4) /* shorter than the checksum that they are added to */
        return rs_crc32_step(crc, (const uint8_t *)&low, size);
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

/* And four vectors a step. */
#define RS_WIDEST __attribute__((target("avx512f,avx2,vpclmulqdq,pclmul")))

RS_WIDEST static inline __m512i take512(const uint8_t *from, uintptr_t shift)
{
    __m512i x = _mm512_loadu_si512((const void *)from);
    if (shift)
        _mm512_storeu_si512((void *)((uintptr_t)from + shift), x);
    return x;
}

RS_WIDEST static inline __m512i fold_widest(__m512i x, __m512i by, __m512i next)
{
    __m512i low = _mm512_clmulepi64_epi128(x, by, 0x00);
    return _mm512_ternarylogic_epi64(low, _mm512_clmulepi64_epi128(x, by, 0x11), next, 0x96); /* ^ */
}

RS_WIDEST static inline __m512i four_times(__m128i x)
{
    return _mm512_broadcast_i32x4(x);
}

/* The four vectors folded into one, at the position of the last of them. */
RS_WIDEST static inline __m128i join512(__m512i x)
{
    __m512i by = _mm512_inserti32x4(_mm512_castsi128_si512(RS_FOLD_384), RS_FOLD_256, 1);
    by = _mm512_inserti32x4(by, RS_FOLD_128, 2);
    by = _mm512_inserti32x4(by, _mm_setzero_si128(), 3);
    __m512i folded = fold_widest(x, by, _mm512_setzero_si512());
    __m256i half = _mm256_xor_si256(_mm512_castsi512_si256(folded),
                                    _mm512_extracti64x4_epi64(folded, 1));
    __m128i joined = _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return _mm_xor_si128(joined, _mm512_extracti32x4_epi32(x, 3));
}

RS_WIDEST RS_INLINE uint32_t clmul512_body(uint32_t crc, const uint8_t *bytes, size_t size,
                                           uintptr_t shift)
{
    if (size < 256)
        return clmul256_body(crc, bytes, size, shift);
    const __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc));
    const __m512i fold512 = four_times(RS_FOLD_512), fold1024 = four_times(RS_FOLD_1024);
    __m512i a = _mm512_xor_si512(take512(bytes, shift), start);
    __m512i b = take512(bytes + 64, shift), c = take512(bytes + 128, shift);
    __m512i d = take512(bytes + 192, shift);
    bytes += 256;
    size -= 256;
    if (size >= 256) {
        const __m512i fold2048 = four_times(RS_FOLD_2048);
        for (; size >= 256; bytes += 256, size -= 256) {
            a = fold_widest(a, fold2048, take512(bytes, shift));
            b = fold_widest(b, fold2048, take512(bytes + 64, shift));
            c = fold_widest(c, fold2048, take512(bytes + 128, shift));
            d = fold_widest(d, fold2048, take512(bytes + 192, shift));
        }
    }
    a = fold_widest(a, fold1024, c);
    b = fold_widest(b, fold1024, d);
    if (size >= 128) {
        a = fold_widest(a, fold1024, take512(bytes, shift));
        b = fold_widest(b, fold1024, take512(bytes + 64, shift));
        bytes += 128;
        size -= 128;
    }
    a = fold_widest(a, fold512, b);
    if (size >= 64) {
        a = fold_widest(a, fold512, take512(bytes, shift));
        bytes += 64;
        size -= 64;
    }
    __m128i x = join512(a);
    for (; size >= 16; bytes += 16, size -= 16)
        x = _mm_xor_si128(fold(x, RS_FOLD_128), take128(bytes, shift));
    return end_body(x, bytes, size, shift);
}

RS_WIDEST uint32_t rs_crc32_clmul512(uint32_t crc, const uint8_t *bytes, size_t size)
{
    return clmul512_body(crc, bytes, size, 0);
}

RS_CLMUL uint32_t rs_crc32_copy_clmul(uint8_t *to, const uint8_t *from, size_t size)
{
    return clmul_body(0, from, size, (uintptr_t)to - (uintptr_t)from);
}

RS_WIDE uint32_t rs_crc32_copy_clmul256(uint8_t *to, const uint8_t *from, size_t size)
{
    return clmul256_body(0, from, size, (uintptr_t)to - (uintptr_t)from);
}

RS_WIDEST uint32_t rs_crc32_copy_clmul512(uint8_t *to, const uint8_t *from, size_t size)
{
    return clmul512_body(0, from, size, (uintptr_t)to - (uintptr_t)from);
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
    return ~rs_crc32_step(crc, bytes, size);
}

#endif
