"""Frames: messages encoded in one process and appended in another.

A frame is a commit log record without what only the log knows: queue offset, physical offset and
store time. Many processes encode, one appends; the bodies' checksums are kept on the way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketstore._native import frames as native
from rocketstore._native.codec import crc32, java_hash
from rocketstore._native.row_texts import Strings
from rocketstore.arguments import text, whole_number
from rocketstore.column_arguments import bytes_of, offsets_of
from rocketstore.compression import COMPRESSION_BITS
from rocketstore.config import StoreConfig
from rocketstore.errors import InvalidTopicError, MessageRejectedError
from rocketstore.log.layout import check_topic
from rocketstore.writer import RESERVED_PROPERTIES

if TYPE_CHECKING:
    from rocketstore._native.writer import Writer
    from rocketstore.engine.running import Engine

__all__ = ["FramesResult", "crc32", "encode_frames", "put_frames", "shard_queue_id"]

#: RocketMQ reads a delay out of every record here; those messages come through put_message.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"

#: The property of a shard key, for which there is no column of its own here.
SHARD_KEY = "__SHARDINGKEY"

Column = tuple[Any, Any]


@dataclass(frozen=True, slots=True)
class FramesResult:
    """Where `put_frames` put `count` messages: records in [physical_offset, end_offset), with those of
    others perhaps in between. `durability` is the promise that was met when the call returned."""

    physical_offset: int
    end_offset: int
    count: int
    durability: str


def encode_frames(
    bodies: Column,
    *,
    topics: Sequence[str],
    topic_rows: Any = None,
    queue_ids: Any = 0,
    tags: Column | None = None,
    keys: Column | None = None,
    properties: tuple[Any, Column, Column] | None = None,
    born_timestamps_ms: Any = None,
    born_host: str = "127.0.0.1:0",
    flags: Any = None,
    sys_flags: Any = None,
    reconsume_times: Any = None,
    max_body_bytes: int | None = None,
    into: bytearray | None = None,
) -> tuple[memoryview, dict[int, str]]:
    """Encodes columns of messages, without an object for each.

    Args:
        bodies: (offsets, data) in Arrow's layout: n + 1 integers of 32 or 64 bits, and bytes.
        topics: the topics that occur; a list, also of one.
        topic_rows: for each row its place in `topics`; default: all in the first.
        queue_ids: for each row, or one for all.
        tags, keys: (offsets, data) of UTF-8; an empty text stands for none. Several keys of one row
            are separated by blanks.
        properties: (offsets, names, values) as Arrow keeps maps: row i has the entries
            offsets[i] … offsets[i + 1] - 1 of the columns `names` and `values`. A shard key is the
            property `__SHARDINGKEY` here, and its queue that of `shard_queue_id`.
        born_timestamps_ms: for each row, or one for all; default: the time of this call, as of a put.
        flags, reconsume_times: for each row, or one for all; default 0.
        sys_flags: the same, for bodies that are compressed: bits 0x1 and 0x700, no others.
        max_body_bytes: default max_message_size_bytes of a store at its defaults.
        into: where to write, made larger when it must be: memory that is used again costs no page
            faults. Release the frames before it is used again.

    Returns:
        (frames, refused): frames for `Store.put_frames`, and for each row that was left out, why, with the
        name of the field.

    Raises:
        InvalidTopicError, MessageRejectedError: a topic or property name that no row may have.
        MessageRejectedError (a ValueError): columns of different lengths, offsets that leave their data,
            fall or are no integers, data that is no column of bytes; other bits in `sys_flags`.
        TypeError: a column that is no pair, or no buffer; `topics` that is one text.
    """
    if isinstance(topics, (str, bytes)):
        raise TypeError(f"topics = {topics!r}: expected a list of texts; for one, [{topics!r}]")
    if max_body_bytes is None:
        max_body_bytes = StoreConfig().max_message_size_bytes
    column = strings("bodies", bodies)
    count = column.rows
    room = bytearray() if into is None else into
    size, refused = native.encode_columns(
        column,
        tuple(check_topic(topic, wide=True) for topic in topics),
        topic_places(topic_rows, count, len(topics)),
        queue_column(queue_ids, count),
        whole(
            born_timestamps_ms, time.time_ns() // 1_000_000, count, np.int64, "born_timestamps_ms"
        ),
        born_host=born_host,
        max_body=max_body_bytes,
        refused=refuse_reserved,
        into=room,
        **number_columns(count, flags=flags, sys_flags=sys_flags, reconsume_times=reconsume_times),
        **property_columns(count, tags, keys, properties),
    )
    return memoryview(room)[:size], refused


def shard_queue_id(shard_key: str, queues: int) -> int:
    """The queue, 0 … queues - 1, in which `put` stores a message with this shard key, and RocketMQ's
    SelectMessageQueueByHash one with this text.

    Raises:
        TypeError, ValueError: no text, or `queues` is below 1.
    """
    queues = whole_number("queues", queues, 1)
    return abs(java_hash(text("shard_key", shard_key))) % queues


def strings(what: str, column: Any, rows: int | None = None) -> Strings:
    if not isinstance(column, tuple) or len(column) != 2:
        raise TypeError(f"{what}: expected a pair (offsets, data), not {type(column).__name__}")
    try:
        places, data = offsets_of("offsets", column[0]), bytes_of("data", column[1])
    except (TypeError, MessageRejectedError) as error:
        raise type(error)(f"{what}: {error} (a column is the pair (offsets, data))") from None
    try:
        made = Strings(places, data)
    except ValueError as error:
        raise MessageRejectedError(f"{what}: {error}") from None
    if rows is not None and made.rows != rows:
        raise MessageRejectedError(f"{what}: {made.rows} rows, expected {rows}")
    return made


def topic_places(given: Any, count: int, topics: int) -> Any:
    rows = whole(given, 0, count, np.int32, "topic_rows")
    if rows.size and not 0 <= int(rows.min()) <= int(rows.max()) < topics:
        raise ValueError(f"topic_rows: places in topics are 0 … {topics - 1}")
    return rows


def queue_column(given: Any, count: int) -> Any:
    queues = whole(given, 0, count, np.int32, "queue_ids")
    if queues.size and int(queues.min()) < 0:
        raise MessageRejectedError(f"queue_ids: {int(queues.min())} is below 0")
    return queues


def number_columns(count: int, **given: Any) -> dict[str, Any]:
    found = {
        name: whole(numbers, 0, count, np.int32, name)
        for name, numbers in given.items()
        if numbers is not None
    }
    if np.any(found.get("sys_flags", np.zeros(0, np.int32)) & ~COMPRESSION_BITS):
        raise MessageRejectedError(
            f"sys_flags: bits that say how a body is compressed ({COMPRESSION_BITS:#x}), no others"
        )
    return found


def property_columns(
    count: int, tags: Column | None, keys: Column | None, properties: Any
) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, texts in (("tags", tags), ("keys", keys)):
        if texts is not None:
            given[name] = strings(name, texts, count)
    if properties is not None:
        places, names, values = properties
        given["names"] = strings("names", names)
        given["values"] = strings("values", values, given["names"].rows)
        given["property_places"] = property_places(places, count, given["names"].rows)
    return given


def whole(given: Any, default: int, count: int, kind: Any, what: str) -> Any:
    """An array of `count` integers, made from one or from as many."""
    array = np.asarray(default if given is None else given)
    if array.dtype.kind not in "iu" or array.ndim > 1 or (array.ndim and array.size != count):
        raise ValueError(f"{what}: expected one integer, or {count} of them")
    if array.size and not np.can_cast(array.dtype, kind):
        limits = np.iinfo(kind)
        if array.min() < limits.min or array.max() > limits.max:
            raise ValueError(f"{what}: {limits.min} … {limits.max}")
    return np.ascontiguousarray(array, kind) if array.ndim else np.full(count, array, kind)


def property_places(given: Any, count: int, entries: int) -> Any:
    places = offsets_of("properties", given)
    if places.shape != (count + 1,) or places[0] < 0 or places[-1] > entries:
        raise MessageRejectedError(
            f"properties: {count} rows need {count + 1} offsets up to {entries}"
        )
    if np.any(places[1:] < places[:-1]):
        raise MessageRejectedError("properties: offsets must not fall")
    return places


def refuse_reserved(name: bytes) -> None:
    text = name.decode("utf-8", "replace")
    if text in RESERVED_PROPERTIES and text != SHARD_KEY:
        raise MessageRejectedError(
            f"property {text!r} is reserved by RocketMQ; {RESERVED_PROPERTIES[text]}"
        )
    if text.startswith("INNER_"):
        raise MessageRejectedError(f"property {text!r}: those of batches cannot be in a frame")
    if text.endswith("__CRC32#"):
        raise MessageRejectedError(f"property {text!r} looks like the record CRC")


def put_frames(
    engine: Engine, frames: Any, durability: str | None, timeout_s: float | None
) -> FramesResult:
    def writer_of(raw: bytes, queue_id: int) -> Writer:
        try:
            topic = raw.decode()
        except UnicodeDecodeError:
            raise InvalidTopicError(f"topic {raw!r}: not UTF-8") from None
        engine.check_topic(topic)
        if queue_id < 0:
            raise MessageRejectedError(f"queue_id = {queue_id}: 0 or more")
        if topic == SCHEDULE_TOPIC:
            raise MessageRejectedError(f"topic {topic!r}: use put_message for delayed messages")
        return engine.plain_writer(topic, queue_id)

    result = native.put_frames(
        engine.commit_log.log,
        np.frombuffer(frames, np.uint8),
        writer_of,
        record_crc=engine.record_crc,
        durability=durability,
        timeout_s=timeout_s,
    )
    return FramesResult(result.physical_offset, result.end_offset, result.count, result.durability)
