"""Reads batch queues: from units to records, and from records to the messages in them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from rocketstore._native.format.codec import encode_record
from rocketstore._native.format.message import Message
from rocketstore._native.format.scanner import read_message
from rocketstore.errors import CorruptRecordError, DecompressionError
from rocketstore.log.read.fetch_result import (
    FOUND,
    MESSAGE_WAS_REMOVING,
    OFFSET_OVERFLOW_ONE,
    UNPACKED_BYTES,
    BatchFetch,
)
from rocketstore.log.read.source import ReadSource, segment_at
from rocketstore.log.read.unit_place import note_place
from rocketstore.message import decompress
from rocketstore.values.compression import COMPRESSION_BITS
from rocketstore.values.system_flags import BATCH_BITS, LONG_ADDRESSES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketstore.log.read.batch_queue import BatchQueue, BatchUnit

__all__ = [
    "batch_end",
    "batch_time",
    "count_of",
    "disagreement",
    "fetch_batches",
    "is_inner_batch",
    "messages_of",
    "record_of",
]


#: Most records that a fetch reads, a count.
MOST_UNITS: Final = 512


def fetch_batches(
    source: ReadSource, queue: BatchQueue, topic: str, queue_id: int, offset: int, most: int
) -> BatchFetch:
    """Up to `most` messages from a queue offset on. Tags do not filter units: each message of a
    record has a tag of its own. Ends with the record that brings all that was unpacked to
    `UNPACKED_BYTES`.

    A record that does not hold raises `CorruptRecordError`, but only once it is the first one.
    """
    messages: list[Message] = []
    next_offset = offset
    unpacked = 0
    units = queue.from_offset(offset, min(most, MOST_UNITS))
    if not units:
        return BatchFetch([], offset, OFFSET_OVERFLOW_ONE)  # cut while we looked
    for unit in units:
        try:
            record = record_of(source, unit, topic, queue_id)
            found = [] if record is None else messages_of(record, unit.message_count)
        except (CorruptRecordError, DecompressionError, ModuleNotFoundError) as error:
            if messages:
                break
            note_place(error, (topic, queue_id, offset), unit.next_offset)
            raise
        messages += [message for message in found if message.queue_offset >= offset]
        next_offset = max(next_offset, unit.next_offset)
        unpacked += sum(message.size for message in found)
        if len(messages) >= most or unpacked >= UNPACKED_BYTES:
            break
    if len(messages) > most:
        del messages[most:]
        next_offset = messages[-1].queue_offset + 1
    fetch = BatchFetch(messages, next_offset, FOUND if messages else MESSAGE_WAS_REMOVING)
    fetch.unpacked = unpacked
    return fetch


def record_of(
    source: ReadSource, unit: BatchUnit, topic: str, queue_id: int, *, verify: int | None = None
) -> Message | None:
    """The record of a unit; None when it is no longer kept.

    Raises:
        CorruptRecordError: the log has another record there, or none.
    """
    at = unit.physical_offset
    if not unit.written:
        raise CorruptRecordError(at, "queue unit")
    # In this order: the files reach at least as far as `visible`, and files that a trim removed lie
    # below the minimum.
    visible = source.visible()
    file = segment_at(source.segments(), source.segment_size, at)
    if at < source.minimum():
        return None
    if file is None or unit.physical_end > min(visible, file.end_offset):
        raise CorruptRecordError(at, "queue unit")
    position = at - file.start_offset
    checks = source.verify if verify is None else verify
    record = read_message(file, position, position + unit.size, verify=checks)
    if disagreement(unit, record, topic, queue_id):
        raise CorruptRecordError(at, "queue unit")
    return record


def disagreement(unit: BatchUnit, record: Message, topic: str, queue_id: int) -> str:
    """What a unit says that its record does not, or ""."""
    if record.size != unit.size:
        return f"says {unit.size} bytes, the record at {unit.physical_offset} has {record.size}"
    place = (topic, queue_id, unit.base_offset)
    own = (record.topic, record.queue_id, record.queue_offset)
    if own != place:
        return f"points to {unit.physical_offset}, the record of {own[0]}/{own[1]} at {own[2]}"
    if count_of(record) != unit.message_count:
        return f"says {unit.message_count} messages, the record {count_of(record)}"
    return ""


def batch_time(queue: BatchQueue, from_offset: int, to_offset: int) -> tuple[int, int] | None:
    """Queue offset and store time of the first message in [from_offset, to_offset), as its unit has
    it."""
    for unit in queue.from_offset(from_offset, 1):
        first = max(from_offset, unit.base_offset)
        return (first, unit.store_timestamp_ms) if first < to_offset else None
    return None


def batch_end(queue: BatchQueue, queue_offset: int) -> int | None:
    """Physical end of the record that has a queue offset; None where none has it."""
    for unit in queue.from_offset(queue_offset, 1):
        return unit.physical_end if unit.base_offset <= queue_offset else None
    return None


# Takes messages out of inner batches: records of RocketMQ 5 with several messages (format 4.2).

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
