"""What a caller gives: where a consumer begins, and to `commit` a message, or offsets by queue."""

from __future__ import annotations

import datetime
from collections.abc import Container, Iterable, Mapping
from typing import Final, TypeAlias

from rocketstore._native.format.message import Message
from rocketstore.consuming.cursors import Edge
from rocketstore.errors import QueueNotFoundError
from rocketstore.log.queues.multi_dispatch import multi_dispatch_queues
from rocketstore.values.arguments import whole_number
from rocketstore.values.timestamps import Timestamp, timestamp_ms

__all__ = ["EDGES", "LEVELS", "Upto", "chosen_offsets", "chosen_queues", "place_of"]

#: What a caller gives: a message, next offsets by queue id, or None.
Upto: TypeAlias = "Message | Mapping[int, int] | None"
#: What a commit may promise.
LEVELS = ("disk", "os")
#: Where a consumer may begin without an offset.
EDGES: Final = ("earliest", "latest")


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
        raise TypeError(f"upto = {upto!r}: expected a Message, or {{queue_id: offset}}")
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


def chosen_queues(queue_id: int | None, queue_ids: Iterable[int] | None) -> tuple[int, ...] | None:
    """The queues wanted, each once, in order; None for all of the topic."""
    if queue_ids is None:
        return None if queue_id is None else (whole_number("queue_id", queue_id, 0),)
    if queue_id is not None:
        raise ValueError(f"queue_ids = {queue_ids!r}: not together with queue_id")
    if isinstance(queue_ids, str | bytes) or not isinstance(queue_ids, Iterable):
        raise TypeError(f"queue_ids = {queue_ids!r}: expected several whole numbers")
    wanted = {whole_number("a number of queue_ids", each, 0) for each in queue_ids}
    if not wanted:
        raise ValueError("queue_ids has no queue: give some, or leave it out for all of them")
    return tuple(sorted(wanted))


def place_of(
    offset: Edge | int, when: Timestamp | None, queue_id: int | None
) -> tuple[Edge | int, int | None]:
    """A wish as (end or offset, time in ms): the time counts unless it is None.

    Raises:
        ValueError: an offset together with a time, no end, or a number without a queue.
        TypeError: a value of another type.
    """
    if when is not None:
        if offset != "earliest":
            raise ValueError(f"offset = {offset!r}: not together with when")
        return "earliest", timestamp_ms("when", when)
    if isinstance(offset, str):
        if offset not in EDGES:
            raise ValueError(
                f"offset = {offset!r}: a number, 'earliest' or 'latest', and for seek 'committed'"
            )
        return offset, None
    given: object = offset
    if isinstance(given, datetime.datetime):
        raise TypeError(f"offset = {offset!r}: a time is given by when=")
    offset = whole_number("offset", offset, 0)
    if queue_id is None:
        raise ValueError(f"offset = {offset}: a number needs the queue_id that it belongs to")
    return offset, None
