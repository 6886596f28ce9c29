"""The messages that wait for a time of their own: loaded, caught up with their topic, stored;
cancelled, and given another time.

The timer topic is the truth; `TimerTable` is derived from it. A copy is put before its entry is
passed, and the table is stored after everything below the end of the log is flushed. So the file
never names more copies than the log has. What was put since lies in a known part of the log, and the next
start finds it there by the property that names its source.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from rocketstore._native.format.message import Message
from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    CorruptRecordError,
    ReadFailedError,
    StoreBehindError,
    StoreClosedError,
)
from rocketstore.log.layout.log_place import stands
from rocketstore.log.queues.delayed_puts import TIMER_TOPIC
from rocketstore.log.read.reader import Reader
from rocketstore.puts.put_message import put_message
from rocketstore.services.delay import timer_file
from rocketstore.services.delay.copies import EVERY, Copies, copies_in, end_of_copies
from rocketstore.services.delay.timer_table import TimerTable, key_of
from rocketstore.services.delay.timer_topic import (
    MARKER,
    Ended,
    TimerQueue,
    again_of,
    due_of,
    ended_by,
    entry_of,
    is_marker,
    marker_of,
    settle_ended,
    stands_for,
)
from rocketstore.services.delay.waiting import SLACK_MS, Troubles

__all__ = [
    "Timers",
    "cancel",
    "drop",
    "found",
    "is_waiting",
    "put_again",
    "reschedule",
    "see_all",
    "timers_of",
]

logger = logging.getLogger(__name__)

#: Messages of the timer topic that are read before their ends are looked for.
LOOK: Final = 1 << 14
#: Reads of a message that fail before the others go on without it.
READS: Final = 5


class Timers:
    """The messages of one store that wait for a time of their own.

    `TimerDelivery` passes over what it delivers; other threads look, cancel and put again, with
    `lock` held. So a store that is open for writing has one object of it.
    """

    def __init__(self, engine: Engine, *, stores: bool = False) -> None:
        """`stores`: it stores the table, as the one of the service does."""
        self._engine = engine
        self._stores = stores
        self._reader = Reader(engine.reader.source, None, engine.path)
        self.lock = SignalSafeLock("the timers")
        self.queue = TimerQueue(self._reader)
        self.table = TimerTable()
        self.troubles = Troubles(engine.path, "the timer topic", ())
        self.stored: timer_file.StoredTimers | None = None
        #: The latest time that the clock has shown, ms, as far as that is known; and queue offsets of
        #: what was stored by a clock that was set back before it was taken up.
        self.seen_ms = engine.recovery.last_store_timestamp_ms if stores else 0
        self.ahead: set[int] = set()
        #: Physical offset after the last record that ended a message here before it could be read.
        self.ended_by = 0
        self._copies: Copies | None = None
        self._over = False
        self.started = False

    @property
    def there(self) -> bool:
        """Whether the store has the timer topic."""
        return bool(self._reader.source.queues(TIMER_TOPIC))

    def stop(self) -> None:
        """Has a `run` that goes on raise StoreClosedError soon. Any thread may call it."""
        self._over = True

    def go_on(self) -> None:
        """Raises StoreClosedError once it is stopped."""
        if self._over:
            raise StoreClosedError("the store closes")

    # ---- the table ----

    def start(self) -> None:
        """Loads what is stored, and finds in the log what was delivered since. Lock held."""
        if self.started or not self.there:
            return
        self.table, self.troubles.undelivered = TimerTable(), {}
        place = None
        if self._engine.believes_files:
            place = timer_file.load(self._engine.layout, self.table, lambda: self.queue.bounds()[1])
        begin = None if place is None else place.end
        if place is not None and stands(self._reader.source.segments(), place) is False:
            logger.warning(
                "%s: the stored timers are of another log; they are read from their topic",
                self._engine.path,
            )
            begin, self.table = None, TimerTable()
        self.troubles.undelivered = dict.fromkeys(self.table.undelivered)
        if self._stores and isinstance(self._engine, WritingEngine):
            self.stored = timer_file.StoredTimers(
                self._engine, begin, lambda: self.troubles.undelivered
            )
            timer_file.tidy(self._engine.layout, self.table)
        self._look_for_copies(begin)
        self.started = True

    def _look_for_copies(self, begin: int | None) -> None:
        minimum, _ = self.queue.bounds()
        self.table.next = max(self.table.next, minimum)
        source = self._reader.source
        end = source.visible()
        if begin is None:
            begin = self.queue.physical_offset(max(self.table.lowest(), minimum))
        else:
            end = end_of_copies(self._engine, begin)
        if begin is None or begin >= end:
            return
        copies = copies_in(source, begin, end, self.go_on)
        for entry in self.table.with_offsets(set(copies.timers())):
            try:
                message = self.queue.message(entry.at)
            except (CorruptRecordError, ReadFailedError):
                continue
            if message is not None and copies.take(message) and self._is_over(message):
                self.table.drop(entry.at)
                self.note_change()
        for at in list(self.troubles.undelivered):
            try:
                message = self.queue.message(at)
            except (CorruptRecordError, ReadFailedError):
                continue
            if message is not None and copies.take(message) and self._is_over(message):
                self.troubles.delivered(at)
        self._copies = copies

    def _is_over(self, message: Message) -> bool:
        """Whether a message of which the copy is there waits no more; else it comes again."""
        if EVERY not in message.properties:
            return True
        self.table.copied.add(message.queue_offset)
        return False

    def catch_up(
        self, most: int = 1 << 62, end: int | None = None, now_ms: int | None = None
    ) -> bool:
        """Takes up what was put since, up to a queue offset; whether that is all. Lock held.
        ReadFailedError: try again."""
        self.start()
        if not self.started:
            return True
        end, begin = self.queue.bounds()[1] if end is None else end, self.table.next
        while self.table.next < end:
            self.go_on()
            if self.table.next - begin >= most:
                return False
            self._take_some(end, self._now_ms() if now_ms is None else now_ms)
            self._make_room()
        self._copies = None  # what comes now has none
        return True

    def _make_room(self) -> None:
        """Keeps no more in memory than runs do."""
        layout = self._engine.layout if self.stored is not None else None
        if layout is not None:
            timer_file.make_directory(layout)
        self.table.settle(layout)

    def _take_some(self, end: int, now_ms: int) -> None:
        table, ended, before = self.table, list[Ended](), self.table.next
        self.seen_ms = max(self.seen_ms, now_ms)
        try:
            while table.next < min(end, before + LOOK):
                try:
                    found = self.queue.fetch(table.next, 256)
                except (CorruptRecordError, ReadFailedError) as error:
                    self._leave_unread(error)
                    continue
                for message in found.messages:
                    self._take(message, ended, now_ms)
                if not found.messages and found.next_offset <= table.next:
                    raise ReadFailedError(f"{TIMER_TOPIC}: {found.status} at {table.next}")
                table.next = max(table.next, found.next_offset)
        finally:
            if table.next > before:
                self.note_change()
            if ended:
                settle_ended(self.queue, table, ended, self.troubles)

    def raise_early(self, error: Exception) -> None:
        """Raises an error of a read that a later one may not have."""
        early = isinstance(error, ReadFailedError) and self.troubles.failures < READS
        if early or isinstance(error, StoreBehindError):
            raise error

    def _leave_unread(self, error: Exception) -> None:
        self.raise_early(error)
        self.troubles.leave(self.table.next, error)
        self.table.next += 1

    def _now_ms(self) -> int:
        return self._engine.write.clock.now_ms() if isinstance(self._engine, WritingEngine) else 0

    def _take(self, message: Message, ended: list[Ended], now_ms: int) -> None:
        properties = message.properties
        self.table.next = message.queue_offset + 1
        end = ended_by(message, properties)
        if end is not None:
            ended.append(end)
        if is_marker(properties):
            return
        if self._copies and self._copies.take(message) and self._is_over(message):
            return
        self.table.add(entry_of(self.table, message, properties))
        if message.store_timestamp_ms > now_ms + SLACK_MS and self.stored is not None:
            self.ahead.add(message.queue_offset)

    def note_change(self) -> None:
        if self.stored is not None:
            self.stored.note_change()

    # ---- what is stored ----

    def save(self) -> None:
        """Stores the table. Raises: as `Stored.save`."""
        with self.lock():
            if self.started and self.stored is not None:
                self.stored.save(self.table)

    def needs_from(self) -> int | None:
        """Where in the log the first message lies that is not delivered; None while none waits.
        Those that are not in the queue yet are not among them."""
        with self.lock():
            with contextlib.suppress(StoreBehindError):  # then all that the queue has counts
                self.start()
            minimum = self.queue.bounds(catch_up=False)[0]
            lowest = self.table.lowest() if self.started else minimum
            lowest = min([lowest, *self.troubles.undelivered])
            return self.queue.physical_offset(max(lowest, minimum))


def timers_of(engine: WritingEngine) -> Timers:
    """Those of a store that is open for writing; a copy does not keep them."""
    stores = engine.config.deliver_delayed and not engine.copy_of
    return engine.guests.get(Timers, lambda: Timers(engine, stores=stores))


def is_waiting(engine: WritingEngine, message: Message) -> bool:
    """Whether a message of the timer topic has not been delivered, cancelled or put again."""
    with (timers := timers_of(engine)).lock():
        timers.catch_up()
        return bool(found(timers, message.queue_offset))


def see_all(engine: WritingEngine, timers: Timers) -> None:
    """Takes up all that was put, and waits until it can be read. Lock held."""
    timers.catch_up()
    if (
        timers.table.next < engine.queue_state(TIMER_TOPIC, 0).next_offset
        if timers.there
        else engine.reader.source.visible() < engine.positions.wrote
    ):
        engine.commit_log.log.request_flush(engine.positions.wrote)
        engine.wait_flushed(engine.positions.wrote, None)
        timers.catch_up()


# Cancels messages, gives them another time, and puts them again. Each puts one record into the timer
# topic, so that it is there as a whole or not at all: a marker in RocketMQ's form, or the message
# again, in the form in which RocketMQ puts one again that is due too late for its wheel.
# `__ENDS` names the message that the record is about.


def cancel(engine: WritingEngine, timers: Timers, chosen: str | int) -> int | None:
    """Puts the markers; gives the physical offset after them, None where nothing waits. The lock of
    the timers is held, and they are caught up."""
    end = None
    for message in found(timers, chosen):
        marker = marker_of(message)
        end = _put(engine, message, b"", marker)
        drop(timers, message)
        engine.unique_ids.forget(marker["REAL_TOPIC"], marker[MARKER])
    return end


def reschedule(
    engine: WritingEngine, timers: Timers, chosen: str | int, when_ms: int, span_ms: int
) -> int | None:
    """As `cancel`, for another time."""
    end = None
    for message in found(timers, chosen):
        end = put_again(engine, message, when_ms, span_ms)
        drop(timers, message)
    return end


def put_again(
    engine: WritingEngine, message: Message, when_ms: int | None = None, span_ms: int = 0
) -> int:
    """Puts a message that waits once more, for another time, the end of a span where that is not 0;
    None: for the same time. Gives the physical offset after it. What waited before ends there."""
    return _put(engine, message, message.body_view, again_of(message, when_ms, span_ms))


def found(timers: Timers, chosen: str | int) -> list[Message]:
    """The messages that wait."""
    table, queue = timers.table, timers.queue
    if isinstance(chosen, int):
        offsets = [chosen] if chosen < table.next else []
    else:
        offsets = sorted(entry.at for entry in table.with_keys({key_of(chosen)}))
        offsets += timers.troubles.undelivered
    waiting = []
    for at in offsets:
        try:
            message = queue.message(at)
        except (CorruptRecordError, ReadFailedError):
            if isinstance(chosen, int):
                raise
            continue
        if message is None or is_marker(message.properties):
            continue
        properties = message.properties
        if isinstance(chosen, str) and properties.get("UNIQ_KEY") != chosen:
            continue
        if at in timers.troubles.undelivered or table.has(due_of(properties), at):
            waiting.append(message)
        elif isinstance(chosen, int) and (name := properties.get("UNIQ_KEY")):
            again = found(timers, name)
            return [one for one in again if stands_for(queue, one.queue_offset, at)]
    return waiting


def drop(timers: Timers, message: Message) -> None:
    """A message waits no more."""
    at = message.queue_offset
    if at in timers.troubles.undelivered:
        timers.troubles.delivered(at)
        timers.table.copied.discard(at)
    else:
        timers.table.drop(at)
    if isinstance(timers._engine, WritingEngine):
        timers.ended_by = timers._engine.positions.wrote
    timers.note_change()


def _put(
    engine: WritingEngine, message: Message, body: bytes | memoryview, properties: Mapping[str, str]
) -> int:
    result = put_message(
        engine,
        TIMER_TOPIC,
        body,
        0,
        properties,
        flag=message.flag,
        sys_flag=message.sys_flag,
        born_time=message.born_timestamp_ms,
        born_host=message.born_host,
        store_host=message.store_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=0,
        delay_level=0,
        expected=None,
        durability="memory",  # the caller waits once for all
        timeout_s=None,
    )
    return result.end_offset
