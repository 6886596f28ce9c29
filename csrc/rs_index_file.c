#include "rs_index_file.h"

#include "rs_cursor.h"
#include "rs_properties.h"

/* What readers follow while the writer works. It is aligned: header, slots and entries are multiples of 4
 * bytes, the bounds in the header of 8. */
static uint32_t load_shared(const uint8_t *from)
{
    uint32_t value = __atomic_load_n((const uint32_t *)(const void *)from, __ATOMIC_ACQUIRE);
    return rs_load32((const uint8_t *)&value);
}

static void store_shared(uint8_t *to, uint32_t value)
{
    uint32_t encoded;
    rs_store32((uint8_t *)&encoded, value);
    __atomic_store_n((uint32_t *)(void *)to, encoded, __ATOMIC_RELEASE);
}

/* Whole, in no order of their own: the slot that publishes an entry publishes the bound that dates it, too. */
static int64_t load_bound(const uint8_t *from)
{
    uint64_t value = __atomic_load_n((const uint64_t *)(const void *)from, __ATOMIC_RELAXED);
    return rs_load64s((const uint8_t *)&value);
}

static void store_bound(uint8_t *to, int64_t value)
{
    uint64_t encoded;
    rs_store64s((uint8_t *)&encoded, value);
    __atomic_store_n((uint64_t *)(void *)to, encoded, __ATOMIC_RELAXED);
}

static uint64_t slot_at(uint32_t slot)
{
    return RS_INDEX_HEADER_SIZE + (uint64_t)slot * RS_INDEX_SLOT_SIZE;
}

/* Number of the next entry: 1 … entries, whatever is on disk. */
static uint32_t next_number(const uint8_t *base, uint32_t entries)
{
    uint32_t count = load_shared(base + RS_INDEX_AT_INDEX_COUNT);
    if (count == 0 || count > RS_INDEX_ENTRIES_MAX)
        return 1;
    return count < entries ? count : entries;
}

uint32_t rs_index_hash(rs_span topic, rs_span separator, rs_span text)
{
    int32_t hash = rs_java_hash(topic);
    hash = rs_java_hash_continue(hash, separator);
    hash = rs_java_hash_continue(hash, text);
    if (hash == INT32_MIN)
        return 0;
    return hash < 0 ? (uint32_t)-hash : (uint32_t)hash;
}

void rs_index_header_init(uint8_t *base, int64_t previous_end_timestamp_ms,
                          int64_t previous_end_offset)
{
    int64_t timestamp_ms = previous_end_timestamp_ms > 0 ? previous_end_timestamp_ms : 0;
    int64_t offset = previous_end_offset > 0 ? previous_end_offset : 0;
    store_bound(base + RS_INDEX_AT_BEGIN_TIMESTAMP, timestamp_ms);
    store_bound(base + RS_INDEX_AT_END_TIMESTAMP, timestamp_ms);
    store_bound(base + RS_INDEX_AT_BEGIN_OFFSET, offset);
    store_bound(base + RS_INDEX_AT_END_OFFSET, offset);
    rs_store32(base + RS_INDEX_AT_SLOT_COUNT, 0);
    rs_store32(base + RS_INDEX_AT_INDEX_COUNT, 1);
}

rs_status rs_index_header_load(const uint8_t *base, uint32_t entries, rs_index_header *header)
{
    int32_t count = (int32_t)load_shared(base + RS_INDEX_AT_INDEX_COUNT);
    header->begin_timestamp_ms = load_bound(base + RS_INDEX_AT_BEGIN_TIMESTAMP);
    header->end_timestamp_ms = load_bound(base + RS_INDEX_AT_END_TIMESTAMP);
    header->begin_offset = load_bound(base + RS_INDEX_AT_BEGIN_OFFSET);
    header->end_offset = load_bound(base + RS_INDEX_AT_END_OFFSET);
    header->slot_count = (int32_t)load_shared(base + RS_INDEX_AT_SLOT_COUNT);
    header->index_count = next_number(base, entries);
    return count > 0 && (uint32_t)count > entries ? RS_BAD_UNIT : RS_OK;
}

