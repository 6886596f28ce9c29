"""Builds the parts of a store that is open for writing, each with the few values that it needs.

`Wiring` builds leaf first; a part gets the parts below it, and callables for what lies above.
`memory_engine` and `writing_engine` are the entries: recovered parts in, an engine out. No worker
runs before the engine's `start`.
"""

from __future__ import annotations

import contextlib
import logging
import os
from dataclasses import dataclass
from functools import partial
from typing import Final

from rocketstore._native.append.copies import check_promise
from rocketstore._native.append.direct_write import WriteThrough
from rocketstore._native.append.page_populator import PagesAhead
from rocketstore._native.os.mapped_file import MappedFile
from rocketstore._native.os.ring_buffer import RingBuffer
from rocketstore._native.sync.durations import Durations
from rocketstore._native.sync.futex import EventCount
from rocketstore.engine.catch_up import dispatch_for_reader
from rocketstore.engine.engine import Guard, MemoryEngine, Opened
from rocketstore.engine.initial_offset import InitialOffset
from rocketstore.engine.open_options import SYSTEM_CLOCK
from rocketstore.engine.parts import ReadParts, WriteParts, ring_bytes
from rocketstore.engine.tickets import Completions
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import ConfigError
from rocketstore.log.commitlog.checkpoint import CheckpointFile, OwnCheckpoint, RocketmqCheckpoint
from rocketstore.log.commitlog.checkpointer import Checkpointer
from rocketstore.log.commitlog.clock_monitor import ClockMonitor
from rocketstore.log.commitlog.commit_log import NEXT_SEGMENT_AT, CommitLog
from rocketstore.log.commitlog.committer import Committer
from rocketstore.log.commitlog.flusher import Flusher
from rocketstore.log.commitlog.log_limits import LogLimits
from rocketstore.log.commitlog.write_path import WritePath
from rocketstore.log.layout.file_system import file_system
from rocketstore.log.layout.lock import StoreLock
from rocketstore.log.layout.positions_page import PositionsPage
from rocketstore.log.layout.store_json import StoreState, save_store_state, time_breaks
from rocketstore.log.mapped_files.locked_segments import LockedSegments
from rocketstore.log.mapped_files.mapped_files import mark_in_memory
from rocketstore.log.mapped_files.new_file import withdraw_file
from rocketstore.log.mapped_files.populator import Populator
from rocketstore.log.mapped_files.preallocator import Preallocator
from rocketstore.log.mapped_files.second_names import SecondNames
from rocketstore.log.mapped_files.segment_blocks import SegmentBlocks
from rocketstore.log.mapped_files.write_buffer_pool import WriteBufferPool
from rocketstore.log.queues.put_states import PutStates
from rocketstore.log.queues.queue_preallocator import QueuePreallocator
from rocketstore.log.read.source import StoreSource
from rocketstore.stats.histogram import PUT_TIME_BOUNDS_NS
from rocketstore.stats.statistics import StoreStatistics

logger = logging.getLogger(__name__)

__all__ = ["OwnFiles", "memory_engine", "writing_engine"]

#: Largest lead of the last store time, ms: one that is further ahead of the clock may fall once
#: (D-28).
FUTURE_MS: Final = 60_000
#: Begin of the log's first file, bytes, that the kernel reads into memory before the first put
#: needs it.
FIRST_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """What only the writer of a store holds open, and the checkpoint that its checkpointer
    continues."""

    lock: StoreLock
    page: PositionsPage
    own_file: CheckpointFile
    rocketmq_file: RocketmqCheckpoint
    checkpoint: OwnCheckpoint
    #: Whether new records get a record CRC.
    record_crc: bool


def memory_engine(parts: ReadParts) -> MemoryEngine:
    """A dead store, recovered in memory: nothing moves any more."""
    return MemoryEngine(_opened(parts, StoreStatistics(dict), parts.state), parts)


