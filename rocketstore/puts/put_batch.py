"""New messages of several topics and queues, put with one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketstore._native.append.put_result import PutResult, nothing_put
from rocketstore._native.put.batch_append import Rows
from rocketstore.values.public import public
from rocketstore.values.timestamps import Duration, Timestamp

if TYPE_CHECKING:
    from rocketstore._native.put.writer import Writer
    from rocketstore.values.arguments import Body
    from rocketstore.values.durability import Durability

__all__ = ["NewMessage", "put_batch"]


@public
@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message for `Store.put_batch`; fields as the arguments of `Writer.put`.

    `shard_key` is kept with the message; it does not choose the queue: that is `queue_id`, for
    example `shard_queue_id(shard_key, queues)`.
    """

    topic: str
    body: Body
    queue_id: int = 0
    tags: str | None = None
    keys: str | Sequence[str] | None = None
    properties: Mapping[str, str] | None = None
    flag: int = 0
    born_time: Timestamp | None = None
    shard_key: str | None = None
    delay_level: int | None = None
    deliver_at: Timestamp | None = None
    deliver_after: Duration | None = None


def put_batch(
    messages: Iterable[NewMessage],
    open_writer: Callable[[str, int], Writer],
    durability: Durability | None,
    timeout_s: Duration | None,
    default: Durability,
    *,
    chunk: bool,
) -> PutResult:
    """`default`: the promise of the store, where `durability` is None."""
    rows = Rows()
    writers: dict[tuple[str, int], Writer] = {}
    if not isinstance(messages, Iterable):
        raise TypeError(f"messages: expected several NewMessage, not {type(messages).__name__}")
    for index, message in enumerate(messages):
        if not isinstance(message, NewMessage):
            raise TypeError(f"messages[{index}]: expected NewMessage, not {type(message).__name__}")
        try:
            key = (message.topic, message.queue_id)
            writer = writers.get(key)
            if writer is None:
                writer = writers[key] = open_writer(*key)
            rows.add(
                writer,
                message.body,
                message.tags,
                message.keys,
                message.properties,
                message.flag,
                message.born_time,
                message.shard_key,
                message.delay_level,
                message.deliver_at,
                message.deliver_after,
            )
        except (TypeError, ValueError) as error:  # MessageRejectedError and ConfigError are of them
            error.add_note(f"messages[{index}]; nothing was stored")
            raise
    if not writers:
        return nothing_put(default if durability is None else durability)
    return rows.put(durability, timeout_s, chunk)
