"""What happens in a put that has more than one body: batches, columns, frames, whole messages.

A put of one body, and a batch of one queue, are native (`rocketstore._native`, class Writer);
`rocketstore.writer` adds columns and tickets to them. `rocketstore.store` calls the rest:

    put_batch: `NewMessage` and `Store.put_batch`: messages of several topics, back to back.
    put_columns: `Store.put_columns`: columns of messages, checked as a whole, then appended.
        `MessageColumns` names and types the columns, for frames too.
    frames: `encode_frames` and `Store.put_frames`: columns encoded in one process and appended in
        another.
    put_message: `Store.put_message`: RocketMQ's putMessage, with every field as given.
    arrays: columns that a caller gives, checked and as NumPy arrays.

Read `put_batch` first, then `put_columns` with `arrays`. The modules that need NumPy (arrays,
frames, put_columns) are imported by the calls that use them, so that a put of one message does not
load it.

Every higher floor may import this package. It uses the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.values.lazy import first_use

if TYPE_CHECKING:
    from rocketstore.puts.frames import crc32
    from rocketstore.puts.put_columns import (
        SCHEDULE_TOPIC,
        SHARD_KEY,
        MessageColumns,
        refuse_reserved,
    )
    from rocketstore.puts.put_message import MessageFields

__all__ = [
    "SCHEDULE_TOPIC",
    "SHARD_KEY",
    "MessageColumns",
    "MessageFields",
    "crc32",
    "refuse_reserved",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of this package
    __getattr__ = first_use(
        __name__,
        {
            "frames": "crc32",
            "put_columns": "MessageColumns SCHEDULE_TOPIC SHARD_KEY refuse_reserved",
            "put_message": "MessageFields",
        },
    )
