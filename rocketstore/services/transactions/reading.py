"""Reads a queue past messages that cannot be read: each of them is given, too, as what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from rocketstore.consumer import Consumer
from rocketstore.errors import CorruptRecordError, ReadFailedError, StoreBehindError
from rocketstore.values.kept_errors import without_frames

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rocketstore._native.format.message import Message
    from rocketstore.log.read.reader import Reader

__all__ = ["ReadError", "Unreadable", "messages_from"]

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
    """The messages of a queue from an offset on, or from its first one above that.

    Raises:
        ReadFailedError: the queue lacks units, so nobody knows which messages it lacks.
        StoreBehindError: it does not have all messages yet.
    """
    with Consumer(reader, topic, queue_id=queue_id, offset=begin, reset="earliest") as consumer:
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
