"""The phases of an open: claim → load → recover → derive, then `wiring`.

Each phase is a function from the frozen values of the phases before it to one of its own, and says
what it relies on (docs/durability.md#recovery). `open` runs them in order. Without a lock a phase
changes nothing on disk.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Final

from rocketstore._native.format.scanner import VERIFY_BODY_CRC, VERIFY_LENIENT, VERIFY_RECORD_CRC
from rocketstore._native.sync.futex import EventCount
from rocketstore._native.sync.positions import Positions
from rocketstore.config import StoreConfig
from rocketstore.consuming.consumer_offsets import ConsumerOffsets, recovered_offsets
from rocketstore.engine.catch_up import CatchUp
from rocketstore.engine.open_files import (
    check_file_limit,
    fit_config,
    fit_index_tags,
    fit_shapes,
    foreign_saver,
    load_index,
    load_log,
    with_sizes,
)
from rocketstore.engine.open_marks import Found, read_marks
from rocketstore.engine.open_options import Request
from rocketstore.engine.parts import ReadParts
from rocketstore.engine.shutdown import CleanShutdown, stopped_cleanly
from rocketstore.log.commitlog.checkpoint import (
    CheckpointFile,
    OwnCheckpoint,
    RocketmqCheckpoint,
    discard_checkpoint,
    lost_its_end,
)
from rocketstore.log.commitlog.running_flags import RunningFlags
from rocketstore.log.dispatch.arrival_notifier import ArrivalNotifier
from rocketstore.log.dispatch.dispatcher import Dispatcher
from rocketstore.log.dispatch.gap_budget import GapBudget
from rocketstore.log.layout.lock import OUR_MARK, last_mark
from rocketstore.log.layout.positions_page import PositionsPage, boot_id
from rocketstore.log.layout.state_files import clean_tmp
from rocketstore.log.layout.store_json import (
    StoreState,
    is_foreign_to,
    load_store_state,
    new_store_state,
    save_store_state,
)
from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.queues.directories import queue_file_size, rocksdb_queues
from rocketstore.log.recovery import recovery
from rocketstore.log.recovery.batches import recovered_batches
from rocketstore.log.recovery.hidden_messages import refill_queues, with_unplaced
from rocketstore.log.recovery.losses import (
    lost_messages,
    take_back,
    unreadable_messages,
    with_guesses,
    with_losses,
    with_set_back,
)
from rocketstore.log.recovery.returned_topics import ReturnedTopics
from rocketstore.values.arguments import Progress

__all__ = [
    "Claimed",
    "DerivedParts",
    "Loaded",
    "Opening",
    "Recovered",
    "claim",
    "derive",
    "load",
    "record_crc",
    "recover",
]

#: Checksums that readers compare in each record, `VERIFY_*` bits.
VERIFY_ALL: Final = VERIFY_BODY_CRC | VERIFY_RECORD_CRC


# ---- the values of the phases ----


@dataclass(frozen=True, slots=True)
class Opening:
    """The request, the files that every phase may use, and what to undo where a phase fails."""

    request: Request
    own_file: CheckpointFile
    rocketmq_file: RocketmqCheckpoint
    #: The clean shutdown that the open found; each phase reports to it.
    stop: CleanShutdown
    #: Run, last first, where a phase fails.
    undo: ExitStack


@dataclass(frozen=True, slots=True)
class Claimed:
    """The store is marked as ours, where this open writes."""

    #: Whether rocketstore was the last writer before this open.
    ours: bool
    #: Whether another program was, or nothing says that rocketstore ever wrote.
    theirs: bool
    #: None where this open does not write.
    page: PositionsPage | None
    #: The page's run; zeros without a page.
    run_id: bytes
    #: What store.json said; read here once, and stored once by `load`.
    state: StoreState | None

    def told(self, request: Request) -> Progress | None:
        """Reports how far a long step is: to the caller, and to readers of the unfinished store."""
        page, caller = self.page, request.options.on_recovery
        if page is None:
            return caller

        def tell(what: str, done: int, total: int) -> None:
            page.tell(done, total)
            if caller is not None:
                caller(what, done, total)

        return tell


@dataclass(frozen=True, slots=True)
class Loaded:
    """Log and queues as the files are, and the options that fit them."""

    log: MappedFileQueue
    #: Whether some files of the log differ in length from the others.
    odd_sizes: bool
    config: StoreConfig
    #: Files of the log that had vanished, and sizes of new files that no file shows, one sentence
    #: each.
    guesses: tuple[str, ...]
    state: StoreState | None
    #: Our checkpoint; None without a whole slot, or where the files are not trusted.
    own: OwnCheckpoint | None
    positions: Positions
    queues: ConsumeQueueStore


@dataclass(frozen=True, slots=True)
class Recovered:
    """The log ends at `report.end`. Queues and index may hold more than the log, or less."""

    request: Request
    stop: CleanShutdown
    log: MappedFileQueue
    odd_sizes: bool
    config: StoreConfig
    #: With the range that another program wrote, by `report`; with mode "r" no file has it.
    state: StoreState | None
    positions: Positions
    queues: ConsumeQueueStore
    report: recovery.RecoveryReport
    #: Our checkpoint after recovery.
    checkpoint: OwnCheckpoint
    #: Physical offset below which the queues have to have units for the log; 0 where they were just
    #: made of it.
    compared_to: int
    #: Whether the log has not what the last stop, or our last checkpoint, left of it.
    lost: bool
    #: Called with (what, bytes done, bytes in all) by what comes next.
    told: Progress | None


@dataclass(frozen=True, slots=True)
class DerivedParts:
    """Queues and index hold what the log says; `checkpoint` speaks of them."""

    parts: ReadParts
    checkpoint: OwnCheckpoint


def claim(opening: Opening) -> Claimed:
    """Marks the store as ours and begins a run on the positions page.

    Relies on: the lock, where this open writes. Without it, only reads the mark.
    """
    request = opening.request
    layout, lock = request.layout, request.lock
    mark = last_mark(layout) if lock is None else lock.previous
    state = load_store_state(layout)  # before anything changes: it may be of a newer release
    ours, theirs = mark == OUR_MARK, is_foreign_to(state, mark)
    if lock is None:
        return Claimed(ours, theirs, None, bytes(16), state)
    # First of all: the page of a writer that was killed looks like one of this lock.
    page = opening.undo.enter_context(closing(PositionsPage.create(layout.positions)))
    run_id = page.begin()
    if not ours:
        # Before the mark: a stop between the two must not leave a checkpoint that is believed.
        discard_checkpoint(opening.own_file, opening.own_file.load(), another=theirs)
    lock.mark_ours()
    clean_tmp(layout)
    return Claimed(ours, theirs, page, run_id, state)


def load(opening: Opening, claimed: Claimed) -> Loaded:
    """Loads the log, the options that its files dictate, the state, our checkpoint and the queues.

    Relies on: the store is claimed, so no other process writes. From here on `abort` is there,
    where this open writes.
    """
    request = opening.request
    log, restored = load_log(request)
    odd_sizes = bool(log.wrong_sizes)
    if log.file_size is None:
        log.file_size = request.options.config.commit_log_file_size_bytes
    state = claimed.state
    queue_bytes = None
    if not request.options.untrusted:
        # Where rocketstore wrote last, it noted what files had before any was cut.
        remembered = state.queue_file_bytes if claimed.ours and state is not None else 0
        queue_bytes = queue_file_size(request.layout.consume_queue, remembered)
    config = fit_config(request, log, state, queue_bytes)
    if state is None and request.lock is not None:
        made_ms = time.time_ns() // 1_000_000
        state = new_store_state(created_ms=made_ms, record_crc=config.record_crc)
    foreign = bool(log.files) and (not claimed.ours or state is None or bool(state.foreign))
    config, guesses = fit_shapes(request, config, state, queue_bytes, foreign=foreign)
    guesses = (*restored, *guesses)
    noted = None if state is None else state.index_tags
    config = fit_index_tags(request, config, log, noted, ours=claimed.ours)
    own = None if request.options.untrusted else opening.own_file.load()
    if request.lock is not None:
        check_file_limit(config)
        assert state is not None
        state = with_sizes(state, config)
        if state != claimed.state:
            save_store_state(request.layout, state)
        opening.stop.begin()
    positions = Positions()
    rocksdb = rocksdb_queues(request.layout)
    if rocksdb is not None:
        made = "which is not read: they are made from the log, in memory"
        guesses = (*guesses, f"{rocksdb}: the consume queues are in RocksDB, {made}")
    queues = ConsumeQueueStore(
        request.layout,
        request.access if rocksdb is None else "memory",
        config.consume_queue_file_size_bytes,
        lambda: _first_offset(log, positions),
    )
    queues.directories.as_on_disk |= request.options.check_queues  # a dry run says what a run says
    queues.load()
    return Loaded(log, odd_sizes, config, guesses, state, own, positions, queues)


def recover(opening: Opening, claimed: Claimed, loaded: Loaded) -> Recovered:
    """Finds the end of the log and makes the log durable up to there; sets all positions but the
    dispatcher's.

    Relies on: `loaded` is what the files hold; nothing was changed since. Reads the marks before it
    changes anything.
    """
    request, log, config, state = opening.request, loaded.log, loaded.config, loaded.state
    writes = request.lock is not None
    marks = read_marks(
        Found(
            layout=request.layout,
            options=request.options,
            log=log,
            queues=loaded.queues,
            own=loaded.own,
            state=state,
            page=claimed.page,
            ours=claimed.ours,
            theirs=claimed.theirs,
            clean=opening.stop.found,
            rocketmq_times=opening.rocketmq_file.load(),
            index_was_there=request.index_was_there,
        )
    )
    opening.stop.changes()
    report = recovery.recover(
        log,
        request.layout,
        marks,
        checkpoint=opening.own_file if writes else None,
        max_unflushed_bytes=config.max_unflushed_bytes,
        max_record_bytes=config.record_limit_bytes,
        check_crc=config.check_crc_on_recover,
        force=request.options.force,
        on_progress=claimed.told(request),
        on_foreign=foreign_saver(request.layout, state) if writes and state else None,
        boot_id=boot_id(),
        run_id=claimed.run_id,
    )
    # Here, while the queues still have the units: a rebuild and `derive` clear them.
    first_kept = 0 if loaded.own is None else loaded.own.minimum
    report = with_guesses(report, loaded.guesses)
    report = with_losses(report, lost_messages(loaded.queues, log, report, first_kept))
    if writes:
        unchanged = stopped_cleanly(report, indexed=config.index_enabled)
        opening.stop.recovered(unchanged=unchanged)
    positions = loaded.positions
    positions.wrote = positions.committed = positions.flushed = report.end
    positions.visible = report.end
    positions.minimum = report.begin
    return Recovered(
        request=request,
        stop=opening.stop,
        log=log,
        odd_sizes=loaded.odd_sizes,
        config=config,
        state=state.with_foreign(*report.foreign) if state and report.foreign else state,
        positions=positions,
        queues=loaded.queues,
        report=report,
        checkpoint=report.checkpoint or loaded.own or OwnCheckpoint(),
        compared_to=_dispatched_before(report, loaded.own),
        lost=marks.cut_at is not None or _lost_its_end(report, loaded),
        told=claimed.told(request),
    )


def derive(opening: Opening, claimed: Claimed, recovered: Recovered) -> DerivedParts:
    """Makes queues and index hold exactly what the log says, up to its end or to where dispatching
    is stuck.

    Relies on: the log ends at `report.end`, and all positions but the dispatcher's are set.
    """
    request, report, config = opening.request, recovered.report, recovered.config
    layout, positions, queues = request.layout, recovered.positions, recovered.queues
    arrival = EventCount()
    index, report = load_index(request, config, report, recovered.log)
    batches = opening.undo.enter_context(closing(recovered_batches(layout, recovered.log, report)))
    listener: ArrivalNotifier | None = None
    if request.options.on_arrival is not None:
        listener = opening.undo.enter_context(closing(ArrivalNotifier(request.options.on_arrival)))
    dispatcher = Dispatcher(
        positions,
        recovered.log.find,
        queues,
        index,
        arrival,
        delay_level_ms=config.delay_level_ms,
        multi_dispatch=True,
        damage=[(damage.start, damage.end) for damage in report.damage],
        ignored_topics=batches.topics(),
        listener=listener,
    )
    returned = ReturnedTopics(layout, queues)
    whole = request.options.check_queues
    if whole or report.mode != "clean":
        opening.stop.changes()
        if queues.truncate(report.end, whole=whole) and report.mode == "clean":
            queues.forget_ends()  # they count the units that pointed beyond the log
    gaps = GapBudget(sum(file.size for file in recovered.log.files))
    report = _made_good(opening, recovered, report, gaps)
    # A log that was lost begins again further on: there is nothing to dispatch before it.
    index_start = max(report.index_start, report.begin)
    dispatcher.start_at(min(max(report.dispatch_start, report.begin), index_start), index_start)
    catch_up = CatchUp(
        layout, positions, queues, recovered.checkpoint,
        on_progress=recovered.told, file=None if request.lock is None else opening.own_file,
    )  # fmt: skip
    dispatcher.bound_gaps(gaps, report.dispatch_start)
    catch_up.run(dispatcher, index, report.end)
    dispatcher.bound_gaps(None)
    report = with_unplaced(report, recovered.log, queues, layout, whole=whole)
    if whole:
        report = with_losses(report, unreadable_messages(queues, recovered.log, report))
    _settle(queues, report)
    if report.dispatch_start <= report.begin and positions.dispatched >= report.end:
        queues.note_rebuilt(report.end, gaps.take)
    queues.know_ends(report.end)
    offsets, report = _offsets(recovered, report, ours=claimed.ours)
    report = returned.named_in(with_set_back(report, offsets.set_back, offsets.doubts))
    parts = ReadParts(
        path=request.path,
        layout=layout,
        config=config,
        options=request.options,
        log=recovered.log,
        odd_sizes=recovered.odd_sizes,
        positions=positions,
        queues=queues,
        index=index,
        dispatcher=dispatcher,
        arrival=arrival,
        flags=RunningFlags(),
        offsets=offsets,
        report=report,
        state=recovered.state,
        batches=batches,
        verify=VERIFY_ALL | _leniency(recovered),
    )
    return DerivedParts(parts, catch_up.checkpoint)


# ---- pieces of the phases ----


def _made_good(
    opening: Opening,
    recovered: Recovered,
    report: recovery.RecoveryReport,
    gaps: GapBudget,
) -> recovery.RecoveryReport:
    """The report with the messages that were missing in the queues. Nothing is looked for where
    the queues are as our own clean stop left them, unless the caller asks for it."""
    whole, ends = opening.request.options.check_queues, recovered.queues.ends
    if report.mode == "clean" and not whole and ends.queues_untouched(opening.request.layout):
        return report
    return refill_queues(
        report,
        recovered.log,
        recovered.queues,
        opening.request.layout,
        delay_level_ms=recovered.config.delay_level_ms,
        gaps=gaps,
        end=recovered.compared_to,
        whole=whole,
        on_change=opening.stop.changes,
    )


def _offsets(
    recovered: Recovered, report: recovery.RecoveryReport, *, ours: bool
) -> tuple[ConsumerOffsets, recovery.RecoveryReport]:
    """The offsets of groups; the report with what was taken back where the log lost its end."""
    read_only, layout = recovered.request.lock is None, recovered.request.layout
    offsets = recovered_offsets(
        layout,
        recovered.queues,
        recovered.log,
        recovered.positions,
        lost=recovered.lost,
        read_only=read_only,
        ours=ours,
    )
    return offsets, report if read_only or not recovered.lost else take_back(report, layout)


def _settle(queues: ConsumeQueueStore, report: recovery.RecoveryReport) -> None:
    if report.mode != "clean" or report.refilled_queues:
        refilled = {(one.topic, one.queue_id) for one in report.refilled_queues}
        queues.settle(refilled, trimmed=report.begin > 0)


def _lost_its_end(report: recovery.RecoveryReport, loaded: Loaded) -> bool:
    own, log = loaded.own, loaded.log
    return own is not None and (report.end < own.flushed or lost_its_end(own, log))


def _dispatched_before(report: recovery.RecoveryReport, own: OwnCheckpoint | None) -> int:
    """Up to where the queues have units, by what the last writer said: from there on an open
    dispatches in any case."""
    ours = own is not None and not report.mode.startswith("foreign")
    claimed = min(own.dispatched, report.end) if own is not None and ours else 0
    return max(report.dispatch_start, claimed)


def _leniency(recovered: Recovered) -> int:
    """VERIFY_LENIENT while RocketMQ may have left stale record checksums, else 0."""
    state = recovered.state
    noted = recovered.report.foreign or (state is not None and state.foreign)
    return VERIFY_LENIENT if noted else 0


def record_crc(request: Request, state: StoreState | None) -> bool:
    """Whether new records get a record CRC: as asked for, else as the store has it."""
    config = request.options.config
    if "record_crc" in config.given or state is None:
        return config.record_crc
    return state.record_crc


def _first_offset(log: MappedFileQueue, positions: Positions) -> int:
    files = log.files
    return files[0].start_offset if files else positions.wrote
