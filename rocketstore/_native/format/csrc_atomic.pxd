# rs_atomic.h declared for Cython.

from libc.stdint cimport int64_t, uint32_t

cdef extern from "rs_atomic.h" nogil:
    int rs_load_int(const int *where)
    void rs_store_int(int *where, int value)
    int64_t rs_load_int64(const int64_t *where)
    void rs_store_int64(int64_t *where, int64_t value)
    void rs_store_max(int64_t *where, int64_t value)
    void rs_fence()
    uint32_t rs_word_load(const uint32_t *word)
    void rs_word_store(uint32_t *word, uint32_t value)
    void rs_word_add(uint32_t *word, uint32_t more)
    uint32_t rs_word_exchange(uint32_t *word, uint32_t value)
    void rs_word_raise(uint32_t *word, uint32_t value)
    bint rs_word_take(uint32_t *word)
    void rs_pause()
