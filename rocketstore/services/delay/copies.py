"""Copies of delayed messages: how one is made, and how those in the log are found again.

A copy that we deliver has the property `__DELAYED`, which names its source as level and queue offset,
"3:17"; the level is 0 for a time of its own. RocketMQ passes it on as any other. A copy that RocketMQ
delivered keeps the properties of the schedule topic (K-62); it is known by them and by the unique id
that its client gave it.

A start looks for copies that the stored offsets do not know: what was delivered before it is not
delivered again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from rocketstore._native.format.constants import BLANK_BYTES
from rocketstore._native.format.message import Message
from rocketstore._native.format.scanner import read_message
from rocketstore.engine.engine import Engine
from rocketstore.errors import CorruptRecordError, MessageRejectedError, ReadFailedError
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketstore.log.read.source import ReadSource, segment_at
from rocketstore.services.delay.progress import WINDOW_BYTES
from rocketstore.services.delay.waiting import Level

__all__ = [
    "ENDS",
    "EVERY",
    "SOURCE",
    "Copies",
    "Target",
    "copies_in",
    "end_of_copies",
    "skip_delivered",
    "source_in",
    "target_of",
]

#: The property that names the source of a copy.
SOURCE: Final = "__DELAYED"
#: Topics whose messages wait.
WAITING_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
_SOURCE_TEXT: Final = re.compile(r"(0|[1-9][0-9]{0,9}):(0|[1-9][0-9]{0,18})")
#: Of a record of the timer topic: the queue offset of the message that it ends there.
ENDS: Final = "__ENDS"
#: Of a message that comes again: how often.
EVERY: Final = "__EVERY"
#: What a message has only while it waits.
_WAITING: Final = (
    *("DELAY", "REAL_TOPIC", "REAL_QID"),
    *("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", SOURCE),
    *("TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES"),
    *("TIMER_ROLL_LABEL", "TIMER_DELAY_LEVEL", ENDS, EVERY),
)
_QUEUE_ID: Final = re.compile(r"[0-9]{1,10}")


class Target(NamedTuple):
    """Where a message goes once it is due, and with which properties."""

    topic: str
    queue_id: int
    properties: dict[str, str]


def target_of(message: Message) -> Target | None:
    """The place of the copy; None for a record that means nothing, as a repair writes them.

    Raises:
        MessageRejectedError: the message does not say where it goes.
    """
    properties = message.properties
    topic, queue = properties.get("REAL_TOPIC"), properties.get("REAL_QID", "")
    if topic == HALF_TOPIC:
        if "DELAY" not in properties:
            return None
        raise MessageRejectedError(f"REAL_TOPIC = {topic!r}: a half message is not delayed")
    if not topic or topic in WAITING_TOPICS:
        raise MessageRejectedError(f"REAL_TOPIC = {topic!r}: it names no topic to deliver to")
    if not _QUEUE_ID.fullmatch(queue) or int(queue) >= 1 << 31:
        raise MessageRejectedError(f"REAL_QID = {queue!r}: it names no queue to deliver to")
    for name in _WAITING:
        properties.pop(name, None)
    properties[SOURCE] = f"{source_of(message)}:{message.queue_offset}"
    return Target(topic, int(queue), properties)


def source_of(message: Message) -> int:
    """The number of the queue of a message that waits: its level, 0 for a time of its own."""
    return 0 if message.topic == TIMER_TOPIC else message.queue_id + 1


def source_in(properties: Mapping[str, str]) -> tuple[int, int] | None:
    """Level and queue offset of the source that a copy names."""
    found = _SOURCE_TEXT.fullmatch(properties.get(SOURCE, ""))
    return None if found is None else (int(found[1]), int(found[2]))


class Copies:
    """Copies that a part of the log has. `take` says of a message that waits whether it is there."""

    def __init__(self) -> None:
        self._ours: dict[tuple[int, int], list[tuple[object, ...]]] = {}
        self._theirs: Counter[tuple[object, ...]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._ours) or bool(self._theirs)

    def end_of(self, queue_id: int) -> int:
        """Queue offset after the last message of a queue that may have a copy here."""
        if self._theirs:
            return 1 << 63
        return max((at + 1 for level, at in self._ours if level == queue_id + 1), default=0)

    def timers(self) -> list[int]:
        """Queue offsets in the timer topic of which there are copies that we made."""
        return [at for level, at in self._ours if level == 0]

    def add(self, message: Message) -> None:
        """Looks at a record of the log."""
        if message.topic in WAITING_TOPICS:
            return
        properties = message.properties
        at = source_in(properties)
        if at is not None:
            self._ours.setdefault(at, []).append(_what(message, message.topic, message.queue_id))
        elif "UNIQ_KEY" in properties and (
            properties.get("REAL_TOPIC") == message.topic or "TIMER_OUT_MS" in properties
        ):
            key = _unique(message, properties, message.topic, message.queue_id)
            self._theirs[key] += 1

    def take(self, message: Message) -> bool:
        """Whether the copy of a message of the schedule topic is there. Each counts once."""
        properties = message.properties
        topic, queue = properties.get("REAL_TOPIC"), properties.get("REAL_QID", "")
        if topic is None or not _QUEUE_ID.fullmatch(queue):
            return False
        ours = self._ours.pop((source_of(message), message.queue_offset), ())
        # A message that was put with the property is no copy of what waits here.
        if _what(message, topic, int(queue)) in ours:
            return True
        key = _unique(message, properties, topic, int(queue))
        if "UNIQ_KEY" not in properties or not self._theirs[key]:
            return False
        self._theirs[key] -= 1
        return True


def _what(message: Message, topic: str, queue_id: int) -> tuple[object, ...]:
    """What a message and its copy have in common."""
    body = message.body
    return topic, queue_id, message.born_timestamp_ms, message.flag, len(body), hash(body)


def _unique(
    message: Message, properties: dict[str, str], topic: str, queue_id: int
) -> tuple[object, ...]:
    return (
        *(topic, queue_id, properties.get("UNIQ_KEY"), properties.get("DELAY")),
        *(message.reconsume_times, message.born_timestamp_ms),
    )


def copies_in(source: ReadSource, begin: int, end: int, go_on: Callable[[], None]) -> Copies:
    """The copies in a part of the log; `begin` is where a record starts. What is damaged is passed
    over, up to the next file. `go_on` is called for each record, and may raise."""
    copies = Copies()
    for message in _records(source, begin, end):
        go_on()
        copies.add(message)
    return copies


def _records(source: ReadSource, begin: int, end: int) -> Iterator[Message]:
    segments, size, at = source.segments(), source.segment_size, begin
    end = min(end, source.visible())
    if segments:
        at = max(at, segments[0].start_offset)
    while at < end:
        file = segment_at(segments, size, at)
        if file is None:
            at += size - at % size
            continue
        limit = min(file.size, source.visible() - file.start_offset)
        try:
            message = read_message(file, at - file.start_offset, limit, verify=source.verify)
        except (CorruptRecordError, ReadFailedError):
            at = file.start_offset + file.size  # also the blank at the end of a file
            continue
        yield message
        at += message.size
        if file.start_offset + file.size - at < BLANK_BYTES:
            at = file.start_offset + file.size


#: Log after the window in which a copy can lie, since other puts pushed it on.
MARGIN_BYTES: Final = 64 << 20


def skip_delivered(
    levels: Iterable[Level],
    engine: Engine,
    known_from: int | None,
    go_on: Callable[[], None],
) -> bool:
    """Passes over the messages whose copies are in the log; whether there were any.

    `known_from`: where in the log the copies begin that the stored offsets do not know. `go_on` is
    called again and again, and raises where the work is to end; then a later call begins it again.
    """
    levels = list(levels)
    begin, end = _unknown_part(levels, engine, known_from)
    if begin >= end:
        return False
    copies, skipped = copies_in(engine.reader.source, begin, end, go_on), False
    for level in levels:
        skipped |= _skip(level, copies, go_on)
    return skipped


def end_of_copies(engine: Engine, begin: int) -> int:
    """Where copies end that a file does not know which says that they begin at `begin`. A clean
    stop stores where the log ends, so after one such a file is an older copy, and they may lie
    anywhere."""
    end = engine.reader.source.visible()
    clean = engine.recovery.mode == "clean"
    return end if clean else min(end, begin + WINDOW_BYTES + MARGIN_BYTES)


def _unknown_part(
    levels: Iterable[Level], engine: Engine, known_from: int | None
) -> tuple[int, int]:
    end = engine.reader.source.visible()
    # A copy lies after its source.
    first = [found for level in levels if (found := _first(level)) is not None]
    begin = min(first, default=end)
    if known_from is None or known_from > end:  # a broker wrote the file, or there is none
        return begin, end
    return max(begin, known_from), end_of_copies(engine, known_from)


def _first(level: Level) -> int | None:
    """Physical offset of the first message of a level that is not known as delivered."""
    try:
        for message in level.queue.messages(min([level.next, *level.undelivered])):
            return message.physical_offset
    except (CorruptRecordError, ReadFailedError):
        return 0
    return None


def _skip(level: Level, copies: Copies, go_on: Callable[[], None]) -> bool:
    """A level is delivered in order: what lies between its copies was left over."""
    was = level.next, set(level.undelivered)
    left = dict(level.undelivered)
    for at in level.undelivered:
        try:
            for message in level.queue.fetch(at, 1).messages:
                if copies.take(message):
                    del left[at]
        except (CorruptRecordError, ReadFailedError):
            continue  # that is why it is left over
    at, passed = level.next, list[int]()
    end = min(level.queue.bounds()[1], copies.end_of(level.queue.queue_id))
    while at < end:
        go_on()
        try:
            found = level.queue.fetch(at)
        except (CorruptRecordError, ReadFailedError):
            passed.append(at)
            at += 1
            continue
        for message in found.messages:
            if copies.take(message):
                left.update(dict.fromkeys(passed))
                if passed:  # first, as others look from which message on the log is needed
                    level.undelivered = {**left}
                passed = []
                level.next = message.queue_offset + 1
            else:
                passed.append(message.queue_offset)
        at = max(at + 1, found.next_offset)
    level.undelivered = left
    return was != (level.next, set(left))
