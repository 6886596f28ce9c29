"""Records of every kind, good and bad, and a batch."""

import dataclasses
import struct
from collections.abc import Iterable
from typing import Any

from encoders import (
    COMMIT, COMPRESSED, HALF_TOPIC, INNER_BATCH, LZ4, MAGIC_BLANK, MAGIC_V2, MULTI_TAGS,
    NAME_VALUE, NEED_UNWRAP, OP_TOPIC, PREPARED, PROPERTY, ROLLBACK, SCHEDULE_TOPIC, STORE_MS,
    UNIQ, ZLIB, ZSTD, Message, checksum, encode, encode_with_property_crc, index_keys,
    message_id, parse_properties, properties_text, queue_entry, sys_flag_of, tags_code,
)  # fmt: skip

# One text in the three encodings a body may have. The LZ4 frame and the zstd frame were made with
# lz4-java and zstd-jni; compressors may choose other bytes, so compare after decompression.
PLAIN_BODY = b"rocketmq " * 40
ZLIB_BODY = bytes.fromhex("785e2bca4fce4e2dc92d54281a65d092010094358cf1")
ZSTD_BODY = bytes.fromhex("28b52ffd005884000048726f636b65746d712001005c54cb11010000")
LZ4_BODY = bytes.fromhex(
    "04224d18607073140000009f726f636b65746d71200900ff485065746d712000000000"
)

# A record vector: id, what it shows, the releases that write it, the message.
Case = tuple[str, str, str, Message]


def plain_cases() -> Iterable[Case]:
    tagged = properties_text(("KEYS", "k1 k2"), ("TAGS", "TagA"), ("UNIQ_KEY", UNIQ))
    born, store = "[2001:db8::1:2]:54321", "[fe80::9]:10911"
    retry = "%RETRY%" + "g" * 128
    words = properties_text(("KEYS", "订单-1"), ("TAGS", "订单"), ("emoji", "😀"))
    lmq = properties_text(("INNER_MULTI_DISPATCH", "%LMQ%a,%LMQ%b"),
                          ("INNER_MULTI_QUEUE_OFFSET", "5,0"))  # fmt: skip
    inner = properties_text(("INNER_NUM", "3"), ("INNER_BASE", "20"))
    wide = Message(queue_id=65535, queue_offset=(1 << 40) + 5, physical_offset=(1 << 45) + 9,
                   reconsume_times=16, flag=0x7FFFFFFF)  # fmt: skip
    m, always, v6, crc = Message, "3.x and later", "4.6.0 and later", "5.2.0, if enabled"
    yield "minimal", "shortest useful record", always, m(topic="T", body=b"a")
    yield "tags_keys", "TAGS, two KEYS", always, m(
        properties=tagged, queue_id=3, queue_offset=7, flag=-1)
    yield "no_trailing_separator", "last 0x02 absent", "4.9.1 to 5.1.4", m(properties=tagged[:-1])
    yield "born_v6", "sysFlag 0x10", v6, m(born_host=born, queue_offset=1)
    yield "store_v6", "sysFlag 0x20, 28-byte id", v6, m(store_host=store)
    yield "both_v6", "sysFlag 0x30", v6, m(born_host=born, store_host=store)
    yield "topic_127", "longest v1 topic", always, m(topic="t" * 127)
    yield "v2_topic", "135 bytes of topic", "5.1.0 and later", m(
        topic=retry, magic=MAGIC_V2, queue_offset=2)
    yield "empty_body", "bodyCRC is 0 and never checked", always, m(body=b"")
    yield "blank_keys", "KEYS with empty words", always, m(properties=properties_text(
        ("KEYS", "  a  ")))
    yield "negative_tag", "the hash is -2^31", always, m(properties=properties_text(
        ("TAGS", "polygenelubricants")))
    yield "unicode", "UTF-8 bytes, UTF-16 hash", always, m(
        body="héllo, 世界".encode(), properties=words)
    yield "value_with_separator", "dropped by releases up to 4.9.0", always, m(
        properties=f"a{NAME_VALUE}b{NAME_VALUE}c{PROPERTY}TAGS{NAME_VALUE}x")
    yield "wide_fields", "64-bit offsets", always, wide
    yield "compressed_legacy", "no type bits mean zlib", always, m(
        body=ZLIB_BODY, sys_flag=COMPRESSED)
    for name, body, kind in (("zlib", ZLIB_BODY, ZLIB), ("lz4", LZ4_BODY, LZ4),
                             ("zstd", ZSTD_BODY, ZSTD)):  # fmt: skip
        yield f"compressed_{name}", "the CRC covers these bytes", "4.9.4 and later", m(
            body=body, sys_flag=COMPRESSED | kind)
    yield "multi_tags", "the flag does not change the hash", always, m(
        sys_flag=MULTI_TAGS, properties=properties_text(("TAGS", "a||b")))
    yield "lmq", "also queued as %LMQ%a/0 at 5, %LMQ%b/0 at 0", "4.9.3, if enabled", m(
        properties=lmq)
    yield "inner_batch", "the body is the batch as sent", "5.0, batch queue topics", m(
        topic="BatchTopic", sys_flag=NEED_UNWRAP | INNER_BATCH, queue_offset=20,
        body=batch_body(), properties=inner)
    yield "property_crc", "__CRC32#, digits reversed", crc, m(properties=tagged)
    yield "property_crc_alone", "no other property", crc, m(topic="T", body=b"a")


