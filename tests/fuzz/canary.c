/* A fault planted on purpose: one byte beyond the input is read. A harness that lets this pass would
 * let every other overread pass, too. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile uint8_t sink;
    if (size)
        sink = data[size];
    (void)sink;
    return 0;
}
