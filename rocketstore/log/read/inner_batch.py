"""Takes messages out of inner batches: records of RocketMQ 5 with several messages (format 4.2)."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from rocketstore._native.format.codec import encode_record
from rocketstore._native.format.message import Message
from rocketstore.errors import CorruptRecordError
from rocketstore.message import decompress
from rocketstore.values.compression import COMPRESSION_BITS
from rocketstore.values.system_flags import BATCH_BITS, LONG_ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["count_of", "is_inner_batch", "messages_of"]

#: System flags that a message from a batch does not have: it is whole and plain, and the encoder
#: sets the bits of long addresses.
_DROPPED: Final = BATCH_BITS | COMPRESSION_BITS | LONG_ADDRESSES
#: Size, magic, checksum, flag and body size of a message in a batch; only the last two count.
_HEAD: Final = struct.Struct(">5i")
_MOST: Final = 32767


def is_inner_batch(message: Message) -> bool:
    return message.sys_flag & BATCH_BITS == BATCH_BITS


def count_of(message: Message) -> int:
    """How many queue offsets a record takes: INNER_NUM of an inner batch, else 1."""
    text = message.properties.get("INNER_NUM", "") if is_inner_batch(message) else ""
    digits = text.removeprefix("+")
    count = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else 1
    return count if 1 <= count <= _MOST else 1


def messages_of(record: Message, count: int) -> list[Message]:
    """The messages of a record, as RocketMQ's client makes them: `count` messages with consecutive
    queue offsets, their own flag, body and properties, all else from the record.

    Each looks like the message of a plain record: neither compressed nor marked as a batch.

    Raises:
        CorruptRecordError: the body is not made of `count` messages.
        DecompressionError, ModuleNotFoundError: it cannot be unpacked.
    """
    if not is_inner_batch(record):
        return [record]
    body = decompress(record)
    parts = list(_parts(body, record.physical_offset, count))
    if len(parts) != count:
        fault = f"a batch of {len(parts)} messages that says {count}"
        raise CorruptRecordError(record.physical_offset, fault)
    return [
        Message.from_bytes(
            encode_record(
                topic=record.topic,
                body=own_body,
                properties=properties,
                queue_id=record.queue_id,
                flag=flag,
                queue_offset=record.queue_offset + number,
                physical_offset=record.physical_offset,
                sys_flag=record.sys_flag & ~_DROPPED,
                born_timestamp_ms=record.born_timestamp_ms,
                born_host=record.born_host,
                store_timestamp_ms=record.store_timestamp_ms,
                store_host=record.store_host,
                reconsume_times=record.reconsume_times,
            ),
            verify=False,
        )
        for number, (flag, own_body, properties) in enumerate(parts)
    ]


def _parts(body: bytes, physical_offset: int, most: int) -> Iterator[tuple[int, bytes, bytes]]:
    """Flag, body and property text of each message in a batch, at most one more than `most`."""
    at = 0
    while at < len(body) and most >= 0:
        most -= 1
        sizes_end = at + _HEAD.size
        flag, body_size = _HEAD.unpack_from(body, at)[3:] if sizes_end <= len(body) else (0, -1)
        body_end = sizes_end + body_size
        if body_size < 0 or body_end + 2 > len(body):
            raise CorruptRecordError(physical_offset, f"no message at byte {at} of its batch")
        text_size = int.from_bytes(body[body_end : body_end + 2], "big", signed=True)
        end = body_end + 2 + text_size
        if text_size < 0 or end > len(body):
            raise CorruptRecordError(physical_offset, f"no message at byte {at} of its batch")
        yield flag, body[sizes_end:body_end], body[body_end + 2 : end]
        at = end
