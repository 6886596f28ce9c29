"""Units of one consume queue file, for the cold paths: load, cut, pre-blanks, light queues, tools."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketstore._native.core cimport (
    RS_UNIT_SIZE, rs_unit, rs_unit_load, rs_unit_store, rs_unit_written, rs_units_cut,
    rs_units_fill_pre_blank, rs_units_first_kept, rs_units_physical_end, rs_units_written,
)
from rocketstore._native.mapped_file cimport MappedFile

import numpy as np

UNIT_SIZE = RS_UNIT_SIZE
PRE_BLANK = (0, 0x7FFFFFFF, 0)
#: One unit as NumPy sees it.
UNIT_DTYPE = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


cdef uint8_t *units_of(MappedFile file, int64_t first, int64_t count) except NULL:
    """The units [first, first + count) of a file; ValueError outside."""
    if first < 0 or count < 0 or first > file.size // RS_UNIT_SIZE - count:
        raise ValueError(f"units {first} … {first + count} of a file of {file.size} bytes")
    return file.base + first * RS_UNIT_SIZE


cdef int writable_units(MappedFile file) except -1:
    if not file.writable:
        raise ValueError(f"{file.path} is mapped read-only")
    return 0


def read_unit(MappedFile file not None, int64_t unit):
    """(physical_offset, size, tags_code), or None where no unit was written."""
    cdef rs_unit found = rs_unit_load(units_of(file, unit, 1))
    if not rs_unit_written(found):
        return None
    return found.physical_offset, found.size, found.tags_code


def write_unit(MappedFile file not None, int64_t unit, int64_t physical_offset, int32_t size,
               int64_t tags_code):
    """Stores one unit, its size last."""
    cdef rs_unit stored
    writable_units(file)
    stored.physical_offset = physical_offset
    stored.size = size
    stored.tags_code = tags_code
    rs_unit_store(units_of(file, unit, 1), stored)


def written_units(MappedFile file not None, int64_t first=0):
    """How many units from `first` on are written without a break."""
    cdef int64_t count = file.size // RS_UNIT_SIZE - first
    cdef const uint8_t *units = units_of(file, first, count)
    cdef size_t written
    with nogil:
        written = rs_units_written(units, <size_t>count)
    return written


def first_kept(MappedFile file not None, int64_t first, int64_t count, int64_t minimum):
    """Index of the first unit in [first, first + count) with a record at or beyond `minimum`;
    first + count when there is none. Pre-blanks are passed over."""
    cdef const uint8_t *units = units_of(file, first, count)
    cdef size_t found
    with nogil:
        found = rs_units_first_kept(units, <size_t>count, minimum)
    return first + <int64_t>found


def physical_end(MappedFile file not None, int64_t count):
    """End of the record of the last of `count` units that is no pre-blank; -1 when there is none."""
    return rs_units_physical_end(units_of(file, 0, count), <size_t>count)


def fill_pre_blank(MappedFile file not None, int64_t first, int64_t count):
    """Placeholders in the units [first, first + count)."""
    writable_units(file)
    rs_units_fill_pre_blank(units_of(file, first, count), <size_t>count)


def cut(MappedFile file not None, int64_t physical_offset):
    """Clears the first unit at or beyond `physical_offset` and everything behind it; returns how many
    units are left."""
    cdef int64_t count = file.size // RS_UNIT_SIZE
    cdef uint8_t *units = units_of(file, 0, count)
    cdef size_t left
    writable_units(file)
    with nogil:
        left = rs_units_cut(units, <size_t>count, physical_offset)
    return left


def units_array(MappedFile file not None, int64_t first, int64_t count):
    """The units as a read-only NumPy array over the mapping, which stays mapped while it lives."""
    units_of(file, first, count)
    return np.frombuffer(file.view(first * RS_UNIT_SIZE, count * RS_UNIT_SIZE), dtype=UNIT_DTYPE)
