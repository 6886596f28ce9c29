/* The only way in which csrc reads bytes that it did not write itself.
 *
 * A reader compares every wish with what is left and stays failed after the first wish too many, so a
 * parser takes all its fields and looks at `failed` once. Every value is read from memory exactly once:
 * a length that another process changes after it was checked is never looked at again. */
#ifndef RS_CURSOR_H
#define RS_CURSOR_H

#include "rs_base.h"

typedef struct rs_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
} rs_reader;

static inline rs_reader rs_reader_over(const uint8_t *bytes, size_t size)
{
    /* NULL + 0 is undefined in C17. */
    return (rs_reader){bytes, size ? bytes + size : bytes, false};
}

static inline size_t rs_left(const rs_reader *r)
{
    return (size_t)(r->end - r->at);
}

static inline const uint8_t *rs_take(rs_reader *r, size_t n)
{
    if ((size_t)(r->end - r->at) < n) { /* not at + n > end: that sum can overflow */
        r->failed = true;
        r->at = r->end;
        return NULL;
    }
    const uint8_t *taken = r->at;
    r->at += n;
    return taken;
}

/* Hides where a value came from: without it a compiler short of registers may load the value again
 * from mapped memory, after it was compared. */
static inline uint64_t rs_read_once(uint64_t value)
{
    __asm__("" : "+r"(value));
    return value;
}

/* A failed reader gives zeros. */
static inline uint8_t rs_take8(rs_reader *r)
{
    const uint8_t *taken = rs_take(r, 1);
    return taken ? (uint8_t)rs_read_once(*taken) : 0;
}

static inline uint16_t rs_take16(rs_reader *r)
{
    const uint8_t *taken = rs_take(r, 2);
    return taken ? (uint16_t)rs_read_once(rs_load16(taken)) : 0;
}

static inline rs_span rs_take_span(rs_reader *r, size_t n)
{
    const uint8_t *taken = rs_take(r, n);
    return (rs_span){taken, taken ? n : 0};
}

#endif
