#include "rs_commit_record.h"

#include <string.h>

enum { MESSAGE_HEAD = 28 };

/* Unlike those of RocketMQ, numbers of this record are little-endian. */
static uint8_t *number(uint8_t *to, uint64_t value, size_t size)
{
    for (; size != 0; size--, value >>= 8)
        *to++ = (uint8_t)value;
    return to;
}

static uint8_t *text(uint8_t *to, rs_span span)
{
    if (span.size != 0)
        memcpy(to, span.bytes, span.size);
    return to + span.size;
}

size_t rs_commit_record_share(const rs_message *message)
{
    return MESSAGE_HEAD + message->topic.size + message->properties.size + message->body.size;
}

void rs_commit_record_encode(uint8_t *to, const rs_message *messages, size_t count)
{
    for (const rs_message *each = messages; each < messages + count; each++) {
        to = number(to, each->topic.size, 2);
        to = number(to, (uint64_t)each->queue_id, 4);
        to = number(to, (uint64_t)each->flag, 4);
        to = number(to, each->sys_flag, 4);
        to = number(to, (uint64_t)each->born_timestamp_ms, 8);
        to = number(to, each->properties.size, 2);
        to = number(to, each->body.size, 4);
        to = text(to, each->topic);
        to = text(to, each->properties);
        to = text(to, each->body);
    }
}
