#include "rs_dictionary.h"
#include "rs_text_hash.h"

int32_t rs_dictionary_find(const rs_dictionary *dictionary, rs_span text)
{
    const uint64_t hash = rs_text_hash(dictionary->seed, text);
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
    word.hash = rs_text_hash(dictionary->seed, word.text);
    size_t slot = (size_t)word.hash & mask;
    while (dictionary->slots[slot])
        slot = (slot + 1) & mask;
    dictionary->words[dictionary->count++] = word;
    dictionary->slots[slot] = (uint32_t)dictionary->count;
}
