#include "rs_record.h"
#include "rs_cursor.h"
#include "rs_properties.h"

/* 00, 10, 20 … 99: the two digits of a number, least significant first. */
static const char digit_pairs[201] = "00102030405060708090"
                                     "01112131415161718191"
                                     "02122232425262728292"
                                     "03132333435363738393"
                                     "04142434445464748494"
                                     "05152535455565758595"
                                     "06162636465666768696"
                                     "07172737475767778797"
                                     "08182838485868788898"
                                     "09192939495969798999";

static inline uint32_t rs_magic_for(size_t topic_size)
{
    return topic_size > RS_TOPIC_MAX_V1 ? RS_MAGIC_V2 : RS_MAGIC_V1;
}

static inline size_t rs_host_size(bool v6)
{
    return v6 ? RS_HOST_V6_SIZE : RS_HOST_V4_SIZE;
}

/* 1 when the record CRC needs a separator that the property text does not end in. */
static inline size_t rs_missing_separator(rs_span properties)
{
    return properties.size && properties.bytes[properties.size - 1] != RS_PROPERTY_SEPARATOR;
}

static inline size_t rs_properties_size(const rs_message *message)
{
    rs_span properties = message->properties;
    if (!message->record_crc)
        return properties.size;
    return properties.size + rs_missing_separator(properties) + RS_RECORD_CRC_SIZE;
}

size_t rs_record_size(const rs_message *message)
{
    size_t topic_size = message->topic.size;
    size_t length_size = topic_size > RS_TOPIC_MAX_V1 ? 2 : 1;
    size_t hosts_size = (size_t)message->born_host.size + message->store_host.size;
    return RS_RECORD_FIXED + hosts_size + length_size + message->body.size + topic_size +
           rs_properties_size(message);
}

rs_status rs_record_check(const rs_message *message, size_t max_body_size, bool wide_topics)
{
    size_t topic_max = wide_topics ? RS_TOPIC_MAX_V2 : RS_TOPIC_MAX_V1;
    if (message->topic.size == 0 || message->topic.size > topic_max)
        return RS_TOPIC_ILLEGAL;
    if (message->properties.size > RS_PROPERTIES_MAX ||
        rs_properties_size(message) > RS_PROPERTIES_MAX)
        return RS_PROPERTIES_TOO_LARGE;
    if (message->body.size > max_body_size)
        return RS_BODY_TOO_LARGE;
    return RS_OK;
}

static inline void rs_put_pair(uint8_t *to, uint32_t below_100)
{
    memcpy(to, digit_pairs + 2 * below_100, 2);
}

/* The `__CRC32#` property. A CRC-31 has ten digits; RocketMQ writes them backwards. */
static inline void rs_put_record_crc(uint8_t *to, uint32_t crc)
{
    memcpy(to, RS_RECORD_CRC_NAME "\x01", RS_RECORD_CRC_AT_DIGITS);
    uint32_t high = crc / 10000, low = crc % 10000, top = high / 10000;
    high %= 10000;
    uint8_t *digits = to + RS_RECORD_CRC_AT_DIGITS;
    rs_put_pair(digits, low % 100);
    rs_put_pair(digits + 2, low / 100);
    rs_put_pair(digits + 4, high % 100);
    rs_put_pair(digits + 6, high / 100);
    rs_put_pair(digits + 8, top);
    digits[RS_RECORD_CRC_DIGITS] = RS_PROPERTY_SEPARATOR;
}

static inline uint8_t *rs_put_host(uint8_t *to, const rs_host *host)
{
    if (host->size == RS_HOST_V4_SIZE) {
        memcpy(to, host->bytes, RS_HOST_V4_SIZE);
        return to + RS_HOST_V4_SIZE;
    }
    memcpy(to, host->bytes, RS_HOST_V6_SIZE);
    return to + RS_HOST_V6_SIZE;
}

/* Most topics and property texts are short: no call for those. Where the two halves of a short copy
 * overlap they are equal. */
