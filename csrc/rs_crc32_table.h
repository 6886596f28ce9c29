/* The checksums by constant tables: they work everywhere. */
#ifndef RS_CRC32_TABLE_H
#define RS_CRC32_TABLE_H

#include "rs_base.h"

/* Sixteen bytes a step; a kernel of rs_crc32.h. */
uint32_t rs_crc32_slicing(uint32_t crc, const uint8_t *bytes, size_t size);

/* One byte a step; the running checksum is not inverted, neither before nor after. */
uint32_t rs_crc32_step(uint32_t crc, const uint8_t *bytes, size_t size);

/* The CRC-32 of eight bytes: for so few a kernel's set-up takes longer than its work. */
uint32_t rs_crc32_of_eight(const uint8_t *bytes);

/* CRC-32C (Castagnoli); only for small state files. Same calling rule as a kernel. */
uint32_t rs_crc32c(uint32_t crc, const uint8_t *bytes, size_t size);

#endif
