"""Gives queues the units that they lack, from the log, and touches no other queue.

`dispatcher` dispatches the part of the log again that `missing_units` found. Queues that lack
nothing stay as they are, also where the log has records with queue offsets that were given twice.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Sequence
from typing import Any

from rocketstore._native.format.scanner import SearchBudget, resynchronise
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.positions import Positions
from rocketstore.log.dispatch.dispatcher import Dispatcher
from rocketstore.log.dispatch.gap_budget import GapBudget
from rocketstore.log.dispatch.loop_help import LoopHelper
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore

__all__ = ["refill"]


class _RefillHelper(LoopHelper):
    """Units for the wanted queues only."""

    def __init__(self, wanted: Collection[tuple[str, int]], *arguments: Any) -> None:
        super().__init__(*arguments)
        self._wanted = wanted

    def new_queue(self) -> None:
        raw, queue_id, *_ = self._loop.current()
        if (os.fsdecode(raw), queue_id) in self._wanted:
            super().new_queue()
        else:
            self._loop.ignore_queue(raw, queue_id)

    def put_unit(
        self, name: str, queue_id: int, queue_offset: int, unit: tuple[int, int, int]
    ) -> None:
        if (name, queue_id) in self._wanted:
            super().put_unit(name, queue_id, queue_offset, unit)


class _RefillDispatcher(Dispatcher):
    """Passes over what is no record, wherever it lies."""

    def skip_damage(self, offset: int) -> tuple[bool, int]:
        segment = self._find(offset)
        if segment is None:
            return super().skip_damage(offset)
        position = offset - segment.start_offset
        found = resynchronise(segment, position + 1, segment.size, budget=SearchBudget())
        return True, segment.end_offset if found is None else segment.start_offset + found


def refill(
    log: MappedFileQueue,
    queues: ConsumeQueueStore,
    wanted: Collection[tuple[str, int]],
    begin: int,
    end: int,
    *,
    delay_level_ms: Sequence[int],
    ignored_topics: Sequence[str],
    gaps: GapBudget,
    writes: bool,
) -> None:
    """Dispatches the log in [begin, end) to the wanted queues. `writes`: syncs their new units;
    where the disk does not take them the queues are degraded."""
    positions = Positions()
    positions.visible, positions.minimum = end, begin
    dispatcher = _RefillDispatcher(
        positions,
        log.find,
        queues,
        None,
        EventCount(),
        delay_level_ms=delay_level_ms,
        multi_dispatch=True,
        damage=log.gaps,
        ignored_topics=ignored_topics,
        helper_type=functools.partial(_RefillHelper, frozenset(wanted)),
    )
    dispatcher.bound_gaps(gaps)
    dispatcher.start_at(begin, begin)
    dispatcher.catch_up(end)
    if writes:
        dispatcher.sync_queues()
