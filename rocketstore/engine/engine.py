"""The parts of one open store, put together: what opens first, what closes last.

Closing: refuse puts → flush → dispatch → sync derived files → clean mark → unlock. How a store is
opened stands in `opening`.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rocketstore._native import syscalls
from rocketstore._native.turn import Turn
from rocketstore._native.writer import Writer as NativeWriter
from rocketstore.engine import exit_hook
from rocketstore.engine.parts import largest_body, ring_bytes
from rocketstore.engine.shutdown import Closing, Steps, in_the_middle
from rocketstore.engine.trim import Trim
from rocketstore.errors import (
    BackpressureError,
    ConfigError,
    ReadFailedError,
    StoreClosedError,
    StoreReadOnlyError,
)
from rocketstore.log.layout.lock import remove_abort
from rocketstore.log.mapped_files.memory_log import CopiedLog
from rocketstore.log.read.reader import Reader
from rocketstore.values.timestamps import timestamp_ms

if TYPE_CHECKING:
    from rocketstore._native.positions import Positions
    from rocketstore._native.queue_state import QueueState
    from rocketstore.config import StoreConfig
    from rocketstore.consuming.group_offsets import ConsumerOffsets
    from rocketstore.engine.parts import WriteParts
    from rocketstore.engine.tickets import Completions
    from rocketstore.log.commitlog.commit_log import CommitLog
    from rocketstore.log.commitlog.running_flags import RunningFlags
    from rocketstore.log.dispatch.dispatcher import Dispatcher
    from rocketstore.log.follow.views import FollowedIndex, FollowedPositions
    from rocketstore.log.index.store import IndexStore
    from rocketstore.log.layout.paths import StoreLayout
    from rocketstore.log.mapped_files.mapped_file_queue import MappedFileQueue
    from rocketstore.log.queues.consume_queue_store import ConsumeQueueStore
    from rocketstore.log.read.source import ReadSource
    from rocketstore.log.recovery.recovery import RecoveryReport
    from rocketstore.stats.statistics import Statistics, StoreStatistics

logger = logging.getLogger(__name__)

__all__ = ["Engine"]


class Engine:
    """One open store: what `Store` delegates to."""

    def __init__(
        self,
        path: str,
        layout: StoreLayout,
        config: StoreConfig,
        positions: Positions | FollowedPositions,
        flags: RunningFlags,
        statistics: StoreStatistics,
        offsets: ConsumerOffsets,
        recovery: RecoveryReport,
        *,
        index: IndexStore | FollowedIndex | None,
        segments: MappedFileQueue | None,
        queues: ConsumeQueueStore | None,
        dispatcher: Dispatcher | None,
        write: WriteParts | None,
    ) -> None:
        self.path = path
        self.layout = layout
        self.config = config
        self.positions = positions
        self.flags = flags
        self.offsets = offsets
        self.recovery = recovery
        self.index = index
        self._statistics = statistics
        self._segments = segments
        self._queues = queues
        self._dispatcher = dispatcher
        self._write = write
        self._writers: dict[tuple[str, int], NativeWriter] = {}
        # Of whoever trims or closes.
        self._turn = Turn()
        self._closing = Closing()
        self._closed = False
        self._destroyed = False
        self._token = syscalls.process_token()

    def read_from(self, source: ReadSource) -> None:
        """Set once, before the engine is handed out."""
        self.reader = Reader(source, self._statistics.record_get)

    def start(self) -> None:
        """Starts the workers. After an error, and the exception of a signal's handler, some may run: `close`."""
        assert self._dispatcher is not None
        exit_hook.remember(self)
        for worker in (*self.write.workers(), self._dispatcher, self.write.checkpointer):
            worker.start()

    # ---- guards ----

    @property
    def closed(self) -> bool:
        return self._closed or syscalls.forked_since(self._token)

    def check_open(self) -> None:
        if self._closed:
            raise StoreClosedError(
                f"the store is closed; open it again with rocketstore.open({self.path!r})"
            )
        syscalls.check_forked(self._token)

    def check_readable(self) -> None:
        """What readers ask before each look."""
        self.check_open()
        if not self.flags.readable:
            raise ReadFailedError(f"the store takes no reads: {self.flags}")

    def check_files(self) -> None:
        """What reads the files of the log itself asks before."""
        if isinstance(self._segments, CopiedLog):
            raise ConfigError(
                "untrusted",
                True,
                "what was checked is in memory; a scan and a shipment read the files, which "
                "may be others by now: use a consumer, or open without it",
            )

    @property
    def write(self) -> WriteParts:
        if self._write is None:
            raise StoreReadOnlyError("the store was opened with mode='r'")
        return self._write

    # ---- what puts need ----

    @property
    def commit_log(self) -> CommitLog:
        return self.write.commit_log

    @property
    def completions(self) -> Completions:
        return self.write.completions

    @property
    def record_crc(self) -> bool:
        return self.write.record_crc

    def check_topic(self, topic: str) -> bytes:
        return self.write.put_queues.check_topic(topic)

    def queue_state(self, topic: str, queue_id: int) -> QueueState:
        return self.write.put_queues.state(topic, queue_id)

    def light_queues(
        self, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> list[QueueState]:
        """States of the further queues that a message is listed in; none unless the option is on."""
        if not self.config.multi_dispatch_enabled:
            return []
        return self.write.put_queues.listed(
            topic, queue_id, properties, light=self.config.light_queue_enabled
        )

    def plain_writer(self, topic: str, queue_id: int) -> NativeWriter:
        """The handle behind put_message, one for each queue."""
        key = (topic, queue_id)
        writer = self._writers.get(key)
        if writer is None:
            state = self.queue_state(topic, queue_id)
            writer = NativeWriter(
                self.commit_log.log,
                topic,
                state.topic_bytes,
                (state,),
                durability=str(self.config.durability),
                timeout_ms=self.config.sync_flush_timeout_ms,
                record_crc=self.record_crc,
                born_host=self.config.store_host,
                reserved=None,
                to_ms=timestamp_ms,
            )
            self._writers[key] = writer
        return writer

    # ---- what readers need ----

    @property
    def begin_offset(self) -> int:
        return self.reader.source.minimum()

    def snapshot(self) -> Statistics:
        if self._write is not None and not self._closed:
            self._write.flusher.collect()
        return self._statistics.snapshot()

    # ---- care ----

    def configure(self, changes: Mapping[str, Any]) -> StoreConfig:
        """Live options only; everything else raises ConfigError and changes nothing."""
        config = self.config.replace(**changes)
        for name in changes:
            if name not in config.LIVE:
                raise ConfigError(name, changes[name], "cannot change while the store is open")
        write = self.write
        if write.ring is not None and ring_bytes(config) > write.ring.size:
            raise ConfigError(
                "max_message_size_bytes",
                config.max_message_size_bytes,
                f"the write buffer was made for {largest_body(write.ring.size)} at most; "
                "open the store with max_message_size_bytes as large as it shall ever be",
            )
        write.commit_log.log.max_message_size_bytes = config.max_message_size_bytes
        write.flusher.interval_ms = config.flush_interval_ms
        write.flusher.timed = config.flush_timed
        write.flusher.least_pages = config.flush_least_pages
        write.flusher.thorough_interval_ms = config.flush_thorough_interval_ms
        write.checkpointer.queue_flush_interval_ms = config.consume_queue_flush_interval_ms
        if write.committer is not None:
            write.committer.interval_ms = config.commit_interval_ms
            write.committer.least_pages = config.commit_least_pages
            write.committer.thorough_interval_ms = config.commit_thorough_interval_ms
        self.config = config
        return config

    def trim(self, before: int | datetime.datetime) -> int:
        """D-27: the new minimum is durable first, then files go, oldest first."""
        try:
            with self._turn as nested:
                if nested:
                    raise BackpressureError("this thread is in the middle of a trim")
                self.check_open()
                segments, queues = self._segments, self._queues
                assert segments is not None
                assert queues is not None
                limit_ms = self.config.sync_flush_timeout_ms
                return Trim(self.write, segments, queues, self.reader, limit_ms).run(before)
        finally:
            if self._closing.begun:  # by a signal's handler, which could not wait for us
                self.close()

    def destroy(self) -> None:
        """Closes without marks and removes what belongs to the store, our own files last."""
        self._end(self._destroy)
        if not self._destroyed:
            self.check_open()  # another thread has closed it meanwhile: nothing was removed

    def close(self) -> None:
        """Idempotent; also after a failure, which leaves `abort` and the old checkpoint (D-13)."""
        if syscalls.forked_since(self._token):
            self._closed = True
            return
        self._end(lambda: self._close(clean=True, keep_lock=False))

    def close_at_exit(self) -> bool:
        """Asks the checkpointer to close the store as its last step. False: the checkpointer has ended before."""
        return self.write.checkpointer.end_with(self._close_in_worker)

    def _close_in_worker(self) -> None:
        """As `close`, in the checkpointer. Where another thread closes, that close waits for this thread to end.
        Nothing wakes consumers, since the interpreter is about to end their threads."""
        self._end(lambda: self._close(clean=True, keep_lock=False, wake=False), wait=False)

    def _end(self, work: Callable[[], None], *, wait: bool = True) -> None:
        """`work`, or what began before it; whoever leaves by a signal leaves a close that goes on (D-36)."""
        self._closing.start(work)
        if wait and not in_the_middle():
            self._closing.wait()

    def _destroy(self) -> None:
        from rocketstore.log.layout.destroy import remove_store

        self._destroyed = True
        try:
            self._close(clean=False, keep_lock=True)
            remove_store(self.layout)
        finally:
            self.write.lock.release()

    def _close(self, *, clean: bool, keep_lock: bool, wake: bool = True) -> None:
        """Idempotent; behind a trim that goes on."""
        with self._turn:
            if not self._closed:
                self._closed = True
                self._close_parts(clean=clean, keep_lock=keep_lock, wake=wake)

    def _close_parts(self, *, clean: bool, keep_lock: bool, wake: bool) -> None:
        """The lock goes last, behind every thread that could still write."""
        steps = Steps()
        try:
            if self._write is not None:
                self._close_write(steps, self._write, clean=clean)
            else:
                close = getattr(self.reader.source, "close", None)
                if close is not None:
                    steps.take(close)
            notify = getattr(self.reader.source.arrival, "notify", None)
            if notify is not None and wake:
                notify()  # consumers that wait hear that there is nothing to wait for
            for part in (self._queues, self.index, self._segments):
                if part is not None:
                    steps.take(part.close)
            if self._write is not None and not keep_lock:
                steps.take(self._write.lock.release)
        finally:
            exit_hook.forget(self)
        steps.end()

    def _close_write(self, steps: Steps, write: WriteParts, *, clean: bool) -> None:
        write.commit_log.close()
        for worker in write.workers():
            worker.stop()
        write.commit_log.end()
        if self._dispatcher is not None:
            if clean and write.commit_log.failure is None:
                steps.take(self._dispatcher.catch_up, self.positions.visible)
            self._dispatcher.stop()
            steps.take(self._dispatcher.close)
        write.checkpointer.stop()
        steps.take(write.completions.close)
        steps.take(write.preallocator.discard)
        if clean and write.commit_log.failure is None and steps.error is None:
            steps.take(self._mark_clean, write)
        steps.take(write.page.publish, write.positions)
        steps.take(write.page.end)
        steps.take(write.page.close)
        steps.take(write.live.close)
        steps.take(write.checkpointer.close)
        if write.pool is not None:
            steps.take(write.pool.close)

    def _mark_clean(self, write: WriteParts) -> None:
        """The last steps of a clean stop, only when all of it is on disk (D-13, K-37)."""
        positions = self.positions
        if positions.flushed < positions.wrote or positions.dispatched < positions.visible:
            logger.warning(
                "%s: flushed %d of %d bytes, dispatched %d of %d: the next open recovers",
                self.path,
                *(positions.flushed, positions.wrote, positions.dispatched, positions.visible),
            )
            return
        if write.checkpointer.close_clean():
            self._save_queue_ends()
            remove_abort(self.layout)

    def _save_queue_ends(self) -> None:
        assert self._queues is not None
        try:
            self._queues.save_ends(self.positions.flushed)
        except OSError as error:  # what was known before still holds
            logger.warning("%s: the ends of queues are not kept: %s", self.path, error)
