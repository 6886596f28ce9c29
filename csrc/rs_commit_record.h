/* A transaction's commit record (format.md 11.5). */
#ifndef RS_COMMIT_RECORD_H
#define RS_COMMIT_RECORD_H

#include "rs_record.h"

/* Bytes that a message takes of it. */
size_t rs_commit_record_share(const rs_message *message);
/* Encodes messages one after the other, into the bytes that they take. */
void rs_commit_record_encode(uint8_t *to, const rs_message *messages, size_t count);

#endif
