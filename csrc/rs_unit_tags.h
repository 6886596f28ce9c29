/* The tag code of a consume queue unit (format.md 6.2). */
#ifndef RS_UNIT_TAGS_H
#define RS_UNIT_TAGS_H

#include "rs_record.h"

/* Hash of the TAGS property, 0 without one; in SCHEDULE_TOPIC_XXXX with DELAY > 0 the delivery time:
 * store time + delays[level - 1], the level clamped to `count`, one second when there are no levels.
 * RS_BAD_PROPERTIES when DELAY is no number. */
rs_status rs_unit_tags(const rs_record *record, const int64_t *delays, size_t count, int64_t *code);

#endif
