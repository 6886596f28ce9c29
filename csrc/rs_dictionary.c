#include "rs_dictionary.h"

static inline uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    return hash ^ (hash >> 32);
}

static uint64_t hash_of(uint64_t seed, rs_span text)
{
    uint64_t hash = mixed(seed, text.size);
    size_t at = 0;
    for (; text.size - at >= 8; at += 8)
        hash = mixed(hash, rs_load64(text.bytes + at));
    uint64_t rest = 0;
    for (; at < text.size; at++)
        rest = rest << 8 | text.bytes[at];
    return mixed(hash, rest);
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
