"""The parts of a store that is open for writing, each with the few values that it needs."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from rocketstore._native import syscalls
from rocketstore._native.durations import Durations
from rocketstore._native.populating import PagesAhead
from rocketstore._native.prewriting import prewrite
from rocketstore._native.ring import Ring
from rocketstore._native.write_through import WriteThrough
from rocketstore.config import Durability, StoreConfig
from rocketstore.engine.engine import Engine
from rocketstore.engine.initial_offset import FirstOffset
from rocketstore.engine.parts import WriteParts, ring_bytes
from rocketstore.engine.tickets import Completions
from rocketstore.errors import ConfigError
from rocketstore.log.commitlog.checkpoint import CheckpointFile, OwnCheckpoint, RocketmqCheckpoint
from rocketstore.log.commitlog.checkpointer import Checkpointer
from rocketstore.log.commitlog.clock_monitor import ClockWatch
from rocketstore.log.commitlog.commit_log import NEXT_SEGMENT_AT, CommitLog
from rocketstore.log.commitlog.committer import Committer
from rocketstore.log.commitlog.flusher import Flusher
from rocketstore.log.commitlog.log_limits import LogLimits
from rocketstore.log.commitlog.write_path import WritePath
from rocketstore.log.layout.file_system import file_system
from rocketstore.log.layout.store_json import load_store_state, save_store_state, time_breaks
from rocketstore.log.mapped_files.new_file import withdraw_file
from rocketstore.log.mapped_files.populator import Populator
from rocketstore.log.mapped_files.preallocator import Preallocator
from rocketstore.log.mapped_files.second_names import LiveLinks
from rocketstore.log.mapped_files.write_buffer_pool import WriteBufferPool
from rocketstore.log.queues.put_states import PutQueues
from rocketstore.log.queues.queue_preallocator import QueuePreallocator
from rocketstore.log.read.local_source import StoreSource
from rocketstore.log.recovery import recovery
from rocketstore.stats.histogram import PUT_TIME_BOUNDS_NS
from rocketstore.stats.statistics import StoreStatistics

if TYPE_CHECKING:
    from rocketstore._native.mapped_file import MappedFile
    from rocketstore._native.positions import Positions
    from rocketstore._native.waiting import Signal
    from rocketstore.consuming.group_offsets import ConsumerOffsets
    from rocketstore.engine.open_options import Options
    from rocketstore.log.commitlog.running_flags import RunningFlags
    from rocketstore.log.dispatch.dispatcher import Dispatcher
    from rocketstore.log.index.store import IndexStore
    from rocketstore.log.layout.lock import StoreLock
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.layout.positions_page import PositionsPage
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
    from rocketstore.log.read.batch_queues import BatchQueues
    from rocketstore.log.recovery.recovery import RecoveryReport

logger = logging.getLogger(__name__)

__all__ = ["Parts", "for_writing", "read_only"]

#: D-28: a last store time further ahead of now than this may fall once.
FUTURE_MS = 60_000
#: Of a log's first file, in memory before anybody writes there.
FIRST_BYTES: Final = 8 << 20


@dataclass(slots=True)
class Parts:
    """What every open store of this process has: recovered, dispatched, not yet running."""

    path: str
    layout: StoreLayout
    config: StoreConfig
    options: Options
    log: MappedFileQueue
    positions: Positions
    queues: ConsumeQueueStore
    index: IndexStore | None
    dispatcher: Dispatcher
    arrival: Signal
    flags: RunningFlags
    offsets: ConsumerOffsets
    report: RecoveryReport
    batches: BatchQueues
    verify: int


def read_only(parts: Parts) -> Engine:
    """A dead store, recovered in memory: nothing moves any more."""
    return _engine(parts, StoreStatistics(dict), None)


def _engine(parts: Parts, statistics: StoreStatistics, write: WriteParts | None) -> Engine:
    engine = Engine(
        parts.path,
        parts.layout,
        parts.config,
        parts.positions,
        parts.flags,
        statistics,
        parts.offsets,
        parts.report,
        index=parts.index,
        segments=parts.log,
        queues=parts.queues,
        dispatcher=parts.dispatcher,
        write=write,
    )
    engine.read_from(
        StoreSource(
            parts.log,
            parts.queues,
            parts.dispatcher.catch_up,
            parts.positions,
            parts.arrival,
            batches=parts.batches,
            verify=parts.verify,
            check=engine.check_readable,
            time_breaks=time_breaks(parts.layout),
        )
    )
    return engine


def for_writing(
    parts: Parts,
    lock: StoreLock,
    page: PositionsPage,
    files: tuple[CheckpointFile, RocketmqCheckpoint],
    template: OwnCheckpoint,
    *,
    record_crc: bool,
) -> Engine:
    """The engine, whose workers do not run before its `start`."""
    start = _Start(parts)
    commit_log = start.commit_log
    log = commit_log.log
    parts.dispatcher.attach(log.dispatch_signal, page, commit_log.fail)
    queue_files = QueuePreallocator(start.fail)
    parts.queues.ask_ahead = queue_files.ask
    flusher = start.make_flusher(page)
    committer = start.make_committer()
    if committer is not None:
        flusher.commit_first(committer)
        if parts.config.wake_commit_on_put:
            log.wake_on_put(committer.signal)
    elif parts.config.wake_flush_on_put:
        log.wake_on_put(flusher.signal)
    checkpointer = start.make_checkpointer(files, template)
    checkpointer.begin()
    write = WriteParts(
        lock=lock,
        page=page,
        positions=parts.positions,
        commit_log=commit_log,
        preallocator=start.preallocator,
        queue_files=queue_files,
        populator=start.populator,
        flusher=flusher,
        committer=committer,
        checkpointer=checkpointer,
        put_queues=start.put_queues,
        completions=Completions(
            log, _reached(parts), commit_log.check_waitable, parts.config.sync_flush_timeout_ms
        ),
        record_crc=record_crc,
        ring=start.ring,
        pool=start.pool,
        live=start.live,
        queues=parts.queues,
        index=parts.index,
    )
    segment = parts.log.find(parts.report.end)
    if segment is not None:
        start.live.add(segment)
    parts.flags.on_change(commit_log.refuse_or_admit)
    commit_log.start(parts.report.end, parts.report.last_record_start, _last_time(parts))
    page.publish(parts.positions)
    page.go_live()
    return _engine(parts, start.statistics, write)


class _Start:
    """Makes the workers of one store, each with the few values that it needs."""

    def __init__(self, parts: Parts) -> None:
        config = parts.config
        self.parts = parts
        self.ring, self.pool = _write_path(parts)
        self.put_queues = PutQueues(
            FirstOffset(
                parts.dispatcher,
                parts.positions,
                parts.queues,
                parts.offsets,
                parts.report.end,
            ),
            wide_topics=config.auto_wide_topic,
            topics=parts.queues.topics,
            max_light_queues=config.max_light_queues,
        )
        self.put_times = Durations(PUT_TIME_BOUNDS_NS)
        self.statistics = StoreStatistics(self.put_queues.totals, put_times=self.put_times.take)
        self.live = LiveLinks(parts.layout)
        prewritten = config.prewrite and self.ring is not None
        make = self._make_prewritten if prewritten else partial(parts.log.make, sparse=False)
        self.preallocator = Preallocator(
            partial(self._make_linked, make), self.fail, withdraw=self._withdraw
        )
        self.commit_log = CommitLog(
            parts.log,
            parts.positions,
            self.preallocator,
            parts.flags,
            parts.arrival,
            path=WritePath(
                ring=self.ring, pool=self.pool, pool_fast_fail=config.transient_pool_fast_fail
            ),
            limits=LogLimits(
                max_unflushed_bytes=config.max_unflushed_bytes,
                max_undispatched_bytes=config.max_undispatched_bytes,
                max_wait_ms=config.max_wait_ms,
            ),
            next_segment_at=0.0 if prewritten else NEXT_SEGMENT_AT,  # its making takes its time
            visible_when_flushed=config.visible_is_flushed,
            store_host=config.store_host,
            on_new_segment=self.live.add,
            on_put_failed=self.statistics.record_put_failed,
        )
        self.populator = self._make_populator()
        self.commit_log.log.max_message_size_bytes = config.max_message_size_bytes
        self.commit_log.log.put_times = self.put_times

    def fail(self, cause: BaseException) -> None:
        """A worker ended with an error: so does the store."""
        self.commit_log.fail(cause)

    def make_flusher(self, page: PositionsPage) -> Flusher:
        config = self.parts.config
        return Flusher(
            self.commit_log,
            self.fail,
            ring=self.ring,
            sync_mode=config.durability is Durability.DISK,
            interval_ms=config.flush_interval_ms,
            timed=config.flush_timed,
            least_pages=config.flush_least_pages,
            thorough_interval_ms=config.flush_thorough_interval_ms,
            # Not where blocks are written anew each time, or where nobody knows.
            zeros_ahead=not config.prewrite and file_system(self.parts.layout.root).mapped_writes,
            live=self.live,
            page=page,
            record_latency=self.statistics.record_flush,
        )

    def make_committer(self) -> Committer | None:
        if self.pool is None:
            return None
        config = self.parts.config
        return Committer(
            self.commit_log,
            self.fail,
            interval_ms=config.commit_interval_ms,
            least_pages=config.commit_least_pages,
            thorough_interval_ms=config.commit_thorough_interval_ms,
        )

    def _make_prewritten(self, start_offset: int) -> MappedFile:
        def write_zeros(fd: int, size: int) -> None:
            prewrite(fd, size, self.parts.positions, start_offset)

        return self.parts.log.make(start_offset, sparse=False, prewrite=write_zeros)

    def _make_linked(self, make: Callable[[int], MappedFile], start_offset: int) -> MappedFile:
        """With its second name: the put that takes it would wait for the disk."""
        file = make(start_offset)
        try:
            if self.populator is not None and not self.parts.log.files:
                # The populator finds all others half a file before they are needed.
                _read_ahead(file)
            self.live.prepare(file)
        except BaseException:
            withdraw_file(file)
            raise
        return file

    def _withdraw(self, file: MappedFile) -> None:
        try:
            self.live.withdraw(file)
        finally:
            withdraw_file(file)

    def _make_populator(self) -> Populator | None:
        config, positions = self.parts.config, self.parts.positions
        if self.ring is not None or self.pool is not None:
            return None
        if not config.populate_window_bytes:  # batches come to pages that are not ready
            self.commit_log.log.through = WriteThrough(PagesAhead(positions, 0))
            return None
        populator = Populator(
            positions,
            self.parts.log.find,
            self.preallocator.spare,
            self.fail,
            window_bytes=config.populate_window_bytes,
        )
        self.commit_log.log.through = WriteThrough(populator.pages)
        self.commit_log.populate_with(populator)
        return populator

    def make_checkpointer(
        self, files: tuple[CheckpointFile, RocketmqCheckpoint], template: OwnCheckpoint
    ) -> Checkpointer:
        parts = self.parts
        return Checkpointer(
            self.commit_log,
            parts.dispatcher.sync_queues,
            parts.queues.digest,
            parts.index,
            *files,
            template,
            lambda end, start: recovery.fingerprint(parts.log, end, start),
            self.fail,
            queue_flush_interval_ms=parts.config.consume_queue_flush_interval_ms,
            every_second=(self.statistics.sample, ClockWatch().look),
        )


def _read_ahead(file: MappedFile) -> None:
    """What the first put would have the kernel read at once, 3 to 5 ms long. No page is dirty of it."""
    with contextlib.suppress(OSError):  # a kernel may take no advice
        os.posix_fadvise(file.fd, 0, FIRST_BYTES, os.POSIX_FADV_WILLNEED)


def _write_path(parts: Parts) -> tuple[Ring | None, WriteBufferPool | None]:
    """Mapped for `os`, a ring for `disk`, pool buffers for `memory` (docs/architecture.md#two-write-paths)."""
    config = parts.config
    system = file_system(parts.layout.root)
    if system.network and not config.allow_network_file_system:
        raise ConfigError(
            "allow_network_file_system",
            False,
            f"{parts.layout.root} is on {system.name}, where locks and syncs are not what "
            "durability needs; set it to True to write there all the same",
        )
    if config.durability is Durability.MEMORY and parts.log.file_size:
        return None, WriteBufferPool(config.transient_pool_buffers, parts.log.file_size)
    if config.durability is Durability.DISK or not system.mapped_writes:
        return Ring(max(config.write_buffer_bytes, ring_bytes(config))), None
    return None, None


def _reached(parts: Parts) -> Callable[[int, str], bool]:
    """Whether an offset met a promise: what tickets ask."""

    def reached(offset: int, level: str) -> bool:
        if level == "memory":
            return True
        positions = parts.positions
        return offset <= (positions.flushed if level == "disk" else positions.committed)

    return reached


def _last_time(parts: Parts) -> int:
    """Store times do not fall, unless the last one is far ahead of the clock; then it is noted where (D-28)."""
    last = parts.report.last_store_timestamp_ms
    now = syscalls.realtime_ms()
    if last > now + FUTURE_MS:
        logger.warning(
            "%s: the last store time, %d, is %d s ahead of the clock; store times fall once",
            parts.layout.root, last, (last - now) // 1000,
        )  # fmt: skip
        state = load_store_state(parts.layout)
        if state is not None:
            save_store_state(parts.layout, state.with_fall(parts.report.end))
        if parts.index is not None:
            parts.index.note_fall()
        return 0
    return last
