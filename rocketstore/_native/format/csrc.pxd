# csrc declared for Cython, one block a header.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "<stdbool.h>" nogil:
    ctypedef bint bool_ "bool"


cdef extern from "rs_base.h" nogil:
    ctypedef enum rs_status:
        RS_OK
        RS_END_OF_FILE
        RS_BLANK
        RS_NOTHING
        RS_FULL
        RS_NOT_FOUND
        RS_BAD_TRUNCATED
        RS_BAD_MAGIC
        RS_BAD_LENGTH
        RS_BAD_TOPIC
        RS_BAD_PROPERTIES
        RS_BAD_PHYSICAL_OFFSET
        RS_BAD_BODY_CRC
        RS_BAD_RECORD_CRC
        RS_BAD_UNIT
        RS_TOPIC_ILLEGAL
        RS_BODY_TOO_LARGE
        RS_PROPERTIES_TOO_LARGE
        RS_PROPERTY_ILLEGAL
        RS_RECORD_TOO_LARGE
        RS_NO_BLOCKS
        RS_STATUS_COUNT

    ctypedef struct rs_span:
        const uint8_t *bytes
        size_t size

    uint32_t rs_load32(const uint8_t *where)
    int32_t rs_load32s(const uint8_t *where)
    int64_t rs_load64s(const uint8_t *where)
    void rs_store32(uint8_t *to, uint32_t value)
    void rs_store32s(uint8_t *to, int32_t value)
    void rs_store64s(uint8_t *to, int64_t value)


cdef extern from "rs_crc32.h" nogil:
    ctypedef enum rs_crc32_kernel:
        RS_CRC32_SLICING
        RS_CRC32_CLMUL
        RS_CRC32_CLMUL256
        RS_CRC32_CLMUL512
    uint32_t rs_crc32(rs_crc32_kernel kernel, uint32_t crc, const uint8_t *bytes,
                      size_t size) noexcept
    uint32_t rs_crc32c(uint32_t crc, const uint8_t *bytes, size_t size) noexcept
    uint32_t rs_crc31(rs_crc32_kernel kernel, const uint8_t *bytes, size_t size) noexcept


cdef extern from "rs_properties.h" nogil:
    enum: RS_PROPERTIES_MAX
    enum: RS_RECORD_FIXED
    enum: RS_HOST_V6_SIZE
    ctypedef struct rs_property_walk:
        const uint8_t *at
        const uint8_t *end
    rs_property_walk rs_properties_walk(rs_span text)
    bint rs_property_next(rs_property_walk *walk, rs_span *name, rs_span *value)
    bint rs_property_find(rs_span text, const char *name, size_t name_size, rs_span *value)
    int32_t rs_java_hash(rs_span utf8)
    int32_t rs_java_hash_continue(int32_t hash, rs_span utf8)
    int64_t rs_tags_code(rs_span tags)
    rs_status rs_property_check(rs_span name, rs_span value)
    bint rs_parse_decimal(rs_span text, int64_t *value)


cdef extern from "rs_record.h" nogil:
    ctypedef struct rs_host:
        uint8_t bytes[20]
        uint8_t size
    ctypedef struct rs_message:
        rs_span topic
        rs_span body
        rs_span properties
        int64_t queue_offset
        int64_t physical_offset
        int64_t born_timestamp_ms
        int64_t store_timestamp_ms
        int64_t prepared_transaction_offset
        int32_t queue_id
        int32_t flag
        int32_t reconsume_times
        uint32_t sys_flag
        rs_host born_host
        rs_host store_host
        int32_t asked
        int32_t limit_ms
        bint record_crc
        bint only_latest
    ctypedef struct rs_record:
        const uint8_t *start
        uint32_t size
        uint32_t magic
        uint32_t body_crc
        int32_t queue_id
        int32_t flag
        uint32_t sys_flag
        int64_t queue_offset
        int64_t physical_offset
        int64_t born_timestamp_ms
        int64_t store_timestamp_ms
        int64_t prepared_transaction_offset
        int32_t reconsume_times
        rs_span body
        rs_span topic
        rs_span properties
    enum:
        RS_VERIFY_BODY_CRC
        RS_VERIFY_RECORD_CRC
    size_t rs_record_size(const rs_message *message)
    rs_status rs_record_check(const rs_message *message, size_t max_body_size, bint wide_topics)
    size_t rs_record_encode(const rs_message *message, uint8_t *to, rs_crc32_kernel kernel)
    void rs_record_publish(uint8_t *record, size_t topic_size)
    rs_span rs_record_born_host(const rs_record *record)
    rs_span rs_record_store_host(const rs_record *record)
    rs_status rs_record_decode(const uint8_t *at, size_t left, rs_record *record)
    rs_status rs_record_verify(const rs_record *record, int64_t physical_offset, unsigned what,
                               rs_crc32_kernel kernel)
    bint rs_record_crc_find(const rs_record *record, uint32_t *crc)
    uint32_t rs_transaction_type(uint32_t sys_flag)


