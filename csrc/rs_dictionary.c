#include "rs_dictionary.h"

static inline uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

/* All bytes of a text shorter than eight, in few loads: those of its two ends may overlap. */
static inline uint64_t short_text(rs_span text)
{
    const uint8_t *bytes = text.bytes;
    const size_t size = text.size;
    if (size >= 4)
        return (uint64_t)rs_load32(bytes) << 32 | rs_load32(bytes + size - 4);
    if (size == 0)
        return 0;
    return (uint64_t)bytes[0] << 16 | (uint64_t)bytes[size / 2] << 8 | bytes[size - 1];
}

static inline uint64_t hash_of(uint64_t seed, rs_span text)
{
    uint64_t hash = mixed(seed, text.size);
    if (text.size < 8)
        return mixed(hash, short_text(text));
    for (size_t at = 0; at < text.size - 8; at += 8)
        hash = mixed(hash, rs_load64(text.bytes + at));
    return mixed(hash, rs_load64(text.bytes + text.size - 8));
}

int32_t rs_dictionary_find(const rs_dictionary *dictionary, rs_span text)
{
    const uint64_t hash = hash_of(dictionary->seed, text);
    const size_t mask = dictionary->slot_count - 1;
    for (size_t slot = (size_t)hash & mask;; slot = (slot + 1) & mask) {
        uint32_t number = dictionary->slots[slot];
        if (number == 0)
            return -1;
        const rs_word *word = &dictionary->words[number - 1];
        if (word->hash == hash && rs_same_text(word->text, text))
            return (int32_t)(number - 1);
    }
}

void rs_dictionary_add(rs_dictionary *dictionary, rs_word word)
{
    const size_t mask = dictionary->slot_count - 1;
    word.hash = hash_of(dictionary->seed, word.text);
    size_t slot = (size_t)word.hash & mask;
    while (dictionary->slots[slot])
        slot = (slot + 1) & mask;
    dictionary->words[dictionary->count++] = word;
    dictionary->slots[slot] = (uint32_t)dictionary->count;
}
