/* What a dispatcher takes out of the properties of a record, and the tag code of its unit
 * (format.md 6.2). */
#ifndef RS_DISPATCH_H
#define RS_DISPATCH_H

#include "rs_record.h"

/* Values of a record's properties; of those that it lacks, a span of size 0, which none of them has. */
typedef struct rs_dispatch_properties {
    rs_span tags;
    rs_span delay;
    rs_span keys;
    rs_span uniq_key;
    rs_span multi_dispatch;
} rs_dispatch_properties;

/* All of them in one walk over the text: a walk is most of what a dispatcher does with a record. */
void rs_dispatch_find(rs_span properties, rs_dispatch_properties *found);

/* Hash of the TAGS property, 0 without one; in SCHEDULE_TOPIC_XXXX with DELAY > 0 the delivery time:
 * store time + delays[level - 1], the level clamped to `count`, one second when there are no levels.
 * A DELAY that Java cannot read as an int counts as none: RocketMQ's recovery ends the log at such a
 * record, here it keeps its place in its queue. */
int64_t rs_dispatch_tags(const rs_record *record, const rs_dispatch_properties *found,
                         const int64_t *delays, size_t count);

#endif
