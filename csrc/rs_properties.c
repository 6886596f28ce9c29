#include "rs_properties.h"
#include "rs_cursor.h"
#include "rs_format.h"

/* U+FFFD, what Java's decoder puts where bytes are not UTF-8. */
#define REPLACEMENT 0xFFFDu

/* A one in the top bit of the lowest byte of `word` that is zero; higher bits may be wrong. */
static inline uint64_t zero_bytes(uint64_t word)
{
    return (word - 0x0101010101010101u) & ~word & 0x8080808080808080u;
}

static inline uint64_t load_first_lowest64(const uint8_t *from)
{
    return __builtin_bswap64(rs_load64(from));
}

/* The first byte 01 or 02 (`either`), or the first 02, in [at, end); `end` when there is none. Eight
 * bytes a step: every indexed or tagged record is walked this way by the dispatcher. */
static const uint8_t *find_separator(const uint8_t *at, const uint8_t *end, bool either)
{
    for (; end - at >= 8; at += 8) {
        uint64_t word = load_first_lowest64(at);
        uint64_t found = zero_bytes(word ^ 0x0202020202020202u);
        if (either)
            found |= zero_bytes(word ^ 0x0101010101010101u);
        if (found)
            return at + __builtin_ctzll(found) / 8;
    }
    while (at < end && *at != RS_PROPERTY_SEPARATOR && !(either && *at == RS_NAME_VALUE_SEPARATOR))
        at++;
    return at;
}

/* Whether the text ends in a piece that is a record CRC: no other piece is inside of it, or reaches into it. */
static bool ends_in_record_crc(rs_span text)
{
    static_assert(RS_RECORD_CRC_DIGITS == 10, "eight and two");
    if (text.size < RS_RECORD_CRC_SIZE)
        return false;
    const uint8_t *at = text.bytes + text.size - RS_RECORD_CRC_SIZE;
    const uint8_t *digits = at + RS_RECORD_CRC_AT_DIGITS;
    return memcmp(at, RS_RECORD_CRC_NAME "\x01", RS_RECORD_CRC_AT_DIGITS) == 0 &&
           (rs_load64(digits) & 0xF0F0F0F0F0F0F0F0u) == 0x3030303030303030u &&
           (rs_load16(digits + 8) & 0xF0F0) == 0x3030 &&
           digits[RS_RECORD_CRC_DIGITS] == RS_PROPERTY_SEPARATOR &&
           (at == text.bytes || at[-1] == RS_PROPERTY_SEPARATOR);
}

rs_property_walk rs_properties_walk_sent(rs_span text)
{
    if (ends_in_record_crc(text))
        text.size -= RS_RECORD_CRC_SIZE;
    return rs_properties_walk(text);
}

bool rs_property_next(rs_property_walk *walk, rs_span *name, rs_span *value)
{
    while (walk->at < walk->end) {
        const uint8_t *start = walk->at;
        const uint8_t *split = find_separator(start, walk->end, true);
        if (split == walk->end || *split == RS_PROPERTY_SEPARATOR) {
            walk->at = split < walk->end ? split + 1 : walk->end; /* a piece without 01 */
            continue;
        }
        const uint8_t *stop = find_separator(split + 1, walk->end, false);
        walk->at = stop < walk->end ? stop + 1 : walk->end;
        if (split == start || stop == split + 1)
            continue;
        *name = (rs_span){start, (size_t)(split - start)};
        *value = (rs_span){split + 1, (size_t)(stop - split - 1)};
        return true;
    }
    return false;
}

bool rs_property_find(rs_span text, const char *name, size_t name_size, rs_span *value)
{
    rs_property_walk walk = rs_properties_walk(text);
    rs_span piece_name, piece_value;
    bool found = false;
    while (rs_property_next(&walk, &piece_name, &piece_value)) {
        if (piece_name.size == name_size && memcmp(piece_name.bytes, name, name_size) == 0) {
            *value = piece_value;
            found = true;
        }
    }
    return found;
}

static bool is_record_crc(rs_span name)
{
    return name.size == sizeof RS_RECORD_CRC_NAME - 1 &&
           memcmp(name.bytes, RS_RECORD_CRC_NAME, name.size) == 0;
}

/* Some order of names, in which only equal ones are 0 apart. */
static int compare(rs_span a, rs_span b)
{
    if (a.size != b.size)
        return a.size < b.size ? -1 : 1;
    return memcmp(a.bytes, b.bytes, a.size);
}

/* Names of a text are compared each with each up to here: that is fastest, and most texts have fewer. */
#define FEW_PAIRS 32

