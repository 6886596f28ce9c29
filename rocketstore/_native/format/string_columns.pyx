"""Texts of many records: dictionaries of those that come again, properties taken apart, UTF-8 looked at."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from rocketstore._native.format.csrc_columns cimport (
    RS_PAIRS_MAX, rs_columns_are_utf8, rs_dictionary_add, rs_pair, rs_property_pairs, rs_word,
)
from rocketstore._native.format.csrc cimport rs_span

import os

import numpy as np

cdef enum:
    FIRST_WORDS = 64


cdef void *allocated(size_t count, size_t size) except NULL:
    cdef void *memory = PyMem_RawMalloc(max(<size_t>1, count) * size)
    if memory is NULL:
        raise MemoryError("no memory for the columns of a scan")
    return memory


@cython.final
@cython.auto_pickle(False)
cdef class Words:
    """A dictionary of csrc and the objects that own what its words point to."""

    def __cinit__(self):
        self.table.seed = <uint64_t>int.from_bytes(os.urandom(8), "big")
        self.table.words = NULL
        self.table.slots = NULL
        self.clear()

    def __dealloc__(self):
        PyMem_RawFree(self.table.words)
        PyMem_RawFree(self.table.slots)

    cdef int clear(self) except -1:
        self.kept = []
        self.texts = []
        self.shown = ()
        self.table.count = 0
        self.resize(FIRST_WORDS)
        return 0

    cdef int resize(self, size_t room) except -1:
        cdef rs_word *old = self.table.words
        cdef size_t count = self.table.count, i
        cdef rs_word *words = <rs_word *>allocated(room, sizeof(rs_word))
        cdef uint32_t *slots
        try:
            slots = <uint32_t *>allocated(2 * room, sizeof(uint32_t))
        except MemoryError:
            PyMem_RawFree(words)
            raise
        memset(slots, 0, 2 * room * sizeof(uint32_t))
        PyMem_RawFree(self.table.slots)
        self.table.words, self.table.slots = words, slots
        self.table.slot_count = 2 * room
        self.table.count = 0
        self.room = room
        for i in range(count):
            rs_dictionary_add(&self.table, old[i])
        PyMem_RawFree(old)
        return 0

    cdef int add(self, bytes word, str shown, bint wanted, object queue_ids) except -1:
        cdef rs_word added
        cdef const int32_t[::1] ids
        if self.table.count == self.room:
            self.resize(2 * self.room)
        memset(&added, 0, sizeof(added))
        added.text.bytes = <const uint8_t *>PyBytes_AS_STRING(word)
        added.text.size = <size_t>len(word)
        added.wanted = wanted
        if queue_ids is not None:
            # One place more: an empty list takes nothing, NULL would take all.
            ids = np.array([*sorted(queue_ids), 0], dtype=np.int32)
            added.queue_ids = &ids[0]
            added.queue_id_count = <size_t>ids.shape[0] - 1
            self.kept.append(ids)
        self.kept.append(word)
        self.texts.append(shown)
        rs_dictionary_add(&self.table, added)
        return 0

    cdef tuple words(self):
        if len(self.shown) != len(self.texts):
            self.shown = tuple(self.texts)
        return self.shown


cdef tuple pairs_of(const int32_t[::1] offsets, const uint8_t[::1] data, size_t rows):
    """Property texts taken apart: the pairs of each row, and all names and values one after the other."""
    cdef rs_pair *pairs = <rs_pair *>allocated(RS_PAIRS_MAX, sizeof(rs_pair))
    cdef rs_span text
    cdef const uint8_t *base = &data[0] if data.shape[0] else NULL
    cdef size_t row, count, i, total = 0, name_bytes = 0, value_bytes = 0
    cdef int32_t[::1] ends, name_ends, value_ends
    cdef uint8_t[::1] names, values
    try:
        row_ends = np.zeros(rows + 1, np.int32)
        ends = row_ends
        with nogil:
            for row in range(rows):
                text.bytes = base + offsets[row] if base is not NULL else NULL
                text.size = <size_t>(offsets[row + 1] - offsets[row])
                count = rs_property_pairs(text, pairs)
                for i in range(count):
                    name_bytes += pairs[i].name.size
                    value_bytes += pairs[i].value.size
                total += count
                ends[row + 1] = <int32_t>total
        all_name_ends, all_names = np.zeros(total + 1, np.int32), np.empty(name_bytes, np.uint8)
        all_value_ends, all_values = np.zeros(total + 1, np.int32), np.empty(value_bytes, np.uint8)
        name_ends, names, value_ends, values = all_name_ends, all_names, all_value_ends, all_values
        with nogil:
            total = name_bytes = value_bytes = 0
            for row in range(rows):
                text.bytes = base + offsets[row] if base is not NULL else NULL
                text.size = <size_t>(offsets[row + 1] - offsets[row])
                count = rs_property_pairs(text, pairs)
                for i in range(count):
                    memcpy(&names[name_bytes], pairs[i].name.bytes, pairs[i].name.size)
                    name_bytes += pairs[i].name.size
                    memcpy(&values[value_bytes], pairs[i].value.bytes, pairs[i].value.size)
                    value_bytes += pairs[i].value.size
                    total += 1
                    name_ends[total] = <int32_t>name_bytes
                    value_ends[total] = <int32_t>value_bytes
    finally:
        PyMem_RawFree(pairs)
    return (row_ends, (all_name_ends, all_names, utf8(name_ends, names)),
            (all_value_ends, all_values, utf8(value_ends, values)))


cdef bint utf8(const int32_t[::1] offsets, const uint8_t[::1] data):
    cdef const uint8_t *base = &data[0] if data.shape[0] else <const uint8_t *>b""
    cdef size_t rows = <size_t>offsets.shape[0] - 1
    cdef bint are
    with nogil:
        are = rs_columns_are_utf8(base, &offsets[0], rows)
    return are
