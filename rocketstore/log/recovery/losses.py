"""Which messages a recovery lost, as the units of the consume queues name them; and what is not
believed any more where the log lost its end.

A unit outlives its record where the log was cut, a segment is missing, or a record is damaged. The
units know topic, queue and queue offset; recovery clears them, so it counts them before.

A file that says how far something has come outlives the end of the log, too. `take_back` is called
by whatever has the log end below what it held, and by one that finds another log. And each state
names its log (`log_place`): a log may grow again before anybody looks.

| state | taken back |
| --- | --- |
| delay levels, timers | forgotten here: what was delivered is found in the log |
| half messages, their ends, commits of transactions | by `ConsumerOffsets.clamp`: read again |
| offsets of groups, with their journal | by `ConsumerOffsets.clamp`: to the end of the queue |
| holds of retention | lowered here to the end of the log |
| what was shipped | emptied here: nothing shows any more that the log goes on its archives |
| bookmarks | each compares its own record |
| queues, index, unique ids, `queue_ends` | recovery makes them from the log |
| `positions`, `blocked_queues`, `recovery.json`, `cut.json` | each open writes or ends them |
| `compacted.json` | names the place in both logs that it speaks of |
| `replication.json` | its epochs end where the log ends; the last bytes are compared |
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from rocketstore._native.format import queue_file
from rocketstore.errors import ReadFailedError
from rocketstore.log.dispatch.wrong_units import units_of_no_record
from rocketstore.log.layout.named_holds import lower_holds
from rocketstore.log.layout.state_files import remove_state_file, write_state_file
from rocketstore.log.queues.units import PRE_BLANK_SIZE, SIZE_MAX
from rocketstore.log.recovery.report import LostMessages, OffsetSetBack, RecoveryReport

if TYPE_CHECKING:
    import numpy as np

    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = [
    "forget_delays",
    "lost_messages",
    "take_back",
    "unreadable_messages",
    "with_guesses",
    "with_losses",
    "with_set_back",
]

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


def unreadable_messages(
    queues: ConsumeQueueStore, log: MappedFileQueue, report: RecoveryReport
) -> tuple[LostMessages, ...]:
    """The messages of all queues that no reader gets, since their units point to no record, without
    those that `report` names already: they were lost below the place from which it walked the log.
    Relies on: all is dispatched that can be. Only a caller that asks for it pays for this look."""
    known = [(one.start, one.end) for one in report.damage]
    if report.missing:
        known += log.gaps
    found = []
    for queue in queues.all():
        try:
            numbers = [
                number
                for number, offset in units_of_no_record(log, queue, report.begin, report.end)
                if not any(low <= offset < high for low, high in known)
            ]
        except (ReadFailedError, OSError):  # its reader gets the error
            continue
        if numbers:
            found.append(
                LostMessages(
                    topic=queue.topic,
                    queue_id=queue.queue_id,
                    first=numbers[0],
                    last=numbers[-1],
                    count=len(numbers),
                    why="damaged",
                )
            )
    return tuple(sorted(found, key=lambda one: (one.topic, one.queue_id)))


def with_losses(report: RecoveryReport, lost: tuple[LostMessages, ...]) -> RecoveryReport:
    """The report with further messages that were lost, each queue logged as a warning."""
    for one in lost:
        logger.warning("lost: %s", one)
    every = (*report.lost_messages, *lost)
    return dataclasses.replace(report, lost_messages=every) if lost else report


def with_set_back(
    report: RecoveryReport, set_back: Sequence[OffsetSetBack], doubts: tuple[str, ...]
) -> RecoveryReport:
    """The report with the stored offsets of groups that were beyond their queue, and with what shows
    that some went back before this open."""
    return dataclasses.replace(
        report,
        offsets_set_back=tuple(set_back),
        offsets_in_doubt=doubts,
        notes=(*report.notes, *doubts),
    )


def with_guesses(report: RecoveryReport, guesses: Sequence[str]) -> RecoveryReport:
    """The report with the `guesses` of an open among its notes, each logged."""
    for one in guesses:
        logger.warning("%s", one)
    return dataclasses.replace(report, notes=(*report.notes, *guesses)) if guesses else report


def take_back(report: RecoveryReport, layout: StoreLayout) -> RecoveryReport:
    """The log lost its end, or is another one. The report with what is not believed any more.

    Raises:
        OSError: a file cannot be removed.
    """
    why = "taken back, as the log lost its end: what was delivered is found in it"
    taken = [f"{name} {why}" for name in forget_delays(layout)]
    if layout.shipped.exists():
        write_state_file(layout, layout.shipped, "{}\n")
        taken.append(
            "the note of shipments emptied, as the log lost its end and goes on no archive"
        )
    if lower_holds(layout, report.end):
        taken.append("holds of retention lowered to the end of the log, which lay below")
    return with_guesses(report, taken)


def forget_delays(layout: StoreLayout) -> list[str]:
    """What is stored of delays does not hold any more, also where another store delivers in this log
    from now on. Gives what there was. Raises: as `take_back`."""
    forgotten: dict[str, None] = {}
    for name, path in (("delay levels", layout.delay_offsets), ("timers", layout.timer_state)):
        # The copy first: it counts where there is no file.
        for each in (path.with_name(path.name + ".bak"), path):
            if each.exists() and not each.parent.is_symlink():
                remove_state_file(each)
                forgotten[name] = None
    return [*forgotten]
