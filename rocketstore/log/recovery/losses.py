"""Which messages a recovery lost, as the units of the consume queues name them.

A unit outlives its record where the log was cut, a segment is missing, or a record is damaged. The
units know topic, queue and queue offset; recovery clears them, so it counts them before.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rocketstore._native.format import queue_file
from rocketstore.errors import ReadFailedError
from rocketstore.log.queues.units import PRE_BLANK_SIZE, SIZE_MAX
from rocketstore.log.recovery.report import LostMessages, OffsetSetBack, RecoveryReport

if TYPE_CHECKING:
    import numpy as np

    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = ["lost_messages", "with_guesses", "with_losses", "with_set_back"]

logger = logging.getLogger(__name__)

OFFSET_MAX: Final = (1 << 63) - 1

Range = tuple[int, int, str]
#: Why messages are lost, the sorted starts of such ranges, and the highest end up to each start.
Kind = tuple[str, "np.ndarray", "np.ndarray"]


def lost_messages(
    queues: ConsumeQueueStore, log: MappedFileQueue, report: RecoveryReport, first_kept: int
) -> tuple[LostMessages, ...]:
    """The messages whose units point to what recovery cut, to missing segments and to damage.

    `first_kept`: physical offset below which the log was trimmed, as far as that is known. Relies
    on: the queues are not truncated yet. A message is named once, by the first reason that fits: a
    missing segment is damage, too.
    """
    ranges = [(report.end, OFFSET_MAX, "cut")]
    if report.missing:
        gone = [*log.gaps, (first_kept, report.begin)]
        ranges += [(low, high, "segment missing") for low, high in gone if high > low]
    ranges += [(one.start, one.end, "damaged") for one in report.damage]
    if report.mode == "clean" and len(ranges) == 1:
        return ()
    lowest, kinds = min(low for low, _, _ in ranges), _by_kind(ranges)
    found = []
    for queue in queues.all():
        try:
            lost = _of_queue(queue, lowest, kinds, report.last_store_timestamp_ms)
            found += lost if lost and queue.is_believed else []
        except (ReadFailedError, OSError):  # the phase that clears it says so
            continue
    return tuple(sorted(found, key=lambda one: (one.topic, one.queue_id, one.first)))


def _of_queue(
    queue: ConsumeQueue, lowest: int, kinds: Sequence[Kind], stored_after_ms: int
) -> list[LostMessages]:
    end = queue.written_end
    spans: dict[str, tuple[int, int, int]] = {}
    for file in reversed(queue.files):
        start = file.start_offset // queue_file.UNIT_SIZE
        count = min(file.size // queue_file.UNIT_SIZE, end - start)
        if count <= 0:
            continue
        if 0 <= queue_file.physical_end(file, count) <= lowest:
            break
        units = queue_file.units_array(file, 0, count)
        offsets, sizes = units["physical_offset"], units["size"]
        left = (sizes > 0) & (sizes <= SIZE_MAX) & (sizes != PRE_BLANK_SIZE)
        for why, lows, highs in kinds:
            at = lows.searchsorted(offsets, "right")
            hit = left & (at > 0) & (offsets < highs[at - 1])
            left &= ~hit
            numbers = hit.nonzero()[0]
            if len(numbers):
                first, last, before = spans.get(why, (OFFSET_MAX, -1, 0))
                spans[why] = (
                    min(first, start + int(numbers[0])),
                    max(last, start + int(numbers[-1])),
                    before + len(numbers),
                )
    return [
        LostMessages(
            topic=queue.topic,
            queue_id=queue.queue_id,
            first=first,
            last=last,
            count=count,
            why=why,
            stored_after_ms=stored_after_ms if why == "cut" else 0,
        )
        for why, (first, last, count) in spans.items()
    ]


def _by_kind(ranges: Iterable[Range]) -> list[Kind]:
    import numpy as np  # here: a recovery without losses does without it

    kinds: dict[str, list[tuple[int, int]]] = {}
    for low, high, why in ranges:
        kinds.setdefault(why, []).append((low, high))
    found = []
    for why, parts in kinds.items():
        bounds = np.array(sorted(parts), dtype=np.int64)
        found.append((why, bounds[:, 0], np.maximum.accumulate(bounds[:, 1])))
    return found


def with_losses(report: RecoveryReport, lost: tuple[LostMessages, ...]) -> RecoveryReport:
    """The report with further messages that were lost, each queue logged as a warning."""
    for one in lost:
        logger.warning("lost: %s", one)
    every = (*report.lost_messages, *lost)
    return dataclasses.replace(report, lost_messages=every) if lost else report


def with_set_back(report: RecoveryReport, set_back: Sequence[OffsetSetBack]) -> RecoveryReport:
    """The report with the stored offsets of groups that were beyond their queue."""
    return dataclasses.replace(report, offsets_set_back=tuple(set_back)) if set_back else report


def with_guesses(report: RecoveryReport, guesses: Sequence[str]) -> RecoveryReport:
    """The report with the sizes of new files that no file tells among its notes, each logged."""
    for one in guesses:
        logger.warning("%s", one)
    return dataclasses.replace(report, notes=(*report.notes, *guesses)) if guesses else report
