/* Where zeros end: past its end a file of the store reads as zeros (format.md 1.2). */
#ifndef RS_ZEROS_H
#define RS_ZEROS_H

#include "rs_base.h"

/* Index of the first byte of `bytes` that is not zero, `size` when there is none. */
static inline size_t rs_find_nonzero(const uint8_t *bytes, size_t size)
{
    size_t at = 0;
    for (; size - at >= 64; at += 64) { /* a cache line a round: as fast as memory */
        uint64_t words[8];
        memcpy(words, bytes + at, sizeof words);
        const uint64_t low = words[0] | words[1] | words[2] | words[3];
        const uint64_t high = words[4] | words[5] | words[6] | words[7];
        if ((low | high) != 0)
            break;
    }
    while (at < size && bytes[at] == 0)
        at++;
    return at;
}

#endif
