/* Any bytes as a client batch: elements lie one behind the other inside it, are written back as they
 * were, and join with other properties into exactly the room that they need. */
#include "fuzz.h"
#include "rs_properties.h"
#include "rs_record.h"

static void check_written_back(const rs_batch_element *element, const uint8_t *start)
{
    rs_batch_element again;
    size_t size = rs_batch_element_size(element);
    uint8_t *written = malloc(size);
    CHECK(written);
    CHECK(rs_batch_put(written, element) == size);
    const size_t from = RS_BATCH_AT_FLAG;
    CHECK(memcmp(written + from, start + from, size - from) == 0);
    const uint8_t *at = written;
    CHECK(rs_batch_next(&at, written + size, &again) == RS_OK && at == written + size);
    CHECK(again.flag == element->flag && again.body.size == element->body.size);
    at = written;
    CHECK(rs_batch_next(&at, written + size - 1, &again) == RS_BAD_BATCH && at == written);
    free(written);
}

static void check_joined(rs_span first, rs_span second)
{
    size_t size = 0, again = 0;
    size_t most = first.size + second.size + 1;
    uint8_t *large = malloc(most);
    CHECK(large);
    CHECK(rs_batch_join_properties(first, second, large, most, &size) == RS_OK);
    CHECK(size == most || size == most - 1);
    uint8_t *exact = malloc(size ? size : 1);
    CHECK(exact);
    CHECK(rs_batch_join_properties(first, second, exact, size, &again) == RS_OK && again == size);
    CHECK(memcmp(exact, large, size) == 0);
    if (size)
        CHECK(rs_batch_join_properties(first, second, exact, size - 1, &again) ==
              RS_PROPERTIES_TOO_LARGE);
    free(exact);
    free(large);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *at = data, *end = data + size;
    rs_span before = {data, 0};
    rs_batch_element element;
    rs_status status;
    for (;;) {
        const uint8_t *start = at;
        status = rs_batch_next(&at, end, &element);
        if (status != RS_OK) {
            CHECK(at == start);
            break;
        }
        CHECK(at <= end && (size_t)(at - start) == rs_batch_element_size(&element));
        CHECK(element.body.bytes == start + RS_BATCH_AT_BODY);
        CHECK(element.properties.bytes + element.properties.size == at);
        CHECK(element.properties.size <= RS_PROPERTIES_MAX);
        check_written_back(&element, start);
        check_joined(element.properties, before);
        before = element.properties;
    }
    CHECK((status == RS_NOT_FOUND) == (at == end));
    CHECK(status == RS_NOT_FOUND || status == RS_BAD_BATCH);
    return 0;
}
