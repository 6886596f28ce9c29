"""One round of delivery at a time of its own: what is due is put, then its entry is passed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import Final

from rocketstore._native.format.message import Message
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    CorruptRecordError,
    MessageRejectedError,
    ReadFailedError,
    StoreClosedError,
    StoreFailedError,
)
from rocketstore.log.queues.delayed_puts import TIMER_TOPIC
from rocketstore.services.delay.copies import EVERY
from rocketstore.services.delay.timer_file import StoredTimers
from rocketstore.services.delay.timer_table import Entry
from rocketstore.services.delay.timer_topic import due_of, is_marker
from rocketstore.services.delay.timers import LOOK, Timers, drop, put_again

__all__ = ["TimerDelivery"]

logger = logging.getLogger(__name__)

#: Messages that a round delivers, before the levels have their turn.
ROUND: Final = 256


class TimerDelivery:
    """Delivers the timers of one open store. One thread calls `run`."""

    def __init__(
        self, engine: WritingEngine, timers: Timers, put_copy: Callable[[Message], None]
    ) -> None:
        self._engine = engine
        self._timers = timers
        self._put_copy = put_copy
        # A time, and what was put by then: what is due then is delivered once all of it is known.
        self._aim: tuple[int, int] | None = None

    def run(self, now_ms: Callable[[], int]) -> float | None:
        """Delivers what is due; gives the seconds until something else is to be done."""
        timers = self._timers
        with timers.lock():
            if timers.troubles.paused_s > 0:
                return timers.troubles.paused_s
            try:
                whole = self._round(now_ms)
            except (StoreClosedError, StoreFailedError):
                raise
            except Exception as error:
                return timers.troubles.pause(error)
            timers.troubles.went_well()
            saved_s = None if timers.stored is None else timers.stored.save_in_time(timers.table)
            pauses = (timers.troubles.retry_s, saved_s, None if whole else 0)
            return min((pause_s for pause_s in pauses if pause_s is not None), default=None)

    @property
    def due_ms(self) -> int | None:
        """When the next message is due; None while none waits, or nothing is tried."""
        timers = self._timers
        with timers.lock():
            if timers.troubles.paused_s > 0:
                return None
            try:
                first = timers.table.first()
            except OSError:
                return 0  # the next round says what is wrong
            return None if first is None else first.due

    def _round(self, now_ms: Callable[[], int]) -> bool:
        """Whether all that was put by its time is known."""
        timers = self._timers
        # The time first: what was put before it, a cancel as well, is taken up before anything
        # that is due then is delivered.
        aim = self._aim or (now_ms(), timers.queue.bounds()[1])
        whole = timers.catch_up(LOOK, aim[1], aim[0])
        self._aim = None if whole else aim
        if whole and timers.stored is not None:
            if timers.troubles.retry_s == 0:
                self._retry(timers.stored, aim[0])
            self._deliver_due(timers.stored, aim[0], now_ms)
        return whole

    def _deliver_due(self, stored: StoredTimers, aim_ms: int, now: Callable[[], int]) -> None:
        timers = self._timers
        for _ in range(ROUND):
            timers.go_on()
            first = timers.table.first()
            if first is None or first.due > aim_ms:
                # What was taken up was put before this moment, unless the clock was set back.
                now_ms = now()
                wrong = first is not None and self._bring_forward(first, now_ms)
                entries: Iterable[Entry] = ()
                if wrong or now_ms < timers.seen_ms:
                    entries = timers.table.snapshot()
                elif timers.ahead:
                    entries = timers.table.with_offsets(timers.ahead)
                for entry in entries:
                    timers.go_on()
                    self._bring_forward(entry, now_ms)
                timers.seen_ms = now_ms
                timers.ahead.clear()
                return
            self._deliver(stored, first, aim_ms)

    def _bring_forward(self, entry: Entry, now_ms: int) -> bool:
        """Whether a message waits longer than the span that it waits for, since the clock was ahead
        when that began: it lasts that long from now on."""
        from rocketstore.services.delay.recurring import sooner_ms

        with contextlib.suppress(MessageRejectedError, CorruptRecordError, ReadFailedError):
            message = self._timers.queue.message(entry.at)
            due_ms = sooner_ms(message.properties if message else {}, entry.due, now_ms)
            if message and due_ms < entry.due:
                self._put_again(message, due_ms, now_ms)
                drop(self._timers, message)
                return True
        return False

    def _put_again(self, message: Message, due_ms: int, now_ms: int) -> None:
        end = put_again(self._engine, message, due_ms, due_ms - now_ms)
        self._engine.delayed_puts.note_due(due_ms)
        if self._engine.config.promises_disk:
            self._engine.commit_log.log.request_flush(end)

    def _deliver(self, stored: StoredTimers, entry: Entry, now_ms: int) -> None:
        timers = self._timers
        try:
            message = timers.queue.message(entry.at)
            if message is None:
                self._pass_trimmed(entry)
                return
            self._put(stored, message, now_ms)
        except (MessageRejectedError, CorruptRecordError, ReadFailedError) as error:
            timers.raise_early(error)
            timers.troubles.leave(entry.at, error)
        timers.table.pop()
        stored.note_change()

    def _put(self, stored: StoredTimers, message: Message, now_ms: int) -> None:
        """Puts the copy, and then the message again where it comes again. `copied` has it between
        the two: a stop or an error there puts no second copy."""
        timers, at = self._timers, message.queue_offset
        properties = message.properties
        again_ms = None
        if EVERY in properties:
            from rocketstore.services.delay.recurring import following_ms

            again_ms = following_ms(properties, due_of(properties), now_ms)
        if at not in timers.table.copied:
            stored.keep_in_window(timers.table)
            self._put_copy(message)
        if again_ms is not None:
            timers.table.copied.add(at)
            self._put_again(message, again_ms, now_ms)
        timers.table.copied.discard(at)

    def _pass_trimmed(self, entry: Entry) -> None:
        timers = self._timers
        if entry.at >= timers.queue.bounds()[0]:
            raise ReadFailedError(f"{TIMER_TOPIC}: no message at {entry.at}")
        logger.warning(
            "%s: a delayed message was trimmed before it was delivered", timers.troubles.path
        )
        timers.table.pop()
        timers.note_change()

    def _retry(self, stored: StoredTimers, now_ms: int) -> None:
        """Tries again what was left over."""
        troubles, queue = self._timers.troubles, self._timers.queue
        for at in sorted(troubles.undelivered):
            try:
                message = queue.message(at)
                if message is not None and not is_marker(message.properties):
                    self._put(stored, message, now_ms)
            except (MessageRejectedError, CorruptRecordError, ReadFailedError) as error:
                troubles.failed_again(at, error)
            else:
                troubles.delivered(at)
                stored.note_change()
        troubles.retried()
