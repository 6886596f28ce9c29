# The fastest CRC-32 kernel this CPU can run. Chosen once, when the module is imported.

from rocketstore._native.format.csrc cimport rs_crc32_kernel

cdef rs_crc32_kernel best_kernel() noexcept nogil
