/* Any bytes as an index file of a small shape: look-ups end and stay inside, a shape that is deduced
 * fits, what is cut is valid from then on, and what is put is found. */
#include "fuzz.h"
#include "rs_index_file.h"

static void check_hits(const uint8_t *base, uint32_t slots, uint32_t entries, uint32_t hash)
{
    rs_index_hit hit;
    rs_index_walk walk;
    size_t steps = 0;
    rs_index_walk_start(&walk, base, slots, entries, hash, INT64_MIN, INT64_MAX);
    while (rs_index_walk_next(&walk, &hit)) {
        CHECK(hit.physical_offset >= 0);
        CHECK(++steps < entries); /* each step goes to a smaller number */
    }
    CHECK(steps == 0 || rs_index_may_have(base, slots, entries, hash, 1 + hash % 64));
    bool sane = rs_index_validate(base, slots, entries, false) == RS_OK;
    CHECK(!sane || steps > 0 || !rs_index_may_have(base, slots, entries, hash, entries));
    rs_index_walk_start(&walk, base, slots, entries, hash, rs_load64s(base), rs_load64s(base + 8));
    for (size_t more = 0; rs_index_walk_next(&walk, &hit); more++)
        CHECK(more < steps);
}

static void check_deduced(const uint8_t *base, uint64_t size)
{
    uint32_t slots = 0, entries = 0;
    if (rs_index_deduce(base, size, &slots, &entries) != RS_OK)
        return;
    CHECK(slots >= 1 && entries >= 1 && rs_index_file_size(slots, entries) == size);
    CHECK(rs_index_plausible(base, slots, entries));
}

static void check_put(uint8_t *base, uint32_t slots, uint32_t entries, uint32_t hash)
{
    rs_index_header header;
    rs_index_hit hit;
    CHECK(rs_index_header_load(base, entries, &header) == RS_OK);
    int64_t offset = header.index_count > 1 ? header.end_offset : 0;
    rs_status status = rs_index_put(base, slots, entries, hash, offset, 1700000000000);
    CHECK((status == RS_FULL) == (header.index_count >= entries));
    if (status != RS_OK)
        return;
    CHECK(rs_index_validate(base, slots, entries, false) == RS_OK);
    rs_index_walk walk;
    rs_index_walk_start(&walk, base, slots, entries, hash, INT64_MIN, INT64_MAX);
    CHECK(rs_index_walk_next(&walk, &hit));
    CHECK(hit.physical_offset == offset);
}

static void check_cut(uint8_t *base, uint32_t slots, uint32_t entries, int64_t from, uint32_t hash)
{
    rs_index_header header;
    uint32_t next = rs_index_cut(base, slots, entries, from);
    CHECK(next >= 1 && next <= entries);
    CHECK(rs_index_validate(base, slots, entries, false) == RS_OK);
    CHECK(rs_index_plausible(base, slots, entries));
    CHECK(rs_index_header_load(base, entries, &header) == RS_OK && header.index_count == next);
    CHECK(next == 1 || header.end_offset < from);
    CHECK(rs_index_cut(base, slots, entries, from) == next); /* once more changes nothing */
    check_hits(base, slots, entries, hash);
    check_put(base, slots, entries, hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rs_index_header header;
    if (size < 4)
        return 0;
    uint32_t slots = 1 + data[0] % 16, entries = 2 + data[1] % 64;
    uint64_t file = rs_index_file_size(slots, entries);
    uint8_t *base = calloc(1, file);
    CHECK(base);
    memcpy(base, data + 2, size - 2 < file ? size - 2 : file);
    rs_status status = rs_index_header_load(base, entries, &header);
    CHECK(header.index_count >= 1 && header.index_count <= entries);
    bool valid = rs_index_validate(base, slots, entries, false) == RS_OK;
    CHECK(!valid || status == RS_OK);
    bool growing = rs_index_validate(base, slots, entries, true) == RS_OK;
    CHECK(growing || !valid);
    uint32_t hash = entries > 1 ? rs_load32(base + rs_index_entry_at(slots, 1)) & 0x7FFFFFFF : 0;
    check_hits(base, slots, entries, hash);
    check_hits(base, slots, entries, rs_index_key_hash((rs_span){data, 2}, (rs_span){data + 2, 2}));
    check_deduced(base, file);
    const uint8_t *middle = base + rs_index_entry_at(slots, entries / 2);
    check_cut(base, slots, entries, rs_load64s(middle + RS_ENTRY_AT_PHYSICAL_OFFSET), hash);
    free(base);
    return 0;
}
