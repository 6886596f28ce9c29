"""Frames: messages encoded in one process and appended in another.

A frame is a commit log record without what only the log knows: queue offset, physical offset and
store time. Many processes encode, one appends; the bodies' checksums are kept on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from rocketstore._native.append.put_result import nothing_put
from rocketstore._native.format.codec import crc32, java_hash
from rocketstore._native.os.sigbus_guard import check_readable
from rocketstore._native.put import frames as native
from rocketstore.config import StoreConfig
from rocketstore.puts.put_columns import MessageColumns, message_columns, plain_writers
from rocketstore.values.arguments import Body, Column, text, whole_number
from rocketstore.values.public import public

if TYPE_CHECKING:
    from rocketstore._native.put import put_columns as native_columns
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.values.durability import Durability
    from rocketstore.values.timestamps import Duration

__all__ = ["FramesResult", "crc32", "encode_frames", "put_frames", "shard_queue_id"]


@public
@dataclass(frozen=True, slots=True)
class FramesResult:
    """Where `put_frames` put `count` messages: records in [physical_offset, end_offset), with those
    of others perhaps in between. `durability` is the promise that was met when the call
    returned."""

    physical_offset: int
    end_offset: int
    count: int
    durability: Durability


@public
def encode_frames(
    bodies: Column,
    *,
    max_body_bytes: int | None = None,
    into: bytearray | None = None,
    **columns: Unpack[MessageColumns],
) -> tuple[memoryview, dict[int, str]]:
    """Encodes columns of messages without an object for each; gives frames and refused rows.

    The frames are for `Store.put_frames`, perhaps of another process. A row that cannot be a
    message is left out: the second value has its number and why, with the name of the field.

    Args:
        bodies: (offsets, data) in Arrow's layout: n + 1 integers of 32 or 64 bits, and bytes.
        max_body_bytes: Largest body. None: that of a store with its defaults.
        into: Where the frames are written; it grows when it must. Memory that is used again costs
            no page faults. Release the frames before you use it again.
        topics: The topics that occur; a list, also of one.
        topic_rows: For each row its place in `topics`. Default: all rows have the first.
        queue_ids: For each row, or one for all. Default 0.
        tags, keys: (offsets, data) of UTF-8; an empty text means none. Several keys of one row
            are separated by blanks.
        properties: (offsets, names, values) as Arrow keeps maps: row i has the entries
            offsets[i] … offsets[i + 1] - 1 of the columns `names` and `values`. A shard key is the
            property `__SHARDINGKEY` here, and its queue that of `shard_queue_id`.
        born_timestamps_ms: For each row, or one for all. Default: the time of this call.
        born_host: Of all rows. Default "127.0.0.1:0".
        flags, reconsume_times: For each row, or one for all. Default 0.
        sys_flags: The same, for bodies that are compressed: bits 0x1 and 0x700, no others.

    Raises:
        InvalidTopicError, MessageRejectedError: A topic or property name that no row may have.
        MessageRejectedError: Columns of different lengths; offsets that leave their data, fall or
            are no integers; data that is no column of bytes; other bits in `sys_flags`.
        TypeError: A column that is no pair, or no buffer; `topics` that is one text; a keyword that
            is none of these.
        BufferError: `into` is too small, and frames of a call before are still in use.
    """
    if max_body_bytes is None:
        max_body_bytes = StoreConfig().max_message_size_bytes
    made = message_columns(encode_frames, bodies, columns, max_body_bytes)
    room = bytearray() if into is None else into
    return _encode(made, room)


def _encode(
    columns: native_columns.MessageColumns, room: bytearray
) -> tuple[memoryview, dict[int, str]]:
    try:
        return native.encode_columns(columns, room)
    except BufferError:
        raise BufferError(
            f"into: {len(room)} bytes are too few, and it cannot be made larger while frames in it "
            "are in use; release() those, or give another bytearray"
        ) from None


@public
def shard_queue_id(shard_key: str, queues: int) -> int:
    """The queue, 0 … queues - 1, in which `put` stores a message with this shard key, and
    RocketMQ's SelectMessageQueueByHash one with this text.

    Raises:
        TypeError, ValueError: no text, or `queues` is below 1.
    """
    queues = whole_number("queues", queues, 1)
    return abs(java_hash(text("shard_key", shard_key))) % queues


def put_frames(
    engine: WritingEngine, frames: Body, durability: Durability | None, timeout_s: Duration | None
) -> FramesResult:
    given: Any = frames  # NumPy's stubs know fewer buffers than NumPy does
    if not isinstance(given, bytes):
        # Frames are checked before they are appended: no thread may change them in between.
        check_readable(given)
        given = np.frombuffer(given, np.uint8).tobytes()
    if not given:
        none = nothing_put(engine.config.durability if durability is None else durability)
        return FramesResult(0, 0, 0, none.durability)
    result = native.put_frames(
        engine.commit_log.log,
        np.frombuffer(given, np.uint8),
        plain_writers(engine),
        record_crc=engine.record_crc,
        durability=durability,
        timeout_s=timeout_s,
    )
    return FramesResult(result.physical_offset, result.end_offset, result.count, result.durability)
