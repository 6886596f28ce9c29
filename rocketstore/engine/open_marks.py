"""Reads what the files of a store say about its last writer, before recovery changes any of
them."""

from __future__ import annotations

from dataclasses import dataclass

from rocketstore.engine.open_options import Options
from rocketstore.errors import ReadFailedError
from rocketstore.log.commitlog.checkpoint import OwnCheckpoint, RocketmqTimes, judge_checkpoint
from rocketstore.log.dispatch.missing_units import find_missing, looked_at
from rocketstore.log.index.inspection import begins_late, has_gaps, look_at_index, was_cut_short
from rocketstore.log.index.segment import names_in
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import PositionsPage, shown_in_this_boot
from rocketstore.log.layout.store_json import StoreState
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.queues.consume_queue_store import (
    ConsumeQueueStore,
    has_lost_any,
    has_shortened,
)
from rocketstore.log.read.batch_queue import batch_topics, batches_end
from rocketstore.log.recovery import recovery
from rocketstore.log.recovery.progress import load_progress, ordered_cut

__all__ = ["Found", "read_marks"]


@dataclass(frozen=True, slots=True)
class Found:
    """What an open has loaded when it reads the marks."""

    layout: StoreLayout
    options: Options
    log: MappedFileQueue
    queues: ConsumeQueueStore
    #: Our checkpoint, if it has a whole slot and the files are trusted.
    own: OwnCheckpoint | None
    #: None: the store was not made by rocketstore, and this open does not write.
    state: StoreState | None
    #: None where this open does not write.
    page: PositionsPage | None
    #: Whether rocketstore wrote last, by the lock's mark (D-01).
    ours: bool
    #: Whether another program did, or nothing says that rocketstore ever has.
    theirs: bool
    #: Whether there was no `abort`.
    clean: bool
    #: The values of RocketMQ's checkpoint.
    rocketmq_times: RocketmqTimes
    #: Whether there was a directory for the index before the open made one.
    index_was_there: bool


def read_marks(found: Found) -> recovery.Marks:
    """What recovery may believe. Forgets the saved ends of queues where our checkpoint does not
    count."""
    if found.options.untrusted:
        return recovery.Marks(clean=False, dispatch_from=0, index_from=0)
    own, queues, layout, state = found.own, found.queues, found.layout, found.state
    verdict = None if own is None else judge_checkpoint(own, found.log)
    trusted = found.ours and verdict is not None and verdict.speaks
    derived_end = dispatch_from = None
    pointed = 0
    if not trusted and (verdict is None or not verdict.missing or found.options.force):
        # Before recovery stores a checkpoint; an open that is refused changes nothing.
        queues.forget_ends()
    if not trusted and (len(queues) or batch_topics(layout)):
        derived_end = max(_pointed_end(found, found.log.end_offset), batches_end(layout), 0)
    if trusted and own is not None:
        names = own.queue_count, own.queues_digest
        lost = has_lost_any(queues, names, own.dispatched)
        # After a clean stop it shows when a queue is used: looking into all of them takes too long.
        clean_stop = found.clean and own.clean and own.cut < 0
        lost = lost or (not clean_stop and has_shortened(queues, own.dispatched))
        dispatch_from = 0 if lost else None  # D-18
        # An older copy in their place leaves queue files that it has not.
        if clean_stop and not queues.ends.queues_untouched(layout):
            pointed = _pointed_end(found, own.flushed)
    page = found.page
    shown = page.shown if page is not None else shown_in_this_boot(layout.positions)
    return recovery.Marks(
        own=own,
        synced=page.synced_by(own.run_id) if page is not None and own else 0,
        shown=min(shown, found.log.end_offset) if trusted else 0,
        ours=found.ours,
        theirs=found.theirs,
        clean=found.clean,
        rocketmq_times=found.rocketmq_times[:3],
        derived_end=derived_end,
        pointed=pointed,
        dispatch_from=dispatch_from,
        index_from=_index_from(found, own if trusted else None),
        indexed=found.options.config.index_enabled,
        foreign=state.foreign if state is not None else (),
        progress=load_progress(layout),
        cut_at=ordered_cut(layout),
    )


def _pointed_end(found: Found, log_end: int) -> int:
    """End of the last record that any queue has; -1 when there is no unit at all. One that lies
    beyond `log_end` is lost only where the log has no later message of its queue: else its unit is
    wrong, as `verify` says."""
    log, queues = found.log, found.queues
    end = queues.max_physical_end(log_end, {})
    if end <= log_end or not log.files:
        return end
    parts = looked_at(log, log.begin_offset, log.end_offset, whole=True)
    missing = find_missing(log, queues, parts, batch_topics(found.layout))
    return queues.max_physical_end(log_end, {place: one.last for place, one in missing.items()})


def _index_from(found: Found, own: OwnCheckpoint | None) -> int | None:
    """Where the index ends if no checkpoint that counts says so. The begin of the log where entries
    are lost: RocketMQ's recovery drops the newest file, operators drop all, a crash or a full disk
    leaves zeros; and RocketMQ's dispatch after a crash may begin later than the log (K-88)."""
    layout, config = found.layout, found.options.config
    if not config.index_enabled:
        return None
    index = IndexStore(layout, "read", config.index_slots, config.index_entries)
    index.load()
    try:
        names, whole = names_in(layout.index), found.options.check_queues
        indexed = None if own is None else own.indexed
        sound, filled = look_at_index(index, names, indexed, clean=found.clean, whole=whole)
        if own is not None:
            sound = sound and filled >= own.index_files and found.index_was_there
            return None if sound and not _lacks_ends(found, own, index) else 0
        if not sound or begins_late(found.log, index) or has_gaps(found.log, index):
            return 0
        end = index.end_physical_offset
    except ReadFailedError:
        return 0
    finally:
        index.close()
    return None if end == 0 and found.index_was_there else end


def _lacks_ends(found: Found, own: OwnCheckpoint, index: IndexStore) -> bool:
    """Whether our index lacks keys of the log, as an older copy of a file does. At its end and
    between two files only a clean stop shows it."""
    if not any(not segment.header().empty for segment in index.files):
        return False  # then our checkpoint counts none
    stopped = found.clean and own.clean and own.cut < 0 and own.indexed >= own.flushed
    return begins_late(found.log, index, own.minimum) or (
        stopped
        and not found.queues.ends.index_untouched(found.layout)
        and (has_gaps(found.log, index) or was_cut_short(found.log, index, own.flushed))
    )
