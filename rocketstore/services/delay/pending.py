"""`store.delayed`: the messages that wait for their time, in a store of any mode."""

from __future__ import annotations

import datetime
import itertools
from collections.abc import Iterator, Mapping

from rocketstore._native.append.put_result import PutResult, durability_level
from rocketstore._native.format.message import Message
from rocketstore.engine.engine import Engine
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import (
    CorruptRecordError,
    MessageRejectedError,
    ReadFailedError,
    RocketStoreError,
    StoreReadOnlyError,
)
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketstore.log.read.query import KeyQuery, query_by_key
from rocketstore.log.read.reader import Reader
from rocketstore.services.delay.copies import skip_delivered, source_in
from rocketstore.services.delay.delayed_message import (
    CancelResult,
    DelayedMessage,
    delayed,
    looked_at,
    message_at,
    timed,
)
from rocketstore.services.delay.offsets import known_progress
from rocketstore.services.delay.service import DelayService
from rocketstore.services.delay.timer_table import LATEST, Entry
from rocketstore.services.delay.timer_topic import due_of, stands_for
from rocketstore.services.delay.timers import Timers, cancel, found, reschedule, see_all, timers_of
from rocketstore.services.delay.waiting import Level, WaitingQueue, waiting_queues
from rocketstore.values.arguments import Body, text, whole_number
from rocketstore.values.public import public
from rocketstore.values.timestamps import Duration, Timestamp, moment_of, timestamp_ms

__all__ = ["Delayed"]


