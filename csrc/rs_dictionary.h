/* Texts that many records share, by numbers: topics and hosts of a scan. */
#ifndef RS_DICTIONARY_H
#define RS_DICTIONARY_H

#include "rs_base.h"

/* A text that many records share, and what a scan wants of its records. */
typedef struct rs_word {
    rs_span text;
    uint64_t hash; /* set by rs_dictionary_add */
    const int32_t *queue_ids; /* sorted; NULL takes all queues */
    size_t queue_id_count;
    bool wanted;
} rs_word;

/* Words by their numbers, and numbers by a table of open addressing. `slots` holds 0 (free) or a number
 * + 1; their count is a power of two and at least twice that of the words. The seed is random: hostile
 * words must not be able to share one slot. */
typedef struct rs_dictionary {
    rs_word *words;
    size_t count;
    uint32_t *slots;
    size_t slot_count;
    uint64_t seed;
} rs_dictionary;

/* Number of a word, -1 when it is not there. */
int32_t rs_dictionary_find(const rs_dictionary *dictionary, rs_span text);
/* Gives the next number to a word that is not there; the caller has made room for it. */
void rs_dictionary_add(rs_dictionary *dictionary, rs_word word);

#endif