void rs_index_entry_load(const uint8_t *base, uint32_t slots, uint32_t number,
                         rs_index_entry *entry)
{
    const uint8_t *at = base + rs_index_entry_at(slots, number);
    entry->key_hash = (int32_t)rs_read_once(rs_load32(at + RS_ENTRY_AT_KEY_HASH));
    entry->physical_offset = (int64_t)rs_read_once(rs_load64(at + RS_ENTRY_AT_PHYSICAL_OFFSET));
    entry->time_diff_s = (int32_t)rs_read_once(rs_load32(at + RS_ENTRY_AT_TIME_DIFF));
    entry->previous = (int32_t)rs_read_once(rs_load32(at + RS_ENTRY_AT_PREVIOUS));
}

static int32_t time_diff_s(int64_t begin_ms, int64_t store_timestamp_ms)
{
    if (begin_ms <= 0 || store_timestamp_ms <= begin_ms)
        return 0;
    int64_t seconds = (store_timestamp_ms - begin_ms) / 1000; /* both positive: cannot overflow */
    return seconds > RS_INDEX_TIME_DIFF_MAX ? RS_INDEX_TIME_DIFF_MAX : (int32_t)seconds;
}

/* What entry `number` has to name as the one before it, given its slot's value. */
static uint32_t previous_number(const uint8_t *base, uint32_t slots, uint32_t slot, uint32_t value,
                                uint32_t number)
{
    if (value >= 1 && value < number)
        return value;
    if (value == number) {
        /* A writer died between slot and header: what it found before it is in the entry itself. */
        rs_index_entry entry;
        rs_index_entry_load(base, slots, number, &entry);
        if (entry.key_hash >= 0 && (uint32_t)entry.key_hash % slots == slot && entry.previous > 0 &&
            (uint32_t)entry.previous < number)
            return (uint32_t)entry.previous;
    }
    return 0;
}

rs_status rs_index_put(uint8_t *base, uint32_t slots, uint32_t entries, uint32_t key_hash,
                       int64_t physical_offset, int64_t store_timestamp_ms)
{
    uint32_t number = load_shared(base + RS_INDEX_AT_INDEX_COUNT);
    if (number == 0 || number > RS_INDEX_ENTRIES_MAX)
        number = 1;
    if (number >= entries)
        return RS_FULL;
    uint32_t slot = key_hash % slots;
    uint8_t *head = base + slot_at(slot);
    uint32_t previous = previous_number(base, slots, slot, load_shared(head), number);
    int64_t begin_ms = load_bound(base + RS_INDEX_AT_BEGIN_TIMESTAMP);

    uint8_t *entry = base + rs_index_entry_at(slots, number);
    rs_store32(entry + RS_ENTRY_AT_KEY_HASH, key_hash);
    rs_store64s(entry + RS_ENTRY_AT_PHYSICAL_OFFSET, physical_offset);
    rs_store32s(entry + RS_ENTRY_AT_TIME_DIFF, time_diff_s(begin_ms, store_timestamp_ms));
    rs_store32(entry + RS_ENTRY_AT_PREVIOUS, previous);
    if (number == 1) { /* before the entry can be found: a reader dates it from here */
        store_bound(base + RS_INDEX_AT_BEGIN_OFFSET, physical_offset);
        store_bound(base + RS_INDEX_AT_BEGIN_TIMESTAMP, store_timestamp_ms);
    }
    store_shared(head, number);
    if (previous == 0)
        store_shared(base + RS_INDEX_AT_SLOT_COUNT,
                     load_shared(base + RS_INDEX_AT_SLOT_COUNT) + 1);
    store_shared(base + RS_INDEX_AT_INDEX_COUNT, number + 1);
    /* Last: RocketMQ skips what lies below the end offset as already indexed. */
    store_bound(base + RS_INDEX_AT_END_TIMESTAMP, store_timestamp_ms);
    store_bound(base + RS_INDEX_AT_END_OFFSET, physical_offset);
    return RS_OK;
}

