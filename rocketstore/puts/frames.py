"""Frames: messages encoded in one process and appended in another.

A frame is a commit log record without what only the log knows: queue offset, physical offset and
store time. Many processes encode, one appends; the bodies' checksums are kept on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rocketstore._native import frames as native
from rocketstore._native.codec import crc32, java_hash
from rocketstore.config import StoreConfig
from rocketstore.puts.put_columns import Column, message_columns, plain_writers
from rocketstore.values.arguments import text, whole_number
from rocketstore.values.public import public

if TYPE_CHECKING:
    from rocketstore._native.message_columns import MessageColumns
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.values.durability import Durability

__all__ = ["FramesResult", "crc32", "encode_frames", "put_frames", "shard_queue_id"]


@public
@dataclass(frozen=True, slots=True)
class FramesResult:
    """Where `put_frames` put `count` messages: records in [physical_offset, end_offset), with those of
    others perhaps in between. `durability` is the promise that was met when the call returned."""

    physical_offset: int
    end_offset: int
    count: int
    durability: Durability


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
        BufferError: `into` is too small, and frames of a call before are still in use.
    """
    if max_body_bytes is None:
        max_body_bytes = StoreConfig().max_message_size_bytes
    columns = message_columns(
        bodies,
        topics=topics,
        topic_rows=topic_rows,
        queue_ids=queue_ids,
        tags=tags,
        keys=keys,
        properties=properties,
        born_timestamps_ms=born_timestamps_ms,
        born_host=born_host,
        flags=flags,
        sys_flags=sys_flags,
        reconsume_times=reconsume_times,
        max_body_bytes=max_body_bytes,
    )
    room = bytearray() if into is None else into
    size, refused = _encode(columns, room)
    return memoryview(room)[:size], refused


def _encode(columns: MessageColumns, room: bytearray) -> tuple[int, dict[int, str]]:
    try:
        return native.encode_columns(columns, room)
    except BufferError:
        raise BufferError(
            f"into: {len(room)} bytes are too few, and it cannot be made larger while frames in it "
            "are in use; release() those, or give another bytearray"
        ) from None


def shard_queue_id(shard_key: str, queues: int) -> int:
    """The queue, 0 … queues - 1, in which `put` stores a message with this shard key, and RocketMQ's
    SelectMessageQueueByHash one with this text.

    Raises:
        TypeError, ValueError: no text, or `queues` is below 1.
    """
    queues = whole_number("queues", queues, 1)
    return abs(java_hash(text("shard_key", shard_key))) % queues


def put_frames(
    engine: WritingEngine, frames: Any, durability: Durability | None, timeout_s: float | None
) -> FramesResult:
    result = native.put_frames(
        engine.commit_log.log,
        np.frombuffer(frames, np.uint8),
        plain_writers(engine),
        record_crc=engine.record_crc,
        durability=durability,
        timeout_s=timeout_s,
    )
    return FramesResult(result.physical_offset, result.end_offset, result.count, result.durability)
