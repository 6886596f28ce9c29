/* CRC-32 of zlib and PNG (reflected polynomial EDB88320): which kernel makes it.
 *
 * A kernel continues a running checksum: `crc` is what the bytes before gave (0 at the start), the
 * result is the plain CRC-32 of all bytes so far, as zlib.crc32(data, crc). All kernels give identical
 * results. csrc does not look at the CPU: the caller picks a kernel and passes it in. */
#ifndef RS_CRC32_H
#define RS_CRC32_H

#include "rs_base.h"
#include "rs_crc32_clmul.h"
#include "rs_crc32_table.h"

/* A number and not a pointer: csrc is compiled into several libraries, each with functions of its own. */
typedef enum rs_crc32_kernel {
    RS_CRC32_SLICING, /* works everywhere */
    RS_CRC32_CLMUL,
    RS_CRC32_CLMUL256,
    RS_CRC32_CLMUL512,
} rs_crc32_kernel;

static inline uint32_t rs_crc32(rs_crc32_kernel kernel, uint32_t crc, const uint8_t *bytes,
                                size_t size)
{
#if defined(__x86_64__)
    if (kernel == RS_CRC32_CLMUL512)
        return rs_crc32_clmul512(crc, bytes, size);
    if (kernel == RS_CRC32_CLMUL256)
        return rs_crc32_clmul256(crc, bytes, size);
#endif
#if defined(__x86_64__) || defined(__aarch64__)
    if (kernel != RS_CRC32_SLICING)
        return rs_crc32_clmul(crc, bytes, size);
#else
    (void)kernel;
#endif
    return rs_crc32_slicing(crc, bytes, size);
}

/* Copies and gives the CRC-32 of the copy, from one pass over `from` where the kernel can: the two agree
 * even while `from` is changed by somebody else. The ranges do not overlap. */
static inline uint32_t rs_crc32_copy(rs_crc32_kernel kernel, uint8_t *to, const uint8_t *from,
                                     size_t size)
{
#if defined(__x86_64__)
    if (kernel == RS_CRC32_CLMUL512)
        return rs_crc32_copy_clmul512(to, from, size);
    if (kernel == RS_CRC32_CLMUL256)
        return rs_crc32_copy_clmul256(to, from, size);
    if (kernel == RS_CRC32_CLMUL)
        return rs_crc32_copy_clmul(to, from, size);
#endif
    if (size)
        memcpy(to, from, size);
    return rs_crc32(kernel, 0, to, size);
}

/* What RocketMQ stores: the top bit is dropped ("CRC-31", format.md 0). */
static inline uint32_t rs_crc31(rs_crc32_kernel kernel, const uint8_t *bytes, size_t size)
{
    return rs_crc32(kernel, 0, bytes, size) & 0x7FFFFFFFu;
}

#endif
