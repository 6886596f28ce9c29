/* An expression over the properties of a message, as a program in postfix. Every operation leaves one verdict
 * on a stack, and the last one is that of the whole. What C does not decide exactly as RocketMQ's Java does is
 * RS_VERDICT_UNSURE: the caller decides it another way. The maker of a program has checked its slots, texts and
 * the depth of its stack. Property texts are hostile. */
#ifndef RS_FILTER_H
#define RS_FILTER_H

#include "rs_base.h"

#define RS_FILTER_SLOTS_MAX 32
#define RS_FILTER_STACK_MAX 256

typedef enum rs_verdict {
    RS_VERDICT_FALSE,
    RS_VERDICT_TRUE,
    RS_VERDICT_NULL,
    RS_VERDICT_ERROR, /* Java has an exception: the message does not match, whatever follows */
    RS_VERDICT_UNSURE,
} rs_verdict;

typedef enum rs_filter_code {
    RS_FILTER_CONSTANT, /* the verdict `number` */
    RS_FILTER_AND, /* of the two verdicts on the stack, the older one on the left */
    RS_FILTER_OR,
    RS_FILTER_NOT,
    RS_FILTER_IS_NULL, /* all below are of property `slot` */
    RS_FILTER_CAST, /* null without it, else false */
    RS_FILTER_TRUTH, /* equal to a truth value, `number` */
    RS_FILTER_IN, /* one of the texts */
    RS_FILTER_CONTAINS, /* the one text; false without the property */
    RS_FILTER_STARTS,
    RS_FILTER_ENDS,
    RS_FILTER_INT, /* compared with `number`, as a number of 32 bits */
    RS_FILTER_LONG, /* of 64 bits */
    RS_FILTER_DOUBLE, /* with `real` */
    RS_FILTER_CODES,
} rs_filter_code;

/* What a comparison may answer to be true; several of them together. */
#define RS_FILTER_LESS 1
#define RS_FILTER_SAME 2
#define RS_FILTER_MORE 4
/* With them, or alone: false without the property, and not null. */
#define RS_FILTER_ELSE_FALSE 8

typedef struct rs_filter_op {
    uint8_t code;
    uint8_t accepts; /* RS_FILTER_LESS | … */
    bool negated; /* of IN, CONTAINS, STARTS, ENDS */
    uint16_t slot;
    uint32_t first_text;
    uint32_t text_count;
    int64_t number;
    double real;
    const uint32_t *borders; /* of CONTAINS: as rs_filter_borders says of its text */
} rs_filter_op;

typedef struct rs_filter {
    const rs_filter_op *ops;
    size_t op_count;
    const rs_span *names; /* of the properties, by slot */
    size_t slot_count;
    const rs_span *texts;
} rs_filter;

/* For each byte of a text, which is not empty: the size of the longest piece that the text up to that byte begins
 * and ends with, less than the whole. `borders` has room for as many numbers as the text has bytes. */
void rs_filter_borders(rs_span text, uint32_t *borders);

/* The verdict on a message with these properties. */
rs_verdict rs_filter_verdict(const rs_filter *filter, rs_span properties);

#endif
