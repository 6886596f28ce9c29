/* The few atomic accesses that native code needs beside the positions. */
#ifndef RS_ATOMIC_H
#define RS_ATOMIC_H

#include <stdint.h>

static inline int rs_load_int(const int *from)
{
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

static inline void rs_store_int(int *to, int value)
{
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}

static inline int64_t rs_load_int64(const int64_t *from)
{
    return __atomic_load_n(from, __ATOMIC_ACQUIRE);
}

static inline void rs_store_int64(int64_t *to, int64_t value)
{
    __atomic_store_n(to, value, __ATOMIC_RELEASE);
}

/* Raises *to to `value` unless it is there already. */
static inline void rs_store_max(int64_t *to, int64_t value)
{
    int64_t seen = __atomic_load_n(to, __ATOMIC_RELAXED);
    while (seen < value && !__atomic_compare_exchange_n(to, &seen, value, 0, __ATOMIC_ACQ_REL,
                                                        __ATOMIC_RELAXED))
        ;
}

/* What was stored before is seen by all before what is loaded behind it. */
static inline void rs_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#endif
