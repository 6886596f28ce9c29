"""Which queue offset belongs to a time: binary search over the records' own store timestamps.

Bounds are exact, which RocketMQ's are not: it answers 0 where every message is younger, and 4.9
picks a neighbour by distance (vectors `time_lookup`). Store times do not fall within what
rocketstore wrote; where another writer's clock fell, the answer is one of the places where the
times cross.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Boundary", "TimedQueue", "offset_at"]

Boundary = Literal["lower", "upper"]


class TimedQueue(Protocol):
    """What the search needs of one queue."""

    @property
    def min_offset(self) -> int: ...

    @property
    def max_offset(self) -> int: ...


def offset_at(
    queue: TimedQueue,
    when_ms: int,
    store_time: Callable[[int, int], tuple[int, int] | None],
    *,
    boundary: Boundary = "lower",
) -> int:
    """Queue offset for a time, in a queue with messages minimum … maximum - 1.

    "lower": the first message stored at or after `when_ms`; the maximum when there is none.
    "upper": the last message stored at or before `when_ms`; minimum - 1 when there is none, so that
    `upper + 1` is always the first message that is younger.

    `store_time(from_offset, to_offset)` gives (queue offset, store time in ms) of the first
    message in that half-open range, None when it holds none: units without a record (pre-blanks,
    damage) have no time.
    """
    minimum, maximum = queue.min_offset, queue.max_offset
    if boundary == "lower":
        first = _first_not_before(minimum, maximum, when_ms, store_time)
        found = store_time(first, maximum) if first < maximum else None
        return maximum if found is None else found[0]
    if boundary != "upper":
        raise ValueError(f"boundary = {boundary!r}: 'lower' or 'upper'")
    younger = _first_not_before(minimum, maximum, when_ms + 1, store_time)
    return _last_message(minimum, younger, store_time)


def _first_not_before(
    minimum: int,
    maximum: int,
    when_ms: int,
    store_time: Callable[[int, int], tuple[int, int] | None],
) -> int:
    """The least n whose first message at or behind n is not older, or the maximum."""
    low, high = minimum, maximum
    while low < high:
        middle = (low + high) // 2
        found = store_time(middle, high)
        if found is None or found[1] >= when_ms:
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
