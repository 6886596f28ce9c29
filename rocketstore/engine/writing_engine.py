"""The engine of a store that is open for writing.

Closing: stop services → refuse puts → flush → dispatch → sync derived files → clean mark → unlock.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from rocketstore._native.put.writer import Writer as NativeWriter
from rocketstore.engine import exit_hook
from rocketstore.engine.engine import CloseMode, Engine, Opened
from rocketstore.engine.memory_directory import remove_place
from rocketstore.engine.parts import ReadParts, WriteParts, largest_body, ring_bytes
from rocketstore.engine.shutdown import Guests, Steps
from rocketstore.engine.trim import Trim
from rocketstore.errors import BackpressureError, ConfigError, DurabilityTimeoutError
from rocketstore.log.layout.lock import remove_abort
from rocketstore.log.layout.named_holds import load_holds
from rocketstore.log.queues.delayed_puts import DelayedPuts
from rocketstore.log.read.unique_ids import UniqueIds
from rocketstore.values.clock import ManualClock
from rocketstore.values.timestamps import timestamp_ms

if TYPE_CHECKING:
    from rocketstore._native.sync.queue_positions import QueueState
    from rocketstore.config import StoreConfig
    from rocketstore.engine.tickets import Completions
    from rocketstore.log.commitlog.commit_log import CommitLog
    from rocketstore.stats.statistics import Statistics

logger = logging.getLogger(__name__)

__all__ = ["LIVE_PARTS", "PuttingEngine", "WritingEngine"]

#: What `configure` changes: each live option, the part of `WriteParts` that reads it, and the
#: attribute there. The thread of the part reads the attribute in its next round. A part that the
#: store does not have is passed over.
LIVE_PARTS: Final = (
    ("max_message_size_bytes", "commit_log.log", "max_message_size_bytes"),
    ("flush_interval_ms", "flusher", "interval_ms"),
    ("flush_timed", "flusher", "timed"),
    ("flush_least_pages", "flusher", "least_pages"),
    ("flush_thorough_interval_ms", "flusher", "thorough_interval_ms"),
    ("consume_queue_flush_interval_ms", "checkpointer", "queue_flush_interval_ms"),
    ("commit_interval_ms", "committer", "interval_ms"),
    ("commit_least_pages", "committer", "least_pages"),
    ("commit_thorough_interval_ms", "committer", "thorough_interval_ms"),
)
#: Nothing wakes consumers at exit, since the interpreter is about to end their threads.
AT_EXIT: Final = CloseMode(wake=False)
BEFORE_REMOVAL: Final = CloseMode(clean=False, keep_lock=True)


class PuttingEngine(Engine):
    """An open store that takes puts. The class that is made of it sets what is only named here."""

    takes_puts = True
    #: `WriteParts`, or what a guest has of them.
    write: Any
    commit_log: Any
    #: Of `put_message`: one for each queue.
    plain_writers: dict[tuple[str, int], NativeWriter]
    guests: Guests
    delayed_puts: DelayedPuts
    copy_of: str

    @property
    def completions(self) -> Completions:
        completions: Completions = self.write.completions
        return completions

    @property
    def record_crc(self) -> bool:
        return bool(self.write.record_crc)

    def check_topic(self, topic: str) -> bytes:
        checked: bytes = self.write.put_states.check_topic(topic)
        return checked

    def queue_state(self, topic: str, queue_id: int) -> QueueState:
        state: QueueState = self.write.put_states.state(topic, queue_id)
        return state

    def plain_writer(self, topic: str, queue_id: int) -> NativeWriter:
        """The native writer that `put_message` uses, one for each queue."""
        key = (topic, queue_id)
        if (writer := self.plain_writers.get(key)) is None:
            state = self.queue_state(topic, queue_id)
            writer = NativeWriter(
                self.commit_log.log,
                topic,
                state.topic_bytes,
                (state,),
                durability=self.config.durability,
                timeout_ms=self.config.sync_flush_timeout_ms,
                record_crc=self.record_crc,
                born_host=self.config.store_host,
                reserved=None,
                to_ms=timestamp_ms,
                delays=self.delayed_puts,
            )
            self.plain_writers[key] = writer
        return writer


class WritingEngine(PuttingEngine):
    """A store that this process writes. Its workers run from `start` to the close."""

    write: WriteParts
    commit_log: CommitLog

    def __init__(self, opened: Opened, parts: ReadParts, write: WriteParts) -> None:
        super().__init__(opened)
        self.write, self.commit_log = write, write.commit_log
        self._arrival = parts.arrival
        self._queues = parts.queues
        self._segments = parts.log
        self._dispatcher = parts.dispatcher
        self.plain_writers = {}
        self.guests = Guests(opened.guard.ending)
        self.delayed_puts = DelayedPuts(
            *(self.config.delay_level_ms, self.queue_state, write.clock.now_ms),
            part_ms=0 if isinstance(write.clock, ManualClock) else 1,
        )
        #: Address of the master whose copy this store is; errors name it. "": the store is no copy.
        self.copy_of = ""
        self._destroyed = False
        self.unique_ids = UniqueIds(
            *(opened.path, self.reader, parts.index, parts.dispatcher.service, self._flush_all),
            max_wait_ms=self.config.max_wait_ms,
        )
        self._unfollow = write.clock.follow(write.commit_log.log.stand_at)

    def start(self) -> None:
        """Starts the workers. After an error, or an exception of a signal's handler, some may run:
        `close`."""
        exit_hook.remember(self)
        for worker in (*self.write.workers(), self._dispatcher, self.write.checkpointer):
            worker.start()

    @property
    def clock(self) -> ManualClock | None:
        clock = self.write.clock
        return clock if isinstance(clock, ManualClock) else None

    # ---- what puts need ----

    def has_queues(self, topic: str) -> bool:
        """Whether a topic has queues already. Asks for no dispatch, so it never fails."""
        blocked = any(topic == there for there, _ in self._queues.blocked.places)
        return blocked or bool(self._queues.queues(topic))

    def multi_dispatch_queues(
        self, topic: str, queue_id: int, properties: Mapping[str, str]
    ) -> list[QueueState]:
        """States of the further queues that a message is listed in; none unless the option is
        on."""
        if not self.config.multi_dispatch_enabled:
            return []
        return self.write.put_states.listed(
            topic, queue_id, properties, light=self.config.light_queue_enabled
        )

    def wait_flushed(self, end_offset: int, limit_ms: int | None) -> None:
        """Waits until all below this physical offset is on the disk. None: as long as a put.

        Raises:
            ValueError: the log ends before `end_offset`.
            DurabilityTimeoutError: not within the limit.
        """
        limit_ms = self.config.sync_flush_timeout_ms if limit_ms is None else limit_ms
        if end_offset > self.positions.wrote:
            raise ValueError(f"end_offset = {end_offset}: the log ends at {self.positions.wrote}")
        if not self.commit_log.wait_flushed(end_offset, limit_ms):
            raise DurabilityTimeoutError(
                f"flushed = {self.positions.flushed} after {limit_ms} ms, asked for {end_offset}"
            )

    def flush(self, limit_ms: int | None) -> int:
        """`wait_flushed` of all that is in the log; gives the flushed position."""
        self.wait_flushed(self.positions.wrote, limit_ms)
        return self.positions.flushed

    def _flush_all(self) -> None:
        limit_ms = self.config.sync_flush_timeout_ms
        if not self.commit_log.wait_flushed(self.positions.wrote, limit_ms):
            raise BackpressureError(f"the log was not flushed in {limit_ms} ms: nothing was put")

    def begin_at(self, offset: int) -> None:
        """An empty log begins at this physical offset: for a copy of a log that begins there. A
        crash from here on leaves one that begins and ends there.

        Raises:
            ValueError: the log is not empty, or no segment begins there.
            BackpressureError, DiskFullError, OSError: there is no segment. Nothing was changed.
        """
        files, positions = self._segments, self.write.positions
        if files.files or offset != files.start_for(offset):
            raise ValueError(f"an empty log begins at a multiple of {files.file_size} bytes")

        def begin() -> None:
            self.commit_log.begin_at(offset)
            # In this order nothing looks as if it were still to be flushed.
            positions.flushed = positions.committed = positions.visible = offset
            positions.minimum = positions.wrote = offset

        self._dispatcher.begin_at(offset, begin)

    # ---- care ----

    def snapshot(self) -> Statistics:
        if not self._guard.over:
            self.write.flusher.collect()
        return replace(super().snapshot(), host_pid=os.getpid(), guests=self.guests.figures())

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
        for option, part_name, attribute in LIVE_PARTS:
            part = attrgetter(part_name)(write)
            if part is not None:
                setattr(part, attribute, getattr(config, option))
        self.config = config
        return config

    def trim(
        self, before_offset: int | None, before_ms: int | None = None, *, over_holds: bool = False
    ) -> int:
        """D-27: the new minimum is durable first, then files go, oldest first. The caller gives one
        bound. What has a named hold stays, unless `over_holds`. Raises ValueError for a bound above
        the end of the log, ReadFailedError for a file of holds that is no use."""

        def act() -> int:
            held_from = None if over_holds else min(load_holds(self.layout).values(), default=None)
            self.offsets.sync()  # a commit that the log still has may be nowhere else
            limit_ms = self.config.sync_flush_timeout_ms
            trim = Trim(self.write, self._segments, self._queues, self.reader, limit_ms)
            return trim.run(before_offset, before_ms, held_from)

        return self.one_at_a_time(act)

    # ---- the end ----

    def destroy(self) -> None:
        """Closes without marks and removes what belongs to the store, our own files last."""
        self._end(self._destroy)
        if not self._destroyed:
            self.check_open()  # another thread has closed it meanwhile: nothing was removed

    def close_at_exit(self) -> bool:
        """Asks the checkpointer to close the store as its last step. False: the checkpointer has
        ended before."""
        return self.write.checkpointer.end_with(self._close_in_worker)

    def _close_in_worker(self) -> None:
        """As `close`, in the checkpointer. Where another thread closes, that close waits for this
        thread to end."""
        self._end(lambda: self._close(AT_EXIT), wait=False)

    def _destroy(self) -> None:
        from rocketstore.log.layout.destroy import remove_store

        self._destroyed = True
        try:
            self._close(BEFORE_REMOVAL)
            remove_store(self.layout)
        finally:
            if not self.write.checkpointer.alive:  # the last thread that could still write
                self._release()

    def _close(self, mode: CloseMode) -> None:
        """Services end while the store still takes puts, and while none of them is in a trim."""
        steps = Steps()
        steps.take(self.guests.stop)
        steps.take(super()._close, mode)
        steps.end()

    def _close_parts(self, mode: CloseMode) -> None:
        try:
            super()._close_parts(mode)
        finally:
            exit_hook.forget(self)

    def _take_steps(self, steps: Steps, mode: CloseMode) -> None:
        """The lock goes last, after every thread that could still write."""
        self._stop_writing(steps, clean=mode.clean and not self.guests.still_run)
        if mode.wake:
            self._arrival.notify()  # consumers that wait learn that nothing comes any more
        for part in (self._queues, self.index, self._segments):
            if part is not None:
                steps.take(part.close)
        if not mode.keep_lock:
            steps.take(self._release)

    def _release(self) -> None:
        """Not while a service may still write: nobody else may meanwhile."""
        if not self.guests.still_run:
            remove_place(self.path)
            self.write.lock.release()

    def _stop_writing(self, steps: Steps, *, clean: bool) -> None:
        write = self.write
        write.commit_log.close()
        for worker in write.workers():
            worker.stop()
        write.commit_log.end()
        self._unfollow()
        if clean and write.commit_log.failure is None:
            steps.take(self._dispatcher.catch_up, self.positions.visible)
        self._dispatcher.stop()
        steps.take(self._dispatcher.close)
        write.checkpointer.stop()
        steps.take(write.completions.close)
        steps.take(write.preallocator.discard)
        steps.take(self.offsets.close, merge=clean)
        if clean and write.commit_log.failure is None and steps.error is None:
            steps.take(self._mark_clean)
            steps.take(write.blocks.close)
        steps.take(write.page.publish, write.positions)
        steps.take(write.page.end)
        steps.take(write.page.close)
        steps.take(write.live.close)
        steps.take(write.locked.close)
        steps.take(write.checkpointer.close)
        if write.pool is not None:
            steps.take(write.pool.close)

    def _mark_clean(self) -> None:
        """The last steps of a clean stop, only when all of it is on disk (D-13, K-37)."""
        positions = self.positions
        if positions.flushed < positions.wrote or positions.dispatched < positions.visible:
            logger.warning(
                "%s: flushed %d of %d bytes, dispatched %d of %d: the next open recovers",
                self.path,
                *(positions.flushed, positions.wrote, positions.dispatched, positions.visible),
            )
            return
        if self.write.checkpointer.close_clean():
            self._save_queue_ends()
            remove_abort(self.layout)

    def _save_queue_ends(self) -> None:
        try:
            self._queues.save_ends(self.positions.flushed)
        except OSError as error:  # the ends that an earlier close stored still hold
            logger.warning("%s: the ends of queues are not kept: %s", self.path, error)
