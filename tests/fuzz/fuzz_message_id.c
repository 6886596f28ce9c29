/* Any text as a message id and as a unique id: what is accepted is written back, in upper case. */
#include "fuzz.h"
#include "rs_message_id.h"

static bool same_text(const char *ours, const char *theirs, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        bool lower = theirs[i] >= 'a' && theirs[i] <= 'f';
        if (ours[i] != (lower ? (char)(theirs[i] - 'a' + 'A') : theirs[i]))
            return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    char again[56];
    uint8_t raw[28];
    rs_host host;
    rs_unique_id id;
    int64_t offset;
    rs_status status = rs_message_id_decode(text, size, &host, &offset);
    CHECK(status == RS_OK || status == RS_NOT_FOUND);
    CHECK(rs_unique_id_decode(text, size, raw, &id) == status);
    if (status != RS_OK)
        return 0;
    CHECK(size == 32 || size == 56);
    CHECK(rs_message_id_encode((rs_span){host.bytes, host.size}, offset, again) == size);
    CHECK(same_text(again, text, size));
    CHECK(id.ip.size == (size == 32 ? 4 : 16));
    CHECK(rs_unique_id_encode(&id, again) == size);
    CHECK(same_text(again, text, size));
    return 0;
}
