"""The thread that delivers, and its place among the services of an open store."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections import deque
from typing import Final

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    CorruptRecordError,
    ReadFailedError,
    RocketStoreError,
    StoreClosedError,
    StoreFailedError,
)
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketstore.log.worker import Worker
from rocketstore.services.delay.delivery import Delivery
from rocketstore.services.delay.timer_delivery import TimerDelivery
from rocketstore.services.delay.timers import Timers, timers_of
from rocketstore.values.kept_errors import without_frames

__all__ = ["DelayService", "deliver_in", "note_put", "waits_from"]

logger = logging.getLogger(__name__)

#: A message that is put but not visible yet, or an error of the service itself, is looked at again
#: after this long, seconds.
SOON_S: Final = 0.01
#: Messages with a time of their own that may wait until the table takes them up.
TAKEN_UP: Final = 1 << 10
AFTER_ERROR_S: Final = 1.0
MOST_AFTER_ERROR_S: Final = 60.0


class DelayService:
    """The delivery of one open store. Made with the first message that waits."""

    def __init__(self, engine: WritingEngine) -> None:
        self.delivery = Delivery(engine)
        self.timers = timers_of(engine)
        self._engine = engine
        # The caller that takes the item out starts the thread; a lock would be left held by the
        # exception of a signal's handler.
        self._turn = [None]
        self._start_again_s = 0.0
        self._over = False
        self._thread = _Thread(engine, self.delivery, self.timers)
        self._unfollow = engine.write.clock.follow(lambda _: self._thread.wake())

    def start(self) -> None:
        """Starts the thread, once. Where the system has none left, `error` says so, and a later
        call tries again."""
        if self._over or time.monotonic() < self._start_again_s:
            return
        try:
            self._turn.pop()
        except IndexError:
            return
        thread = self._thread
        try:
            thread.start()
        except OSError as error:
            self._start_again_s = time.monotonic() + thread.wait_after(error)
            self._thread = thread.another()
            self._turn.append(None)
        except RuntimeError:
            return  # it was stopped meanwhile
        except BaseException as error:
            thread.error = without_frames(error)  # until a round of the thread, if it runs
            raise

    def note(self, queue_id: int | None, delay_ms: int) -> None:
        """A message with this delay was put; with a time of its own where the queue is None."""
        self._thread.note(queue_id, delay_ms)

    @property
    def error(self) -> BaseException | None:
        """What keeps the service from its work, if anything does."""
        return self._thread.error or self.delivery.behind

    def stop(self) -> None:
        """Ends the thread, which stores the offsets. Idempotent."""
        self._over = True
        self._unfollow()
        self.delivery.stop()
        self.timers.stop()
        self._thread.stop()


class _Thread(Worker):
    """Sleeps until the next message is due, or one is put that is due earlier."""

    def __init__(self, engine: WritingEngine, delivery: Delivery, timers: Timers) -> None:
        super().__init__("rocketstore-delays", self._failed)
        self._engine = engine
        self._delivery = delivery
        self._timers = timers
        self._timer_delivery = TimerDelivery(engine, timers, delivery.put_copy)
        self._clock = engine.write.clock
        # Earliest time of what was put and is perhaps not visible yet, by queue id, in ms.
        # None means the timer topic; those of `_timer_notes` are not in it yet.
        self._noted: dict[int | None, int] = {}
        self._timer_notes: deque[int] = deque()
        self._count = itertools.count(1)
        # The time that the thread sleeps for, in ms; 0 while it is at work.
        self._planned_ms: float = 0
        self._failures = 0
        self.error: BaseException | None = None

    def another(self) -> _Thread:
        """One for the next try, since a Worker starts once."""
        new = _Thread(self._engine, self._delivery, self._timers)
        new.error, new._failures = self.error, self._failures
        return new

    def note(self, queue_id: int | None, delay_ms: int) -> None:
        due_ms = self._clock.now_ms() + delay_ms
        if queue_id is None:
            self._timer_notes.append(due_ms)
            if not next(self._count) % TAKEN_UP:
                self.wake()  # the next start has few to read
        else:
            self._noted.setdefault(queue_id, due_ms)  # of one level the first is the earliest
        if due_ms < self._planned_ms or not self._planned_ms:
            self.wake()

    def step(self) -> float | None:
        self._planned_ms = 0
        self._take_notes()
        noted = {n: due_ms for n in list(self._noted) if (due_ms := self._noted.pop(n, None))}
        try:
            pause_s = self._round()
            unseen_ms = self._first_unseen(noted)
        except (StoreClosedError, StoreFailedError) as error:
            self.error = without_frames(error)
            return None  # nothing can be delivered any more
        except Exception as error:
            return self.wait_after(error)
        self._failures, self.error = 0, None
        return self._sleep(pause_s, unseen_ms)

    def _round(self) -> float | None:
        """One round of levels and timers; what is wrong with one stops the other in no round."""
        try:
            levels_s = self._delivery.run()
        except (StoreClosedError, StoreFailedError):
            raise
        except Exception:
            self._timer_delivery.run(self._clock.now_ms)
            raise
        timers_s = self._timer_delivery.run(self._clock.now_ms)
        return min((s for s in (levels_s, timers_s) if s is not None), default=None)

    def _sleep(self, pause_s: float | None, unseen_ms: int | None) -> float | None:
        """Seconds until the next message is due, or `pause_s` if that is less."""
        asked = (self._delivery.due_ms, self._timer_delivery.due_ms, unseen_ms)
        times = [due_ms for due_ms in asked if due_ms is not None]
        due_ms = min(times, default=None)
        until_due_s = None if due_ms is None else self._clock.pause_s(due_ms)
        if until_due_s == 0 and due_ms == unseen_ms:
            until_due_s = SOON_S
        self._planned_ms = math.inf if due_ms is None else due_ms
        # What was noted before the line above has woken nobody.
        self._take_notes()
        if any(noted_ms < self._planned_ms for noted_ms in list(self._noted.values())):
            return 0 if unseen_ms is None else SOON_S
        return min((s for s in (pause_s, until_due_s) if s is not None), default=None)

    def _first_unseen(self, noted: dict[int | None, int]) -> int | None:
        """The earliest time of a message that was put and is not visible yet."""
        found: list[int] = []
        for queue_id, due_ms in noted.items():
            if queue_id is None:
                end = self._engine.queue_state(TIMER_TOPIC, 0).next_offset
                if self._timers.table.next < end:
                    self._timer_notes.append(due_ms)
                    found.append(due_ms)
                continue
            end = self._engine.queue_state(SCHEDULE_TOPIC, queue_id).next_offset
            level = self._delivery.levels.get(queue_id)
            if level is None or level.queue.bounds()[1] < end:
                self._noted.setdefault(queue_id, due_ms)
                found.append(due_ms)
        return min(found, default=None)

    def _take_notes(self) -> None:
        while self._timer_notes:
            due_ms = self._timer_notes.popleft()
            self._noted[None] = min(due_ms, self._noted.get(None, due_ms))

    def wait_after(self, error: Exception) -> float:
        """Keeps an error; gives the seconds until the next try."""
        self.error = without_frames(error)
        self._failures += 1
        pause_s = min(AFTER_ERROR_S * float(1 << min(self._failures - 1, 10)), MOST_AFTER_ERROR_S)
        logger.error(
            "%s: delayed messages wait for %.0f s more: %r", self._engine.path, pause_s, error
        )
        return pause_s

    def finish(self) -> None:
        """Stores how far delivery came, so that the next start has nothing to look for."""
        for part in (self._delivery, self._timers):
            try:
                part.save()
            except (OSError, RocketStoreError) as error:
                logger.warning(
                    "%s: the offsets of delays are not stored: %s", self._engine.path, error
                )

    def _failed(self, error: BaseException) -> None:
        """Keeps the error: the store itself goes on."""
        self.error = without_frames(error)


def deliver_in(engine: WritingEngine) -> DelayService:
    """The service of an open store, made and started at the first call. It reads nothing here."""
    service = engine.guests.get(DelayService, lambda: DelayService(engine))
    service.start()  # it is a guest before it has a thread, so that whatever ends the store stops it
    return service


def note_put(engine: WritingEngine, queue_id: int | None, delay_ms: int) -> None:
    """A message with this delay is in the log. Fails no put, which has stored it already."""
    try:
        service = deliver_in(engine)
    except StoreClosedError:
        return  # the next open delivers it
    service.note(queue_id, delay_ms)


def waits_from(engine: WritingEngine, topic: str) -> int | None:
    """Where in the log the first message of a topic of delays lies that waits; None while none does.
    Any thread may call it, also where nothing delivers."""
    service = engine.guests.made(DelayService)
    looked = service is not None and service.delivery.levels
    delivery = service.delivery if service is not None and looked else Delivery(engine)
    try:
        return (timers_of(engine) if topic == TIMER_TOPIC else delivery).needs_from()
    except (CorruptRecordError, ReadFailedError, OSError) as error:
        logger.warning("%s: all of the log is kept for delays: %s", engine.path, error)
        return 0
