"""From a unit's place in a queue file to the messages of the units from there on."""

from __future__ import annotations

from typing import Final, NamedTuple

from rocketstore._native.format.message import Message
from rocketstore._native.format.queue_file import UNIT_SIZE
from rocketstore._native.format.queue_reader import has_address, read_units
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC
from rocketstore.log.queues.extension_units import ExtensionUnits, is_address, with_addresses
from rocketstore.log.read.source import QueueView, ReadSource

__all__ = ["FILTER_UNITS", "UnitPlace", "messages_at", "next_file", "note_place"]

#: Units that a fetch reads for a filter that takes none of them; 16,000 bytes, as RocketMQ reads.
FILTER_UNITS: Final = 800
#: Greatest tags code that is a hash; times are greater.
LAST_HASH: Final = (1 << 31) - 1


class UnitPlace(NamedTuple):
    """Where a unit is: its queue and offset there, its file and position, and the queue's extension
    units."""

    topic: str
    queue_id: int
    offset: int
    file: MappedFile
    position: int
    extension: ExtensionUnits


def note_place(error: Exception, at: tuple[str, int, int], next_offset: int) -> None:
    """Says in an error which message it is of, `at` (topic, queue id, queue offset), and how to
    step over it."""
    topic, queue_id, queue_offset = at
    if isinstance(error, CorruptRecordError):
        error.topic, error.queue_id, error.queue_offset = at
    error.add_note(
        f"{topic}/{queue_id}, queue offset {queue_offset}: "
        f"seek({next_offset}, queue_id={queue_id}) steps over it"
    )


def messages_at(
    source: ReadSource, place: UnitPlace, count: int, tags_codes: frozenset[int] | None = None
) -> list[Message]:
    """The messages of `count` units from a place on; with `tags_codes` those whose unit has one.

    Raises:
        CorruptRecordError, ReadFailedError: one of the records does not hold, or cannot be read.
        StoreClosedError: the store, or a file that a trim removed, is closed.
    """
    if tags_codes is not None and has_address(place.file, place.position, count):
        units = place.file.read(place.position, count * UNIT_SIZE)
        tags_codes = with_addresses(tags_codes, units, place.extension)
    # In this order: the files then reach at least as far as `visible`.
    minimum, visible = source.minimum(), source.visible()
    messages = read_units(
        place.file,
        place.position,
        count,
        source.segments(),
        source.segment_size,
        topic=place.topic.encode(),
        queue_id=place.queue_id,
        first_queue_offset=place.offset,
        log_minimum=minimum,
        limit_offset=visible,
        verify=source.verify,
        tags_codes=tags_codes,
    )
    if place.topic == SCHEDULE_TOPIC:
        _note_due_times(place, count, messages)
    return messages


def _note_due_times(place: UnitPlace, count: int, messages: list[Message]) -> None:
    """Units of messages that wait hold the time at which they are due."""
    units = place.file.read(place.position, count * UNIT_SIZE)
    for message in messages:
        at = (message.queue_offset - place.offset) * UNIT_SIZE
        due_ms = int.from_bytes(units[at + UNIT_SIZE - 8 : at + UNIT_SIZE], "big", signed=True)
        if is_address(due_ms):
            extension = place.extension.unit(due_ms)
            due_ms = 0 if extension is None else extension.tags_code
        if due_ms > LAST_HASH:
            message._due_at(due_ms)


def next_file(queue: QueueView, queue_offset: int) -> int:
    """First queue offset of the file after the one that should hold `queue_offset`; the end of a
    queue that has no file."""
    units = queue.file_size // UNIT_SIZE or max(1, queue.max_offset)
    return (queue_offset // units + 1) * units
