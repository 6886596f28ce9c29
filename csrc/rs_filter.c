#include "rs_filter.h"
#include "rs_properties.h"

/* Digits that fit a double, and an i64, whatever they are. */
#define DOUBLE_DIGITS 15
#define LONG_DIGITS 18
#define EXACT_POWER 22

static bool is_digit(uint8_t byte)
{
    return byte >= '0' && byte <= '9';
}

/* Java's Integer.valueOf and Long.valueOf of a text. They take digits of any script: those are not ours. */
static rs_verdict whole_number(rs_span text, int64_t most, int64_t *number)
{
    size_t at = text.size > 1 && (text.bytes[0] == '-' || text.bytes[0] == '+');
    bool minus = at && text.bytes[0] == '-';
    int64_t found = 0;
    for (size_t i = 0; i < text.size; i++)
        if (text.bytes[i] >= 0x80)
            return RS_VERDICT_UNSURE;
    while (at + 1 < text.size && text.bytes[at] == '0')
        at++;
    if (text.size - at > LONG_DIGITS)
        return RS_VERDICT_UNSURE;
    if (at == text.size)
        return RS_VERDICT_ERROR;
    for (; at < text.size; at++) {
        if (!is_digit(text.bytes[at]))
            return RS_VERDICT_ERROR;
        found = 10 * found + (text.bytes[at] - '0');
    }
    if (found > most + minus)
        return RS_VERDICT_ERROR;
    *number = minus ? -found : found;
    return RS_VERDICT_TRUE;
}

/* A number in its plain form: digits, and how many of them are after the point. */
typedef struct decimal {
    uint64_t digits;
    size_t count; /* without zeros in front */
    int64_t behind;
    bool any;
} decimal;

static size_t take_digits(rs_span text, size_t at, decimal *found, bool behind)
{
    for (; at < text.size && is_digit(text.bytes[at]); at++) {
        found->any = true;
        found->behind += behind;
        if (found->count < DOUBLE_DIGITS)
            found->digits = 10 * found->digits + (uint64_t)(text.bytes[at] - '0');
        found->count += found->digits != 0;
    }
    return at;
}

/* The exponent at `at`, none is 0; false for what is none, or far too large. */
static bool take_exponent(rs_span text, size_t at, int64_t *exponent)
{
    *exponent = 0;
    if (at == text.size)
        return true;
    if ((text.bytes[at] | 0x20) != 'e')
        return false;
    rs_span rest = {text.bytes + at + 1, text.size - at - 1};
    return rest.size <= 4 && whole_number(rest, 999, exponent) == RS_VERDICT_TRUE;
}

/* Java's Double.valueOf of a text, where its digits and its power of ten are doubles themselves, and the
 * number is rounded once. Texts that begin as no number does are none. */
