# rs_columns.h for Cython, and property texts taken apart; the rest of csrc is in core.pxd.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rocketstore._native.format.csrc cimport bool_, rs_record, rs_scan, rs_span, rs_status
from rocketstore._native.format.filter_program cimport rs_filter

cdef extern from "rs_properties.h" nogil:
    enum:
        RS_PAIRS_MAX
    ctypedef struct rs_pair:
        rs_span name
        rs_span value
    size_t rs_property_pairs(rs_span text, rs_pair *pairs)

cdef extern from "rs_columns.h" nogil:
    ctypedef struct rs_word:
        rs_span text
        uint64_t hash
        const int32_t *queue_ids
        size_t queue_id_count
        bool_ wanted
    ctypedef struct rs_dictionary:
        rs_word *words
        size_t count
        uint32_t *slots
        size_t slot_count
        uint64_t seed
    int32_t rs_dictionary_find(const rs_dictionary *dictionary, rs_span text)
    void rs_dictionary_add(rs_dictionary *dictionary, rs_word word)
    ctypedef struct rs_columns:
        size_t room
        size_t rows
        uint64_t bytes
        int32_t *topic
        int32_t *born_host
        int32_t *store_host
        int32_t *queue_id
        int32_t *size
        int32_t *body_size
        int32_t *flag
        int32_t *sys_flag
        int32_t *reconsume_times
        int64_t *queue_offset
        int64_t *physical_offset
        int64_t *born_timestamp_ms
        int64_t *store_timestamp_ms
        int64_t *prepared_transaction_offset
        int64_t *tags_code
        rs_span *body
        rs_span *tags
        rs_span *keys
        rs_span *properties
    ctypedef struct rs_column_walk:
        rs_scan scan
        size_t at
        const rs_dictionary *topics
        const rs_dictionary *hosts
        bool_ by_topic
        const rs_span *tags
        size_t tag_count
        bool_ tagged
        bool_ marked
        int64_t from_ms
        int64_t to_ms
        uint64_t records
        uint64_t record_crc_mismatches
        rs_span unknown
        bool_ unknown_host
        const rs_filter *filter
        bool_ asks
        size_t answered_at
        bool_ answer
    rs_status rs_columns_walk(rs_column_walk *walk, rs_columns *columns, size_t to,
                              uint64_t byte_limit)
    rs_status rs_columns_take(rs_column_walk *walk, rs_columns *columns, const rs_record *records,
                              size_t count)
    size_t rs_columns_measure(const rs_span *spans, size_t rows, int32_t *offsets)
    void rs_columns_gather(const rs_span *spans, size_t rows, const int32_t *offsets, uint8_t *to)
    void rs_columns_views(const rs_span *spans, size_t rows, const uint8_t *base, uint8_t *views)
    void rs_columns_message_ids(const rs_dictionary *hosts, const int32_t *store_hosts,
                                const int64_t *physical_offsets, size_t rows, int32_t *offsets,
                                char *to)
    size_t rs_columns_message_ids_size(const rs_dictionary *hosts, const int32_t *store_hosts,
                                       size_t rows)
    bint rs_columns_are_utf8(const uint8_t *bytes, const int32_t *offsets, size_t rows)
