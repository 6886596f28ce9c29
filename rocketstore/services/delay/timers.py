"""Delivery at a time of its own: what is due is put into its own topic, each message once.

The timer topic is the truth; `TimerTable` is derived from it. A copy is put before its entry is
passed, and the table is stored after everything below the end of the log is flushed: so the file is
behind the copies, never ahead. What was put since lies in a known part of the log, and the next
start finds it there by the property that names its source.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    CorruptRecordError,
    MessageRejectedError,
    ReadFailedError,
    StoreBehindError,
    StoreClosedError,
    StoreFailedError,
)
from rocketstore.log.queues.delayed_puts import TIMER_TOPIC
from rocketstore.log.read.reader import Reader
from rocketstore.services.delay import timer_file
from rocketstore.services.delay.already import MARGIN_BYTES
from rocketstore.services.delay.copies import Copies, copies_in
from rocketstore.services.delay.offsets import Stored
from rocketstore.services.delay.progress import WINDOW_BYTES
from rocketstore.services.delay.timer_runs import Entry
from rocketstore.services.delay.timer_table import TimerTable
from rocketstore.services.delay.timer_topic import (
    Ended,
    TimerQueue,
    ended_by,
    entry_of,
    is_marker,
    settle_ended,
)
from rocketstore.services.delay.troubles import Troubles

if TYPE_CHECKING:
    from rocketstore._native.format.message import Message
    from rocketstore.engine.engine import Engine

__all__ = ["StoredTimers", "Timers"]

logger = logging.getLogger(__name__)

#: Messages that one round delivers, before the levels have their turn.
ROUND: Final = 256
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
        timer_file.save(layout, what.table, end, what.anchor)
        self._begin = end


class Timers:
    """The messages of one store that wait for a time of their own.

    The thread of delivery calls `run` and `save`; others look and cancel, with `lock` held.
    """

    def __init__(self, engine: Engine, *, stores: bool = False) -> None:
        """`stores`: it stores the table, as the one of the service does."""
        self._engine = engine
        self._stores = stores
        self._reader = Reader(engine.reader.source, None, engine.path)
        self.lock = threading.RLock()
        self.queue = TimerQueue(self._reader)
        self.table = TimerTable()
        self.troubles = Troubles(engine.path, "the timer topic", ())
        self.anchor: timer_file.Anchor | None = None
        self.stored: StoredTimers | None = None
        self._copies: Copies | None = None
        # A time, and what was put by then: what is due then is delivered once all of it is known.
        self._aim: tuple[int, int] | None = None
        self._over = False
        self.started = False

    @property
    def there(self) -> bool:
        """Whether the store has the timer topic."""
        return bool(self._reader.source.queues(TIMER_TOPIC))

    def stop(self) -> None:
        """Has a `run` that goes on raise StoreClosedError soon. Any thread may call it."""
        self._over = True

    def _go_on(self) -> None:
        if self._over:
            raise StoreClosedError("the store closes")

    # ---- the table ----

    def start(self) -> None:
        """Loads what is stored, and finds in the log what was delivered since. Lock held."""
        if self.started or not self.there:
            return
        self.table, self.anchor, self.troubles.undelivered = TimerTable(), None, {}
        found = timer_file.load(self._engine.layout, self.table)
        begin = None
        if found is not None:
            begin, self.anchor = found
            if not self._is_ours():
                logger.warning(
                    "%s: the stored timers are of another log; they are read from their topic",
                    self._engine.path,
                )
                found, begin, self.table, self.anchor = None, None, TimerTable(), None
        self.troubles.undelivered = dict.fromkeys(self.table.undelivered)
        if begin is not None and begin > self._reader.source.visible():
            begin = None  # the log was cut
        if self._stores and isinstance(self._engine, WritingEngine):
            self.stored = StoredTimers(self._engine, begin)
            timer_file.tidy(self._engine.layout, self.table)
        self._look_for_copies(begin)
        self.started = True

    def _is_ours(self) -> bool:
        """Whether what is stored tells of this log."""
        minimum, maximum = self.queue.bounds()
        if self.table.next > maximum:
            return False
        if self.anchor is None or self.table.next <= minimum:
            return True
        try:
            message = self.queue.message(self.table.next - 1)
        except (CorruptRecordError, ReadFailedError):
            return False
        return message is not None and _anchor(message) == self.anchor

    def _look_for_copies(self, begin: int | None) -> None:
        minimum, _ = self.queue.bounds()
        self.table.next = max(self.table.next, minimum)
        source = self._reader.source
        end = source.visible()
        if begin is None:
            begin = self.queue.physical_offset(max(self.table.lowest(), minimum))
        else:
            end = min(end, begin + WINDOW_BYTES + MARGIN_BYTES)
        if begin is None or begin >= end:
            return
        copies = copies_in(source, begin, end, self._go_on)
        for entry in self.table.with_offsets(set(copies.timers())):
            try:
                message = self.queue.message(entry.at)
            except (CorruptRecordError, ReadFailedError):
                continue
            if message is not None and copies.take(message):
                self.table.drop(entry.at)
                self.note_change()
        for at in list(self.troubles.undelivered):
            try:
                message = self.queue.message(at)
            except (CorruptRecordError, ReadFailedError):
                continue
            if message is not None and copies.take(message):
                self.troubles.delivered(at)
        self._copies = copies

    def catch_up(self, most: int = 1 << 62, end: int | None = None) -> bool:
        """Takes up what was put since, up to a queue offset; whether that is all. Lock held.
        ReadFailedError: try again."""
        self.start()
        if not self.started:
            return True
        end, begin = self.queue.bounds()[1] if end is None else end, self.table.next
        while self.table.next < end:
            self._go_on()
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
                settle_ended(self.queue, table, ended)

    def _leave_unread(self, error: Exception) -> None:
        early = isinstance(error, ReadFailedError) and self.troubles.failures < READS
        if early or isinstance(error, StoreBehindError):
            raise error
        self.troubles.leave(self.table.next, error)
        self.table.next += 1

    def _take(self, message: Message, ended: list[Ended]) -> None:
        properties = message.properties
        self.table.next, self.anchor = message.queue_offset + 1, _anchor(message)
        end = ended_by(message, properties)
        if end is not None:
            ended.append(end)
        if is_marker(properties) or (self._copies and self._copies.take(message)):
            return
        self.table.add(entry_of(message, properties))

    def note_change(self) -> None:
        if self.stored is not None:
            self.stored.note_change()

    # ---- delivery ----

    def run(self, put_copy: Callable[[Message], None], now_ms: Callable[[], int]) -> float | None:
        """Delivers what is due; gives the seconds until something else is to be done."""
        with self.lock:
            if self.troubles.paused_s > 0:
                return self.troubles.paused_s
            try:
                # The time first: what was put before it, a cancel as well, is taken up before
                # anything that is due then is delivered.
                aim = self._aim or (now_ms(), self.queue.bounds()[1])
                whole = self.catch_up(LOOK, aim[1])
                self._aim = None if whole else aim
                if self.stored is None:
                    self.troubles.went_well()
                    return None
                if whole:
                    if self.troubles.retry_s == 0:
                        self._retry(put_copy)
                    self._deliver_due(put_copy, aim[0])
            except (StoreClosedError, StoreFailedError):
                raise
            except Exception as error:
                return self.troubles.pause(error)
            self.troubles.went_well()
            pauses = (self.troubles.retry_s, self.stored.save_in_time(self), None if whole else 0)
            return min((pause_s for pause_s in pauses if pause_s is not None), default=None)

    @property
    def due_ms(self) -> int | None:
        """When the next message is due; None while none waits, or nothing is tried."""
        with self.lock:
            if self.troubles.paused_s > 0:
                return None
            try:
                first = self.table.first()
            except OSError:
                return 0  # the next round says what is wrong
            return None if first is None else first.due

    def _deliver_due(self, put_copy: Callable[[Message], None], now_ms: int) -> None:
        for _ in range(ROUND):
            self._go_on()
            first = self.table.first()
            if first is None or first.due > now_ms:
                return
            self._deliver(first, put_copy)

    def _deliver(self, entry: Entry, put_copy: Callable[[Message], None]) -> None:
        assert self.stored is not None
        try:
            message = self.queue.message(entry.at)
            if message is None:
                self._pass_trimmed(entry)
                return
            self.stored.keep_in_window(self)
            put_copy(message)
        except (MessageRejectedError, CorruptRecordError, ReadFailedError) as error:
            early = isinstance(error, ReadFailedError) and self.troubles.failures < READS
            if early or isinstance(error, StoreBehindError):
                raise
            self.troubles.leave(entry.at, error)
        self.table.pop()
        self.note_change()

    def _pass_trimmed(self, entry: Entry) -> None:
        if entry.at >= self.queue.bounds()[0]:
            raise ReadFailedError(f"{TIMER_TOPIC}: no message at {entry.at}")
        logger.warning(
            "%s: a delayed message was trimmed before it was delivered", self._engine.path
        )
        self.table.pop()
        self.note_change()

    def _retry(self, put_copy: Callable[[Message], None]) -> None:
        """Tries again what was left over."""
        assert self.stored is not None
        for at in sorted(self.troubles.undelivered):
            try:
                message = self.queue.message(at)
                if message is not None and not is_marker(message.properties):
                    self.stored.keep_in_window(self)
                    put_copy(message)
            except (MessageRejectedError, CorruptRecordError, ReadFailedError) as error:
                self.troubles.failed_again(at, error)
            else:
                self.troubles.delivered(at)
                self.note_change()
        self.troubles.retried()

    def save(self) -> None:
        """Stores the table. Raises: as `Stored.save`."""
        with self.lock:
            if self.started and self.stored is not None:
                self.stored.save(self)

    def needs_from(self) -> int | None:
        """Where in the log the first message lies that is not delivered; None while none waits.
        Those that are not in the queue yet are not among them."""
        with self.lock:
            try:
                self.start()
            except StoreBehindError:
                pass  # all that the queue has, if there is one
            minimum = self.queue.bounds(catch_up=False)[0]
            lowest = self.table.lowest() if self.started else minimum
            lowest = min([lowest, *self.troubles.undelivered])
            return self.queue.physical_offset(max(lowest, minimum))


def _anchor(message: Message) -> timer_file.Anchor:
    return message.physical_offset, message.store_timestamp_ms, hash_of(message)


def hash_of(message: Message) -> int:
    """Tells a message from another that has its place in another log."""
    return message.born_timestamp_ms ^ message.size
