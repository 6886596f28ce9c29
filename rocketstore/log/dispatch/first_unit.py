"""Decides which of two records with one queue offset keeps its unit."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rocketstore._native.format.scanner import read_message
from rocketstore.errors import CorruptRecordError
from rocketstore.values.system_flags import IN_QUEUES, TRANSACTION_TYPE

if TYPE_CHECKING:
    from rocketstore._native.os.mapped_file import MappedFile
    from rocketstore.log.queues.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

__all__ = ["first_stays"]


def first_stays(
    queue: ConsumeQueue,
    queue_offset: int,
    physical_offset: int,
    find: Callable[[int], MappedFile | None],
) -> bool:
    """Whether the unit at `queue_offset` belongs to an earlier record with the same queue offset.
    As in RocketMQ it is kept then, unless it is out of order itself: a later record does not hide a
    good one."""
    there, before = queue.unit(queue_offset), queue.unit(queue_offset - 1)
    if there is None or there[0] >= physical_offset or (before and before[0] > there[0]):
        return False
    file = find(there[0])
    if file is None:
        return False
    try:
        message = read_message(file, there[0] - file.start_offset, file.size, verify=0)
    except CorruptRecordError:
        return False
    place = (message.topic, message.queue_id, message.queue_offset, message.size)
    in_queue = message.sys_flag & TRANSACTION_TYPE in IN_QUEUES
    if not in_queue or place != (queue.topic, queue.queue_id, queue_offset, there[1]):
        return False
    logger.warning(
        "%s/%d: the records at %d and %d both have queue offset %d: the later one gets no unit",
        queue.topic, queue.queue_id, there[0], physical_offset, queue_offset,
    )  # fmt: skip
    return True
