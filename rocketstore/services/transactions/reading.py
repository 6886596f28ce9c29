"""Reads a queue past messages that cannot be read: each of them is given, too, as what it is. Finds
what was put for a half message already, by the prepared offset that it carries (K-66)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from rocketstore.consumer import Consumer
from rocketstore.errors import CorruptRecordError, ReadFailedError, StoreBehindError
from rocketstore.services.transactions.half_messages import (
    COMMITTED,
    DEAD_TOPIC,
    OP_TOPIC,
    settled_by,
)
from rocketstore.values.kept_errors import without_frames
from rocketstore.values.system_flags import TRANSACTION_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rocketstore._native.format.message import Message
    from rocketstore.log.read.reader import Reader


__all__ = ["ReadError", "Unreadable", "find_copies", "first_above", "has_end", "messages_from"]

#: Why one message cannot be read. Only the second one may be gone at the next try.
ReadError: TypeAlias = CorruptRecordError | ReadFailedError


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that has its unit in the queue, and no record that holds."""

    queue_offset: int
    physical_offset: int
    error: ReadError


def messages_from(
    reader: Reader, topic: str, queue_id: int, begin: int
) -> Iterator[Message | Unreadable]:
    """The messages of a queue from an offset on, or from its first one above that, after a
    catch-up; none of a queue that is not there.

    Raises:
        ReadFailedError: the queue lacks units, so nobody knows which messages it lacks.
        StoreBehindError: it does not have all messages yet.
    """
    reader.source.catch_up()
    if reader.source.queue(topic, queue_id) is None:
        return
    minimum, maximum = reader.bounds(topic, queue_id)
    if begin >= maximum:
        return
    at = max(begin, minimum)
    with Consumer(reader, topic, queue_id=queue_id, offset=at, reset="earliest") as consumer:
        while True:
            try:
                yield from consumer
                return
            except StoreBehindError:
                raise
            except (CorruptRecordError, ReadFailedError) as error:
                at = consumer.positions[queue_id]
                unit = reader.unit_at(topic, queue_id, at)
                if unit is None:
                    raise
                consumer.seek(at + 1, queue_id=queue_id)
                yield Unreadable(at, unit[0], without_frames(error))


def find_copies(
    reader: Reader,
    topic: str,
    queue_id: int,
    halves: Iterable[int],
    unique_id: str | None = None,
) -> tuple[dict[int, int], list[ReadError]]:
    """Physical offset of a half message -> that of its committed copy in this queue, or of its copy
    in the dead topic. And the errors of messages there that cannot be read, any of which may be
    one.

    A copy lies above its half message in the log, so the look begins at the oldest of `halves`;
    with a unique id, also copies of other half messages with this id count, wherever they are.
    """
    wanted = set(halves)
    if not wanted:
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
    begin = first_above(reader, OP_TOPIC, half.queue_id, half.physical_offset)
    segments = [s for s in reader.source.segments() if s.end_offset > half.physical_offset]
    return all(one.end_offset == next_.start_offset for one, next_ in pairwise(segments)) and any(
        not isinstance(op, Unreadable) and half.queue_offset in settled_by(op)
        for op in messages_from(reader, OP_TOPIC, half.queue_id, begin)
    )


def first_above(reader: Reader, topic: str, queue_id: int, physical_offset: int) -> int:
    """The first queue offset whose record ends above a physical offset, after a catch-up: that may
    be the first message of its queue. 0 of a queue that is not there."""
    reader.source.catch_up()
    if reader.source.queue(topic, queue_id) is None:
        return 0
    low, high = reader.bounds(topic, queue_id)
    while low < high:
        middle = (low + high) // 2
        end = reader.unit_end(topic, queue_id, middle)
        if end is None or end <= physical_offset:
            low = middle + 1
        else:
            high = middle
    return low