static inline uint8_t *rs_put_span(uint8_t *to, rs_span span)
{
    const uint8_t *from = span.bytes;
    const size_t size = span.size;
    if (size > 16) {
        memcpy(to, from, size);
    } else if (size >= 8) {
        memcpy(to, from, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    } else if (size >= 4) {
        memcpy(to, from, 4);
        memcpy(to + size - 4, from + size - 4, 4);
    } else {
        for (size_t i = 0; i < size; i++)
            to[i] = from[i];
    }
    return to + size;
}

/* sysFlag with the address family bits that the hosts really have. */
static inline uint32_t rs_sys_flag(const rs_message *message)
{
    uint32_t flag = message->sys_flag & ~(RS_FLAG_BORN_HOST_V6 | RS_FLAG_STORE_HOST_V6);
    if (message->born_host.size != RS_HOST_V4_SIZE)
        flag |= RS_FLAG_BORN_HOST_V6;
    if (message->store_host.size != RS_HOST_V4_SIZE)
        flag |= RS_FLAG_STORE_HOST_V6;
    return flag;
}

void rs_record_lay(const rs_message *message, size_t size, uint8_t *to, rs_crc32_kernel kernel)
{
    /* Locals: a store through `to` could change *message for all the compiler knows. */
    const rs_span topic = message->topic, properties = message->properties, body = message->body;
    const size_t separator = message->record_crc && rs_missing_separator(properties);
    const size_t record_crc_size = message->record_crc ? RS_RECORD_CRC_SIZE : 0;

    rs_store32(to + RS_AT_TOTAL_SIZE, (uint32_t)size);
    rs_store32s(to + RS_AT_QUEUE_ID, message->queue_id);
    rs_store32s(to + RS_AT_FLAG, message->flag);
    rs_store64s(to + RS_AT_QUEUE_OFFSET, message->queue_offset);
    rs_store64s(to + RS_AT_PHYSICAL_OFFSET, message->physical_offset);
    rs_store32(to + RS_AT_SYS_FLAG, rs_sys_flag(message));
    rs_store64s(to + RS_AT_BORN_TIMESTAMP, message->born_timestamp_ms);
    uint8_t *at = rs_put_host(to + RS_AT_BORN_HOST, &message->born_host);
    rs_store64s(at + RS_AFTER_BORN_STORE_TIMESTAMP, message->store_timestamp_ms);
    at = rs_put_host(at + RS_AFTER_BORN_STORE_HOST, &message->store_host);
    rs_store32s(at + RS_AFTER_STORE_RECONSUME_TIMES, message->reconsume_times);
    rs_store64s(at + RS_AFTER_STORE_PREPARED_OFFSET, message->prepared_transaction_offset);
    rs_store32(at + RS_AFTER_STORE_BODY_LENGTH, (uint32_t)body.size);
    uint8_t *body_at = at + RS_AFTER_STORE_BODY;
    at = body_at + body.size;
    if (topic.size > RS_TOPIC_MAX_V1) {
        rs_store16(at, (uint16_t)topic.size);
        at += 2;
    } else {
        *at++ = (uint8_t)topic.size;
    }
    at = rs_put_span(at, topic);
    rs_store16(at, (uint16_t)(properties.size + separator + record_crc_size));
    at = rs_put_span(at + 2, properties);
    if (separator)
        *at = RS_PROPERTY_SEPARATOR;
    /* Last: the stores of the fields reach the cache meanwhile, before the record CRC's pass loads them
     * in larger pieces than they were stored in. */
    uint32_t body_crc = rs_crc32_copy(kernel, body_at, body.bytes, body.size) & 0x7FFFFFFFu;
    rs_store32(to + RS_AT_BODY_CRC, body_crc);
}

void rs_record_seal(uint8_t *record, size_t size, size_t topic_size, rs_crc32_kernel kernel)
{
    /* The first 8 bytes from here: the magic counts, but must not be in the record yet. */
    uint8_t head[RS_AT_BODY_CRC];
    rs_store64(head, (uint64_t)size << 32 | rs_magic_for(topic_size));
    const size_t covered = size - RS_RECORD_CRC_SIZE;
    uint32_t crc =
        rs_crc32(kernel, rs_crc32_of_eight(head), record + sizeof head, covered - sizeof head);
    rs_put_record_crc(record + covered, crc & 0x7FFFFFFFu);
}

size_t rs_record_encode(const rs_message *message, uint8_t *to, rs_crc32_kernel kernel)
{
    const size_t size = rs_record_size(message);
    const size_t topic_size = message->topic.size;
    const bool record_crc = message->record_crc;
    rs_record_lay(message, size, to, kernel);
    if (record_crc)
        rs_record_seal(to, size, topic_size, kernel);
    return size;
}

void rs_record_publish(uint8_t *record, size_t topic_size)
{
    __atomic_thread_fence(__ATOMIC_RELEASE);
    rs_store32(record + RS_AT_MAGIC, rs_magic_for(topic_size));
}

/* Everything after the magic; the reader ends where the record does. */
static rs_status rs_decode_fields(rs_reader *r, rs_record *record)
{
    const uint8_t *head = rs_take(r, RS_AT_BORN_HOST);
    if (!head)
        return RS_BAD_LENGTH;
    const uint32_t sys_flag = (uint32_t)rs_read_once(rs_load32(head + RS_AT_SYS_FLAG));
    const size_t born_host_size = rs_host_size(sys_flag & RS_FLAG_BORN_HOST_V6);
    const size_t store_host_size = rs_host_size(sys_flag & RS_FLAG_STORE_HOST_V6);
    const size_t store_at = born_host_size + RS_AFTER_BORN_STORE_HOST + store_host_size;
    const uint8_t *born = rs_take(r, store_at + RS_AFTER_STORE_BODY);
    if (!born)
        return RS_BAD_LENGTH;
    const uint8_t *after_born = born + born_host_size, *after_store = born + store_at;
    record->body_crc = rs_load32(head + RS_AT_BODY_CRC);
    record->queue_id = rs_load32s(head + RS_AT_QUEUE_ID);
    record->flag = rs_load32s(head + RS_AT_FLAG);
    record->sys_flag = sys_flag;
    record->queue_offset = rs_load64s(head + RS_AT_QUEUE_OFFSET);
    record->physical_offset = rs_load64s(head + RS_AT_PHYSICAL_OFFSET);
    record->born_timestamp_ms = rs_load64s(head + RS_AT_BORN_TIMESTAMP);
    record->store_timestamp_ms = rs_load64s(after_born + RS_AFTER_BORN_STORE_TIMESTAMP);
    record->reconsume_times = rs_load32s(after_store + RS_AFTER_STORE_RECONSUME_TIMES);
    record->prepared_transaction_offset = rs_load64s(after_store + RS_AFTER_STORE_PREPARED_OFFSET);
    uint64_t body_size = rs_read_once(rs_load32(after_store + RS_AFTER_STORE_BODY_LENGTH));
    record->body = rs_take_span(r, body_size); /* a negative length is beyond any record */
    bool v2 = record->magic == RS_MAGIC_V2;
    uint16_t topic_size = v2 ? rs_take16(r) : rs_take8(r);
    if (r->failed)
        return RS_BAD_LENGTH;
    /* RocketMQ writes a V1 record of up to 255 bytes, whose length Java then reads as a negative one. */
    if (topic_size == 0 || topic_size > RS_TOPIC_MAX_V2_READ)
        return RS_BAD_TOPIC;
    record->topic = rs_take_span(r, topic_size);
    uint16_t properties_size = rs_take16(r);
    if (r->failed)
        return RS_BAD_LENGTH;
    record->properties = rs_take_span(r, properties_size);
    if (r->failed || properties_size > RS_PROPERTIES_MAX)
        return RS_BAD_PROPERTIES;
    return rs_left(r) ? RS_BAD_LENGTH : RS_OK;
}

rs_status rs_record_decode(const uint8_t *at, size_t left, rs_record *record)
{
    if (left < RS_BLANK_SIZE_MIN)
        return RS_BAD_TRUNCATED;
    /* The magic first: a writer stores it last, after a release fence. */
    uint32_t magic = (uint32_t)rs_read_once(rs_load32(at + RS_AT_MAGIC));
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    uint32_t size = (uint32_t)rs_read_once(rs_load32(at + RS_AT_TOTAL_SIZE));
    record->start = at;
    record->size = size;
    record->magic = magic;
    if (magic == RS_MAGIC_BLANK)
        return RS_BLANK;
    if (magic == 0 && size == 0)
        return RS_NOTHING;
    if (magic != RS_MAGIC_V1 && magic != RS_MAGIC_V2)
        return RS_BAD_MAGIC;
    if (size < RS_RECORD_SIZE_MIN || size > INT32_MAX)
        return RS_BAD_LENGTH;
    if (size > left)
        return RS_BAD_TRUNCATED;
    rs_reader reader = rs_reader_over(at, size);
    return rs_decode_fields(&reader, record);
}

/* Ten digits as rs_put_record_crc writes them, the last one first; UINT32_MAX when they are no number. Eight
 * at a time: the lowest byte of `eight` is the first of them, which neighbours join by pairs, fours and all. */
static uint32_t rs_read_digits(const uint8_t *digits)
{
    static_assert(RS_RECORD_CRC_DIGITS == 10, "eight and two");
    const uint64_t ascii = rs_load64(digits), eight = ascii - 0x3030303030303030u;
    const unsigned ninth = digits[8] - (unsigned)'0', first = digits[9] - (unsigned)'0';
    /* Above '9' 0x46 more sets the top bit of a byte; below '0' the difference has it, or a carry's. */
    if (((ascii + 0x4646464646464646u) | eight) & 0x8080808080808080u || ninth > 9 || first > 9)
        return UINT32_MAX;
    const uint64_t pairs = 10 * eight + (eight >> 8); /* in bytes 0, 2, 4 and 6 */
    const uint64_t mask = 0x000000FF000000FFu;
    const uint64_t low = (pairs & mask) * (1000000u * (1ull << 32) + 100);
    const uint64_t high = (pairs >> 16 & mask) * (10000u * (1ull << 32) + 1);
    const uint64_t number = (low + high) >> 32;
    const uint64_t all = (uint32_t)number + 100000000ull * ninth + 1000000000ull * first;
    return all > UINT32_MAX ? UINT32_MAX : (uint32_t)all;
}

bool rs_record_crc_find(const rs_record *record, uint32_t *crc)
{
    rs_span properties = record->properties;
    if (properties.size < RS_RECORD_CRC_SIZE)
        return false;
    const uint8_t *at = properties.bytes + properties.size - RS_RECORD_CRC_SIZE;
    const uint8_t *digits = at + RS_RECORD_CRC_AT_DIGITS;
    if (memcmp(at, RS_RECORD_CRC_NAME "\x01", RS_RECORD_CRC_AT_DIGITS) != 0 ||
        digits[RS_RECORD_CRC_DIGITS] != RS_PROPERTY_SEPARATOR)
        return false;
    *crc = rs_read_digits(digits);
    return true;
}

/* Whether the properties end in the right record CRC whose name or separator does not hold. Without
 * this a change of one of these bytes would make the protection a property of the sender's. */
static bool rs_record_crc_defaced(const rs_record *record, rs_crc32_kernel kernel)
{
    if (record->properties.size < RS_RECORD_CRC_SIZE)
        return false;
    const size_t checked = record->size - RS_RECORD_CRC_SIZE;
    uint32_t stored = rs_read_digits(record->start + checked + RS_RECORD_CRC_AT_DIGITS);
    return stored <= INT32_MAX && rs_crc31(kernel, record->start, checked) == stored;
}

bool rs_record_crc_blotted(const rs_record *record)
{
    static const char form[] = RS_RECORD_CRC_NAME "\x01" "0000000000" "\x02";
    static_assert(sizeof form - 1 == RS_RECORD_CRC_SIZE, "all of a record CRC");
    if (record->properties.size < RS_RECORD_CRC_SIZE)
        return false;
    const uint8_t *at = record->start + record->size - RS_RECORD_CRC_SIZE;
    bool zeros = false;
    for (size_t i = 0; i < RS_RECORD_CRC_SIZE; i++) {
        zeros |= at[i] == 0;
        if (at[i] && at[i] != (uint8_t)form[i] && !(form[i] == '0' && at[i] >= '0' && at[i] <= '9'))
            return false;
    }
    return zeros;
}

rs_status rs_record_verify(const rs_record *record, int64_t physical_offset, unsigned what,
                           rs_crc32_kernel kernel)
{
    uint32_t stored;
    if (physical_offset >= 0 && record->physical_offset != physical_offset)
        return RS_BAD_PHYSICAL_OFFSET;
    if ((what & RS_VERIFY_BODY_CRC) && record->body.size &&
        rs_crc31(kernel, record->body.bytes, record->body.size) != record->body_crc)
        return RS_BAD_BODY_CRC;
    if (!(what & RS_VERIFY_RECORD_CRC))
        return RS_OK;
    if (!rs_record_crc_find(record, &stored))
        return rs_record_crc_defaced(record, kernel) ? RS_BAD_RECORD_CRC
               : rs_record_crc_blotted(record) ? RS_BAD_PROPERTIES : RS_OK;
    if (rs_crc31(kernel, record->start, record->size - RS_RECORD_CRC_SIZE) != stored)
        return RS_BAD_RECORD_CRC;
    return RS_OK;
}
