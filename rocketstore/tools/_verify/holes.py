"""Where a log has no records, and which messages the queues knew there."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rocketstore.tools.report import QueueMessages

__all__ = ["OFFSET_MAX", "DanglingUnits", "Hole", "Losses", "QueueCounts", "hole_at"]

OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(slots=True)
class Hole:
    """[start, end) of the log, between records that were stored at these times, in ms; 0: not
    known. `entries`: of the index, that point into it, up to `last`."""

    start: int
    end: int
    after_ms: int = 0
    before_ms: int = 0
    entries: int = 0
    last: int = -1


def hole_at(holes: Sequence[Hole], offset: int) -> Hole | None:
    """The hole with this offset; `holes` in order."""
    number = bisect_right(holes, offset, key=lambda hole: hole.start) - 1
    return holes[number] if number >= 0 and offset < holes[number].end else None


@dataclass(slots=True)
class DanglingUnits:
    """Units of one queue that point to no record: queue offsets, physical offsets, sizes."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    offsets: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))

    def add(self, queue_offset: int, physical_offset: int, size: int) -> None:
        self.numbers.append(queue_offset)
        self.offsets.append(physical_offset)
        self.sizes.append(size)


class QueueCounts:
    """Gathers messages by queue."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], list[int]] = {}

    def add(
        self, topic: str, queue_id: int, queue_offset: int, times: tuple[int, int] = (0, 0)
    ) -> None:
        """`times`: between which the message was stored, ms; 0: not known."""
        known = self._found.get((topic, queue_id))
        if known is None:
            self._found[topic, queue_id] = [queue_offset, queue_offset, 1, *times]
            return
        known[0] = min(known[0], queue_offset)
        known[1] = max(known[1], queue_offset)
        known[2] += 1
        known[3] = min(known[3], times[0])
        known[4] = max(known[4], times[1]) if known[4] and times[1] else 0

    def messages(self) -> tuple[QueueMessages, ...]:
        return tuple(
            QueueMessages(*place, *counts) for place, counts in sorted(self._found.items())
        )


class Losses:
    """Lost messages by queue. `offsets`: those that units name. `behind`: how many of these lie
    after the end of the log, up to `last`."""

    def __init__(self) -> None:
        self.counts = QueueCounts()
        self.offsets: dict[tuple[str, int], set[int]] = {}
        self.behind = 0
        self.last = -1