void rs_index_walk_start(rs_index_walk *walk, const uint8_t *base, uint32_t slots, uint32_t entries,
                         uint32_t key_hash, int64_t begin_ms, int64_t end_ms)
{
    /* Slot first, count second. The writer stores in the same order, so at the worst the slot
     * names the entry that the count comes to next. */
    uint32_t value = load_shared(base + slot_at(key_hash % slots));
    uint32_t next = next_number(base, entries);
    bool sane = value >= 1 && value <= next && value < entries;
    *walk = (rs_index_walk){
        .base = base,
        .slots = slots,
        .key_hash = key_hash,
        .number = sane ? value : 0,
        .begin_ms = begin_ms,
        .end_ms = end_ms,
        .file_begin_ms = load_bound(base + RS_INDEX_AT_BEGIN_TIMESTAMP),
        .last_offset = -1,
    };
}

/* Entry 1 of a follow-up file is dated against the file before, but the header has its
 * true time. */
static int64_t entry_timestamp_ms(const rs_index_walk *walk, uint32_t number, int32_t diff_s)
{
    int64_t timestamp_ms;
    if (number == 1)
        return walk->file_begin_ms;
    if (__builtin_add_overflow(walk->file_begin_ms, (int64_t)diff_s * 1000, &timestamp_ms))
        return INT64_MAX;
    return timestamp_ms;
}

bool rs_index_walk_next(rs_index_walk *walk, rs_index_hit *hit)
{
    while (walk->number != 0) {
        rs_index_entry entry;
        uint32_t number = walk->number;
        walk->number = 0; /* the chain ends here unless all that follows is sane */
        rs_index_entry_load(walk->base, walk->slots, number, &entry);
        if (entry.time_diff_s < 0)
            return false;
        int64_t timestamp_ms = entry_timestamp_ms(walk, number, entry.time_diff_s);
        /* The largest difference is a clamp: that record can be any time later. So is the
         * smallest: it can be any time earlier, when the clock fell. */
        bool old = timestamp_ms < walk->begin_ms && entry.time_diff_s < RS_INDEX_TIME_DIFF_MAX;
        bool young = timestamp_ms > walk->end_ms && (entry.time_diff_s > 0 || number == 1);
        if (!old && entry.previous > 0 && (uint32_t)entry.previous < number)
            walk->number = (uint32_t)entry.previous;
        if (old || young || (uint32_t)entry.key_hash != walk->key_hash ||
            entry.physical_offset < 0 || entry.physical_offset == walk->last_offset)
            continue;
        walk->last_offset = entry.physical_offset;
        hit->physical_offset = entry.physical_offset;
        hit->timestamp_ms = timestamp_ms;
        return true;
    }
    return false;
}

bool rs_index_may_have(const uint8_t *base, uint32_t slots, uint32_t entries, uint32_t key_hash,
                       uint32_t most)
{
    uint32_t number = load_shared(base + slot_at(key_hash % slots)); /* first, as in a walk */
    if (number > next_number(base, entries) || number >= entries)
        return true;
    for (; number != 0 && most > 0; most--) {
        rs_index_entry entry;
        rs_index_entry_load(base, slots, number, &entry);
        if ((uint32_t)entry.key_hash == key_hash || (uint32_t)entry.previous >= number)
            return true;
        number = (uint32_t)entry.previous;
    }
    return number != 0;
}

/* Offsets in one file never fall: both RocketMQ and we skip records below the last one indexed. */
static bool entry_sane(const rs_index_entry *entry, int64_t last_offset)
{
    return entry->key_hash >= 0 && entry->time_diff_s >= 0 && entry->physical_offset >= last_offset;
}

/* Entries at either end of a file from which its shape is judged. */
#define PROBED_ENTRIES 64

static bool entry_plausible(const uint8_t *base, uint32_t slots, uint32_t number, uint32_t next)
{
    rs_index_entry entry;
    rs_index_entry_load(base, slots, number, &entry);
    if (!entry_sane(&entry, 0) || entry.previous < 0 || (uint32_t)entry.previous >= number)
        return false;
    uint32_t newest = load_shared(base + slot_at((uint32_t)entry.key_hash % slots));
    return newest >= number && newest <= next;
}