@public
class Delayed:
    """The messages of one store that wait for their time: `store.delayed`. Iterate it, or ask
    for `messages` by topic and time.

    In mode "r" they are those that the writer has not delivered, by the offsets that it stored last.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reader = Reader(engine.reader.source, None, engine.path)
        self._own_timers = Timers(engine)

    def __len__(self) -> int:
        """How many wait, those included that could not be delivered yet."""
        offsets, left = self._offsets()
        with (timers := self._timers()).lock():
            timed = len(timers.table) + len(timers.troubles.undelivered)
        return (
            timed
            + sum(map(len, left.values()))
            + sum(
                max(0, maximum - max(minimum, offsets.get(queue.queue_id, 0)))
                for queue in self._queues()
                for minimum, maximum in (queue.bounds(),)
            )
        )

    def __bool__(self) -> bool:
        return len(self) > 0

    def __iter__(self) -> Iterator[DelayedMessage]:
        return self.messages()

    def messages(
        self,
        topic: str | None = None,
        *,
        begin: Timestamp | None = None,
        end: Timestamp | None = None,
        limit: int | None = None,
    ) -> Iterator[DelayedMessage]:
        """Gives those that wait: level by level, then those with a time of their own, each in the
        order of delivery. The latter are not read for it.

        Args:
            topic: Only those that go to this topic.
            begin, end: Only those that are due from `begin` on and before `end`: milliseconds since
                1970 or an aware datetime.
            limit: The greatest number of them.

        Raises:
            CorruptRecordError, ReadFailedError: One of them cannot be read.
            StoreClosedError, StoreReplacedError: The store was closed, or another has its place.
            StoreFailedError, DurabilityTimeoutError: One was put again, and the disk does not take it.
        """
        span = _span(begin, end)
        given = itertools.chain(self._of_levels(topic, *span), self._timed(topic, *span))
        return itertools.islice(given, None if limit is None else whole_number("limit", limit, 0))

    def _of_levels(self, topic: str | None, begin: int, end: int) -> Iterator[DelayedMessage]:
        offsets, left = self._offsets()
        for queue in self._queues():
            for message in self._waiting(queue, offsets, left):
                due_ms = queue.due_ms(message.queue_offset)
                if due_ms is None or due_ms < begin:
                    continue
                if due_ms >= end:
                    break
                given = delayed(message, due_ms)
                if given is not None and topic in (None, given.topic):
                    yield given

    def count(
        self,
        topic: str | None = None,
        *,
        begin: Timestamp | None = None,
        end: Timestamp | None = None,
    ) -> int:
        """Counts what `messages` gives; those with a time of their own without reading them.

        Raises:
            CorruptRecordError, ReadFailedError, StoreClosedError, StoreReplacedError: As `messages`.
        """
        span = _span(begin, end)
        count = sum(1 for _ in self._of_levels(topic, *span))
        with (timers := self._timers()).lock():
            left = sorted(timers.troubles.undelivered)
            unread, parts = [Entry(0, at, 0, 0) for at in left], timers.table.chosen(topic, *span)
        for part in itertools.chain(*parts):
            numbered = part["topic"] != 0
            count += int(numbered.sum())
            unread += map(Entry._make, part[~numbered].tolist())
        return count + sum(1 for at in unread for _ in looked_at(timers, at, topic, *span))

    def get(self, unique_id: str) -> DelayedMessage | None:
        """The message with a time of its own that waits with this id, the first of several; None
        where none does.

        Raises:
            CorruptRecordError, ReadFailedError, StoreClosedError, StoreReplacedError: As `messages`.
        """
        with (timers := self._timers()).lock():
            waiting = found(timers, text("unique_id", unique_id))
        given = (delayed(one, due_of(one.properties)) for one in waiting)
        return min((one for one in given if one), key=lambda one: one.due_time, default=None)

    @property
    def next_due_time(self) -> datetime.datetime | None:
        """When the next message is due; None while none waits."""
        offsets, _ = self._offsets()
        with (timers := self._timers()).lock():
            first = timers.table.first()
        due = [] if first is None else [first.due]
        for queue in self._queues():
            minimum, maximum = queue.bounds()
            at = max(minimum, offsets.get(queue.queue_id, 0))
            due_ms = queue.due_ms(at) if at < maximum else None
            if due_ms is not None:
                due.append(due_ms)
        return moment_of(min(due)) if due else None

    @property
    def undelivered(self) -> list[tuple[int, int, Exception | None]]:
        """Level, queue offset and error of messages that could not be delivered. They are tried
        again. The level is 0 for a time of its own."""
        with (timers := self._timers()).lock():
            timed = [
                (0, at, error)
                for at, error in sorted(timers.troubles.undelivered.items(), key=lambda it: it[0])
            ]
        return timed + self._undelivered_of_levels()

    def _undelivered_of_levels(self) -> list[tuple[int, int, Exception | None]]:
        service = self._service()
        if service is None or not service.delivery.levels:
            left = self._offsets()[1]
            return [(n + 1, at, None) for n, found in sorted(left.items()) for at in sorted(found)]
        levels = service.delivery.levels
        return [
            (n + 1, at, error)
            for n in sorted(levels)
            for at, error in sorted(levels[n].undelivered.items(), key=lambda item: item[0])
        ]

    @property
    def error(self) -> BaseException | None:
        """What keeps messages from being delivered at the moment; None when nothing does."""
        service = self._service()
        if service is None:
            return None
        if service.error is not None:
            return service.error
        return next(
            (error for one in service.delivery.levels.values() if (error := one.error)),
            service.timers.troubles.error,
        )

    def cancel(self, message: str | PutResult | DelayedMessage) -> CancelResult:
        """Cancels a message with a time of its own: nobody will see it. What it gives is true for
        `CancelResult.CANCELLED` alone: the others say that it was delivered, or that none is there.

        It is durable as a put is. Other programs of RocketMQ 5 know the record that it puts.

        Args:
            message: What its put gave, or what `messages` gives, or its id: all messages that wait
                with this property `UNIQ_KEY`.

        Raises:
            MessageRejectedError: It waits for a delay level, which cannot be cancelled.
            MessageNotFoundError: The log has the place no more that a result or a message names, so
                nobody knows what became of it; name it by its id.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
            DurabilityTimeoutError: It is cancelled, but not known to be on disk.
        """
        engine = self._writing("cancel")
        with (timers := timers_of(engine)).lock():
            see_all(engine, timers)
            end = cancel(engine, timers, chosen := _chosen(timers, message))
        if self._promised(end):
            return CancelResult.CANCELLED
        return CancelResult.DELIVERED if _delivered(engine, timers, chosen) else CancelResult.ABSENT

    def reschedule(
        self, message: str | PutResult | DelayedMessage, when: Timestamp | datetime.timedelta
    ) -> bool:
        """Delivers a message with a time of its own at another time; at once where that is past.
        False: it is delivered or cancelled already.

        Args:
            message: As of `cancel`.
            when: Milliseconds since 1970, an aware datetime, or a timedelta from now.

        Raises:
            MessageRejectedError, MessageNotFoundError, StoreReadOnlyError, StoreClosedError,
            DurabilityTimeoutError: As `cancel`.
        """
        engine = self._writing("reschedule")
        when_ms = engine.delayed_puts.moment_ms("when", when)
        with (timers := timers_of(engine)).lock():
            see_all(engine, timers)
            span_ms = (
                0
                if not isinstance(when, datetime.timedelta)
                else when // datetime.timedelta(milliseconds=1)
            )
            end = reschedule(engine, timers, _chosen(timers, message), max(when_ms, 0), span_ms)
        if end is not None:
            engine.delayed_puts.note_due(when_ms)
        return self._promised(end)

    def repeat(
        self,
        topic: str,
        body: Body,
        every: Duration | str,
        *,
        unique_id: str | None = None,
        start: Timestamp | None = None,
        timezone: str = "UTC",
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        """Delivers a message again and again, and gives the id by which `cancel` ends that.

            store.delayed.repeat("beats", b"", datetime.timedelta(minutes=1))
            store.delayed.repeat("reports", b"daily", "30 9 * * MON-FRI", unique_id="daily")

        It is durable as a put is, goes on with the next open, and comes once at each of its times,
        also after a crash. Times that pass while the store is closed are one delivery at the next
        open. With a `unique_id` it takes the place of what waits with that id; where the same
        message comes as often already, that goes on as it is.

        Args:
            every: The time from one to the next; or a cron expression of five fields, or of six
                with seconds, which needs cronsim (`rocketstore[cron]`).
            unique_id: The id. None: a new one.
            start: The first time of `every`, or that from which a cron expression counts. None: it
                begins now, and the first delivery is after one `every`.
            timezone: The zone of a cron expression. A time that its clocks leave out is the end of
                the gap, and one that they show twice is the first of them.

        Raises:
            CronSyntaxError: `every` is no cron expression.
            ModuleNotFoundError: There is no cronsim, which a cron expression needs.
            MessageRejectedError: A message that cannot be stored, or no time follows.
            StoreReadOnlyError, StoreClosedError: The store takes no messages.
            DurabilityTimeoutError: It is put, but not known to be on disk.
        """
        from rocketstore.services.delay import recurring

        said = recurring.every_of(every, timezone)
        start_ms = None if start is None else timestamp_ms("start", start)
        own = recurring.Wanted(topic, body, queue_id, properties or {}, said, unique_id, start_ms)
        engine = self._writing("repeat")
        with (timers := timers_of(engine)).lock():
            see_all(engine, timers)
            unique_id, end = recurring.repeat(engine, timers, own)
        self._promised(end)
        return unique_id

    def __repr__(self) -> str:
        if self._engine.closed:
            return "Delayed(closed)"
        try:
            return f"Delayed({len(self)} messages, next_due_time={self.next_due_time})"
        except (RocketStoreError, OSError) as error:
            return f"Delayed({error})"

    # ---- pieces ----

    def _writing(self, what: str) -> WritingEngine:
        self._engine.check_open()
        if not isinstance(self._engine, WritingEngine):
            raise StoreReadOnlyError(f"{self._engine.path} is open with mode 'r': {what} writes")
        return self._engine

    def _promised(self, end: int | None) -> bool:
        """Waits until what was put is as durable as the store promises."""
        if end is None:
            return False
        engine = self._writing("delayed")
        config = engine.config
        if config.promises_disk:
            level, limit_ms = durability_level(config.durability), config.sync_flush_timeout_ms
            engine.commit_log.log.await_promise(end, level, limit_ms, False, None)
        return True

    def _timers(self) -> Timers:
        """The timers, as of now. They do not change while the caller has their lock."""
        engine = self._engine
        engine.check_open()
        self._service()
        timers = self._own_timers
        if isinstance(engine, WritingEngine) and not engine.copy_of:
            timers = timers_of(engine) if engine.has_queues(TIMER_TOPIC) else timers
        with timers.lock():
            if timers is self._own_timers:
                timers.started = False  # another process, or the master, may have delivered since
            timers.catch_up()
            if isinstance(engine, WritingEngine) and timers.ended_by > engine.positions.visible:
                see_all(engine, timers)  # else what was put again would wait nowhere for that time
        return timers

    def _timed(self, topic: str | None, begin: int, end: int) -> Iterator[DelayedMessage]:
        with (timers := self._timers()).lock():
            left = [Entry(0, at, 0, 0) for at in sorted(timers.troubles.undelivered)]
            waiting = timers.table.snapshot(topic, begin, end)
            topics = {number: name for name, number in timers.table.topics.items()}
        for entry in itertools.chain(left, waiting):
            name = topics.get(entry.topic)
            if name is not None:
                yield DelayedMessage(name, entry.due, 0, entry.at, timers)
            else:
                yield from looked_at(timers, entry, topic, begin, end)

    def _service(self) -> DelayService | None:
        engine = self._engine
        service = engine.guests.made(DelayService) if isinstance(engine, WritingEngine) else None
        if service is not None:
            service.start()  # where the system had no thread for it
        return service

    def _queues(self) -> list[WaitingQueue]:
        self._engine.check_open()
        return waiting_queues(self._reader)

    def _offsets(self) -> tuple[Mapping[int, int], Mapping[int, list[int]]]:
        """Next queue offsets, and those left over, by queue id."""
        service, engine = self._service(), self._engine
        if not engine.believes_files:
            levels: Mapping[int, Level] = {
                queue.queue_id: Level(engine.path, queue, queue.bounds()[0], ())
                for queue in self._queues()
            }
            skip_delivered(levels.values(), engine, None, engine.check_open)
        elif service is None or not service.delivery.levels:
            found = known_progress(engine)
            return found.offsets, found.undelivered
        else:
            levels = service.delivery.levels
        return (
            {n: level.next for n, level in levels.items()},
            {n: [*level.undelivered] for n, level in levels.items()},
        )

    def _waiting(
        self, queue: WaitingQueue, offsets: Mapping[int, int], left: Mapping[int, list[int]]
    ) -> Iterator[Message]:
        minimum, _ = queue.bounds()
        for at in sorted(left.get(queue.queue_id, ())):
            try:
                yield from queue.fetch(at, 1).messages
            except (CorruptRecordError, ReadFailedError):
                continue  # that is why it is left over: `undelivered` has it
        yield from queue.messages(max(minimum, offsets.get(queue.queue_id, 0)))


def _span(begin: Timestamp | None, end: Timestamp | None) -> tuple[int, int]:
    """From which millisecond on, and before which one."""
    return (
        0 if begin is None else timestamp_ms("begin", begin),
        LATEST + 1 if end is None else timestamp_ms("end", end),
    )


def _chosen(timers: Timers, message: object) -> str | int:
    """An id, or a queue offset in the timer topic. MessageRejectedError, TypeError; and
    MessageNotFoundError: the log has that place no more."""
    if isinstance(message, str) and message:
        return message
    if isinstance(message, DelayedMessage):
        at = timed(message)._at
    elif isinstance(message, PutResult):
        at = message.queue_offset
        if timers.queue.physical_offset(at) not in (None, message.physical_offset):
            raise MessageRejectedError(f"{message!r}: it is of no message with a time of its own")
    else:
        raise TypeError(f"message = {message!r}: expected its id, a PutResult or a DelayedMessage")
    message_at(timers, at)
    return at


def _delivered(engine: WritingEngine, timers: Timers, chosen: str | int) -> bool:
    """Whether the copy of a message that is no timer any more is in the log, which has all that was put.
    MessageRejectedError: it waits for a delay level."""
    if engine.index is None:
        return False
    if engine.reader.source.visible() < engine.positions.wrote:
        engine.commit_log.log.request_flush(engine.positions.wrote)
        engine.wait_flushed(engine.positions.wrote, None)
    name = (
        message_at(timers, chosen).properties.get("UNIQ_KEY", "")
        if isinstance(chosen, int)
        else chosen
    )
    waited = itertools.chain.from_iterable(
        query_by_key(engine.reader, engine.index, KeyQuery(topic, name))
        for topic in (TIMER_TOPIC, SCHEDULE_TOPIC)
    )
    if (newest := next(waited, None)) is None:
        return False
    first = chosen if isinstance(chosen, int) else newest.queue_offset
    topic = newest.properties.get("REAL_TOPIC", "")
    delivered = any(
        newest.topic == SCHEDULE_TOPIC
        or "TIMER_OUT_MS" in copy.properties  # of a broker
        or ((source := source_in(copy.properties)) and stands_for(timers.queue, source[1], first))
        for copy in query_by_key(engine.reader, engine.index, KeyQuery(topic, name))
    )
    if newest.topic == SCHEDULE_TOPIC and not delivered:
        raise MessageRejectedError(
            f"unique_id = {name!r}: it waits for a delay level, which is not cancelled; put with "
            "deliver_after"
        )
    return delivered
