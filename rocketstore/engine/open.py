"""Opens a store: for writing, in memory when it is dead and read-only, or as a follower.

For writing an open goes through phases: claim → load → recover → derive → wire. Each is a function
here from the frozen values of the phases before it to one of its own, and says what it relies on.
`open_for_writing` runs them (docs/durability.md#recovery).
A dead store opened with mode "r" takes the same way over private mappings, so nothing on disk changes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rocketstore._native.positions import Positions
from rocketstore._native.scanner import VERIFY_BODY_CRC, VERIFY_LENIENT, VERIFY_RECORD_CRC
from rocketstore._native.waiting import Signal
from rocketstore.consuming.group_offsets import recovered_offsets
from rocketstore.engine.catch_up import CatchUp
from rocketstore.engine.clean_shutdown import CleanShutdown, stopped_cleanly
from rocketstore.engine.engine import MemoryEngine
from rocketstore.engine.follow import open_follower
from rocketstore.engine.open_marks import Found, last_writer_was_ours, read_marks
from rocketstore.engine.parts import ReadParts
from rocketstore.engine.preflight import preflight
from rocketstore.engine.wiring import OwnFiles, memory_engine, writing_engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError
from rocketstore.log.commitlog.checkpoint import CheckpointFile, OwnCheckpoint, RocketmqCheckpoint
from rocketstore.log.commitlog.running_flags import RunningFlags
from rocketstore.log.dispatch.arrival_notifier import ArrivalNotifier
from rocketstore.log.dispatch.dispatcher import Dispatcher
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout import destroy
from rocketstore.log.layout.atomic_files import clean_tmp
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.positions_page import PositionsPage, boot_id
from rocketstore.log.layout.store_json import (
    StoreState,
    load_store_state,
    new_store_state,
    save_store_state,
)
from rocketstore.log.mapped_files.mapped_file_queue import Access, MappedFileQueue
from rocketstore.log.mapped_files.memory_log import MemoryLog
from rocketstore.log.mapped_files.second_names import SecondNames
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.read.batch_queues import batch_topics
from rocketstore.log.recovery import recovery
from rocketstore.log.recovery.batches import recovered_batches
from rocketstore.log.recovery.missing_segments import queue_file_size

if TYPE_CHECKING:
    from rocketstore.config import StoreConfig
    from rocketstore.config.typed_options import StoreOptions
    from rocketstore.engine.engine import Engine
    from rocketstore.engine.open_options import Options
    from rocketstore.log.layout.paths import StoreLayout

__all__ = ["Recovered", "Request", "open_engine", "open_for_writing"]

VERIFY_ALL = VERIFY_BODY_CRC | VERIFY_RECORD_CRC


def open_engine(path: str, mode: str, options: Options) -> Engine:
    """The engine of one open store.

    Raises:
        StoreLockedError, MissingSegmentsError, ConfigError, OSError: as `rocketstore.open` says.
    """
    layout = preflight(path, mode, options.config)
    index_was_there = layout.index.is_dir()
    if mode == "r":
        return _open_to_read(Request(path, layout, options, "private", None, index_was_there))
    make_directories(layout)
    lock: StoreLock | None = None
    opened: WritingEngine | None = None
    try:
        lock = StoreLock.acquire(layout)
        destroy.finish_removal(layout)
        opened = open_for_writing(Request(path, layout, options, "write", lock, index_was_there))
        opened.start()
        return opened
    except BaseException:
        if opened is not None:
            opened.close()  # the lock goes after the threads that run
        elif lock is not None:
            lock.release()
        raise


def _open_to_read(request: Request) -> Engine:
    """A follower where a writer lives, or where nothing has to be recovered; else recovered in memory."""
    path, layout, options = request.path, request.layout, request.options
    if options.untrusted:
        return _open_in_memory(replace(request, access="memory", index_was_there=True))
    if StoreLock.probe(layout) is not None:
        return open_follower(path, layout, options)
    engine = _open_in_memory(request)
    indexed = options.config.index_enabled
    if engine.odd_sizes or not stopped_cleanly(engine.recovery, indexed=indexed):
        return engine
    # Nothing had to be recovered in memory: the files are read, and a writer that comes is followed.
    engine.close()
    fitted = replace(options, config=engine.config)
    return open_follower(path, layout, fitted, engine.recovery)


# ---- the values of the phases ----


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. `lock` None: nothing on disk may change."""

    path: str
    layout: StoreLayout
    options: Options
    access: Access
    lock: StoreLock | None
    #: Whether there was a directory for the index before the open made one.
    index_was_there: bool = True


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
    #: None where this open does not write.
    page: PositionsPage | None
    #: The page's run; zeros without a page.
    run_id: bytes


@dataclass(frozen=True, slots=True)
class Loaded:
    """Log and queues as the files are, and the options that fit them."""

    log: MappedFileQueue
    #: Whether some files of the log differ in length from the others.
    odd_sizes: bool
    config: StoreConfig
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
    state: StoreState | None
    positions: Positions
    queues: ConsumeQueueStore
    report: recovery.RecoveryReport
    #: Our checkpoint after recovery.
    checkpoint: OwnCheckpoint


