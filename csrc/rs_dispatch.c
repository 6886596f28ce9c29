#include "rs_dispatch.h"

#include "rs_properties.h"

static const char schedule_topic[] = "SCHEDULE_TOPIC_XXXX";

/* As Java's Integer.parseInt, of ASCII digits: one sign of either kind, 32 bits. */
static bool rs_parse_level(rs_span text, int64_t *level)
{
    if (text.size > 1 && text.bytes[0] == '+' && text.bytes[1] != '-') {
        text.bytes++;
        text.size--;
    }
    return rs_parse_decimal(text, level) && *level >= INT32_MIN && *level <= INT32_MAX;
}

void rs_dispatch_find(rs_span properties, rs_dispatch_properties *found)
{
    rs_property_walk walk = rs_properties_walk_sent(properties);
    rs_span name, value;
    *found = (rs_dispatch_properties){0};
    while (rs_property_next(&walk, &name, &value)) {
        rs_span *wanted = NULL;
        switch (name.size) {
        case 4:
            if (memcmp(name.bytes, "TAGS", 4) == 0)
                wanted = &found->tags;
            else if (memcmp(name.bytes, "KEYS", 4) == 0)
                wanted = &found->keys;
            break;
        case 5:
            if (memcmp(name.bytes, "DELAY", 5) == 0)
                wanted = &found->delay;
            break;
        case 8:
            if (memcmp(name.bytes, "UNIQ_KEY", 8) == 0)
                wanted = &found->uniq_key;
            break;
        case 20:
            if (memcmp(name.bytes, "INNER_MULTI_DISPATCH", 20) == 0)
                wanted = &found->multi_dispatch;
            break;
        }
        if (wanted)
            *wanted = value;
    }
}

static bool rs_is_delayed(const rs_record *record, rs_span delay, int64_t *level)
{
    return record->topic.size == sizeof schedule_topic - 1 &&
           memcmp(record->topic.bytes, schedule_topic, sizeof schedule_topic - 1) == 0 &&
           rs_parse_level(delay, level) && *level > 0;
}

static int64_t rs_delivery_time(const rs_record *record, int64_t level, const int64_t *delays,
                                size_t count)
{
    int64_t delay = 1000;
    if (count > 0)
        delay = delays[(uint64_t)level < count ? (size_t)level - 1 : count - 1];
    /* Hostile times may not overflow. */
    return (int64_t)((uint64_t)record->store_timestamp_ms + (uint64_t)delay);
}

int64_t rs_dispatch_tags(const rs_record *record, const rs_dispatch_properties *found,
                         const int64_t *delays, size_t count)
{
    int64_t level;
    if (found->delay.size > 0 && rs_is_delayed(record, found->delay, &level))
        return rs_delivery_time(record, level, delays, count);
    return found->tags.size > 0 ? rs_tags_code(found->tags) : 0;
}
