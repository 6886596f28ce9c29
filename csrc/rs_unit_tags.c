#include "rs_unit_tags.h"

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

static bool rs_unit_is_delayed(const rs_record *record, int64_t *level)
{
    rs_span value;
    return record->topic.size == sizeof schedule_topic - 1 &&
           memcmp(record->topic.bytes, schedule_topic, sizeof schedule_topic - 1) == 0 &&
           rs_property_find(record->properties, "DELAY", 5, &value) &&
           rs_parse_level(value, level) && *level > 0;
}

int64_t rs_unit_tags(const rs_record *record, const int64_t *delays, size_t count)
{
    rs_span tags;
    int64_t level;
    if (rs_unit_is_delayed(record, &level)) {
        int64_t delay = 1000;
        if (count > 0)
            delay = delays[(uint64_t)level < count ? (size_t)level - 1 : count - 1];
        /* Hostile times may not overflow. */
        return (int64_t)((uint64_t)record->store_timestamp_ms + (uint64_t)delay);
    }
    return rs_property_find(record->properties, "TAGS", 4, &tags) ? rs_tags_code(tags) : 0;
}
