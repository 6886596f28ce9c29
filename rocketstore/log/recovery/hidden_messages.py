"""Finds the messages that the log has and the queues have not, when a store is opened, and makes
their units."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from rocketstore.errors import ReadFailedError
from rocketstore.log.dispatch.missing_units import MissingUnits, find_missing, looked_at
from rocketstore.log.dispatch.refill import refill
from rocketstore.log.dispatch.strangers import take_out_strangers
from rocketstore.log.read.batch_queues import batch_topics
from rocketstore.log.recovery.report import RecoveryReport, RefilledQueue, UnplacedMessages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue import ConsumeQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = ["refill_queues", "with_unplaced"]

logger = logging.getLogger(__name__)

Missing = dict[tuple[str, int], MissingUnits]


def refill_queues(
    report: RecoveryReport,
    log: MappedFileQueue,
    queues: ConsumeQueueStore,
    layout: StoreLayout,
    *,
    delay_level_ms: Sequence[int],
    end: int,
    whole: bool,
    on_change: Callable[[], None],
) -> RecoveryReport:
    """The report with what was made good below `end`, from where the open dispatches anyway.

    Looks at the log in [`report.begin`, `end`): at all of it with `whole`, or where it is not
    larger than `LOOK_BYTES`; else at the begin of each file, and at all of it where a unit is
    missing there, or where a queue may end early. `on_change`: called before a queue changes.
    """
    begin, ignored = report.begin, batch_topics(layout)
    take_out_strangers(log, queues, begin, on_change)
    if begin >= end:
        return report
    if report.mode != "clean":
        whole = whole or any(map(_may_end_early, queues.all()))
    first_look = looked_at(log, begin, end, whole=whole)
    missing = find_missing(log, queues, first_look, ignored)
    if not missing:
        return report
    parts = looked_at(log, begin, end, whole=True)
    if parts != first_look:
        missing = find_missing(log, queues, parts, ignored)
    on_change()
    first = min(one.begin for one in missing.values())
    wanted = {*missing, *(parent for one in missing.values() for parent in one.parents)}
    refill(
        log, queues, wanted, first, end,
        delay_level_ms=delay_level_ms, ignored_topics=ignored, writes=log.access == "write",
    )  # fmt: skip
    left = find_missing(log, queues, parts, ignored)
    found = [_refilled(place, one, left.get(place)) for place, one in sorted(missing.items())]
    refilled = tuple(one for one in found if one.count)
    for one in refilled:
        logger.warning(
            "%s: messages of the log were missing and are made again: %s", layout.consume_queue, one
        )
    unplaced = tuple(_unplaced(place, one, queues) for place, one in sorted(left.items()))
    return dataclasses.replace(report, refilled_queues=refilled, unplaced_messages=unplaced)


def with_unplaced(
    report: RecoveryReport,
    log: MappedFileQueue,
    queues: ConsumeQueueStore,
    layout: StoreLayout,
    *,
    whole: bool,
) -> RecoveryReport:
    """The report with the messages of the log that have no place in their queue, each queue logged
    as an error; with `whole` those, too, whose queue offset an earlier message has. Relies on: all
    is dispatched that can be."""
    unplaced = report.unplaced_messages
    if whole or queues.blocked.places:
        twice: Missing = {}
        parts = looked_at(log, report.begin, report.end, whole=True)
        left = find_missing(log, queues, parts, batch_topics(layout), twice)
        unplaced = tuple(_unplaced(place, one, queues) for place, one in sorted(left.items()))
        unplaced += tuple(_second(place, one) for place, one in sorted(twice.items()))
    for one in unplaced:
        logger.error("%s: no place for messages of the log: %s", layout.consume_queue, one)
    return dataclasses.replace(report, unplaced_messages=unplaced) if unplaced else report


def _may_end_early(queue: ConsumeQueue) -> bool:
    """Whether a queue ends where a file does: what is lost may be its next file. After a clean stop
    `queue_ends` tells that, after a crash only the log does."""
    try:
        return queue.written_end % queue.units_per_file == 0
    except ReadFailedError:
        return False


def _refilled(
    place: tuple[str, int], missing: MissingUnits, left: MissingUnits | None
) -> RefilledQueue:
    return RefilledQueue(
        topic=place[0],
        queue_id=place[1],
        first=missing.first,
        last=missing.last,
        count=missing.count - (0 if left is None else left.count),
    )


def _unplaced(
    place: tuple[str, int], left: MissingUnits, queues: ConsumeQueueStore
) -> UnplacedMessages:
    return UnplacedMessages(
        topic=place[0],
        queue_id=place[1],
        first=left.first,
        last=left.last,
        count=left.count,
        why=queues.blocked.places.get(place, "their units cannot be believed; verify says more"),
    )


def _second(place: tuple[str, int], twice: MissingUnits) -> UnplacedMessages:
    return UnplacedMessages(
        topic=place[0],
        queue_id=place[1],
        first=twice.first,
        last=twice.last,
        count=twice.count,
        why="an earlier message has the same queue offset, and no other can be given; "
        f"`get` reads the first of them at physical offset {twice.begin}, to put it again",
    )
