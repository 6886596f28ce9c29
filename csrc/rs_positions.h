/* The positions of a log: how far it has got, one 64-bit value a cache line, each with one writer.
 *
 * `page` is RS_POSITIONS_PAGE_SIZE bytes, 64-byte aligned: private memory of the process that appends, or
 * the shared page that other processes map (docs/architecture.md#positions, D-30, D-31). Host byte order. */
#ifndef RS_POSITIONS_H
#define RS_POSITIONS_H

#include "rs_base.h"
#include "rs_format.h"

/* Release: a reader that loads the value sees every byte that was stored before it was published. */
static inline void rs_position_store(uint8_t *page, size_t at, int64_t value)
{
    __atomic_store_n((int64_t *)(void *)(page + at), value, __ATOMIC_RELEASE);
}

static inline int64_t rs_position_load(const uint8_t *page, size_t at)
{
    return __atomic_load_n((const int64_t *)(const void *)(page + at), __ATOMIC_ACQUIRE);
}

#endif