cdef extern from "rs_frame.h" nogil:
    enum:
        RS_FRAME_FLAGS
        RS_FRAME_INNER
    int rs_frame_take(const uint8_t *at, size_t left, uint32_t refused, rs_crc32_kernel kernel,
                      rs_message *message, size_t *size) noexcept


cdef extern from "rs_message_id.h" nogil:
    size_t rs_message_id_encode(rs_span store_host, int64_t physical_offset, char *to)

cdef extern from "rs_commit_record.h" nogil:
    size_t rs_commit_record_share(const rs_message *message)
    void rs_commit_record_encode(uint8_t *to, const rs_message *messages, size_t count)

cdef extern from "rs_format.h" nogil:
    enum:
        RS_FLAG_COMMIT
        RS_RECORD_CRC_SIZE
        RS_FLAG_ROLLBACK


cdef extern from "rs_positions.h" nogil:
    void rs_position_store(uint8_t *page, size_t at, int64_t value)
    int64_t rs_position_load(const uint8_t *page, size_t at)
    enum:
        RS_POSITIONS_PAGE_SIZE
        RS_POSITIONS_AT_MAGIC
        RS_POSITIONS_AT_WROTE
        RS_POSITIONS_AT_COMMITTED
        RS_POSITIONS_AT_FLUSHED
        RS_POSITIONS_AT_VISIBLE
        RS_POSITIONS_AT_DISPATCHED
        RS_POSITIONS_AT_INDEXED
        RS_POSITIONS_AT_MINIMUM
        RS_POSITIONS_AT_STATE
        RS_POSITIONS_AT_PID
        RS_POSITIONS_AT_RUN_ID
        RS_POSITIONS_AT_BOOT_ID
        RS_POSITIONS_AT_CHANGES


cdef extern from "rs_log_file.h" nogil:
    enum:
        RS_ASIDE_RECORD_MIN

    ctypedef struct rs_segment:
        uint8_t *bytes
        int64_t start
        int64_t size
        int64_t reserved
        int fd
    ctypedef struct rs_queue_state:
        int64_t next_offset
        int64_t messages
        int64_t bytes
    ctypedef struct rs_key_watch:
        uint64_t salt
    ctypedef struct rs_log:
        uint8_t *positions
        rs_crc32_kernel kernel
        uint8_t *ring
        int64_t ring_size
        bint zero_blank
        rs_segment segment
        rs_segment next
        int64_t file_size
        int64_t wrote
        int64_t last_record_start
        int64_t last_store_timestamp_ms
        int64_t limit
        int64_t wanted
        int64_t max_unflushed_bytes
        int64_t max_undispatched_bytes
        uint8_t *aside
        int64_t aside_least
        int64_t aside_size
        int64_t aside_record_min
        int64_t ready
        rs_key_watch *watch
        int64_t notify_at
    ctypedef struct rs_appended:
        int64_t physical_offset
        int64_t end_offset
        int64_t queue_offset
        int64_t store_timestamp_ms
        bint rolled
        bint notify
        bint aside
    bint rs_log_owns(const rs_log *log, const void *address)
    void rs_log_take_back(rs_log *log, const rs_message *messages, rs_queue_state **queues,
                          const rs_appended *appended)
    rs_status rs_log_append(rs_log *log, rs_message *message, rs_queue_state *queue, int64_t now_ms,
                            rs_appended *appended)
    rs_status rs_log_append_batch(rs_log *log, rs_message *message, const rs_span *bodies,
                                  size_t count, rs_queue_state *queue, int64_t now_ms,
                                  int64_t *offsets, rs_appended *appended)
    void rs_log_written(rs_log *log, rs_appended *appended)
    rs_status rs_log_append_lights(rs_log *log, rs_message *message, rs_queue_state *queue,
                                   rs_queue_state **lights, size_t count, uint8_t *text,
                                   size_t room, int64_t now_ms, rs_appended *appended)
    rs_status rs_log_append_messages(rs_log *log, rs_message *messages, rs_queue_state **queues,
                                     size_t count, int64_t now_ms, int64_t *offsets,
                                     rs_appended *appended)
    enum: RS_BLANK_SIZE_MIN
    int64_t rs_log_record_max(const rs_log *log)
    size_t rs_log_fitting_messages(const rs_log *log, const rs_message *messages, size_t count)
    size_t rs_log_fitting(const rs_log *log, const rs_message *message, const rs_span *bodies,
                          size_t count)
    rs_status rs_log_append_raw(rs_log *log, int64_t start, rs_span bytes, int64_t last_record,
                                int64_t stored_ms, rs_appended *appended)
    int64_t rs_log_refresh_limit(rs_log *log)


