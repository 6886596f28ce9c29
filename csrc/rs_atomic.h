/* Atomic loads and stores for native code. One thread stores a flag or an offset, other threads load it. Threads
 * also sleep on such a word until its value changes. The positions have accesses of their own: rs_positions.h. */
#ifndef RS_ATOMIC_H
#define RS_ATOMIC_H

#include <stdbool.h>
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

/* All threads see the stores before it before any load after it is done. */
static inline void rs_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Words that threads sleep on. All but the take and the exchange are in one order for all threads: a thread
 * that stores a word and then loads another one must not do both the other way round. */
static inline uint32_t rs_word_load(const uint32_t *from)
{
    return __atomic_load_n(from, __ATOMIC_SEQ_CST);
}

static inline void rs_word_store(uint32_t *to, uint32_t value)
{
    __atomic_store_n(to, value, __ATOMIC_SEQ_CST);
}

static inline void rs_word_add(uint32_t *to, uint32_t more)
{
    (void)__atomic_add_fetch(to, more, __ATOMIC_SEQ_CST);
}

/* Gives what was there. */
static inline uint32_t rs_word_exchange(uint32_t *to, uint32_t value)
{
    return __atomic_exchange_n(to, value, __ATOMIC_ACQ_REL);
}

/* A store that all threads see before any load after it is done. */
static inline void rs_word_raise(uint32_t *to, uint32_t value)
{
    (void)__atomic_exchange_n(to, value, __ATOMIC_SEQ_CST);
    rs_fence();
}

/* 0 becomes 1; false: it was not 0. */
static inline bool rs_word_take(uint32_t *word)
{
    uint32_t free_word = 0;
    return __atomic_compare_exchange_n(word, &free_word, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Between two looks of a thread that does not sleep. */
static inline void rs_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield" ::: "memory");
#endif
}

#endif
