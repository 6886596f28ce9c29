#define _GNU_SOURCE /* memmem */
#include "rs_frame.h"
#include "rs_properties.h"

static rs_host rs_host_of(rs_span bytes)
{
    rs_host host = {.size = (uint8_t)bytes.size};
    memcpy(host.bytes, bytes.bytes, bytes.size);
    return host;
}

/* Whether the log alone may write a property of the text. */
static bool rs_has_inner(rs_span text)
{
    rs_property_walk walk = rs_properties_walk(text);
    rs_span name, value;
    /* For half of the instructions that the walk of five properties takes. */
    if (text.size < 6 || !memmem(text.bytes, text.size, "INNER_", 6))
        return false;
    while (rs_property_next(&walk, &name, &value))
        if (name.size >= 6 && memcmp(name.bytes, "INNER_", 6) == 0)
            return true;
    return false;
}

int rs_frame_take(const uint8_t *at, size_t left, uint32_t refused, rs_crc32_kernel kernel,
                  rs_message *message, size_t *size)
{
    rs_record record;
    uint32_t crc;
    rs_status status = rs_record_decode(at, left, &record);
    if (status == RS_OK)
        status = rs_record_verify(&record, -1, RS_VERIFY_BODY_CRC, kernel);
    if (status != RS_OK)
        return status;
    *size = record.size;
    *message = (rs_message){
        .topic = record.topic,
        .body = record.body,
        .properties = record.properties,
        .born_timestamp_ms = record.born_timestamp_ms,
        .prepared_transaction_offset = record.prepared_transaction_offset,
        .queue_id = record.queue_id,
        .flag = record.flag,
        .reconsume_times = record.reconsume_times,
        .sys_flag = record.sys_flag,
        .born_host = rs_host_of(rs_record_born_host(&record)),
        .store_host = rs_host_of(rs_record_store_host(&record)),
    };
    if (rs_record_crc_find(&record, &crc))
        message->properties.size -= RS_RECORD_CRC_SIZE;
    if (record.sys_flag & refused)
        return RS_FRAME_FLAGS;
    return rs_has_inner(record.properties) ? RS_FRAME_INNER : RS_OK;
}
