# A segment as csrc sees it.

from rocketstore._native.format.csrc cimport rs_segment
from rocketstore._native.os.mapped_file cimport MappedFile


# `buffer`, None: the mapping itself, is where its bytes are stored.
cdef inline rs_segment describe(MappedFile segment, MappedFile buffer):
    cdef rs_segment described
    described.bytes = buffer.base if buffer is not None else segment.base
    described.start, described.size = segment.start_offset, segment.size
    described.reserved, described.fd = segment.reserved_bytes(), segment.fd
    return described
