"""The record that a unit points to, and whether it has the unit's place.

A unit is what a queue says; only its record shows whether it is the queue's own.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketstore._native.format.message import Message
from rocketstore._native.format.scanner import read_message
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore.errors import CorruptRecordError
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.multi_dispatch import record_queues
from rocketstore.log.queues.units import PRE_BLANK_SIZE
from rocketstore.values.system_flags import IN_QUEUES, TRANSACTION_TYPE

__all__ = ["Find", "Unit", "has_place", "holds", "record_of"]

#: Physical offset, size and tags code.
Unit = tuple[int, int, int]
#: The file of the log that has a physical offset.
Find = Callable[[int], "MappedFile | None"]


def record_of(unit: Unit, find: Find, verify: int = 0) -> Message | None:
    """The record that begins where a unit says, with the size that it says; none whose checksums do
    not hold, of those that `verify` asks for."""
    physical_offset, size = unit[:2]
    if physical_offset < 0 or size <= 0 or size == PRE_BLANK_SIZE:
        return None
    file = find(physical_offset)
    if file is None:
        return None
    try:
        message = read_message(file, physical_offset - file.start_offset, file.size, verify=verify)
    except CorruptRecordError:
        return None
    return message if message.size == size else None


def has_place(message: Message, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether a record names this place, as its own or as a further one (format 6.7)."""
    own = message.topic, message.queue_id, message.queue_offset
    listed = record_queues(message.properties, message.queue_id, message.physical_offset)
    return (queue.topic, queue.queue_id, queue_offset) in (own, *listed)


def holds(queue: ConsumeQueue, queue_offset: int, unit: Unit, find: Find) -> bool:
    """Whether a unit points to a record of this queue with this queue offset."""
    message = record_of(unit, find)
    if message is None or message.sys_flag & TRANSACTION_TYPE not in IN_QUEUES:
        return False
    return has_place(message, queue, queue_offset)
