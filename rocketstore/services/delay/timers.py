"""The messages that wait for a time of their own: loaded, caught up with their topic, stored.

The timer topic is the truth; `TimerTable` is derived from it. A copy is put before its entry is
passed, and the table is stored after everything below the end of the log is flushed. So the file
never names more copies than the log has. What was put since lies in a known part of the log, and the next
start finds it there by the property that names its source.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final

from rocketstore._native.sync.signal_safe_lock import SignalSafeLock
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    CorruptRecordError,
    ReadFailedError,
    StoreBehindError,
    StoreClosedError,
)
from rocketstore.log.layout.log_place import place_at, stands
from rocketstore.log.queues.delayed_puts import TIMER_TOPIC
from rocketstore.log.read.reader import Reader
from rocketstore.services.delay import timer_file
from rocketstore.services.delay.copies import EVERY, Copies, copies_in, end_of_copies
from rocketstore.services.delay.offsets import Stored
from rocketstore.services.delay.timer_table import TimerTable
from rocketstore.services.delay.timer_topic import (
    Ended,
    TimerQueue,
    ended_by,
    entry_of,
    is_marker,
    settle_ended,
)
from rocketstore.services.delay.waiting import Troubles

if TYPE_CHECKING:
    from rocketstore._native.format.message import Message
    from rocketstore.engine.engine import Engine

__all__ = ["StoredTimers", "Timers"]

logger = logging.getLogger(__name__)

#: Messages of the timer topic that are read before their ends are looked for.
LOOK: Final = 1 << 14
#: Reads of a message that fail before the others go on without it.
READS: Final = 5


class StoredTimers(Stored["Timers"]):
    """`rocketstore/timers/state`."""

    def __init__(self, engine: WritingEngine, begin: int | None) -> None:
        super().__init__(engine)
        self._begin = begin

    @property
    def begin(self) -> int | None:
        return self._begin

    def write(self, what: Timers, end: int) -> None:
        layout = self._engine.layout
        timer_file.make_directory(layout)
        what.table.settle(layout)
        what.table.undelivered = tuple(what.troubles.undelivered)
        segments = self._engine.reader.source.segments()
        timer_file.save(layout, what.table, place_at(segments, end))
        self._begin = end


class Timers:
    """The messages of one store that wait for a time of their own.

    `TimerDelivery` passes over what it delivers; other threads look and cancel, with `lock` held.
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
        self.stored: StoredTimers | None = None
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
            self.stored = StoredTimers(self._engine, begin)
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

    def catch_up(self, most: int = 1 << 62, end: int | None = None) -> bool:
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
            self._take_some(end)
            self._make_room()
        self._copies = None  # what comes now has none
        return True

    def _make_room(self) -> None:
        """Keeps no more in memory than runs do."""
        layout = self._engine.layout if self.stored is not None else None
        if layout is not None:
            timer_file.make_directory(layout)
        self.table.settle(layout)

    def _take_some(self, end: int) -> None:
        table, ended, before = self.table, list[Ended](), self.table.next
        try:
            while table.next < min(end, before + LOOK):
                try:
                    found = self.queue.fetch(table.next, 256)
                except (CorruptRecordError, ReadFailedError) as error:
                    self._leave_unread(error)
                    continue
                for message in found.messages:
                    self._take(message, ended)
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

    def _take(self, message: Message, ended: list[Ended]) -> None:
        properties = message.properties
        self.table.next = message.queue_offset + 1
        end = ended_by(message, properties)
        if end is not None:
            ended.append(end)
        if is_marker(properties):
            return
        if self._copies and self._copies.take(message) and self._is_over(message):
            return
        self.table.add(entry_of(message, properties))

    def note_change(self) -> None:
        if self.stored is not None:
            self.stored.note_change()

    # ---- what is stored ----

    def save(self) -> None:
        """Stores the table. Raises: as `Stored.save`."""
        with self.lock():
            if self.started and self.stored is not None:
                self.stored.save(self)

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
