/* Any bytes as a property text under a program made of the input: nothing outside the text is read, verdicts are
 * verdicts, and a number is compared as libc reads it, or not at all. */
#include <math.h>

#include "fuzz.h"
#include "rs_filter.h"
#include "rs_properties.h"

enum { OPS_MAX = 24, TEXTS = 3, NAMES = 2 };

static const char *const NAME[NAMES] = {"a", "price"};
static const double REALS[] = {0.0, -0.0, 1.0, -2.5, 10.0, 1e22, 1e-5, 123456.75};

/* The last value of that name, empty without one. */
static rs_span value_of(rs_span properties, const char *name)
{
    rs_span value = {properties.bytes, 0};
    rs_property_find(properties, name, strlen(name), &value);
    return value;
}

/* What a comparison of numbers should say, by libc; texts that it reads in another way are left out. */
static void check_number(const rs_filter_op *op, rs_span value, rs_verdict verdict)
{
    char text[64];
    char *end;
    if (verdict != RS_VERDICT_TRUE && verdict != RS_VERDICT_FALSE)
        return;
    if (value.size == 0) {
        CHECK(op->accepts & RS_FILTER_ELSE_FALSE && verdict == RS_VERDICT_FALSE);
        return;
    }
    if (value.size >= sizeof text)
        return; /* many zeros */
    memcpy(text, value.bytes, value.size);
    text[value.size] = 0;
    int order;
    if (op->code == RS_FILTER_DOUBLE) {
        const double real = strtod(text, &end);
        order = (real > op->real) - (real < op->real);
        if (real == 0 && op->real == 0)
            order = !!signbit(op->real) - !!signbit(real);
    } else {
        const long long number = strtoll(text, &end, 10);
        CHECK(op->code == RS_FILTER_LONG || (number >= INT32_MIN && number <= INT32_MAX));
        order = (number > op->number) - (number < op->number);
    }
    CHECK(end == text + value.size);
    const int bit = order < 0 ? RS_FILTER_LESS : order ? RS_FILTER_MORE : RS_FILTER_SAME;
    CHECK((verdict == RS_VERDICT_TRUE) == !!(op->accepts & bit));
}

static rs_verdict run_one(const rs_filter *filter, const rs_filter_op *op, rs_span properties)
{
    rs_filter alone = *filter;
    alone.ops = op;
    alone.op_count = 1;
    return rs_filter_verdict(&alone, properties);
}

static bool is_in(rs_span value, rs_span text)
{
    for (size_t at = 0; at + text.size <= value.size; at++)
        if (memcmp(value.bytes + at, text.bytes, text.size) == 0)
            return true;
    return false;
}

static void check_leaf(const rs_filter *filter, const rs_filter_op *op, rs_span properties)
{
    const rs_verdict verdict = run_one(filter, op, properties);
    const rs_span value = value_of(properties, NAME[op->slot]);
    rs_filter_op turned[2] = {*op, {.code = RS_FILTER_NOT}};
    rs_filter both = *filter;
    CHECK(verdict <= RS_VERDICT_UNSURE);
    if (op->code >= RS_FILTER_INT)
        check_number(op, value, verdict);
    if (op->code == RS_FILTER_CONTAINS && verdict <= RS_VERDICT_TRUE && value.size)
        CHECK((verdict == RS_VERDICT_TRUE) ==
              (op->negated != is_in(value, filter->texts[op->first_text])));
    if (op->code == RS_FILTER_IS_NULL)
        CHECK((verdict == RS_VERDICT_TRUE) == (value.size == 0));
    both.ops = turned;
    both.op_count = 2;
    const rs_verdict negated = rs_filter_verdict(&both, properties);
    if (verdict <= RS_VERDICT_TRUE)
        CHECK(negated == (verdict == RS_VERDICT_TRUE ? RS_VERDICT_FALSE : RS_VERDICT_TRUE));
    else
        CHECK(negated == verdict);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 + 4)
        return 0;
    const size_t wanted = 1 + data[0] % OPS_MAX;
    size_t at = 1, count = 0, depth = 0;
    rs_filter_op ops[2 * OPS_MAX];
    uint8_t *texts_at[TEXTS];
    rs_span texts[TEXTS], names[NAMES];
    uint32_t borders[TEXTS][TEXTS];
    for (size_t i = 0; i < TEXTS; i++) { /* of the end of the input, so that some are found in values */
        const size_t length = 1 + i < size ? 1 + i : 1;
        texts_at[i] = exact_copy(data + size - length, length);
        texts[i] = (rs_span){texts_at[i], length};
        rs_filter_borders(texts[i], borders[i]);
    }
    for (size_t i = 0; i < NAMES; i++)
        names[i] = (rs_span){(const uint8_t *)NAME[i], strlen(NAME[i])};
    while (count < wanted && at + 3 < size) {
        const uint8_t code = data[at] % RS_FILTER_CODES;
        const uint8_t first = data[at + 1], second = data[at + 2];
        rs_filter_op op = {.code = code, .accepts = first & 15, .negated = second & 1};
        op.slot = second / 2 % NAMES;
        op.first_text = code == RS_FILTER_IN ? 0 : first % TEXTS;
        op.text_count = code == RS_FILTER_IN ? TEXTS : 1;
        op.number = code == RS_FILTER_CONSTANT ? first % (RS_VERDICT_UNSURE + 1) : (int8_t)second;
        op.borders = borders[op.first_text];
        op.real = REALS[second % (sizeof REALS / sizeof *REALS)];
        at += 3;
        if ((code == RS_FILTER_AND || code == RS_FILTER_OR) && depth < 2)
            continue;
        if (code == RS_FILTER_NOT && depth < 1)
            continue;
        if (code != RS_FILTER_NOT)
            depth += code == RS_FILTER_AND || code == RS_FILTER_OR ? (size_t)-1 : 1;
        ops[count++] = op;
    }
    if (depth == 0) {
        ops[count++] = (rs_filter_op){.code = RS_FILTER_CONSTANT, .number = RS_VERDICT_TRUE};
        depth++;
    }
    for (; depth > 1; depth--)
        ops[count++] = (rs_filter_op){.code = RS_FILTER_AND};
    uint8_t *rest = exact_copy(data + at, size - at);
    const rs_span properties = {rest, size - at};
    const rs_filter filter = {ops, count, names, NAMES, texts};
    CHECK(rs_filter_verdict(&filter, properties) <= RS_VERDICT_UNSURE);
    for (size_t i = 0; i < count; i++)
        if (ops[i].code >= RS_FILTER_IS_NULL)
            check_leaf(&filter, &ops[i], properties);
    for (size_t i = 0; i < TEXTS; i++)
        free(texts_at[i]);
    free(rest);
    return 0;
}