def special_cases() -> Iterable[Case]:
    """Delayed and transactional messages."""
    m, always = Message, "3.x and later"
    delayed = properties_text(
        ("REAL_TOPIC", "TopicTest"), ("DELAY", "3"), ("TAGS", "TagA"), ("REAL_QID", "1"))
    first, *others = [("REAL_TOPIC", "TopicTest"), ("TRAN_MSG", "true"), ("UNIQ_KEY", UNIQ),
                      ("PGROUP", "pg"), ("REAL_QID", "3")]  # fmt: skip
    half = properties_text(first, *others)
    half_5x = properties_text(first, ("__transactionId__", UNIQ), *others)
    op = properties_text(("WAIT", "true"), ("TAGS", "d"))
    yield "delayed", "tags code is the delivery time", always, m(
        topic=SCHEDULE_TOPIC, queue_id=2, properties=delayed)
    yield "delivered", "keeps DELAY; tags code is the tag hash", always, m(
        queue_id=1, properties=delayed, store_ms=STORE_MS + 10_004)
    yield "prepared_3x", "queueOffset is the state table row", "3.x", m(
        sys_flag=PREPARED, queue_offset=42, queue_id=3, properties=half)
    yield "prepared_40", "queueOffset is 0; indexed, not queued", "4.0 to 4.2", m(
        sys_flag=PREPARED, queue_id=3, properties=half)
    at = {"queue_offset": 5, "physical_offset": 1000}
    yield "half_43", "transaction bits cleared", "4.3.0 to 5.0.0", m(
        topic=HALF_TOPIC, properties=half, **at)  # type: ignore[arg-type]
    yield "half_5x", "with the transaction id", "5.1.0 and later", m(
        topic=HALF_TOPIC, properties=half_5x, **at)  # type: ignore[arg-type]
    yield "commit", "TRAN_MSG and REAL_* stay in the text", "4.3.0 and later", m(
        sys_flag=COMMIT, queue_id=3, queue_offset=9, physical_offset=1500, prepared_offset=1000,
        properties=half_5x)
    yield "rollback_legacy", "neither queued nor indexed", "4.0 to 4.2", m(
        sys_flag=ROLLBACK, queue_id=3, body=b"", prepared_offset=1000, properties=half)
    yield "op_4x", "one half queue offset", "4.3.0 to 5.0.0", m(
        topic=OP_TOPIC, body=b"5", properties=op)
    yield "op_5x", "offsets, each with a comma", "5.1.0 and later", m(
        topic=OP_TOPIC, body=b"5,8,13,", properties=op)


BATCH = [(b"one", "TAGS\x01x\x02"), (b"", ""), (b"three", "TAGS\x01y")]


def batch_body() -> bytes:
    """What a producer sends for a batch: size, magic 0, crc 0, flag, body, properties."""
    parts = []
    for position, (body, properties) in enumerate(BATCH):
        size = 22 + len(body) + len(properties)
        parts.append(struct.pack(">iiiii", size, 0, 0, position, len(body)) + body)
        parts.append(struct.pack(">h", len(properties)) + properties.encode())
    return b"".join(parts)


