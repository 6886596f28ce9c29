"""Finds the messages that the log has and the queues have not, when a store is opened, and makes
their units."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from rocketstore.errors import ReadFailedError
from rocketstore.log.dispatch.gap_budget import GapBudget
from rocketstore.log.dispatch.missing_units import MissingUnits, find_missing, looked_at
from rocketstore.log.dispatch.refill import refill
from rocketstore.log.dispatch.wrong_units import take_out_units_of_others
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.queues.consume_queue import ConsumeQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.read.batch_queue import batch_topics
from rocketstore.log.recovery.report import RecoveryReport, RefilledQueue, UnplacedMessages

__all__ = ["refill_queues", "with_unplaced"]

logger = logging.getLogger(__name__)

Missing = dict[tuple[str, int], MissingUnits]
_Said = TypeVar("_Said", RefilledQueue, UnplacedMessages)

SECOND: Final = (
    "an earlier message has the same queue offset, and no other can be given; `get` reads the "
    "first of them at physical offset {}, to put it again"
)


def refill_queues(
    report: RecoveryReport,
    log: MappedFileQueue,
    queues: ConsumeQueueStore,
    layout: StoreLayout,
    *,
    delay_level_ms: Sequence[int],
    gaps: GapBudget,
    end: int,
    whole: bool,
    on_change: Callable[[], None],
) -> RecoveryReport:
    """The report with what was made good below `end`, from where the open dispatches anyway.

    Looks at the log in [`report.begin`, `end`): at all of it with `whole`, or where it is not
    larger than `LOOK_BYTES`; else at the begin of each file, and at all of it where a unit is
    missing there, or where a queue may lack a file. `on_change`: called before a queue changes.
    """
    begin, ignored = report.begin, batch_topics(layout)
    take_out_units_of_others(log, queues, begin, on_change)
    if begin >= end:
        return report
    whole = whole or any(
        _may_lack_files(queue, queues, clean=report.mode == "clean") for queue in queues.all()
    )
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
        delay_level_ms=delay_level_ms, ignored_topics=ignored, gaps=gaps,
        writes=log.access == "write",
    )  # fmt: skip
    take_out_units_of_others(
        log, queues, begin, on_change
    )  # what lies after the units that were made
    left = find_missing(log, queues, parts, ignored)
    made = {
        place: one.count - (left[place].count if place in left else 0)
        for place, one in missing.items()
    }
    refilled = tuple(
        _said(RefilledQueue, place, one, count=made[place])
        for place, one in sorted(missing.items())
        if made[place]
    )
    for one in refilled:
        logger.warning(
            "%s: messages of the log were missing and are made again: %s", layout.consume_queue, one
        )
    unplaced = _unplaced(queues, left)
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
        unplaced = _unplaced(queues, left)
        unplaced += tuple(
            _said(UnplacedMessages, place, one, why=SECOND.format(one.begin))
            for place, one in sorted(twice.items())
        )
    for one in unplaced:
        logger.error("%s: no place for messages of the log: %s", layout.consume_queue, one)
    return dataclasses.replace(report, unplaced_messages=unplaced) if unplaced else report


def _may_lack_files(queue: ConsumeQueue, queues: ConsumeQueueStore, *, clean: bool) -> bool:
    """Whether a queue has odd files, or begins or ends where a file does: what is lost may be the
    file before, or its next one. After a clean stop `queue_ends` shows that, after a crash only
    the log does."""
    try:
        begin, each = queue.min_offset, queue.units_per_file
        least = queues.ends.least(queue.topic, queue.queue_id)
        short = queue.written_end < least if clean else queue.written_end % each == 0
        return queue.odd or short or (begin > 0 and begin % each == 0)
    except ReadFailedError:
        return False


def _said(
    kind: Callable[..., _Said], place: tuple[str, int], found: MissingUnits, **more: int | str
) -> _Said:
    """What the report has of one queue; `more` are the fields that `found` does not have, or has
    otherwise."""
    fields = {"first": found.first, "last": found.last, "count": found.count}
    return kind(topic=place[0], queue_id=place[1], **{**fields, **more})


def _unplaced(queues: ConsumeQueueStore, left: Missing) -> tuple[UnplacedMessages, ...]:
    why = "their units cannot be believed; verify says more"
    blocked = queues.blocked.places
    return tuple(
        _said(UnplacedMessages, place, one, why=blocked.get(place, why))
        for place, one in sorted(left.items())
    )
