"""Where a consumer begins: what users say, and what it means."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rocketstore.values.arguments import whole_number
from rocketstore.values.timestamps import Timestamp, timestamp_ms

if TYPE_CHECKING:
    from rocketstore.consuming.cursors import Edge

__all__ = ["EDGES", "chosen_queues", "place_of"]

EDGES: Final = ("earliest", "latest")


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
            raise ValueError(f"offset = {offset!r}: a number, 'earliest' or 'latest'")
        return offset, None
    given: object = offset
    if isinstance(given, datetime.datetime):
        raise TypeError(f"offset = {offset!r}: a time is given by when=")
    offset = whole_number("offset", offset, 0)
    if queue_id is None:
        raise ValueError(f"offset = {offset}: a number needs the queue_id that it belongs to")
    return offset, None
