"""How a store is opened: for writing, in memory when it is dead and read-only, or as a follower.

For writing: lock → marks → recovery → queues and index → dispatch of what is missing → workers
(docs/durability.md#recovery).
A dead store opened with mode "r" takes the same way over private mappings, so nothing on disk changes.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from rocketstore._native.positions import Positions
from rocketstore._native.scanner import VERIFY_BODY_CRC, VERIFY_LENIENT, VERIFY_RECORD_CRC
from rocketstore._native.waiting import Signal
from rocketstore.config import StoreConfig
from rocketstore.config.typed_options import StoreOptions
from rocketstore.consuming.group_offsets import recovered_offsets
from rocketstore.engine import wiring as starting
from rocketstore.engine.catch_up import CatchingUp
from rocketstore.engine.clean_shutdown import CleanStop, stopped_cleanly
from rocketstore.engine.engine import Engine
from rocketstore.engine.follow import open_followed
from rocketstore.engine.open_options import Options
from rocketstore.engine.preflight import check_place
from rocketstore.errors import ConfigError
from rocketstore.log.commitlog.checkpoint import CheckpointFile, OwnCheckpoint, RocketmqCheckpoint
from rocketstore.log.commitlog.running_flags import RunningFlags
from rocketstore.log.dispatch.arrival_notifier import ArrivalCaller
from rocketstore.log.dispatch.dispatcher import Dispatcher
from rocketstore.log.index.names import names_in
from rocketstore.log.index.store import IndexStore
from rocketstore.log.layout import destroy
from rocketstore.log.layout.atomic_files import clean_tmp
from rocketstore.log.layout.lock import (
    OUR_MARK,
    StoreLock,
    rocketstore_wrote_last,
)
from rocketstore.log.layout.ownership import make_directories
from rocketstore.log.layout.paths import StoreLayout
from rocketstore.log.layout.positions_page import PositionsPage, boot_id
from rocketstore.log.layout.store_json import (
    StoreState,
    load_store_state,
    new_store_state,
    save_store_state,
)
from rocketstore.log.mapped_files.mapped_file_queue import Access, MappedFileQueue
from rocketstore.log.mapped_files.memory_log import CopiedLog
from rocketstore.log.mapped_files.second_names import LiveLinks
from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
from rocketstore.log.read.batch_queues import batch_topics, batches_end
from rocketstore.log.recovery import recovery
from rocketstore.log.recovery.batches import recovered_batches
from rocketstore.log.recovery.missing_segments import queue_file_size
from rocketstore.log.recovery.progress import load_progress

__all__ = ["Opening", "open_engine"]

VERIFY_ALL = VERIFY_BODY_CRC | VERIFY_RECORD_CRC


def open_engine(path: str, mode: str, options: Options) -> Engine:
    """The engine behind one open store."""
    layout = check_place(path, mode, options.config)
    index_is_there = layout.index.is_dir()
    if mode == "r":
        if options.untrusted:
            return Opening(path, layout, options, "memory").run()
        if StoreLock.probe(layout) is not None:
            return open_followed(path, layout, options)
        opening = Opening(path, layout, options, "private", None, index_is_there)
        engine = opening.run()
        if opening.odd_sizes or not stopped_cleanly(
            engine.recovery, indexed=options.config.index_enabled
        ):
            return engine
        # Nothing had to be recovered in memory: the files are read, and a writer that comes is followed.
        engine.close()
        fitted = replace(options, config=engine.config)
        return open_followed(path, layout, fitted, engine.recovery)
    make_directories(layout)
    lock: StoreLock | None = None
    opened: Engine | None = None
    try:
        lock = StoreLock.acquire(layout)
        destroy.finish_removal(layout)
        opened = Opening(path, layout, options, "write", lock, index_is_there).run()
        opened.start()
        return opened
    except BaseException:
        if opened is not None:
            opened.close()  # the lock goes behind the threads that run
        elif lock is not None:
            lock.release()
        raise


@dataclass(slots=True)
class Opening:
    """The steps of one open, in order. `lock` None: nothing on disk may change."""

    path: str
    layout: StoreLayout
    options: Options
    access: Access
    lock: StoreLock | None = None
    #: Whether there was a directory for it, before one was made.
    index_is_there: bool = True
    #: Files of the log are not as long as the others: a follower would leave them out.
    odd_sizes: bool = False
    caller: ArrivalCaller | None = None
    page: PositionsPage | None = None
    stop: CleanStop = field(init=False)

    def run(self) -> Engine:
        own_file = CheckpointFile(self.layout.own_checkpoint)
        rocketmq = RocketmqCheckpoint(self.layout.checkpoint)
        self.stop = CleanStop(self.layout, own_file)
        try:
            return self._run(own_file, rocketmq)
        except BaseException as error:
            with ExitStack() as closing:  # each, whatever the others raise; the thread first
                closing.callback(own_file.close)
                closing.callback(rocketmq.close)
                if self.page is not None:
                    closing.callback(self.page.close)
                if self.caller is not None:
                    closing.callback(self.caller.close)
                self.stop.restore(error)
            raise

    def _run(self, own_file: CheckpointFile, rocketmq: RocketmqCheckpoint) -> Engine:
        """Marks → recovery → queues, index and dispatch → the engine."""
        layout, lock = self.layout, self.lock
        ours = self._last_writer_was_ours()
        run_id = bytes(16)
        if lock is not None:
            if not ours:
                # Before the mark: a stop between the two must not leave a checkpoint that is believed.
                recovery.discard_checkpoint(own_file, own_file.load())
            lock.mark_ours()
            self.page = PositionsPage.create(layout.positions)
            run_id = self.page.begin()
            clean_tmp(layout)
        log = self._load_log()
        config = self._fit_config(log)
        state = self._load_state()
        own = None if self.options.untrusted else own_file.load()
        if lock is not None:
            self.stop.begin()
        positions = Positions()
        queues = ConsumeQueueStore(
            layout,
            self.access,
            config.consume_queue_file_size_bytes,
            lambda: _begin(log, positions),
        )
        queues.load()
        marks = self._marks(own, ours, self.stop.found, log, queues, rocketmq.load(), state)
        self.stop.changes()
        report = recovery.recover(
            log,
            layout,
            marks,
            checkpoint=own_file if lock is not None else None,
            max_unflushed_bytes=config.max_unflushed_bytes,
            max_record_bytes=config.record_limit_bytes,
            check_crc=config.check_crc_on_recover,
            force=self.options.force,
            on_progress=self.options.on_recovery,
            on_foreign=self._keep_foreign if lock is not None else None,
            boot_id=boot_id(),
            run_id=run_id,
        )
        if lock is not None:
            unchanged = stopped_cleanly(report, indexed=config.index_enabled)
            self.stop.recovered(unchanged=unchanged)
        for position in ("wrote", "committed", "flushed", "visible"):
            setattr(positions, position, report.end)
        positions.minimum = report.begin
        template = report.checkpoint or own or OwnCheckpoint()
        catching_up = CatchingUp(layout, positions, queues, template, self.options.on_recovery)
        if lock is not None:
            catching_up.file = own_file
        parts = self._derive(config, log, queues, report, state, catching_up)
        if lock is None or self.page is None:
            return starting.read_only(parts)
        template = replace(catching_up.checkpoint, boot_id=boot_id(), run_id=run_id)
        files, record_crc = (own_file, rocketmq), self._record_crc(state)
        return starting.for_writing(parts, lock, self.page, files, template, record_crc=record_crc)

    def _derive(
        self,
        config: StoreConfig,
        log: MappedFileQueue,
        queues: ConsumeQueueStore,
        report: recovery.RecoveryReport,
        state: StoreState | None,
        catching_up: CatchingUp,
    ) -> starting.Parts:
        """Queues and index hold exactly what the log says, up to its end."""
        positions = catching_up.positions
        arrival = Signal()
        index = self._load_index(config, report)
        if self.options.on_arrival is not None:
            self.caller = ArrivalCaller(self.options.on_arrival)
        dispatcher = Dispatcher(
            positions,
            log.find,
            queues,
            index,
            arrival,
            delay_level_ms=config.delay_level_ms,
            multi_dispatch=True,
            damage=[(damage.start, damage.end) for damage in report.damage],
            ignored_topics=batch_topics(self.layout),
            listener=self.caller,
        )
        if report.mode != "clean":
            queues.truncate(report.end)
        # A log that was lost begins again further on: there is nothing to dispatch in front of it.
        index_start = max(report.index_start, report.begin)
        dispatcher.start_at(min(max(report.dispatch_start, report.begin), index_start), index_start)
        catching_up.run(dispatcher, index, report.end)
        if report.dispatch_start <= report.begin and positions.dispatched >= report.end:
            queues.made_anew(report.end)
        queues.know_ends(report.end)
        # The range that this open found is not in `state` yet, and with mode "r" never will be. Where we
        # wrote last by the mark, and only the bytes differ, that is damage to who reads.
        found = report.foreign and (self.lock is not None or not self._last_writer_was_ours())
        lenient = VERIFY_LENIENT if state is None or state.foreign or found else 0
        return starting.Parts(
            path=self.path,
            layout=self.layout,
            config=config,
            options=self.options,
            log=log,
            positions=positions,
            queues=queues,
            index=index,
            dispatcher=dispatcher,
            arrival=arrival,
            flags=RunningFlags(),
            offsets=recovered_offsets(self.layout, queues, read_only=self.lock is None),
            report=report,
            batches=recovered_batches(self.layout, log, report),
            verify=VERIFY_ALL | lenient,
        )

    # ---- marks ----

    def _last_writer_was_ours(self) -> bool:
        if self.lock is not None:
            return self.lock.previous == OUR_MARK
        return rocketstore_wrote_last(self.layout)

    def _marks(
        self,
        own: OwnCheckpoint | None,
        ours: bool,
        clean: bool,
        log: MappedFileQueue,
        queues: ConsumeQueueStore,
        times: tuple[int, int, int, int, int],
        state: StoreState | None,
    ) -> recovery.Marks:
        if self.options.untrusted:
            return recovery.Marks(clean=False, dispatch_from=0, index_from=0)
        verdict = None if own is None else recovery.judge_checkpoint(own, log)
        trusted = ours and verdict is not None and verdict.speaks
        derived_end = dispatch_from = None
        if not trusted and (verdict is None or not verdict.missing or self.options.force):
            # Before recovery stores a checkpoint; an open that is refused changes nothing.
            queues.forget_ends()
        if not trusted and (len(queues) or batch_topics(self.layout)):
            derived_end = max(queues.max_physical_end(), batches_end(self.layout), 0)
        if trusted and own is not None:
            names = own.queue_count, own.queues_digest
            lost = queues.has_lost_any(names, own.dispatched)
            # After a clean stop it shows when a queue is used: looking into all of them takes too long.
            clean_stop = clean and own.clean and own.cut < 0
            lost = lost or (not clean_stop and queues.has_shortened(own.dispatched))
            dispatch_from = 0 if lost else None  # D-18
        return recovery.Marks(
            own=own,
            synced=self.page.synced_by(own.run_id) if self.page is not None and own else 0,
            ours=ours,
            clean=clean,
            rocketmq_times=times[:3],
            derived_end=derived_end,
            dispatch_from=dispatch_from,
            index_from=self._index_from(own if trusted else None),
            indexed=self.options.config.index_enabled,
            foreign=state.foreign if state is not None else (),
            record_crc=state is None or state.record_crc,
            progress=load_progress(self.layout),
        )

    def _index_from(self, own: OwnCheckpoint | None) -> int | None:
        """Where the index ends if no checkpoint that counts says so, and the begin of the log if somebody
        deleted it or one of its files: RocketMQ's recovery drops the newest, operators drop all."""
        if not self.options.config.index_enabled:
            return None
        if own is not None:
            gone = len(names_in(self.layout.index)) < own.index_files
            return 0 if gone or not self.index_is_there else None
        end = self._index_end()
        return None if end == 0 and self.index_is_there else end

    def _index_end(self) -> int:
        config = self.options.config
        index = IndexStore(self.layout, "read", config.index_slots, config.index_entries)
        index.load()
        end = index.end_physical_offset
        index.close()
        return end

    def _load_state(self) -> StoreState | None:
        state = load_store_state(self.layout)
        if state is None and self.lock is not None:
            state = new_store_state(
                created_ms=time.time_ns() // 1_000_000, record_crc=self.options.config.record_crc
            )
            save_store_state(self.layout, state)
        return state

    def _record_crc(self, state: StoreState | None) -> bool:
        config = self.options.config
        if "record_crc" in config.given or state is None:
            return config.record_crc
        return state.record_crc

    def _keep_foreign(self, start: int, end: int) -> None:
        state = load_store_state(self.layout)
        if state is not None:
            save_store_state(self.layout, state.with_foreign(start, end))

    # ---- files ----

    def _load_log(self) -> MappedFileQueue:
        layout = self.layout
        if self.lock is not None:
            LiveLinks(layout).restore()
        untrusted = self.options.untrusted
        log = (CopiedLog if untrusted else MappedFileQueue)(
            layout.logs[0],
            "private" if untrusted else self.access,
            file_size=None,
            name="commit log",
            tmp_directory=layout.tmp,
            more_directories=layout.logs[1:],
        )
        log.load()
        self.odd_sizes = bool(log.shapes)
        if log.file_size is None or not log.files:
            log.file_size = self.options.config.commit_log_file_size_bytes
        return log

    def _fit_config(self, log: MappedFileQueue) -> StoreConfig:
        """Sizes are those of the files; one that was given and disagrees is an error."""
        config = self.options.config
        changes: StoreOptions = {}
        if log.files and log.file_size != config.commit_log_file_size_bytes:
            if "commit_log_file_size_bytes" in config.given:
                raise ConfigError(
                    "commit_log_file_size_bytes",
                    config.commit_log_file_size_bytes,
                    f"the files of this store have {log.file_size}",
                )
            changes["commit_log_file_size_bytes"] = log.file_size or 0
        found = None if self.options.untrusted else queue_file_size(self.layout)
        if found is not None and found != config.consume_queue_file_size_bytes:
            if "consume_queue_file_size_bytes" in config.given:
                raise ConfigError(
                    "consume_queue_file_size_bytes",
                    config.consume_queue_file_size_bytes,
                    f"the files of this store have {found}",
                )
            changes["consume_queue_file_size_bytes"] = found
        return config.replace(**changes) if changes else config

    def _load_index(
        self, config: StoreConfig, report: recovery.RecoveryReport
    ) -> IndexStore | None:
        if not config.index_enabled:
            return None
        index = IndexStore(self.layout, self.access, config.index_slots, config.index_entries)
        index.load()
        if report.mode != "clean" or report.index_start < report.end:
            index.reset_from(report.index_start)
        return index


def _begin(log: MappedFileQueue, positions: Positions) -> int:
    files = log.files
    return files[0].start_offset if files else positions.wrote
