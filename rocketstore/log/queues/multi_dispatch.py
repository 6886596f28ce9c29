"""Messages in further queues: INNER_MULTI_DISPATCH (format 6.7).

A unit of a light queue points to a record of another queue, which names the light queue and the
message's offset in it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketstore.log.layout.paths import is_safe_name
from rocketstore.log.queues.units import PRE_BLANK_SIZE, UnitRefusedError

if TYPE_CHECKING:
    from rocketstore._native.format.message import Message
    from rocketstore.log.queues.consume_queue import ConsumeQueue

__all__ = [
    "check_unit",
    "is_multi_dispatched",
    "multi_dispatch_queues",
    "offset_in_queue",
    "record_queues",
]

logger = logging.getLogger(__name__)

LIGHT_PREFIX = "%LMQ%"
#: Prefixes of topics whose messages are in no further queue, whatever properties they have
#: (format 6.7).
NEVER_LISTED = ("%RETRY%", "rmq_sys_")
NUMBER = re.compile(r"[0-9]{1,19}")


def is_multi_dispatched(topic: str) -> bool:
    """Whether messages of a topic may be in further queues. A retried or delayed message keeps its
    first properties, and its units in those queues are those of the first message."""
    return not topic.startswith(NEVER_LISTED) and topic != "SCHEDULE_TOPIC_XXXX"


def multi_dispatch_queues(message: Message) -> list[tuple[str, int, int]]:
    """Further queues of a message: name, queue id, queue offset."""
    properties = message.properties
    names = properties.get("INNER_MULTI_DISPATCH", "").split(",")
    offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    if len(names) != len(offsets):
        return []
    return [
        (name, 0 if name.startswith(LIGHT_PREFIX) else message.queue_id, int(offset))
        for name, offset in zip(names, offsets, strict=True)
        if name and "/" not in name and NUMBER.fullmatch(offset)
    ]


def record_queues(
    properties: Mapping[str, str], queue_id: int, physical_offset: int
) -> list[tuple[str, int, int]]:
    """The same for a record that is dispatched. Names that cannot be directories are left out."""
    if "INNER_MULTI_QUEUE_OFFSET" not in properties:
        return []
    names = properties.get("INNER_MULTI_DISPATCH", "").split(",")
    offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    if len(names) != len(offsets):
        logger.warning("record %d: as many queue names as offsets expected", physical_offset)
        return []
    return [
        (name, 0 if name.startswith(LIGHT_PREFIX) else queue_id, int(text))
        for name, text in zip(names, offsets, strict=True)
        if NUMBER.fullmatch(text) and is_safe_name(name)
    ]


def check_unit(
    queue: ConsumeQueue, queue_offset: int, physical_offset: int
) -> tuple[int, int, int] | None:
    """The unit at the offset that a record has in a further queue; None if there is none yet.
    UnitRefusedError: the record's unit cannot be there."""
    there = queue.unit(queue_offset)
    if there is not None and there[0] < physical_offset and 0 < there[1] < PRE_BLANK_SIZE:
        raise UnitRefusedError(f"{queue.name}: unit {queue_offset} is of the record at {there[0]}")
    if (
        queue.files
        and queue_offset > queue.written_end
        and not queue.topic.startswith(LIGHT_PREFIX)
    ):
        # A producer must not move the end of a queue that others put to.
        raise UnitRefusedError(f"{queue.name}: ends at {queue.written_end}, not at {queue_offset}")
    return there


def offset_in_queue(message: Message, topic: str, queue_id: int) -> int:
    """Queue offset of a message in the queue that it was read from."""
    if message.topic != topic or message.queue_id != queue_id:
        for name, listed_id, queue_offset in multi_dispatch_queues(message):
            if (name, listed_id) == (topic, queue_id):
                return queue_offset
    return message.queue_offset
