/* The tag code of a consume queue unit (format.md 6.2). */
#ifndef RS_UNIT_TAGS_H
#define RS_UNIT_TAGS_H

#include "rs_record.h"

/* Hash of the TAGS property, 0 without one; in SCHEDULE_TOPIC_XXXX with DELAY > 0 the delivery time:
 * store time + delays[level - 1], the level clamped to `count`, one second when there are no levels.
 * A DELAY that Java cannot read as an int counts as none: RocketMQ's recovery ends the log at such a
 * record, here it keeps its place in its queue. */
int64_t rs_unit_tags(const rs_record *record, const int64_t *delays, size_t count);

#endif
