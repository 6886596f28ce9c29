/* The kernels of rs_crc32.h that need special instructions. */
#ifndef RS_CRC32_CLMUL_H
#define RS_CRC32_CLMUL_H

#include "rs_base.h"

#if defined(__x86_64__)
/* Needs PCLMULQDQ and SSE4.1 at run time. */
uint32_t rs_crc32_clmul(uint32_t crc, const uint8_t *bytes, size_t size);
uint32_t rs_crc32_copy_clmul(uint8_t *to, const uint8_t *from, size_t size);
/* Needs VPCLMULQDQ, AVX2 and all of the above at run time. */
uint32_t rs_crc32_clmul256(uint32_t crc, const uint8_t *bytes, size_t size);
uint32_t rs_crc32_copy_clmul256(uint8_t *to, const uint8_t *from, size_t size);
/* Needs AVX-512F and all of the above at run time. */
uint32_t rs_crc32_clmul512(uint32_t crc, const uint8_t *bytes, size_t size);
uint32_t rs_crc32_copy_clmul512(uint8_t *to, const uint8_t *from, size_t size);
#elif defined(__aarch64__)
/* Needs the CRC32 instructions (HWCAP_CRC32) at run time. */
uint32_t rs_crc32_clmul(uint32_t crc, const uint8_t *bytes, size_t size);
#endif

#endif
