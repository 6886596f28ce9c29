"""Encoders of everything that format.md describes, deliberately naive and of nothing but the standard library: the
second opinion that a fast implementation is compared with, so nothing here is shared with one."""

import dataclasses
import ipaddress
import struct
import zlib
from dataclasses import dataclass

MAGIC_V1, MAGIC_V2, MAGIC_BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
COMPRESSED, MULTI_TAGS, PREPARED, COMMIT, ROLLBACK = 0x1, 0x2, 0x4, 0x8, 0xC
BORN_V6, STORE_V6, NEED_UNWRAP, INNER_BATCH = 0x10, 0x20, 0x40, 0x80
LZ4, ZSTD, ZLIB = 0x100, 0x200, 0x300
NAME_VALUE, PROPERTY = "\x01", "\x02"
STORE_MS = 1_700_000_000_000
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC, OP_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
DELAY_LEVELS = ["1s", "5s", "10s", "30s", *(f"{n}m" for n in (*range(1, 11), 20, 30)), "1h", "2h"]
UNIQ = "7F0000012A9F18B4AAC22F0A1B2C0000"


@dataclass(frozen=True, slots=True)
class Message:
    """What one commit log record says. `properties` is the text on disk, separators included."""

    topic: str = "TopicTest"
    body: bytes = b"hello"
    properties: str = ""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    physical_offset: int = 0
    sys_flag: int = 0
    born_ms: int = STORE_MS - 7
    born_host: str = "10.1.2.3:54321"
    store_ms: int = STORE_MS
    store_host: str = "192.168.0.9:10911"
    reconsume_times: int = 0
    prepared_offset: int = 0
    magic: int = MAGIC_V1


def java_hash(text: str) -> int:
    """java.lang.String.hashCode, as a signed 32-bit value, over UTF-16 code units."""
    value = 0
    for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
        value = (value * 31 + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def checksum(data: bytes) -> int:
    return zlib.crc32(data) & 0x7FFFFFFF


def host_bytes(host: str) -> bytes:
    address, _, port = host.rpartition(":")
    return ipaddress.ip_address(address.strip("[]")).packed + struct.pack(">i", int(port))


def message_id(store_host: str, physical_offset: int) -> str:
    return (host_bytes(store_host) + struct.pack(">q", physical_offset)).hex().upper()


def properties_text(*pairs: tuple[str, str]) -> str:
    return "".join(f"{name}{NAME_VALUE}{value}{PROPERTY}" for name, value in pairs)


def parse_properties(text: str) -> dict[str, str]:
    """The parser of 4.9.1 and later. The first 0x01 splits; empty names and values are dropped."""
    found: dict[str, str] = {}
    for item in text.split(PROPERTY):
        name, separator, value = item.partition(NAME_VALUE)
        if separator and name and value:
            found[name] = value
    return found


def sys_flag_of(message: Message) -> int:
    born = BORN_V6 if "[" in message.born_host else 0
    return message.sys_flag | born | (STORE_V6 if "[" in message.store_host else 0)


def encode(message: Message) -> bytes:
    topic, properties = message.topic.encode(), message.properties.encode()
    parts = [
        struct.pack(">Iii", checksum(message.body), message.queue_id, message.flag),
        struct.pack(">qq", message.queue_offset, message.physical_offset),
        struct.pack(">Iq", sys_flag_of(message), message.born_ms),
        host_bytes(message.born_host),
        struct.pack(">q", message.store_ms),
        host_bytes(message.store_host),
        struct.pack(">iqi", message.reconsume_times, message.prepared_offset, len(message.body)),
        message.body,
        struct.pack(">H" if message.magic == MAGIC_V2 else ">B", len(topic)),
        topic,
        struct.pack(">h", len(properties)),
        properties,
    ]
    rest = b"".join(parts)
    return struct.pack(">iI", len(rest) + 8, message.magic) + rest


def encode_with_property_crc(message: Message) -> bytes:
    """The record of 5.2.0 and later when enabledAppendPropCRC is on."""
    text = message.properties
    if text and not text.endswith(PROPERTY):
        text += PROPERTY
    room = properties_text(("__CRC32#", "0" * 10))
    record = encode(dataclasses.replace(message, properties=text + room))
    digits = f"{checksum(record[: -len(room)]):010d}"[::-1]  # least significant digit first
    return record[: -len(room)] + properties_text(("__CRC32#", digits)).encode()


def delay_ms(level: int) -> int:
    text = DELAY_LEVELS[min(level, len(DELAY_LEVELS)) - 1]
    return int(text[:-1]) * {"s": 1000, "m": 60_000, "h": 3_600_000}[text[-1]]


def tags_code(message: Message) -> int:
    properties = parse_properties(message.properties)
    if message.topic == SCHEDULE_TOPIC and int(properties.get("DELAY", "0")) > 0:
        return message.store_ms + delay_ms(int(properties["DELAY"]))
    return java_hash(properties["TAGS"]) if properties.get("TAGS") else 0


def queue_entry(physical_offset: int, size: int, code: int) -> bytes:
    return struct.pack(">qiq", physical_offset, size, code)


def index_hash(key: str) -> int:
    value = abs(java_hash(key))
    return 0 if value == 1 << 31 else value


def index_keys(message: Message) -> list[str]:
    if sys_flag_of(message) & ROLLBACK == ROLLBACK:
        return []
    properties = parse_properties(message.properties)
    words = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return [f"{message.topic}#{word}" for word in words if word]


Put = tuple[str, int, int]


def index_file(slots: int, capacity: int, previous: tuple[int, int], puts: list[Put]) -> bytes:
    """One index file after `puts` of (key, physical offset, store ms). `previous` is the full file
    before it: its end offset and its end timestamp, or zeros."""
    data = bytearray(40 + slots * 4 + capacity * 20)
    begin_offset = end_offset = previous[0]
    begin_ms = end_ms = previous[1]
    used_slots, count = 0, 1
    for key, offset, store_ms in puts:
        if count >= capacity:
            break
        code = index_hash(key)
        slot_at = 40 + code % slots * 4
        older = struct.unpack_from(">i", data, slot_at)[0]
        older = older if 0 < older <= count else 0
        seconds = (store_ms - begin_ms) // 1000 if begin_ms > 0 else 0
        seconds = max(0, min(seconds, 0x7FFFFFFF))
        entry_at = 40 + slots * 4 + count * 20
        struct.pack_into(">iqii", data, entry_at, code, offset, seconds, older)
        struct.pack_into(">i", data, slot_at, count)
        if count == 1:
            begin_offset, begin_ms = offset, store_ms
        used_slots += older == 0
        count += 1
        end_offset, end_ms = offset, store_ms
    head = (begin_ms, end_ms, begin_offset, end_offset, used_slots, count)
    struct.pack_into(">qqqqii", data, 0, *head)
    return bytes(data)
