/* Frames: records encoded away from the log, without offsets and store time, which the log fills in. */
#ifndef RS_FRAME_H
#define RS_FRAME_H

#include "rs_record.h"

/* Further faults of a frame, above every rs_status. */
enum {
    RS_FRAME_FLAGS = RS_STATUS_COUNT + 8, /* its sys_flag has a bit that is refused */
    RS_FRAME_INNER,                       /* it has a property of batches or light queues */
};

/* Reads the frame at `at`, of which at most `left` bytes may be touched, as hostile bytes: structure, body CRC,
 * bits of `refused` in its sys_flag, properties that only the log writes. RS_OK, `*message` as an append takes it
 * (spans into the frame; the record CRC goes, the log writes its own) and `*size`; else an rs_status or one of the
 * above, `message->sys_flag` where it is the first. */
int rs_frame_take(const uint8_t *at, size_t left, uint32_t refused, rs_crc32_kernel kernel,
                  rs_message *message, size_t *size);

#endif
