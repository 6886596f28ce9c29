#include "rs_unit_tags.h"

#include "rs_properties.h"

static const char schedule_topic[] = "SCHEDULE_TOPIC_XXXX";

static bool rs_unit_is_delayed(const rs_record *record, rs_span *level)
{
    return record->topic.size == sizeof schedule_topic - 1 &&
           memcmp(record->topic.bytes, schedule_topic, sizeof schedule_topic - 1) == 0 &&
           rs_property_find(record->properties, "DELAY", 5, level);
}

rs_status rs_unit_tags(const rs_record *record, const int64_t *delays, size_t count, int64_t *code)
{
    rs_span value;
    if (rs_unit_is_delayed(record, &value)) {
        int64_t level;
        if (!rs_parse_decimal(value, &level))
            return RS_BAD_PROPERTIES;
        if (level > 0) {
            int64_t delay = 1000;
            if (count > 0)
                delay = delays[(uint64_t)level < count ? (size_t)level - 1 : count - 1];
            /* Hostile times may not overflow. */
            *code = (int64_t)((uint64_t)record->store_timestamp_ms + (uint64_t)delay);
            return RS_OK;
        }
    }
    *code = rs_property_find(record->properties, "TAGS", 4, &value) ? rs_tags_code(value) : 0;
    return RS_OK;
}