@dataclass(frozen=True, slots=True)
class DerivedParts:
    """Queues and index hold what the log says; `checkpoint` speaks of them."""

    parts: ReadParts
    checkpoint: OwnCheckpoint


# ---- the phases in order ----


def open_for_writing(
    request: Request, replace_derived: Callable[[Recovered], Recovered] | None = None
) -> WritingEngine:
    """Recovers a store whose lock this process has. No worker runs yet.

    `replace_derived`: called once after recovery, may replace the queues and the index on disk.
    """
    opening = _begin(request)
    try:
        claimed = claim(opening)
        assert request.lock is not None
        assert claimed.page is not None
        loaded = load(opening, claimed)
        recovered = recover(opening, claimed, loaded)
        if replace_derived is not None:
            recovered = replace_derived(recovered)
        derived = derive(opening, claimed, recovered)
        own = OwnFiles(
            lock=request.lock,
            page=claimed.page,
            own_file=opening.own_file,
            rocketmq_file=opening.rocketmq_file,
            checkpoint=replace(derived.checkpoint, boot_id=boot_id(), run_id=claimed.run_id),
            record_crc=_record_crc(request, loaded.state),
        )
        return writing_engine(derived.parts, own)
    except BaseException as error:
        _undo(opening, error)
        raise


def _open_in_memory(request: Request) -> MemoryEngine:
    """Recovers a dead store over private mappings, or copies; nothing on disk changes."""
    opening = _begin(request)
    try:
        claimed = claim(opening)
        loaded = load(opening, claimed)
        recovered = recover(opening, claimed, loaded)
        return memory_engine(derive(opening, claimed, recovered).parts)
    except BaseException as error:
        _undo(opening, error)
        raise


def _begin(request: Request) -> Opening:
    layout, undo = request.layout, ExitStack()
    own_file = CheckpointFile(layout.own_checkpoint)
    undo.callback(own_file.close)
    rocketmq_file = RocketmqCheckpoint(layout.checkpoint)
    undo.callback(rocketmq_file.close)
    return Opening(request, own_file, rocketmq_file, CleanShutdown(layout, own_file), undo)


def _undo(opening: Opening, error: BaseException) -> None:
    """Restores the clean stop, then closes what the phases opened, threads first, each though another failed."""
    with opening.undo:
        opening.stop.restore(error)


def claim(opening: Opening) -> Claimed:
    """Marks the store as ours and begins a run on the positions page.

    Relies on: the lock, where this open writes. Without it, only reads the mark.
    """
    request = opening.request
    layout, lock = request.layout, request.lock
    ours = last_writer_was_ours(layout, lock)
    if lock is None:
        return Claimed(ours, None, bytes(16))
    if not ours:
        # Before the mark: a stop between the two must not leave a checkpoint that is believed.
        recovery.discard_checkpoint(opening.own_file, opening.own_file.load())
    lock.mark_ours()
    page = opening.undo.enter_context(closing(PositionsPage.create(layout.positions)))
    run_id = page.begin()
    clean_tmp(layout)
    return Claimed(ours, page, run_id)


def load(opening: Opening, claimed: Claimed) -> Loaded:
    """Loads the log, the options that its files dictate, the state, our checkpoint and the queues.

    Relies on: the store is claimed, so no other process writes. From here on `abort` is there, where this open writes.
    """
    request = opening.request
    log = _load_log(request)
    odd_sizes = bool(log.wrong_sizes)
    if log.file_size is None or not log.files:
        log.file_size = request.options.config.commit_log_file_size_bytes
    config = _fit_config(request, log)
    state = _load_state(request)
    own = None if request.options.untrusted else opening.own_file.load()
    if request.lock is not None:
        opening.stop.begin()
    positions = Positions()
    queues = ConsumeQueueStore(
        request.layout,
        request.access,
        config.consume_queue_file_size_bytes,
        lambda: _first_offset(log, positions),
    )
    queues.load()
    return Loaded(log, odd_sizes, config, state, own, positions, queues)


def recover(opening: Opening, claimed: Claimed, loaded: Loaded) -> Recovered:
    """Finds the end of the log and makes the log durable up to there; sets all positions but the dispatcher's.

    Relies on: `loaded` is what the files hold; nothing was changed since. Reads the marks before it changes anything.
    """
    request, log, config = opening.request, loaded.log, loaded.config
    writes = request.lock is not None
    marks = read_marks(
        Found(
            layout=request.layout,
            options=request.options,
            log=log,
            queues=loaded.queues,
            own=loaded.own,
            state=loaded.state,
            page=claimed.page,
            ours=claimed.ours,
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
        on_progress=request.options.on_recovery,
        on_foreign=_foreign_saver(request.layout) if writes else None,
        boot_id=boot_id(),
        run_id=claimed.run_id,
    )
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
        state=loaded.state,
        positions=positions,
        queues=loaded.queues,
        report=report,
        checkpoint=report.checkpoint or loaded.own or OwnCheckpoint(),
    )