def writing_engine(parts: ReadParts, own: OwnFiles) -> WritingEngine:
    """The engine, whose workers do not run before its `start`.

    Relies on: `parts` are recovered and dispatched as far as dispatch gets, the page has begun a
    run, `abort` exists. The log admits puts first, then the page says so to other processes.
    """
    wiring = Wiring(parts, own)
    write = wiring.write_parts()
    segment = parts.log.find(parts.report.end)
    if segment is not None:
        wiring.live.add(segment)
        wiring.locked.add(segment)
        mark_in_memory(segment)  # recovery is through with what it was before
    parts.flags.on_change(wiring.commit_log.refuse_or_admit)
    last_ms, state = _last_time(parts)
    wiring.commit_log.start(parts.report.end, parts.report.last_record_start, last_ms)
    own.page.publish(parts.positions)
    own.page.go_live()
    return WritingEngine(_opened(parts, wiring.statistics, state), parts, write)


def _opened(parts: ReadParts, statistics: StoreStatistics, state: StoreState | None) -> Opened:
    guard = Guard(parts.path, parts.flags)
    parts.flags.tell_behind(lambda: parts.dispatcher.behind)
    source = StoreSource(
        parts.log,
        parts.queues,
        partial(dispatch_for_reader, parts.dispatcher, parts.path, guard.check_open),
        parts.positions,
        parts.arrival,
        batches=parts.batches,
        verify=parts.verify,
        check=guard.check_readable,
        time_breaks=time_breaks(state),
    )
    return Opened(
        path=parts.path,
        layout=parts.layout,
        config=parts.config,
        guard=guard,
        positions=parts.positions,
        offsets=parts.offsets,
        recovery=parts.report,
        index=parts.index,
        source=source,
        statistics=statistics,
    )