static size_t unite_few(rs_pair *pairs, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        size_t first = 0;
        while (first < kept && compare(pairs[first].name, pairs[i].name) != 0)
            first++;
        if (first < kept)
            pairs[first].value = pairs[i].value;
        else
            pairs[kept++] = pairs[i];
    }
    return kept;
}

/* Numbers of pairs by their names, equal ones in the order of the text: in `order` or `spare`. */
static const uint16_t *sorted(const rs_pair *pairs, size_t count, uint16_t *order, uint16_t *spare)
{
    for (size_t i = 0; i < count; i++)
        order[i] = (uint16_t)i;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t begin = 0; begin < count; begin += 2 * width) {
            const size_t middle = count - begin > width ? begin + width : count;
            const size_t end = count - begin > 2 * width ? begin + 2 * width : count;
            size_t left = begin, right = middle;
            for (size_t at = begin; at < end; at++) {
                bool from_left =
                    right == end || (left < middle && compare(pairs[order[left]].name,
                                                              pairs[order[right]].name) <= 0);
                spare[at] = order[from_left ? left++ : right++];
            }
        }
        uint16_t *merged = spare;
        spare = order;
        order = merged;
    }
    return order;
}

/* The same as unite_few in n log n steps: a sender chooses names, also those of 8,192 pieces. */
static size_t unite_many(rs_pair *pairs, size_t count)
{
    uint16_t order[RS_PAIRS_MAX], spare[RS_PAIRS_MAX];
    const uint16_t *by_name = sorted(pairs, count, order, spare);
    size_t kept = 0;
    for (size_t at = 0; at < count;) {
        rs_pair *first = &pairs[by_name[at++]];
        while (at < count && compare(first->name, pairs[by_name[at]].name) == 0) {
            rs_pair *again = &pairs[by_name[at++]];
            first->value = again->value;
            again->name.size = 0; /* no name is empty: this one goes */
        }
    }
    for (size_t i = 0; i < count; i++)
        if (pairs[i].name.size)
            pairs[kept++] = pairs[i];
    return kept;
}

size_t rs_property_pairs(rs_span text, rs_pair *pairs)
{
    rs_property_walk walk = rs_properties_walk_sent(text);
    rs_pair pair;
    size_t count = 0;
    while (count < RS_PAIRS_MAX && rs_property_next(&walk, &pair.name, &pair.value))
        if (!is_record_crc(pair.name))
            pairs[count++] = pair;
    return count <= FEW_PAIRS ? unite_few(pairs, count) : unite_many(pairs, count);
}

rs_status rs_property_check(rs_span name, rs_span value)
{
    if (name.size == 0 || value.size == 0)
        return RS_PROPERTY_ILLEGAL;
    const uint8_t *name_end = name.bytes + name.size, *value_end = value.bytes + value.size;
    if (find_separator(name.bytes, name_end, true) != name_end ||
        find_separator(value.bytes, value_end, true) != value_end)
        return RS_PROPERTY_ILLEGAL;
    return RS_OK;
}

static inline uint32_t hash_unit(uint32_t hash, uint32_t unit)
{
    return 31 * hash + unit;
}

/* Continuation byte number `index` after the lead byte; 0 (no continuation byte) beyond the end. */
static inline uint8_t peek(const rs_reader *r, size_t index)
{
    return rs_left(r) > index ? r->at[index] : 0;
}

static inline bool continues(uint8_t byte)
{
    return (byte & 0xC0) == 0x80;
}

static uint32_t hash_two(uint32_t hash, uint8_t lead, rs_reader *r)
{
    uint8_t second = peek(r, 0);
    if (!continues(second))
        return hash_unit(hash, REPLACEMENT);
    rs_take(r, 1);
    return hash_unit(hash, (lead & 0x1Fu) << 6 | (second & 0x3Fu));
}

static uint32_t hash_three(uint32_t hash, uint8_t lead, rs_reader *r)
{
    uint8_t second = peek(r, 0), third = peek(r, 1);
    if (!continues(second) || (lead == 0xE0 && second < 0xA0))
        return hash_unit(hash, REPLACEMENT);
    rs_take(r, 1);
    if (!continues(third))
        return hash_unit(hash, REPLACEMENT);
    rs_take(r, 1);
    uint32_t unit = (lead & 0xFu) << 12 | (second & 0x3Fu) << 6 | (third & 0x3Fu);
    bool surrogate = (unit & 0xF800) == 0xD800;
    return hash_unit(hash, surrogate ? REPLACEMENT : unit);
}

