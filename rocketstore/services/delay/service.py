"""The thread that delivers, and its place among the services of an open store."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Final

from rocketstore.errors import RocketStoreError, StoreClosedError, StoreFailedError
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC
from rocketstore.log.worker import Worker
from rocketstore.services.delay.delivery import Delivery
from rocketstore.values.kept_errors import without_frames

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = ["DelayService", "deliver_in", "waits_from"]

logger = logging.getLogger(__name__)

#: A message that is put but not visible yet, or an error of the service itself, is looked at again
#: after this long, seconds.
SOON_S: Final = 0.01
AFTER_ERROR_S: Final = 1.0
MOST_AFTER_ERROR_S: Final = 60.0


class DelayService:
    """The delivery of one open store. Made with the first message that waits."""

    def __init__(self, engine: WritingEngine) -> None:
        self.delivery = Delivery(engine)
        self._thread = _Thread(engine, self.delivery)
        self._thread.start()
        self._unfollow = engine.write.clock.follow(lambda _: self._thread.wake())

    def note(self, queue_id: int, delay_ms: int) -> None:
        """A message with this delay was put."""
        self._thread.note(queue_id, delay_ms)

    @property
    def error(self) -> BaseException | None:
        """What stopped the last round, if anything did."""
        return self._thread.error

    def stop(self) -> None:
        """Ends the thread, which stores the offsets. Idempotent."""
        self._unfollow()
        self._thread.stop()


class _Thread(Worker):
    """Sleeps until the next message is due, or one is put that is due earlier."""

    def __init__(self, engine: WritingEngine, delivery: Delivery) -> None:
        super().__init__("rocketstore-delays", self._failed)
        self._engine = engine
        self._delivery = delivery
        self._clock = engine.write.clock
        # Earliest time of what was put and is perhaps not visible yet, by queue id, in ms.
        self._noted: dict[int, int] = {}
        # The time that the thread sleeps for, in ms; 0 while it is at work.
        self._planned_ms: float = 0
        self._failures = 0
        self.error: BaseException | None = None

    def note(self, queue_id: int, delay_ms: int) -> None:
        due_ms = self._clock.now_ms() + delay_ms
        self._noted.setdefault(queue_id, due_ms)  # of one level the first is the earliest
        if due_ms < self._planned_ms or not self._planned_ms:
            self.wake()

    def step(self) -> float | None:
        self._planned_ms = 0
        noted = {n: due_ms for n in list(self._noted) if (due_ms := self._noted.pop(n, None))}
        try:
            pause_s = self._delivery.run()
        except (StoreClosedError, StoreFailedError) as error:
            self.error = without_frames(error)
            return None  # nothing can be delivered any more
        except Exception as error:
            return self._after(error)
        self._failures, self.error = 0, None
        return self._sleep(pause_s, self._first_unseen(noted))

    def _sleep(self, pause_s: float | None, unseen_ms: int | None) -> float | None:
        """Seconds until the next message is due, or `pause_s` if that is less."""
        times = [due_ms for due_ms in (self._delivery.due_ms, unseen_ms) if due_ms is not None]
        due_ms = min(times, default=None)
        until_due_s = None if due_ms is None else self._clock.pause_s(due_ms)
        if until_due_s == 0 and due_ms == unseen_ms:
            until_due_s = SOON_S
        self._planned_ms = math.inf if due_ms is None else due_ms
        # What was noted before the line above has woken nobody.
        if any(noted_ms < self._planned_ms for noted_ms in list(self._noted.values())):
            return 0 if unseen_ms is None else SOON_S
        return min((s for s in (pause_s, until_due_s) if s is not None), default=None)

    def _first_unseen(self, noted: dict[int, int]) -> int | None:
        """The earliest time of a message that was put and is not visible yet."""
        found: list[int] = []
        for queue_id, due_ms in noted.items():
            end = self._engine.queue_state(SCHEDULE_TOPIC, queue_id).next_offset
            level = self._delivery.levels.get(queue_id)
            if level is None or level.queue.bounds()[1] < end:
                self._noted.setdefault(queue_id, due_ms)
                found.append(due_ms)
        return min(found, default=None)

    def _after(self, error: Exception) -> float:
        self.error = without_frames(error)
        self._failures += 1
        pause_s = min(AFTER_ERROR_S * float(1 << min(self._failures - 1, 10)), MOST_AFTER_ERROR_S)
        logger.error(
            "%s: delayed messages wait for %.0f s more: %r", self._engine.path, pause_s, error
        )
        return pause_s

    def finish(self) -> None:
        """Stores how far delivery came, so that the next start has nothing to look for."""
        try:
            self._delivery.save()
        except (OSError, RocketStoreError) as error:
            logger.warning("%s: the offsets of delays are not stored: %s", self._engine.path, error)

    def _failed(self, error: BaseException) -> None:
        """Keeps the error: the store itself goes on."""
        self.error = without_frames(error)


def deliver_in(engine: WritingEngine) -> DelayService:
    """The service of an open store, made at the first call."""
    return engine.guests.get(DelayService, lambda: DelayService(engine))


def waits_from(engine: WritingEngine) -> int | None:
    """Where in the log the first message lies that waits; None while none does. Any thread may call
    it, also where nothing delivers."""
    service = engine.guests.made(DelayService)
    delivery = Delivery(engine) if service is None else service.delivery
    return delivery.needs_from()
