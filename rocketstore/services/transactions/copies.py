"""Finds what was put for a half message already, by the prepared offset that it carries (K-66)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from rocketstore.services.transactions.half_messages import (
    COMMITTED,
    DEAD_TOPIC,
    OP_TOPIC,
    settled_by,
)
from rocketstore.services.transactions.reading import ReadError, Unreadable, messages_from
from rocketstore.values.system_flags import TRANSACTION_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rocketstore._native.format.message import Message
    from rocketstore.log.read.reader import Reader

__all__ = ["find_copies", "first_above", "has_end"]


def find_copies(
    reader: Reader,
    topic: str,
    queue_id: int,
    halves: Iterable[int],
    unique_id: str | None = None,
) -> tuple[dict[int, int], list[ReadError]]:
    """Physical offset of a half message -> that of its committed copy in this queue, or of its copy
    in the dead topic. And the errors of messages there that cannot be read, any of which may be one.

    A copy lies above its half message in the log, so the look begins at the oldest of `halves`;
    with a unique id, also copies of other half messages with this id count, wherever they are.
    """
    wanted = set(halves)
    if wanted:
        reader.source.catch_up()  # the copy may be the first message of its queue
    if not wanted or reader.source.queue(topic, queue_id) is None:
        return {}, []
    kind = 0 if topic == DEAD_TOPIC else COMMITTED
    oldest = 0 if unique_id else min(wanted)
    begin = first_above(reader, topic, queue_id, oldest)
    found: dict[int, int] = {}
    errors: list[ReadError] = []
    for message in messages_from(reader, topic, queue_id, begin):
        if isinstance(message, Unreadable):
            errors.append(message.error)
            continue
        half = message.prepared_transaction_offset
        ours = half in wanted or (unique_id and message.unique_id == unique_id)
        if ours and message.sys_flag & TRANSACTION_TYPE == kind:
            found.setdefault(half, message.physical_offset)
    return found, errors


def has_end(reader: Reader, half: Message) -> bool:
    """Whether an op message names a half message, and no file of the log after it is missing: then
    one without a copy was rolled back."""
    if reader.source.queue(OP_TOPIC, half.queue_id) is None:
        return False
    begin = first_above(reader, OP_TOPIC, half.queue_id, half.physical_offset)
    segments = [s for s in reader.source.segments() if s.end_offset > half.physical_offset]
    return all(one.end_offset == next_.start_offset for one, next_ in pairwise(segments)) and any(
        not isinstance(op, Unreadable) and half.queue_offset in settled_by(op)
        for op in messages_from(reader, OP_TOPIC, half.queue_id, begin)
    )


def first_above(reader: Reader, topic: str, queue_id: int, physical_offset: int) -> int:
    """The first queue offset whose record ends above a physical offset."""
    low, high = reader.bounds(topic, queue_id)
    while low < high:
        middle = (low + high) // 2
        end = reader.unit_end(topic, queue_id, middle)
        if end is None or end <= physical_offset:
            low = middle + 1
        else:
            high = middle
    return low