static uint32_t hash_four(uint32_t hash, uint8_t lead, rs_reader *r)
{
    uint8_t second = peek(r, 0), third = peek(r, 1), fourth = peek(r, 2);
    if (lead > 0xF4 || !continues(second) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F))
        return hash_unit(hash, REPLACEMENT);
    rs_take(r, 1);
    if (!continues(third))
        return hash_unit(hash, REPLACEMENT);
    rs_take(r, 1);
    if (!continues(fourth))
        return hash_unit(hash, REPLACEMENT);
    rs_take(r, 1);
    uint32_t above = ((lead & 7u) << 18 | (second & 0x3Fu) << 12 | (third & 0x3Fu) << 6 |
                      (fourth & 0x3Fu)) - 0x10000;
    return hash_unit(hash_unit(hash, 0xD800 + (above >> 10)), 0xDC00 + (above & 0x3FF));
}

/* Eight ASCII characters: the powers of 31 do not wait for each other as eight steps would. */
static inline uint32_t hash_eight(uint32_t hash, const uint8_t *c)
{
    return hash * 0x94446F01u + c[0] * 0x67E12CDFu + c[1] * 887503681u + c[2] * 28629151u +
           c[3] * 923521u + c[4] * 29791u + c[5] * 961u + c[6] * 31u + c[7];
}

int32_t rs_java_hash_continue(int32_t hash, rs_span utf8)
{
    rs_reader r = rs_reader_over(utf8.bytes, utf8.size);
    uint32_t h = (uint32_t)hash;
    while (rs_left(&r)) {
        while (rs_left(&r) >= 8 && !(rs_load64(r.at) & 0x8080808080808080u)) {
            h = hash_eight(h, r.at);
            rs_take(&r, 8);
        }
        if (!rs_left(&r))
            break;
        uint8_t lead = rs_take8(&r);
        if (lead < 0x80)
            h = hash_unit(h, lead);
        else if (lead >= 0xC2 && lead < 0xE0)
            h = hash_two(h, lead, &r);
        else if (lead >= 0xE0 && lead < 0xF0)
            h = hash_three(h, lead, &r);
        else if (lead >= 0xF0 && lead < 0xF8)
            h = hash_four(h, lead, &r);
        else
            h = hash_unit(h, REPLACEMENT);
    }
    return (int32_t)h;
}

int32_t rs_java_hash(rs_span utf8)
{
    return rs_java_hash_continue(0, utf8);
}

/* How many continuation bytes follow `at`, `most` at most. */
static size_t continuations(const uint8_t *at, size_t left, size_t most)
{
    size_t count = 0;
    while (count < most && count < left && continues(at[count]))
        count++;
    return count;
}

/* Bytes of the next character of a text that is not empty, or of what Java replaces by one mark. */
static size_t character(rs_span text, bool *whole)
{
    uint8_t lead = text.bytes[0];
    uint8_t second = text.size > 1 ? text.bytes[1] : 0;
    size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4)
        size = 0;
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F))
        size = 0;
    *whole = false;
    if (size == 0)
        return 1;
    size_t found = 1 + continuations(text.bytes + 1, text.size - 1, size - 1);
    *whole = found == size && !(lead == 0xED && second >= 0xA0);
    return found;
}

bool rs_java_shown_as(rs_span raw, rs_span shown)
{
    static const uint8_t mark[3] = {0xEF, 0xBF, 0xBD};
    while (raw.size) {
        bool whole;
        size_t size = character(raw, &whole), shown_size = whole ? size : sizeof mark;
        const uint8_t *wanted = whole ? raw.bytes : mark;
        if (shown.size < shown_size || memcmp(shown.bytes, wanted, shown_size) != 0)
            return false;
        raw.bytes += size;
        raw.size -= size;
        shown.bytes += shown_size;
        shown.size -= shown_size;
    }
    return shown.size == 0;
}

int64_t rs_tags_code(rs_span tags)
{
    return rs_java_hash(tags);
}

bool rs_parse_decimal(rs_span text, int64_t *value)
{
    const uint8_t *at = text.bytes, *end = at ? at + text.size : at;
    bool negative = at < end && *at == '-';
    if (negative)
        at++;
    if (at == end)
        return false;
    int64_t number = 0; /* kept negative: that side has the larger range */
    for (; at < end; at++) {
        unsigned digit = *at - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(number, 10, &number) ||
            __builtin_sub_overflow(number, (int64_t)digit, &number))
            return false;
    }
    if (!negative && number == INT64_MIN)
        return false;
    *value = negative ? number : -number;
    return true;
}
