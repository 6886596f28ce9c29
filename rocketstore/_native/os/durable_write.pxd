from libc.stdint cimport int64_t, uint8_t

# All of it, its first page last: 0, or minus an errno.
cdef int64_t write_head_last_c(int fd, const uint8_t *data, int64_t size,
                               int64_t offset) noexcept nogil
# The same with `zero_count` of `zeros` after it, on disk when this returns.
cdef int64_t write_durable_c(int fd, const uint8_t *data, int64_t size, int64_t offset,
                             const uint8_t *zeros, int64_t zero_count) noexcept nogil