def batch_records(physical_offset: int, queue_offset: int, common: str) -> list[bytes]:
    records: list[bytes] = []
    for position, (body, own) in enumerate(BATCH):
        glue = PROPERTY if own and common and not own.endswith(PROPERTY) else ""
        message = Message(body=body, properties=own + glue + common, flag=position, queue_id=1,
                          queue_offset=queue_offset + position,
                          physical_offset=physical_offset)  # fmt: skip
        records.append(encode(message))
        physical_offset += len(records[-1])
    return records


def record_vector(case: Case) -> dict[str, Any]:
    name, note, written_by, message = case
    with_crc = name.startswith("property_crc")
    record = encode_with_property_crc(message) if with_crc else encode(message)
    queued = sys_flag_of(message) & ROLLBACK in (0, COMMIT)
    entry = queue_entry(message.physical_offset, len(record), tags_code(message)).hex()
    fields = dataclasses.asdict(message) | {
        "body": message.body.hex(),
        "sys_flag": sys_flag_of(message),
        "body_crc": checksum(message.body),
        "total_size": len(record),
    }
    plain = {"plain_body_hex": PLAIN_BODY.hex()} if message.sys_flag & COMPRESSED else {}
    return plain | {
        "id": name,
        "note": note,
        "written_by": written_by,
        "fields": fields,
        "hex": record.hex(),
        "parsed_properties": parse_properties(message.properties),
        "message_id": message_id(message.store_host, message.physical_offset),
        "tags_code": tags_code(message),
        "index_keys": index_keys(message),
        "queue_entry_hex": entry if queued else None,
    }


def bad_records() -> list[dict[str, Any]]:
    """What checkMessageAndReturnSize answers with the CRC check on, 4.9.8 and 5.3.3 alike."""
    good = encode(Message(properties=properties_text(("TAGS", "x"))))
    body_at, topic_at, size = 88, 93, len(good)
    delay = encode(Message(topic=SCHEDULE_TOPIC, properties="DELAY\x01x"))
    elsewhere = encode(Message(physical_offset=12345))

    def changed(at: int, data: bytes) -> bytes:
        return good[:at] + data + good[at + len(data) :]

    def number(value: int) -> bytes:
        return struct.pack(">i", value)

    rows: list[tuple[str, bytes, bool, int, str]] = [
        ("good", good, True, size, "the record the others are made from"),
        ("blank", struct.pack(">iI", 64, MAGIC_BLANK) + bytes(56), True, 0, "end of file"),
        ("blank_8", struct.pack(">iI", 8, MAGIC_BLANK), True, 0, "smallest filler"),
        ("zeros", bytes(64), False, -1, "unwritten space: magic 0 is not legal"),
        ("bad_magic", changed(4, b"\xda\xa3\x20\xa8"), False, -1, "unknown magic"),
        ("bad_crc_field", changed(8, number(1)), False, -1, "stored CRC is wrong"),
        ("bad_body", changed(body_at, b"j"), False, -1, "body byte changed"),
        ("size_plus_1", changed(0, number(size + 1)) + b"\0", False, size + 1, "sum is wrong"),
        ("size_negative", changed(0, number(-1)), False, -1, "cannot be allocated"),
        ("size_small", changed(0, number(7)), False, -1, "scratch array too short"),
        ("truncated", good[:-1], False, -1, "one byte short"),
        ("cut_in_header", good[:50], False, -1, "ends inside the fixed part"),
        ("topic_length_128", changed(topic_at, b"\x80"), False, -1, "v1 length byte is signed"),
        ("body_length_huge", changed(84, number(1 << 30)), False, -1, "past the record"),
        ("properties_32768", changed(103, b"\x80\x00"), False, size, "negative length: none read"),
        ("delay_not_a_number", delay, False, -1, "an unreadable property rejects a whole record"),
        ("moved", elsewhere, True, len(elsewhere), "the stored physical offset is not compared"),
    ]
    names = ("id", "hex", "success", "size", "note")
    return [dict(zip(names, (row[0], row[1].hex(), *row[2:]), strict=True)) for row in rows]
