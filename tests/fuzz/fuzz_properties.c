/* Any bytes as a property text: pieces lie inside it and are well formed, the last one of a name wins,
 * hashes can be taken in parts, numbers are read exactly or not at all. */
#include "fuzz.h"
#include "rs_properties.h"

static bool holds(rs_span span, uint8_t byte)
{
    for (size_t i = 0; i < span.size; i++)
        if (span.bytes[i] == byte)
            return true;
    return false;
}

/* The last piece of that name, by the rules of format.md 2.6 and nothing cleverer. */
static bool find_plainly(const uint8_t *data, size_t size, rs_span name, rs_span *value)
{
    bool found = false;
    size_t start = 0;
    while (start < size) {
        size_t end = start, split;
        while (end < size && data[end] != 2)
            end++;
        split = start;
        while (split < end && data[split] != 1)
            split++;
        if (split < end && split - start == name.size && end > split + 1 &&
            memcmp(data + start, name.bytes, name.size) == 0) {
            *value = (rs_span){data + split + 1, end - split - 1};
            found = true;
        }
        start = end + 1;
    }
    return found;
}

static void check_walk(const uint8_t *data, size_t size)
{
    rs_span text = {data, size}, name, value, last, plain;
    rs_property_walk walk = rs_properties_walk(text);
    const uint8_t *before = data;
    while (rs_property_next(&walk, &name, &value)) {
        CHECK(name.size > 0 && value.size > 0 && name.bytes >= before);
        CHECK(value.bytes == name.bytes + name.size + 1 && value.bytes[-1] == 1);
        CHECK(value.bytes + value.size <= data + size && walk.at <= data + size);
        CHECK(!holds(name, 1) && !holds(name, 2) && !holds(value, 2));
        CHECK((rs_property_check(name, value) == RS_OK) == !holds(value, 1));
        before = value.bytes + value.size;
        CHECK(rs_property_find(text, (const char *)name.bytes, name.size, &last));
        CHECK(find_plainly(data, size, name, &plain));
        CHECK(last.bytes == plain.bytes && last.size == plain.size);
    }
    CHECK(!rs_property_next(&walk, &name, &value));
}

/* All pieces that another walk finds, but for a record CRC at the end. */
static void check_sent(const uint8_t *data, size_t size)
{
    rs_span text = {data, size}, name, value, sent_name, sent_value;
    rs_property_walk walk = rs_properties_walk(text), sent = rs_properties_walk_sent(text);
    while (rs_property_next(&sent, &sent_name, &sent_value)) {
        CHECK(rs_property_next(&walk, &name, &value));
        CHECK(name.bytes == sent_name.bytes && name.size == sent_name.size);
        CHECK(value.bytes == sent_value.bytes && value.size == sent_value.size);
    }
    if (rs_property_next(&walk, &name, &value)) {
        CHECK(name.size == 8 && memcmp(name.bytes, "__CRC32#", 8) == 0);
        CHECK(value.size == 10 && value.bytes + 11 == data + size);
        CHECK(!rs_property_next(&walk, &name, &value));
    }
}

/* Each name once, in the order of their first pieces and with the value of its last. */
static void check_pairs(const uint8_t *data, size_t size)
{
    static rs_pair pairs[RS_PAIRS_MAX];
    rs_span text = {data, size}, name, value, last;
    if (size > RS_PROPERTIES_MAX)
        return;
    size_t count = rs_property_pairs(text, pairs), next = 0;
    rs_property_walk walk = rs_properties_walk(text);
    while (rs_property_next(&walk, &name, &value)) {
        size_t at = 0;
        while (at < next && (pairs[at].name.size != name.size ||
                             memcmp(pairs[at].name.bytes, name.bytes, name.size) != 0))
            at++;
        if (at < next || (name.size == 8 && memcmp(name.bytes, "__CRC32#", 8) == 0))
            continue;
        CHECK(next < count && pairs[next].name.bytes == name.bytes);
        CHECK(pairs[next].name.size == name.size);
        CHECK(rs_property_find(text, (const char *)name.bytes, name.size, &last));
        CHECK(pairs[next].value.bytes == last.bytes && pairs[next].value.size == last.size);
        next++;
    }
    CHECK(next == count);
}

static void check_hash(const uint8_t *data, size_t size)
{
    rs_span text = {data, size};
    int32_t whole = rs_java_hash(text);
    CHECK(rs_tags_code(text) == whole);
    /* In parts, split in front of an ASCII character: no character is torn there. */
    for (size_t cut = 0; cut < size && cut < 64; cut++) {
        if (data[cut] >= 0x80)
            continue;
        int32_t first = rs_java_hash((rs_span){data, cut});
        CHECK(rs_java_hash_continue(first, (rs_span){data + cut, size - cut}) == whole);
    }
}

static void check_decimal(const uint8_t *data, size_t size)
{
    char plain[32];
    int64_t value;
    if (!rs_parse_decimal((rs_span){data, size}, &value) || size > 20)
        return;
    if (data[0] == '-' && value == 0)
        return; /* "-0" */
    size_t printed = (size_t)snprintf(plain, sizeof plain, "%lld", (long long)value);
    CHECK(printed <= size);
    size_t zeros = size - printed, sign = value < 0;
    CHECK(memcmp(data + sign + zeros, plain + sign, printed - sign) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_walk(data, size);
    check_sent(data, size);
    check_pairs(data, size);
    check_hash(data, size);
    check_decimal(data, size);
    return 0;
}
