/* Offset message ids and unique client ids (format.md 5). */
#ifndef RS_MESSAGE_ID_H
#define RS_MESSAGE_ID_H

#include "rs_record.h"

/* 32 upper-case hex characters for an IPv4 store host, 56 for IPv6; returns how many, no terminator. */
size_t rs_message_id_encode(rs_span store_host, int64_t physical_offset, char to[56]);
/* RS_OK, or RS_NOT_FOUND when the text is not 32 or 56 hex characters (of either case). */
rs_status rs_message_id_decode(const char *text, size_t size, rs_host *store_host,
                               int64_t *physical_offset);

typedef struct rs_unique_id {
    rs_span ip; /* 4 or 16 bytes, into the caller's 28-byte buffer */
    uint16_t process_id;
    int32_t class_loader_hash;
    uint32_t month_ms; /* milliseconds since the start of the month, read unsigned */
    uint16_t counter;
} rs_unique_id;

/* Takes a unique client id apart; `raw` receives its bytes (16 or 28). RS_OK or RS_NOT_FOUND as above. */
rs_status rs_unique_id_decode(const char *text, size_t size, uint8_t raw[28], rs_unique_id *id);
/* Composes one (16 or 28 bytes → 32 or 56 characters); returns the number of characters. */
size_t rs_unique_id_encode(const rs_unique_id *id, char to[56]);

#endif
