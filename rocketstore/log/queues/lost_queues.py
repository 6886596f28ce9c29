"""Whether queues, or units at their ends, are missing: an open compares what it finds with what our
checkpoint and `queue_ends` say. What is missing is rebuilt from the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketstore.log.queues.directories import names_digest
from rocketstore.log.queues.units import has_units_up_to

if TYPE_CHECKING:
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = ["digest_below", "has_lost_any", "has_shortened"]


def digest_below(queues: ConsumeQueueStore, dispatched: int) -> tuple[int, int]:
    """`ConsumeQueueStore.digest` of the queues whose first record is below `dispatched`. While an
    open catches up there may be others: those of a process that was killed, their names not on
    disk."""
    return names_digest(
        (queue.topic, queue.queue_id)
        for queue in queues.all()
        if (begin := queue.physical_begin) is not None and begin < dispatched
    )


def has_lost_any(queues: ConsumeQueueStore, digest: tuple[int, int], dispatched: int) -> bool:
    """Whether a queue is missing since a checkpoint had `digest`. A queue whose first record is at
    or above `dispatched` may be newer than the checkpoint, the last ones first; dispatching from
    there fills it. A queue without a record in the log is either very old or very new.
    """
    if queues.digest() == digest:
        return False
    begins = [(queue.physical_begin, (queue.topic, queue.queue_id)) for queue in queues.all()]
    empty = [name for begin, name in begins if begin is None]
    filled = sorted((begin, name) for begin, name in begins if begin is not None)
    by_age = [name for _, name in filled]
    believed = (
        [name for begin, name in filled if begin < dispatched],
        by_age[: digest[0]],
        [*empty, *by_age][: digest[0]],
    )
    return all(names_digest(names) != digest for names in believed)


def has_shortened(queues: ConsumeQueueStore, dispatched: int) -> bool:
    """Whether a queue ends below its saved end: units or files of it are missing. False where our
    checkpoint says that queues cover less of the log: then they are rebuilt anyway."""
    return 0 < queues.ends.log_end <= dispatched and any(
        _is_shorter(queue, queues.ends.least(queue.topic, queue.queue_id)) for queue in queues.all()
    )


def _is_shorter(queue: ConsumeQueue, least: int) -> bool:
    if not least or has_units_up_to(queue.directory, queue.file_size, least):
        return False
    return queue.written_end < least