static rs_verdict real_number(rs_span text, double *number)
{
    static const double powers[EXACT_POWER + 1] = {
        1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
        1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const uint8_t first = text.bytes[0];
    decimal found = {0};
    int64_t exponent;
    if (first > ' ' && !is_digit(first) && first != '+' && first != '-' && first != '.' &&
        first != 'N' && first != 'I')
        return RS_VERDICT_ERROR;
    size_t at = take_digits(text, first == '-' || first == '+', &found, false);
    if (at < text.size && text.bytes[at] == '.')
        at = take_digits(text, at + 1, &found, true);
    if (!found.any || found.count > DOUBLE_DIGITS || !take_exponent(text, at, &exponent))
        return RS_VERDICT_UNSURE;
    exponent -= found.behind;
    if (exponent < -EXACT_POWER || exponent > EXACT_POWER)
        return RS_VERDICT_UNSURE;
    const double digits = (double)found.digits;
    const double size = exponent < 0 ? digits / powers[-exponent] : digits * powers[exponent];
    *number = first == '-' ? -size : size;
    return RS_VERDICT_TRUE;
}

static bool is_minus(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits >> 63;
}

/* Java's Double.compare: -0.0 is less than 0.0. */
static int compare_reals(double left, double right)
{
    if (left < right)
        return -1;
    if (left > right)
        return 1;
    return is_minus(right) - is_minus(left);
}

static rs_verdict truth(bool value)
{
    return value ? RS_VERDICT_TRUE : RS_VERDICT_FALSE;
}

static rs_verdict accepts(const rs_filter_op *op, int order)
{
    const uint8_t bit = order < 0 ? RS_FILTER_LESS : order ? RS_FILTER_MORE : RS_FILTER_SAME;
    return truth(op->accepts & bit);
}

static rs_verdict compared(const rs_filter_op *op, rs_span value)
{
    double real;
    int64_t number;
    rs_verdict read;
    if (op->code == RS_FILTER_DOUBLE) {
        read = real_number(value, &real);
        return read == RS_VERDICT_TRUE ? accepts(op, compare_reals(real, op->real)) : read;
    }
    read = whole_number(value, op->code == RS_FILTER_INT ? INT32_MAX : INT64_MAX - 1, &number);
    return read == RS_VERDICT_TRUE ? accepts(op, (number > op->number) - (number < op->number))
                                   : read;
}

static bool holds_at(rs_span value, size_t at, rs_span text)
{
    return memcmp(value.bytes + at, text.bytes, text.size) == 0;
}

/* How much of the begin of a text ends with `byte`, where `held` of it, less than all, ended before it. */
static size_t held_after(rs_span text, const uint32_t *borders, size_t held, uint8_t byte)
{
    while (held && text.bytes[held] != byte)
        held = borders[held - 1];
    return held + (text.bytes[held] == byte);
}

void rs_filter_borders(rs_span text, uint32_t *borders)
{
    size_t held = 0;
    borders[0] = 0;
    for (size_t at = 1; at < text.size; at++)
        borders[at] = (uint32_t)(held = held_after(text, borders, held, text.bytes[at]));
}

/* The search of Knuth, Morris and Pratt: no byte of the value is looked at again, whatever the two hold. */
static bool contains(rs_span value, rs_span text, const uint32_t *borders)
{
    size_t held = 0;
    for (size_t at = 0; at < value.size && held < text.size; at++)
        if (held || value.bytes[at] == text.bytes[0])
            held = held_after(text, borders, held, value.bytes[at]);
    return held == text.size;
}

static bool text_holds(const rs_filter *filter, const rs_filter_op *op, rs_span value)
{
    const rs_span *texts = filter->texts + op->first_text;
    if (op->code == RS_FILTER_IN) {
        for (size_t i = 0; i < op->text_count; i++)
            if (rs_same_text(value, texts[i]))
                return true;
        return false;
    }
    if (value.size < texts->size)
        return false;
    if (op->code == RS_FILTER_CONTAINS)
        return contains(value, *texts, op->borders);
    return holds_at(value, op->code == RS_FILTER_ENDS ? value.size - texts->size : 0, *texts);
}

static bool is_true_word(rs_span value)
{
    static const char word[] = "true";
    if (value.size != sizeof word - 1)
        return false;
    for (size_t i = 0; i < value.size; i++)
        if ((value.bytes[i] | 0x20) != (uint8_t)word[i])
            return false;
    return true;
}

/* The verdict of an operation over one property; `value` is empty without it. */
static rs_verdict of_property(const rs_filter *filter, const rs_filter_op *op, rs_span value)
{
    switch (op->code) {
    case RS_FILTER_IS_NULL:
        return truth(value.size == 0);
    case RS_FILTER_CONTAINS:
    case RS_FILTER_STARTS:
    case RS_FILTER_ENDS:
        return truth(value.size && text_holds(filter, op, value) != op->negated);
    default:
        break;
    }
    if (value.size == 0)
        return op->accepts & RS_FILTER_ELSE_FALSE ? RS_VERDICT_FALSE : RS_VERDICT_NULL;
    switch (op->code) {
    case RS_FILTER_CAST:
        return RS_VERDICT_FALSE;
    case RS_FILTER_TRUTH:
        return truth(is_true_word(value) == (op->number != 0));
    case RS_FILTER_IN:
        return truth(text_holds(filter, op, value) != op->negated);
    case RS_FILTER_INT:
    case RS_FILTER_LONG:
    case RS_FILTER_DOUBLE:
        return compared(op, value);
    default:
        return RS_VERDICT_UNSURE;
    }
}

/* AND, or OR: `decides` is the verdict that needs no other. The left one is looked at first. */
static rs_verdict joined(rs_verdict left, rs_verdict right, rs_verdict decides)
{
    if (left == decides || left == RS_VERDICT_ERROR || left == RS_VERDICT_UNSURE)
        return left;
    if (right == decides || right == RS_VERDICT_ERROR || right == RS_VERDICT_UNSURE)
        return right;
    return left == RS_VERDICT_NULL ? left : right;
}

static rs_verdict negated(rs_verdict of)
{
    if (of == RS_VERDICT_TRUE || of == RS_VERDICT_FALSE)
        return truth(of == RS_VERDICT_FALSE);
    return of;
}

/* The values of the properties that the program speaks of; of several of one name the last. */
static void find_values(const rs_filter *filter, rs_span properties, rs_span *values)
{
    rs_property_walk walk = rs_properties_walk_sent(properties);
    rs_span name, value;
    for (size_t i = 0; i < filter->slot_count; i++)
        values[i] = (rs_span){properties.bytes, 0};
    while (rs_property_next(&walk, &name, &value))
        for (size_t i = 0; i < filter->slot_count; i++)
            if (rs_same_text(name, filter->names[i]))
                values[i] = value;
}

rs_verdict rs_filter_verdict(const rs_filter *filter, rs_span properties)
{
    rs_span values[RS_FILTER_SLOTS_MAX];
    rs_verdict stack[RS_FILTER_STACK_MAX];
    size_t top = 0;
    find_values(filter, properties, values);
    for (size_t i = 0; i < filter->op_count; i++) {
        const rs_filter_op *op = &filter->ops[i];
        switch (op->code) {
        case RS_FILTER_CONSTANT:
            stack[top++] = (rs_verdict)op->number;
            break;
        case RS_FILTER_AND:
        case RS_FILTER_OR:
            top--;
            stack[top - 1] = joined(stack[top - 1], stack[top],
                                    truth(op->code == RS_FILTER_OR));
            break;
        case RS_FILTER_NOT:
            stack[top - 1] = negated(stack[top - 1]);
            break;
        default:
            stack[top++] = of_property(filter, op, values[op->slot]);
        }
    }
    return stack[0];
}
