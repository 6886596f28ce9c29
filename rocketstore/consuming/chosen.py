"""What a caller gives to `commit`: a message, or offsets by queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from rocketstore._native.format.message import Message
from rocketstore.errors import QueueNotFoundError
from rocketstore.log.queues.multi_dispatch import multi_dispatch_queues
from rocketstore.values.arguments import whole_number

if TYPE_CHECKING:
    from collections.abc import Container

__all__ = ["LEVELS", "Upto", "chosen_offsets"]

#: What a caller gives: a message, next offsets by queue id, or None.
Upto: TypeAlias = "Message | Mapping[int, int] | None"
#: What a commit may promise.
LEVELS = ("disk", "os")


def chosen_offsets(upto: Upto, topic: str, queues: Container[int]) -> dict[int, int] | None:
    """Next queue offsets by queue id; None where the caller leaves them to the consumer.

    Raises:
        TypeError: it is neither.
        ValueError: the message is of another topic, or an offset is negative.
        QueueNotFoundError: the consumer has no such queue.
    """
    if upto is None:
        return None
    if isinstance(upto, Message):
        offsets = _after(upto, topic)
    elif isinstance(upto, Mapping):
        offsets = {
            whole_number("queue_id", queue_id, 0): whole_number("offset", offset, 0)
            for queue_id, offset in upto.items()
        }
    else:
        raise TypeError(
            f"commit() takes a Message or {{queue_id: offset}}, not {type(upto).__name__}"
        )
    for queue_id in offsets:
        if queue_id not in queues:
            raise QueueNotFoundError(
                f"queue_id = {queue_id}: the consumer of {topic!r} has no queue {queue_id}; "
                "nothing is stored"
            )
    return offsets


def _after(message: Message, topic: str) -> dict[int, int]:
    if message.topic == topic:
        return {message.queue_id: message.queue_offset + 1}
    for name, queue_id, offset in multi_dispatch_queues(message):
        if name == topic:
            return {queue_id: offset + 1}
    raise ValueError(
        f"the message is of topic {message.topic!r}, and the consumer reads {topic!r}: commit it "
        "by a consumer of its own topic"
    )
