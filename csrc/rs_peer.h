/* What a guest of a store says to its host, and hears: headers of one size, in the byte order of the machine that
 * both run on. Neither believes the other: `rs_ask_holds` and `rs_answer_holds` say whether one adds up. */
#ifndef RS_PEER_H
#define RS_PEER_H

#include "rs_base.h"

enum { RS_ASK_PUT = 1, RS_ASK_WAIT = 2 };
/* Of a put: all in one segment; one message, which is put once for its unique id; queue offsets come before the
 * frames, one int64_t for each, -1: any. */
enum { RS_ASK_WHOLE = 1, RS_ASK_UNIQUE = 2, RS_ASK_EXPECTED = 4 };

typedef struct rs_ask {
    uint32_t size; /* bytes that follow the header */
    uint32_t number;
    uint8_t kind;
    uint8_t level; /* the promise that the answer waits for */
    uint8_t flags;
    uint8_t zero;
    uint32_t count;   /* frames of a put */
    int64_t limit_ms; /* of the wait for the promise */
    int64_t end;      /* RS_ASK_WAIT: up to where */
} rs_ask;

enum {
    RS_ANSWER_DONE,  /* the promise is met */
    RS_ANSWER_LATE,  /* stored, and the promise not met in time */
    RS_ANSWER_AGAIN, /* nothing was done: the host ends, ask the next one */
    RS_ANSWER_ERROR, /* the text of an error follows; `count` messages were stored before */
};

typedef struct rs_answer {
    uint32_t size; /* bytes that follow: of a batch, physical offsets and then queue offsets; of an error, its text */
    uint32_t number;
    uint8_t status;
    uint8_t again; /* the message was there already */
    uint16_t zero;
    uint32_t count;
    int64_t physical_offset;
    int64_t end_offset;
    int64_t queue_offset;
    int64_t store_timestamp_ms;
    int64_t due_ms;
    int64_t committed;
    int64_t flushed;
} rs_answer;

enum { RS_ERROR_SIZE_MAX = 64 << 10, RS_FRAME_SIZE_MIN = 64 };

static inline bool rs_ask_holds(const rs_ask *ask, size_t size_max)
{
    size_t places = ask->flags & RS_ASK_EXPECTED ? 8 * (size_t)ask->count : 0;
    if (ask->size > size_max || ask->zero || ask->level > 2 || ask->limit_ms < 0 ||
        ask->limit_ms > INT32_MAX)
        return false;
    if (ask->kind == RS_ASK_WAIT)
        return !ask->size && !ask->count && !ask->flags && ask->end >= 0;
    return ask->kind == RS_ASK_PUT && !(ask->flags & ~7u) && ask->count > 0 &&
           (!(ask->flags & RS_ASK_UNIQUE) || ask->count == 1) &&
           ask->size >= places + RS_FRAME_SIZE_MIN * (size_t)ask->count;
}

/* `asked`: messages of the request that it answers. */
static inline bool rs_answer_holds(const rs_answer *answer, uint32_t asked)
{
    if (answer->zero || answer->status > RS_ANSWER_ERROR || answer->count > asked)
        return false;
    if (answer->status == RS_ANSWER_ERROR)
        return answer->size <= RS_ERROR_SIZE_MAX;
    if (answer->status == RS_ANSWER_AGAIN)
        return answer->size == 0;
    return answer->count == asked && answer->size == (asked > 1 ? 16 * (uint64_t)asked : 0) &&
           answer->physical_offset >= 0 && answer->physical_offset <= answer->end_offset;
}

#endif