cdef extern from "rs_index_file.h" nogil:
    enum:
        RS_INDEX_HEADER_SIZE
        RS_INDEX_ENTRIES_MAX
        RS_INDEX_SLOTS_MAX
    ctypedef struct rs_index_header:
        int64_t begin_timestamp_ms
        int64_t end_timestamp_ms
        int64_t begin_offset
        int64_t end_offset
        int32_t slot_count
        uint32_t index_count
    ctypedef struct rs_index_entry:
        int32_t key_hash
        int64_t physical_offset
        int32_t time_diff_s
        int32_t previous
    ctypedef struct rs_index_hit:
        int64_t physical_offset
    ctypedef struct rs_index_walk:
        uint32_t number
    uint64_t rs_index_file_size(uint32_t slots, uint32_t entries) noexcept
    uint64_t rs_index_entry_at(uint32_t slots, uint32_t number) noexcept
    uint32_t rs_index_key_hash(rs_span topic, rs_span key) noexcept
    uint32_t rs_index_tags_hash(rs_span topic, rs_span tags) noexcept
    void rs_index_header_init(uint8_t *base, int64_t previous_end_timestamp_ms,
                              int64_t previous_end_offset) noexcept
    rs_status rs_index_header_load(const uint8_t *base, uint32_t entries,
                                   rs_index_header *header) noexcept
    rs_status rs_index_put(uint8_t *base, uint32_t slots, uint32_t entries, uint32_t key_hash,
                           int64_t physical_offset, int64_t store_timestamp_ms) noexcept
    void rs_index_entry_load(const uint8_t *base, uint32_t slots, uint32_t number,
                             rs_index_entry *entry) noexcept
    void rs_index_walk_start(rs_index_walk *walk, const uint8_t *base, uint32_t slots,
                             uint32_t entries, uint32_t key_hash, int64_t begin_ms,
                             int64_t end_ms) noexcept
    bint rs_index_walk_next(rs_index_walk *walk, rs_index_hit *hit) noexcept
    bint rs_index_may_have(const uint8_t *base, uint32_t slots, uint32_t entries,
                           uint32_t key_hash, uint32_t most) noexcept
    bint rs_index_plausible(const uint8_t *base, uint32_t slots, uint32_t entries) noexcept
    rs_status rs_index_deduce(const uint8_t *base, uint64_t size, uint32_t *slots,
                              uint32_t *entries) noexcept
    rs_status rs_index_validate(const uint8_t *base, uint32_t slots, uint32_t entries,
                                bint growing) noexcept
    uint32_t rs_index_cut(uint8_t *base, uint32_t slots, uint32_t entries,
                          int64_t from_offset) noexcept


