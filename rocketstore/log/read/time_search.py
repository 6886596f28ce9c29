"""Finds the queue offset of a time: binary search over the records' own store timestamps.

Bounds are exact; RocketMQ's are not: it answers 0 if every message is younger, and 4.9 picks a
neighbour by distance (vectors `time_lookup`). If store times may fall at known offsets, as after a
clock that was set back, the parts between them are searched one by one. Within a range that another
program wrote these offsets are unknown: the answer is one of the offsets where the times cross, as
it is RocketMQ's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Literal, Protocol

from rocketstore._native.format.message import Message
from rocketstore.errors import CorruptRecordError, ReadFailedError, StoreClosedError
from rocketstore.log.queues.multi_dispatch import offset_in_queue
from rocketstore.log.read.batch_queue import BatchQueue
from rocketstore.log.read.batch_reader import batch_time
from rocketstore.log.read.source import ReadSource
from rocketstore.log.read.unit_place import FILTER_UNITS, UnitPlace, messages_at, next_file

__all__ = ["Boundary", "TimedQueue", "breaks_of", "find_offset", "offset_at"]

Boundary = Literal["lower", "upper"]
_STORE_TIME = attrgetter("store_timestamp_ms")
_PHYSICAL_OFFSET = attrgetter("physical_offset")


class TimedQueue(Protocol):
    """The bounds of one queue, for the search."""

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...


def find_offset(
    source: ReadSource, topic: str, queue_id: int, when_ms: int, boundary: Boundary
) -> int:
    """Queue offset for a time (`offset_at`); 0 for a queue that does not exist.

    Raises:
        StoreClosedError, ReadFailedError: the store cannot be read.
    """
    queue = source.queue(topic, queue_id)
    if queue is None:
        return 0
    store_time = partial(_first_number, source, _STORE_TIME, topic, queue_id)
    place = partial(_first_number, source, _PHYSICAL_OFFSET, topic, queue_id)
    ranges = () if isinstance(queue, BatchQueue) else source.time_breaks()
    breaks = breaks_of(queue, ranges, place)
    found = offset_at(queue, when_ms, store_time, boundary=boundary, breaks=breaks)
    if found < queue.max_offset or isinstance(queue, BatchQueue):
        return found
    return queue.written_end  # what is missing after it may be younger: the reader reports it


def offset_at(
    queue: TimedQueue,
    when_ms: int,
    store_time: Callable[[int, int], tuple[int, int] | None],
    *,
    boundary: Boundary = "lower",
    breaks: Iterable[int] = (),
) -> int:
    """Queue offset for a time, in a queue with messages minimum … maximum - 1.

    "lower": the first message stored at or after `when_ms`; the maximum when there is none.
    "upper": the last message stored at or before `when_ms`; minimum - 1 when there is none. No
    message after it is as old, and none before "lower" as young.

    `store_time(from_offset, to_offset)` gives (queue offset, store time in ms) of the first
    message in that half-open range, None when it holds none: units without a record (pre-blanks,
    damage) have no time. `breaks`: queue offsets with which store times may fall.
    """
    minimum, maximum = queue.min_offset, queue.max_offset
    within = {offset for offset in breaks if minimum < offset < maximum}
    parts = list(pairwise(sorted({minimum, *within, maximum})))
    if boundary == "lower":
        for low, high in parts:
            first = _first_not_before(low, high, when_ms, store_time)
            found = store_time(first, high) if first < high else None
            if found is not None:
                return found[0]
        return maximum
    if boundary != "upper":
        raise ValueError(f"boundary = {boundary!r}: 'lower' or 'upper'")
    for low, high in reversed(parts):
        younger = _first_not_before(low, high, when_ms + 1, store_time)
        last = _last_message(low, younger, store_time)
        if last >= low:
            return last
    return minimum - 1


def breaks_of(
    queue: TimedQueue,
    ranges: Iterable[tuple[int, int]],
    place: Callable[[int, int], tuple[int, int] | None],
) -> Iterable[int]:
    """Queue offsets of the messages with which store times may fall, by ranges of physical offsets.

    `place`: as `store_time` of `offset_at`, with the physical offset of the message.
    """
    minimum, maximum = queue.min_offset, queue.max_offset
    for start, end in ranges:
        first = _first_not_before(minimum, maximum, start, place)
        last = first if end == start + 1 else _first_not_before(first, maximum, end - 1, place)
        yield from range(first, last + 1)


def _first_not_before(
    minimum: int,
    maximum: int,
    wanted: int,
    store_time: Callable[[int, int], tuple[int, int] | None],
) -> int:
    """The least n whose first message at or after n is not older, or the maximum."""
    low, high = minimum, maximum
    while low < high:
        middle = (low + high) // 2
        found = store_time(middle, high)
        if found is None or found[1] >= wanted:
            high = middle
        else:
            low = found[0] + 1
    return low


def _last_message(
    minimum: int, end: int, store_time: Callable[[int, int], tuple[int, int] | None]
) -> int:
    """The last message in [minimum, end), minimum - 1 when there is none."""
    # Nearly always end - 1; units without a record are stepped over in ranges that double.
    width = 1
    while end > minimum:
        begin = max(minimum, end - width)
        last = minimum - 1
        found = store_time(begin, end)
        while found is not None:
            last = found[0]
            found = store_time(last + 1, end) if last + 1 < end else None
        if last >= begin:
            return last
        end, width = begin, width * 2
    return minimum - 1


def _first_number(
    source: ReadSource,
    number_of: Callable[[Message], int],
    topic: str,
    queue_id: int,
    from_offset: int,
    to_offset: int,
) -> tuple[int, int] | None:
    """Queue offset of the first message in [from_offset, to_offset), and one number of it; None
    without.

    For `time_search`. Records that cannot be believed are none. Of a batch queue: the store
    time.
    """
    offset, width = from_offset, 1
    while offset < to_offset:
        source.check()
        queue = source.queue(topic, queue_id)
        if queue is None:
            return None
        if isinstance(queue, BatchQueue):
            return batch_time(queue, offset, to_offset)
        located = queue.locate(offset)
        if located is None:
            offset = next_file(queue, offset)
            continue
        file, position, available = located
        count = min(width, available, to_offset - offset)
        place = UnitPlace(topic, queue_id, offset, file, position, queue.extension)
        try:
            found = messages_at(source, place, count)
        except (CorruptRecordError, ReadFailedError, StoreClosedError):
            if count > 1:  # the last of these: trimmed away
                width = 1
                continue
            found = []
        if found:
            first = found[0]
            # A record may name the queue twice: the search has to come on.
            at = max(offset, offset_in_queue(first, topic, queue_id))
            return at, number_of(first)
        offset, width = offset + max(1, count), min(width * 2, FILTER_UNITS)
    return None