/* As rs_index_plausible; counts in `met` the entries that were as they should be. */
static bool plausible(const uint8_t *base, uint32_t slots, uint32_t entries, uint64_t *met)
{
    rs_index_header header;
    rs_index_entry first, last;
    if (rs_index_header_load(base, entries, &header) != RS_OK)
        return false;
    uint32_t next = header.index_count;
    if (next <= 1)
        return true;
    rs_index_entry_load(base, slots, 1, &first);
    rs_index_entry_load(base, slots, next - 1, &last);
    if (first.physical_offset != header.begin_offset || last.physical_offset != header.end_offset)
        return false;
    for (uint32_t number = 1; number < next && number <= PROBED_ENTRIES; number++, ++*met)
        if (!entry_plausible(base, slots, number, next))
            return false;
    for (uint32_t back = 1; back < next && back <= PROBED_ENTRIES; back++, ++*met)
        if (!entry_plausible(base, slots, next - back, next))
            return false;
    return true;
}

bool rs_index_plausible(const uint8_t *base, uint32_t slots, uint32_t entries)
{
    uint64_t met = 0;
    return plausible(base, slots, entries, &met);
}

/* Of a file that somebody wrote the wrong shapes fail at their first entry or its next ones. One of zeros, which
 * takes no disk, has entries that fit millions of shapes. */
#define DEDUCED_ENTRIES_MAX (1u << 20)

rs_status rs_index_deduce(const uint8_t *base, uint64_t size, uint32_t *slots, uint32_t *entries)
{
    const uint32_t per_entry = RS_INDEX_ENTRY_SIZE / RS_INDEX_SLOT_SIZE;
    rs_index_header header;
    uint32_t found = 0;
    uint64_t met = 0;
    if (size < rs_index_file_size(1, 1) || size % RS_INDEX_SLOT_SIZE != 0 ||
        size > rs_index_file_size(RS_INDEX_SLOTS_OPTION_MAX, RS_INDEX_ENTRIES_OPTION_MAX))
        return RS_NOT_FOUND;
    /* The length is all there is: slots + 5 entries. */
    uint32_t words = (uint32_t)((size - RS_INDEX_HEADER_SIZE) / RS_INDEX_SLOT_SIZE);
    if (rs_index_header_load(base, words / per_entry, &header) != RS_OK || header.index_count <= 1)
        return RS_NOT_FOUND;
    uint32_t least = words % per_entry ? words % per_entry : per_entry;
    for (uint64_t guess = least; guess + per_entry * (uint64_t)header.index_count <= words;
         guess += per_entry) {
        uint32_t guessed_entries = (words - (uint32_t)guess) / per_entry;
        bool fits = plausible(base, (uint32_t)guess, guessed_entries, &met);
        if (met > DEDUCED_ENTRIES_MAX)
            return RS_NOT_FOUND;
        if (!fits)
            continue;
        if (found++ > 0)
            return RS_NOT_FOUND;
        *slots = (uint32_t)guess;
        *entries = guessed_entries;
    }
    return found == 1 ? RS_OK : RS_NOT_FOUND;
}

rs_status rs_index_validate(const uint8_t *base, uint32_t slots, uint32_t entries, bool growing)
{
    rs_index_header header;
    if (rs_index_header_load(base, entries, &header) != RS_OK)
        return RS_BAD_UNIT;
    uint32_t next = header.index_count;
    int64_t last_offset = 0;
    for (uint32_t number = 1; number < next; number++) {
        rs_index_entry entry, before;
        rs_index_entry_load(base, slots, number, &entry);
        if (!entry_sane(&entry, last_offset) || entry.previous < 0 ||
            (uint32_t)entry.previous >= number)
            return RS_BAD_UNIT;
        last_offset = entry.physical_offset;
        if (entry.previous == 0)
            continue;
        rs_index_entry_load(base, slots, (uint32_t)entry.previous, &before);
        if ((uint32_t)before.key_hash % slots != (uint32_t)entry.key_hash % slots)
            return RS_BAD_UNIT;
    }
    /* Chains of different slots share no entry and numbers fall along each, so walking all of them
     * meets every entry exactly once iff the lengths add up. Entries are looked at again: somebody
     * may have changed them since. */
    uint32_t met = 0;
    for (uint32_t slot = 0; slot < slots; slot++) {
        uint32_t number = load_shared(base + slot_at(slot));
        if (number >= (growing ? entries : next))
            return RS_BAD_UNIT;
        while (number != 0) {
            rs_index_entry entry;
            rs_index_entry_load(base, slots, number, &entry);
            if ((uint32_t)entry.key_hash % slots != slot || entry.previous < 0 ||
                (uint32_t)entry.previous >= number)
                return RS_BAD_UNIT;
            met += number < next;
            if (met >= next)
                return RS_BAD_UNIT;
            number = (uint32_t)entry.previous;
        }
    }
    return met == next - 1 ? RS_OK : RS_BAD_UNIT;
}