cdef extern from "rs_scan.h" nogil:
    ctypedef struct rs_scan:
        const uint8_t *bytes
        size_t size
        int64_t start_offset
        unsigned verify
        rs_crc32_kernel kernel
    enum:
        RS_SCAN_LENIENT
        RS_SCAN_UNTORN
    void rs_scan_fetch_ends(const uint8_t *at, size_t left, size_t size)
    ctypedef struct rs_walked:
        size_t end
        uint64_t records
        int64_t last_record_start
        int64_t first_store_timestamp_ms
        int64_t last_store_timestamp_ms
        int64_t first_time_fall
        uint64_t record_crc_mismatches
    rs_status rs_scan_record(const rs_scan *scan, size_t position, rs_record *record)
    rs_status rs_scan_walk(const rs_scan *scan, size_t from_, size_t to, rs_walked *walked)
    uint64_t rs_scan_budget(size_t size)
    size_t rs_scan_resynchronise(const rs_scan *scan, size_t from_, size_t to, uint64_t *budget)
    size_t rs_scan_find_magic(const uint8_t *bytes, size_t size, size_t from_)
    size_t rs_scan_find_magic_plain(const uint8_t *bytes, size_t size, size_t from_)


cdef extern from "rs_unit_reader.h" nogil:
    ctypedef struct rs_unit_reader:
        rs_scan segment
        rs_span topic
        const int64_t *tags_codes
        size_t tags_code_count
        bint filtered
        int32_t queue_id
        int64_t first_queue_offset
        int64_t log_minimum
        int64_t log_limit
    ctypedef struct rs_units_checked:
        uint64_t matching
        uint64_t own
        uint64_t pre_blanks
        int64_t first_physical_offset
        int64_t last_physical_offset
    rs_status rs_units_read(const rs_unit_reader *reader, const uint8_t *units, size_t count,
                            size_t *next, rs_record *records, size_t room, size_t *found)
    rs_status rs_units_check(const rs_unit_reader *reader, const uint8_t *units, size_t count,
                             bint tags, size_t *next, rs_units_checked *checked)
    bint rs_units_have_address(const uint8_t *units, size_t count)


cdef extern from "rs_queue_file.h" nogil:
    enum:
        RS_UNIT_SIZE
        RS_PRE_BLANK_SIZE
    ctypedef struct rs_unit:
        int64_t physical_offset
        int32_t size
        int64_t tags_code
    rs_unit rs_unit_load(const uint8_t *where)
    void rs_unit_store(uint8_t *to, rs_unit unit)
    bint rs_unit_written(rs_unit unit)
    bint rs_unit_pre_blank(rs_unit unit)
    size_t rs_units_written(const uint8_t *units, size_t count)
    size_t rs_units_first_kept(const uint8_t *units, size_t count, int64_t minimum)
    int64_t rs_units_physical_end(const uint8_t *units, size_t count)
    void rs_units_fill_pre_blank(uint8_t *units, size_t count)
    size_t rs_units_cut(uint8_t *units, size_t count, int64_t physical_offset)


cdef extern from "rs_queue_table.h" nogil:
    ctypedef struct rs_queue_entry:
        rs_span topic
        int32_t queue_id
        uint8_t *units
        int64_t first_unit
        int64_t unit_limit
        int64_t next_offset
        int64_t dirty_from
        int64_t *published
        bint moved
    ctypedef struct rs_queue_table:
        rs_queue_entry *entries
        size_t capacity
        size_t count
        size_t last
    rs_queue_entry *rs_queue_table_find(rs_queue_table *table, rs_span topic, int32_t queue_id)
    rs_queue_entry *rs_queue_table_add(rs_queue_table *table, rs_span topic, int32_t queue_id)


cdef extern from "rs_dispatch.h" nogil:
    ctypedef struct rs_dispatch_properties:
        rs_span tags
        rs_span keys
        rs_span uniq_key
        rs_span multi_dispatch
    void rs_dispatch_find(rs_span properties, rs_dispatch_properties *found)
    int64_t rs_dispatch_tags(const rs_record *record, const rs_dispatch_properties *found,
                             const int64_t *delays, size_t count)
