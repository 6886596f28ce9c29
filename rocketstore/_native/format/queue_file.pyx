"""Units of one consume queue file, for the cold paths: load, cut, pre-blanks, light queues, tools."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from rocketstore._native.format.csrc cimport (
    RS_UNIT_SIZE, rs_unit, rs_unit_load, rs_unit_store, rs_unit_written, rs_units_cut,
    rs_units_fill_pre_blank, rs_units_first_kept, rs_units_physical_end, rs_units_written,
)
from rocketstore._native.os.file_holes cimport data_range, next_data
from rocketstore._native.os.sigbus_guard cimport (
    guarded, guarded_zero, raise_unread, raise_unwritten,
)
from rocketstore._native.os.mapped_file cimport MappedFile

from rocketstore._native.os import syscalls

UNIT_SIZE = RS_UNIT_SIZE
PRE_BLANK = (0, 0x7FFFFFFF, 0)
#: Fields of a unit as NumPy names them.
UNIT_FIELDS = [("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")]


cdef enum What:
    LOAD, STORE, COUNT_WRITTEN, FIND_KEPT, FIND_END, FILL, CUT

cdef struct unit_call:
    What what
    uint8_t *units
    size_t count
    int64_t physical_offset
    rs_unit unit
    int64_t found


cdef void unit_work(void *given) noexcept nogil:
    cdef unit_call *call = <unit_call *>given
    if call.what == LOAD:
        call.unit = rs_unit_load(call.units)
    elif call.what == STORE:
        rs_unit_store(call.units, call.unit)
    elif call.what == COUNT_WRITTEN:
        call.found = <int64_t>rs_units_written(call.units, call.count)
    elif call.what == FIND_KEPT:
        call.found = <int64_t>rs_units_first_kept(call.units, call.count, call.physical_offset)
    elif call.what == FIND_END:
        call.found = rs_units_physical_end(call.units, call.count)
    elif call.what == FILL:
        rs_units_fill_pre_blank(call.units, call.count)
    else:
        call.found = <int64_t>rs_units_cut(call.units, call.count, call.physical_offset)


cdef int64_t run(MappedFile file, unit_call *call) except? -1:
    """What the call found; an error where a page of the file cannot be had."""
    cdef bint whole
    if call.what <= STORE:
        whole = guarded(unit_work, call)
    else:
        with nogil:
            whole = guarded(unit_work, call)
    if not whole and call.what in (STORE, FILL):
        raise_unwritten(file.path)
    if not whole and not run_without_holes(file, call):
        if call.what == CUT:
            raise_unwritten(file.path)
        raise_unread(file.path, "a unit")
    return call.found


cdef bint run_without_holes(MappedFile file, unit_call *call) except -1:
    """Whether the call could be made with memory in place of the holes of the file (a full tmpfs)."""
    cdef MappedFile other = file.without_holes()
    cdef bint whole
    if other is None:
        return False
    call.units = other.base + (call.units - file.base)
    with nogil:
        whole = guarded(unit_work, call)
    if whole and call.what == CUT:
        zero_data(file, call.found * RS_UNIT_SIZE)
    return whole


cdef int zero_data(MappedFile file, int64_t position) except -1:
    """Zeros from `position` on, without a page for a hole."""
    cdef data_range data
    cdef int fd = file.open_descriptor()
    cdef bint whole = True
    try:
        with nogil:
            data = next_data(fd, position, file.size)
            while whole and data.begin < file.size:
                whole = guarded_zero(file.base + data.begin, <size_t>(data.end - data.begin))
                data = next_data(fd, data.end, file.size)
    finally:
        syscalls.close(fd)
    if not whole:
        raise_unwritten(file.path)
    return 0


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
    cdef unit_call call
    call.what, call.units = LOAD, units_of(file, unit, 1)
    run(file, &call)
    if not rs_unit_written(call.unit):
        return None
    return call.unit.physical_offset, call.unit.size, call.unit.tags_code


def write_unit(MappedFile file not None, int64_t unit, int64_t physical_offset, int32_t size,
               int64_t tags_code):
    """Stores one unit, its size last."""
    cdef unit_call call
    writable_units(file)
    call.what, call.units = STORE, units_of(file, unit, 1)
    call.unit.physical_offset = physical_offset
    call.unit.size = size
    call.unit.tags_code = tags_code
    run(file, &call)


def written_units(MappedFile file not None, int64_t first=0):
    """How many units from `first` on are written without a break."""
    cdef unit_call call
    cdef int64_t count = file.size // RS_UNIT_SIZE - first
    call.what, call.units, call.count = COUNT_WRITTEN, units_of(file, first, count), <size_t>count
    return run(file, &call)


def first_kept(MappedFile file not None, int64_t first, int64_t count, int64_t minimum):
    """Index of the first unit in [first, first + count) with a record at or beyond `minimum`;
    first + count when there is none. Pre-blanks are passed over."""
    cdef unit_call call
    call.what, call.units, call.count = FIND_KEPT, units_of(file, first, count), <size_t>count
    call.physical_offset = minimum
    return first + run(file, &call)


def physical_end(MappedFile file not None, int64_t count):
    """End of the record of the last of `count` units that is no pre-blank; -1 when there is none."""
    cdef unit_call call
    call.what, call.units, call.count = FIND_END, units_of(file, 0, count), <size_t>count
    return run(file, &call)


def fill_pre_blank(MappedFile file not None, int64_t first, int64_t count):
    """Placeholders in the units [first, first + count)."""
    cdef unit_call call
    writable_units(file)
    call.what, call.units, call.count = FILL, units_of(file, first, count), <size_t>count
    run(file, &call)


def cut(MappedFile file not None, int64_t physical_offset):
    """Clears the first unit at or beyond `physical_offset` and everything after it; returns how many
    units are left."""
    cdef unit_call call
    cdef int64_t count = file.size // RS_UNIT_SIZE
    call.what, call.units, call.count = CUT, units_of(file, 0, count), <size_t>count
    call.physical_offset = physical_offset
    writable_units(file)
    return run(file, &call)


def units_array(MappedFile file not None, int64_t first, int64_t count):
    """A copy of the units as a read-only NumPy array."""
    import numpy  # here: a store that nobody asks for arrays does without it

    units_of(file, first, count)
    return numpy.frombuffer(file.read(first * RS_UNIT_SIZE, count * RS_UNIT_SIZE), UNIT_FIELDS)