class Wiring:
    """The parts of one store that is open for writing, in the order in which they need each other.

    `fail` is the one arrow that points back up: a worker that ends with an error fails the commit
    log.
    """

    def __init__(self, parts: ReadParts, own: OwnFiles) -> None:
        config = parts.config
        self.parts = parts
        self.own = own
        self.ring, self.pool = _write_path(parts)
        self.put_states = PutStates(
            InitialOffset(
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
        put_times = Durations(PUT_TIME_BOUNDS_NS)
        self.statistics = StoreStatistics(self.put_states.totals, put_times=put_times.take)
        self.live = SecondNames(parts.layout)
        self.new_segments = EventCount()
        # One that is moved by hand steps as its owner likes.
        own_clock = parts.options.clock is SYSTEM_CLOCK
        self.clock = (ClockMonitor().look,) if own_clock else ()
        # A ring takes zeros that are written ahead; a mapping takes pages that are populated.
        self.prewritten = config.prewrite and self.ring is not None
        self.blocks = self._make_blocks()
        self.locked = LockedSegments(parts.log, parts.positions, wanted=config.lock_segments)
        self.preallocator = self._make_preallocator()
        self.populator = self._make_populator()
        self.commit_log = self._make_commit_log()
        self.commit_log.log.max_message_size_bytes = config.max_message_size_bytes
        self.commit_log.log.put_times = put_times
        self._keep_copies()
        self._connect_populator()
        parts.dispatcher.attach(self.commit_log.log.dispatch_signal, own.page, self.commit_log.fail)
        self.queue_files = QueuePreallocator(self.fail)
        parts.queues.ask_ahead = self.queue_files.ask
        self.committer = self._make_committer()
        self.flusher = self._make_flusher()
        self._connect_committer()
        self.checkpointer = self._make_checkpointer()
        self.checkpointer.begin()

    def _keep_copies(self) -> None:
        """Before anything puts."""
        if self.parts.options.has_replicas:
            self.commit_log.log.group.keep_copies()
        else:
            check_promise(None, self.parts.config.durability)

    def fail(self, cause: BaseException) -> None:
        """A worker ended with an error: so does the store."""
        self.commit_log.fail(cause)

    def write_parts(self) -> WriteParts:
        parts, log = self.parts, self.commit_log.log
        return WriteParts(
            lock=self.own.lock,
            page=self.own.page,
            positions=parts.positions,
            commit_log=self.commit_log,
            preallocator=self.preallocator,
            queue_files=self.queue_files,
            populator=self.populator,
            flusher=self.flusher,
            committer=self.committer,
            checkpointer=self.checkpointer,
            put_states=self.put_states,
            completions=Completions(
                log,
                parts.positions,
                self.commit_log.check_waitable,
                parts.config.sync_flush_timeout_ms,
            ),
            record_crc=self.own.record_crc,
            ring=self.ring,
            pool=self.pool,
            live=self.live,
            locked=self.locked,
            new_segments=self.new_segments,
            blocks=self.blocks,
            queues=parts.queues,
            index=parts.index,
            clock=parts.options.clock,
        )

    # ---- the log's next file ----

    def _make_preallocator(self) -> Preallocator:
        return Preallocator(
            self._make_segment,
            self.fail,
            withdraw=self._withdraw,
            extend=self._look_after_segments,
        )

    def _look_after_segments(self) -> None:
        self.commit_log.extend_blocks()
        self.locked.release_full()

    def _make_blocks(self) -> SegmentBlocks:
        parts = self.parts
        return SegmentBlocks(
            parts.log,
            parts.positions,
            # Where new blocks are written each time, or may be, those of a whole file are taken.
            stepwise=not self.prewritten and file_system(parts.layout.root).mapped_writes,
            max_wait_ms=parts.config.max_wait_ms,
        )

    def _make_segment(self, start_offset: int) -> MappedFile:
        """A new file with its second name, made here because the put that takes it would wait for
        the disk."""
        reserve = self.blocks.begin_written if self.prewritten else self.blocks.begin
        file = self.parts.log.make(start_offset, sparse=True, reserve=reserve)
        try:
            if self.populator is not None and not self.parts.log.files:
                # The populator finds all others half a file before they are needed.
                _read_ahead(file)
            self.live.prepare(file)
            self.locked.add(file)
            mark_in_memory(file)
        except BaseException:
            withdraw_file(file)
            raise
        return file

    def _withdraw(self, file: MappedFile) -> None:
        try:
            self.live.withdraw(file)
        finally:
            withdraw_file(file)

    # ---- the way of a put ----

    def _make_populator(self) -> Populator | None:
        window_bytes = self.parts.config.populate_window_bytes
        mapped = self.ring is None and self.pool is None
        if not mapped or not window_bytes or self.parts.options.is_copy:
            return None
        return Populator(
            self.parts.positions,
            self.parts.log.find,
            self.preallocator.spare,
            self.fail,
            window_bytes=window_bytes,
        )

    def _make_commit_log(self) -> CommitLog:
        parts, config = self.parts, self.parts.config
        return CommitLog(
            parts.log,
            parts.positions,
            self.preallocator,
            parts.flags,
            parts.arrival,
            path=WritePath(
                ring=self.ring, pool=self.pool, pool_fast_fail=config.transient_pool_fast_fail
            ),
            populator=self.populator,
            blocks=self.blocks,
            limits=LogLimits(
                max_unflushed_bytes=config.max_unflushed_bytes,
                max_undispatched_bytes=config.max_undispatched_bytes,
                max_wait_ms=config.max_wait_ms,
            ),
            # A file that is written with zeros takes long to make, so it is asked for at once.
            next_segment_at=0.0 if self.prewritten else NEXT_SEGMENT_AT,
            visible_when_flushed=config.visible_is_flushed,
            store_host=config.store_host,
            on_new_segment=self._add_segment,
            on_put_failed=self.statistics.record_put_failed,
        )

    def _add_segment(self, file: MappedFile) -> None:
        self.live.add(file)
        self.new_segments.notify()

    def _connect_populator(self) -> None:
        if self.ring is not None or self.pool is not None:
            return
        log = self.commit_log.log
        if self.populator is None:  # batches come to pages that are not ready
            log.through = WriteThrough(PagesAhead(self.parts.positions, 0))
            return
        log.through = WriteThrough(self.populator.pages)

    # ---- workers ----

    def _make_flusher(self) -> Flusher:
        config = self.parts.config
        return Flusher(
            self.commit_log,
            self.fail,
            ring=self.ring,
            committer=self.committer,
            sync_mode=config.promises_disk,
            interval_ms=config.flush_interval_ms,
            timed=config.flush_timed,
            least_pages=config.flush_least_pages,
            thorough_interval_ms=config.flush_thorough_interval_ms,
            # Not where the file system writes new blocks each time, or may do so.
            zeros_ahead=not config.prewrite and file_system(self.parts.layout.root).mapped_writes,
            live=self.live,
            page=self.own.page,
            record_latency=self.statistics.record_flush,
        )

    def _make_committer(self) -> Committer | None:
        if self.pool is None:
            return None
        config = self.parts.config
        return Committer(
            self.commit_log,
            self.fail,
            interval_ms=config.commit_interval_ms,
            least_pages=config.commit_least_pages,
            thorough_interval_ms=config.commit_thorough_interval_ms,
            woken=config.wake_commit_on_put,
        )

    def _connect_committer(self) -> None:
        """Which worker a put wakes: the committer where there is one, else the flusher."""
        config, log = self.parts.config, self.commit_log.log
        if self.committer is not None:
            if config.wake_commit_on_put:
                log.wake_on_put(self.committer.signal)
        elif config.wake_flush_on_put:
            log.wake_on_put(self.flusher.signal)

    def _make_checkpointer(self) -> Checkpointer:
        parts, own = self.parts, self.own
        return Checkpointer(
            self.commit_log,
            own.own_file,
            own.rocketmq_file,
            own.checkpoint,
            self.fail,
            sync_queues=parts.dispatcher.sync_queues,
            queues_digest=parts.queues.digest,
            index=parts.index,
            queue_flush_interval_ms=parts.config.consume_queue_flush_interval_ms,
            every_second=(self.statistics.sample, *self.clock, parts.offsets.merge_now_and_then),
        )


def _read_ahead(file: MappedFile) -> None:
    """Asks the kernel for pages that the first put would wait for, 3 to 5 ms. No page gets
    dirty."""
    with contextlib.suppress(OSError):  # a kernel may take no advice
        os.posix_fadvise(file.fd, 0, FIRST_BYTES, os.POSIX_FADV_WILLNEED)


def _write_path(parts: ReadParts) -> tuple[RingBuffer | None, WriteBufferPool | None]:
    """What puts write to (docs/architecture.md#write-paths): the mapping for `os` and for what a
    copy gets, a ring for `disk`, pool buffers for `memory`."""
    config = parts.config
    system = file_system(parts.layout.root)
    if system.network and not config.allow_network_file_system:
        raise ConfigError(
            "allow_network_file_system",
            False,
            f"{parts.layout.root} is on {system.name}, where locks and syncs are not what "
            "durability needs; set it to True to write there all the same",
        )
    if parts.options.is_copy and system.mapped_writes:
        return None, None
    if config.durability == "memory" and parts.log.file_size:
        return None, WriteBufferPool(config.transient_pool_buffers, parts.log.file_size)
    if config.promises_disk or not system.mapped_writes:
        return RingBuffer(max(config.write_buffer_bytes, ring_bytes(config))), None
    return None, None


def _last_time(parts: ReadParts) -> tuple[int, StoreState | None]:
    """The least store time of the next put, and store.json then. Store times do not fall, unless the last one is far
    ahead of the clock; then store.json and the index note where they fall (D-28)."""
    last, state = parts.report.last_store_timestamp_ms, parts.state
    now = parts.options.clock.now_ms()
    if last > now + FUTURE_MS:
        logger.warning(
            "%s: the last store time, %d, is %d s ahead of the clock; store times fall once",
            parts.layout.root, last, (last - now) // 1000,
        )  # fmt: skip
        if state is not None:
            state = state.with_fall(parts.report.end)
            save_store_state(parts.layout, state)
        if parts.index is not None:
            parts.index.note_fall()
        return 0, state
    return last, state
