"""Delivery: what is due is put into its own topic, each message once, in the order of its level.

Every copy is put before the offset of its level moves, and the offsets are stored after everything
below the end of the log is flushed. So a stop at any point loses nothing. What was put and is not
in the stored offsets lies in a known part of the log (`progress`): the next start finds it there
(`copies`) and does not put it again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from rocketstore._native.format.message import Message
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    CorruptRecordError,
    MessageRejectedError,
    ReadFailedError,
    StoreBehindError,
    StoreClosedError,
    StoreFailedError,
)
from rocketstore.log.read.reader import Reader
from rocketstore.puts.put_message import put_message
from rocketstore.services.delay.copies import skip_delivered, target_of
from rocketstore.services.delay.offsets import StoredOffsets
from rocketstore.services.delay.waiting import Level, WaitingQueue, waiting_queues
from rocketstore.values.kept_errors import without_frames

__all__ = ["Delivery"]

logger = logging.getLogger(__name__)

#: Messages of one level that a round delivers, before the other levels have their turn.
ROUND: Final = 256
#: Reads of a message that fail before the others of its level go on without it.
READS: Final = 5
#: Time until a queue whose messages are hidden is looked at again, seconds.
BEHIND_S: Final = 1.0


class Delivery:
    """Delivers the delayed messages of one open store. One thread calls `run` and `save`. Nothing is
    read before the first `run`."""

    def __init__(self, engine: WritingEngine) -> None:
        self._engine = engine
        self._now_ms = engine.write.clock.now_ms
        self._reader = Reader(engine.reader.source, None, engine.path)
        self._offsets = StoredOffsets(engine)
        self._started = False
        self._over = False
        #: What hides the messages of a queue that came since the start.
        self.behind: StoreBehindError | None = None
        #: By queue id. Replaced, never changed, so that other threads may look.
        self.levels: dict[int, Level] = {}

    def run(self) -> float | None:
        """Delivers what is due. Gives the seconds until something else is to be done: to try again,
        or to store offsets; None where nothing is. `due_ms` says when the next message is due.

        Raises:
            StoreClosedError, StoreFailedError: nothing can be delivered any more.
            StoreBehindError: what was put before the start is not in the queues yet.
            OSError: the stored offsets cannot be read.
        """
        if self._started:
            self._look_for_levels()
        else:
            self._start()
        pauses = [self._run_level(level) for level in self.levels.values()]
        pauses.append(self._offsets.save_in_time(self.levels))
        pauses.append(None if self.behind is None else BEHIND_S)
        return min((pause_s for pause_s in pauses if pause_s is not None), default=None)

    def stop(self) -> None:
        """Has a `run` that goes on raise StoreClosedError soon. Any thread may call it."""
        self._over = True

    @property
    def due_ms(self) -> int | None:
        """When the next message is due, past times included; None while none waits, or only such
        ones as could not be delivered."""
        due = [level.due_ms for level in self.levels.values() if level.paused_s == 0]
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    def save(self) -> None:
        """Stores the offsets. Raises: as `StoredOffsets.save`."""
        if self._started:
            self._offsets.save(self.levels)

    def needs_from(self) -> int | None:
        """Where in the log the first message lies that is not delivered; None while none waits. Any
        thread may call it."""
        levels, found = self.levels, list[int]()
        for queue in waiting_queues(self._reader):
            level = levels.get(queue.queue_id)
            # The next one first: what is passed over meanwhile is then among those left over.
            at, left = self._stored(queue) if level is None else (level.next, level.undelivered)
            minimum, maximum = queue.bounds(catch_up=False)
            for offset in sorted({*left, *range(max(at, minimum), maximum)[:1]}):
                place = queue.physical_offset(offset)
                if place is not None:
                    found.append(place)
                    break
        return min(found, default=None)

    def _start(self) -> None:
        """Takes up all queues, and passes over what an earlier run delivered. Not before all that
        lies in the log is in its queue: of one that comes later nothing was delivered before."""
        self._reader.source.catch_up()
        self._look_for_levels()
        levels, begin = self.levels.values(), self._offsets.progress.begin
        if skip_delivered(levels, self._engine, begin, self._go_on):
            self._offsets.note_change()
        self._started = True
        waiting = sum(level.queue.bounds()[1] - level.next for level in levels)
        if waiting > 0:
            logger.info(
                "%s: %d delayed messages wait, and are delivered when they are due; "
                "deliver_delayed=False leaves them to another open",
                *(self._engine.path, waiting),
            )

    def _go_on(self) -> None:
        if self._over:
            raise StoreClosedError("the store closes")

    def _look_for_levels(self) -> None:
        """Takes up queues that came since."""
        new, behind = dict[int, Level](), None
        for queue in waiting_queues(self._reader):
            try:
                if queue.queue_id not in self.levels:
                    new[queue.queue_id] = self._level(queue)
            except StoreBehindError as error:
                if not self._started:
                    raise
                behind = without_frames(error)
        self.behind = behind
        if new:
            self.levels = {**self.levels, **new}

    def _level(self, queue: WaitingQueue) -> Level:
        minimum, maximum = queue.bounds()
        offset, stored = self._stored(queue)
        if offset > maximum:  # a queue that came since the start: nothing of it was delivered
            offset = minimum
        left = [at for at in stored if minimum <= at < offset]
        return Level(self._engine.path, queue, offset, left)

    def _stored(self, queue: WaitingQueue) -> tuple[int, Collection[int]]:
        """The next queue offset, and those left over, by the stored offsets."""
        known = self._offsets.progress
        first = 0 if known.known else queue.bounds(catch_up=False)[0]
        offset = known.offsets.get(queue.queue_id, first)
        return offset, known.undelivered.get(queue.queue_id, ())

    # ---- one level ----

    def _run_level(self, level: Level) -> float | None:
        """Delivers what is due; gives the seconds until something is tried again."""
        if level.paused_s > 0:
            return level.paused_s
        try:
            if level.retry_s == 0:
                self._retry(level)
            self._deliver_due(level)
        except (StoreClosedError, StoreFailedError):
            raise
        except Exception as error:
            return level.pause(error)
        level.went_well()
        return level.retry_s

    def _deliver_due(self, level: Level) -> None:
        """Delivers up to `ROUND` messages, and notes when the next one is due."""
        minimum, maximum = level.queue.bounds()
        if level.next < minimum:
            logger.warning(
                "%s: %d delayed messages of level %d were trimmed before they were delivered",
                *(self._engine.path, minimum - level.next, level.number),
            )
            level.next = minimum
            self._offsets.note_change()
        end = min(maximum, level.next + ROUND)
        while level.next < end and level.is_due(self._now_ms()):
            self._deliver_some(level)
        if level.next >= maximum:
            level.due_ms = None

    def _deliver_some(self, level: Level) -> None:
        """Delivers messages that lie together, up to the first that is not due."""
        try:
            found = level.queue.fetch(level.next)
        except (CorruptRecordError, ReadFailedError) as error:
            early = isinstance(error, ReadFailedError) and level.failures < READS
            if early or isinstance(error, StoreBehindError):
                raise
            self._leave(level, level.next, error)
            level.next += 1
            return
        for message in found.messages:
            self._go_on()
            level.next = message.queue_offset
            if not level.is_due(self._now_ms()):
                return
            try:
                self._put_copy(message)
            except (MessageRejectedError, CorruptRecordError) as error:
                self._leave(level, level.next, error)
            self._offsets.note_change()
            level.next += 1
        if not found.messages and found.next_offset <= level.next:
            raise ReadFailedError(f"delay level {level.number}: {found.status} at {level.next}")
        level.next = max(level.next, found.next_offset)

    def _leave(self, level: Level, queue_offset: int, error: Exception) -> None:
        level.leave(queue_offset, error)
        self._offsets.note_change()

    def _retry(self, level: Level) -> None:
        """Tries again what was left over."""
        minimum, _ = level.queue.bounds()
        for offset in sorted(level.undelivered):
            self._go_on()
            try:
                for message in level.queue.fetch(offset, 1).messages if offset >= minimum else ():
                    self._put_copy(message)
            except (MessageRejectedError, CorruptRecordError, ReadFailedError) as error:
                level.failed_again(offset, error)
            else:
                level.delivered(offset)
                self._offsets.note_change()
        level.retried()

    # ---- one message ----

    def _put_copy(self, message: Message) -> None:
        """Puts the copy of a message.

        Raises:
            MessageRejectedError: it says no place that there can be, or cannot be stored there.
            BackpressureError, DiskFullError, StoreFailedError: no room; nothing was stored.
        """
        self._offsets.keep_in_window(self.levels)
        self.put_copy(message)

    def put_copy(self, message: Message) -> None:
        """Puts the copy of a message of any topic of delays. Raises: as `_put_copy`."""
        target = target_of(message)
        if target is None:
            return
        result = put_message(
            self._engine,
            target.topic,
            message.body_view,
            target.queue_id,
            target.properties,
            flag=message.flag,
            sys_flag=message.sys_flag,
            born_time=message.born_timestamp_ms,
            born_host=message.born_host,
            store_host=message.store_host,
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=0,
            delay_level=0,
            expected=None,
            durability="memory",  # nothing to wait for: a copy that is there is delivered (K-65)
            timeout_s=None,
        )
        if self._engine.config.promises_disk:
            self._engine.commit_log.log.request_flush(result.end_offset)
