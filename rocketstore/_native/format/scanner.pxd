# What other modules need to look at records of mapped files.

from libc.stdint cimport int64_t

from rocketstore._native.format.csrc cimport rs_scan
from rocketstore._native.os.mapped_file cimport MappedFile

# The first `limit` bytes of a file.
cdef rs_scan scan_of(MappedFile file, int64_t limit, unsigned verify) noexcept

# ReadFailedError: `what` at a physical offset of the file cannot be read.
cdef int unread(MappedFile file, str what, int64_t offset) except -1
