/* Offset message ids (format.md 5). */
#ifndef RS_MESSAGE_ID_H
#define RS_MESSAGE_ID_H

#include "rs_record.h"

/* 32 upper-case hex characters for an IPv4 store host, 56 for IPv6; returns how many, no terminator. */
size_t rs_message_id_encode(rs_span store_host, int64_t physical_offset, char to[56]);

#endif