def derive(opening: Opening, claimed: Claimed, recovered: Recovered) -> DerivedParts:
    """Makes queues and index hold exactly what the log says, up to its end or to where dispatching is stuck.

    Relies on: the log ends at `report.end`, and all positions but the dispatcher's are set.
    """
    request, report, config = opening.request, recovered.report, recovered.config
    layout, positions, queues = request.layout, recovered.positions, recovered.queues
    arrival = Signal()
    index = _load_index(request, config, report)
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
        ignored_topics=batch_topics(layout),
        listener=listener,
    )
    if report.mode != "clean":
        queues.truncate(report.end)
    # A log that was lost begins again further on: there is nothing to dispatch before it.
    index_start = max(report.index_start, report.begin)
    dispatcher.start_at(min(max(report.dispatch_start, report.begin), index_start), index_start)
    on_progress = request.options.on_recovery
    catch_up = CatchUp(layout, positions, queues, recovered.checkpoint, on_progress)
    if request.lock is not None:
        catch_up.file = opening.own_file
    catch_up.run(dispatcher, index, report.end)
    if report.dispatch_start <= report.begin and positions.dispatched >= report.end:
        queues.note_rebuilt(report.end)
    queues.know_ends(report.end)
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
        offsets=recovered_offsets(layout, queues, read_only=request.lock is None),
        report=report,
        batches=recovered_batches(layout, recovered.log, report),
        verify=VERIFY_ALL | _leniency(claimed, recovered),
    )
    return DerivedParts(parts, catch_up.checkpoint)


# ---- pieces of the phases ----


def _load_log(request: Request) -> MappedFileQueue:
    layout, untrusted = request.layout, request.options.untrusted
    if request.lock is not None:
        SecondNames(layout).restore()
    log = (MemoryLog if untrusted else MappedFileQueue)(
        layout.logs[0],
        "private" if untrusted else request.access,
        file_size=None,
        name="commit log",
        tmp_directory=layout.tmp,
        more_directories=layout.logs[1:],
    )
    log.load()
    return log


def _fit_config(request: Request, log: MappedFileQueue) -> StoreConfig:
    """Sizes are those of the files; one that was given and disagrees is an error."""
    config = request.options.config
    changes: StoreOptions = {}
    if log.files and log.file_size != config.commit_log_file_size_bytes:
        if "commit_log_file_size_bytes" in config.given:
            raise ConfigError(
                "commit_log_file_size_bytes",
                config.commit_log_file_size_bytes,
                f"the files of this store have {log.file_size}",
            )
        changes["commit_log_file_size_bytes"] = log.file_size or 0
    found = None if request.options.untrusted else queue_file_size(request.layout)
    if found is not None and found != config.consume_queue_file_size_bytes:
        if "consume_queue_file_size_bytes" in config.given:
            raise ConfigError(
                "consume_queue_file_size_bytes",
                config.consume_queue_file_size_bytes,
                f"the files of this store have {found}",
            )
        changes["consume_queue_file_size_bytes"] = found
    return config.replace(**changes) if changes else config


def _load_state(request: Request) -> StoreState | None:
    """What store.json says; a writer makes one where there is none."""
    state = load_store_state(request.layout)
    if state is None and request.lock is not None:
        state = new_store_state(
            created_ms=time.time_ns() // 1_000_000, record_crc=request.options.config.record_crc
        )
        save_store_state(request.layout, state)
    return state


def _foreign_saver(layout: StoreLayout) -> Callable[[int, int], None]:
    """Notes a range of the log that another program wrote in store.json."""

    def save(start: int, end: int) -> None:
        state = load_store_state(layout)
        if state is not None:
            save_store_state(layout, state.with_foreign(start, end))

    return save


def _load_index(
    request: Request, config: StoreConfig, report: recovery.RecoveryReport
) -> IndexStore | None:
    if not config.index_enabled:
        return None
    index = IndexStore(request.layout, request.access, config.index_slots, config.index_entries)
    index.load()
    if report.mode != "clean" or report.index_start < report.end:
        index.reset_from(report.index_start)
    return index


def _leniency(claimed: Claimed, recovered: Recovered) -> int:
    """VERIFY_LENIENT while RocketMQ may have left stale record checksums, else 0.

    The range that this open found is not in `state` yet, and with mode "r" never will be. Where we wrote last by the
    mark, and only the bytes differ, that is damage to a reader.
    """
    state, request = recovered.state, recovered.request
    found = recovered.report.foreign and (request.lock is not None or not claimed.ours)
    return VERIFY_LENIENT if state is None or state.foreign or found else 0


def _record_crc(request: Request, state: StoreState | None) -> bool:
    config = request.options.config
    if "record_crc" in config.given or state is None:
        return config.record_crc
    return state.record_crc


def _first_offset(log: MappedFileQueue, positions: Positions) -> int:
    files = log.files
    return files[0].start_offset if files else positions.wrote