/* What nothing speaks of any more is zero, as in a fresh file. Holes are read, never written:
 * that could need a block that the disk does not have. */
static void zero_entries(uint8_t *base, uint32_t slots, uint32_t from, uint32_t to)
{
    static const uint8_t zeros[RS_INDEX_ENTRY_SIZE];
    for (uint32_t number = from; number < to; number++) {
        uint8_t *at = base + rs_index_entry_at(slots, number);
        if (memcmp(at, zeros, sizeof zeros) != 0)
            memset(at, 0, sizeof zeros);
    }
}

/* Makes the header speak of entries 1 … next - 1, from `first` to `last`. */
static void cut_header(uint8_t *base, uint32_t next, const rs_index_entry *first,
                       const rs_index_entry *last)
{
    int64_t begin_ms = load_bound(base + RS_INDEX_AT_BEGIN_TIMESTAMP);
    int64_t end_ms = begin_ms;
    /* What a damaged header says of its first entry would make the shape of the file implausible. */
    store_bound(base + RS_INDEX_AT_BEGIN_OFFSET, first->physical_offset);
    if (load_bound(base + RS_INDEX_AT_END_OFFSET) == last->physical_offset)
        return;
    /* Rounded up: an end time that is late costs a look, one that is early hides a key. */
    int64_t since_begin_ms = (int64_t)last->time_diff_s * 1000 + 999;
    if (next > 2 && __builtin_add_overflow(begin_ms, since_begin_ms, &end_ms))
        end_ms = INT64_MAX;
    store_bound(base + RS_INDEX_AT_END_TIMESTAMP, end_ms);
    store_bound(base + RS_INDEX_AT_END_OFFSET, last->physical_offset);
}

uint32_t rs_index_cut(uint8_t *base, uint32_t slots, uint32_t entries, int64_t from_offset)
{
    uint32_t end = next_number(base, entries);
    uint32_t next = 1;
    uint32_t used = 0;
    rs_index_entry first = {0, 0, 0, 0}, last = first;

    memset(base + RS_INDEX_HEADER_SIZE, 0, (size_t)slots * RS_INDEX_SLOT_SIZE);
    for (; next < end; next++) {
        rs_index_entry entry;
        rs_index_entry_load(base, slots, next, &entry);
        if (!entry_sane(&entry, last.physical_offset) || entry.physical_offset >= from_offset)
            break;
        uint8_t *head = base + slot_at((uint32_t)entry.key_hash % slots);
        uint32_t previous = rs_load32(head);
        if (previous == 0)
            used++;
        if (previous != (uint32_t)entry.previous)
            rs_store32(base + rs_index_entry_at(slots, next) + RS_ENTRY_AT_PREVIOUS, previous);
        rs_store32(head, next);
        first = next == 1 ? entry : first;
        last = entry;
    }
    if (next == 1)
        rs_index_header_init(base, 0, 0);
    else
        cut_header(base, next, &first, &last);
    rs_store32(base + RS_INDEX_AT_SLOT_COUNT, used);
    store_shared(base + RS_INDEX_AT_INDEX_COUNT, next);
    zero_entries(base, slots, next, end);
    /* A writer that died before it counted its last entry left that entry, too. */
    if (end < entries)
        zero_entries(base, slots, end, end + 1);
    return next;
}
