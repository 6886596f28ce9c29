"""The timer topic, read in order: what each record means for the messages that wait.

- A message that waits has `TIMER_OUT_MS`, when it is due, and `UNIQ_KEY`, its id.
- A record with `TIMER_DEL_UNIQKEY` cancels those with this id that came before it. RocketMQ writes
  the id alone, or, in 5.3.2 to 5.3.4, the real topic, "+" and the id.
- A record that RocketMQ put again, with `TIMER_ROLL_TIMES`, takes the place of the one before it.
- Where we put one of the latter two, `__ENDS` names the message that it is about, by its queue offset.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from rocketstore._native.format.queue_file import UNIT_SIZE, units_array
from rocketstore.errors import CorruptRecordError, MessageRejectedError, ReadFailedError
from rocketstore.log.queues.delayed_puts import TIMER_TOPIC
from rocketstore.log.read.batch_queue import BatchQueue
from rocketstore.services.delay.copies import ENDS, target_of
from rocketstore.services.delay.timer_table import Entry, key_of
from rocketstore.services.delay.waiting import WaitingQueue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from rocketstore._native.format.message import Message
    from rocketstore.log.read.reader import Reader
    from rocketstore.services.delay.timer_table import TimerTable
    from rocketstore.services.delay.waiting import Troubles

__all__ = [
    "Ended",
    "TimerQueue",
    "again_of",
    "due_of",
    "entry_of",
    "is_marker",
    "marker_of",
    "settle_ended",
    "stands_for",
]

MARKER: Final = "TIMER_DEL_UNIQKEY"
#: As `TIMER_ENQUEUE_MS`: a record that means nothing.
DROPPED: Final = f"{(1 << 63) - 1}"
_TIME: Final = re.compile(r"[0-9]{1,19}")
_LATEST_MS: Final = (1 << 63) - 1


class Ended(NamedTuple):
    """Messages before the queue offset `before` that have a given id end, or the one at `at`."""

    before: int
    unique_id: str
    at: int | None


class TimerQueue(WaitingQueue):
    """The queue of the timer topic."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader, 0, TIMER_TOPIC)

    def message(self, queue_offset: int) -> Message | None:
        """One message; None where there is none. CorruptRecordError, ReadFailedError."""
        for message in self.fetch(queue_offset, 1).messages:
            if message.queue_offset == queue_offset:
                return message
        return None

    def size_of(self, at: NDArray[np.int64]) -> int:
        """Bytes that messages take in the log, as far as the queue has them; their queue offsets in
        order."""
        queue, size = self._reader.source.queue(self.topic, self.queue_id), 0
        while len(at) and queue is not None and not isinstance(queue, BatchQueue):
            located = queue.locate(first := int(at[0]))
            if located is None:
                at = at[1:]
                continue
            file, position, count = located
            here = int(np.searchsorted(at, first + count))
            units = units_array(file, position // UNIT_SIZE, int(at[here - 1]) - first + 1)
            size += int(units["size"][at[:here] - first].sum())
            at = at[here:]
        return size


def due_of(properties: Mapping[str, str]) -> int:
    """When a message is due, in ms; 0 where it does not say."""
    for name in ("TIMER_OUT_MS", "TIMER_DELIVER_MS"):
        if _TIME.fullmatch(properties.get(name, "")):
            return min(int(properties[name]), _LATEST_MS)
    return 0


def is_marker(properties: Mapping[str, str]) -> bool:
    """Whether it is no message that waits."""
    return MARKER in properties or properties.get("TIMER_ENQUEUE_MS") == DROPPED


def entry_of(table: TimerTable, message: Message, properties: Mapping[str, str]) -> Entry:
    key, number = key_of(properties.get("UNIQ_KEY", "")), 0
    with contextlib.suppress(MessageRejectedError):
        target = target_of(message)
        number = table.number_of(target.topic) if target else 0
    return Entry(due_of(properties), message.queue_offset, key, number)


def ended_by(message: Message, properties: Mapping[str, str]) -> Ended | None:
    """What waits no more since this record is there."""
    if properties.get("TIMER_ENQUEUE_MS") == DROPPED:
        return None
    rolled = properties.get("TIMER_ROLL_TIMES", "0") not in ("", "0")
    unique_id = properties.get(MARKER, properties.get("UNIQ_KEY", "") if rolled else "")
    rolled = rolled or MARKER in properties
    named = properties.get(ENDS, "")
    at = int(named) if rolled and _TIME.fullmatch(named) else None
    if at is None and not unique_id:
        return None
    return Ended(message.queue_offset, unique_id, at)


def stands_for(queue: TimerQueue, at: int, first: int) -> bool:
    """Whether a message was put again, once or more often, for the first one, or is it."""
    while at > first:
        named = _properties(queue, at).get(ENDS, "")
        at = int(named) if _TIME.fullmatch(named) and int(named) < at else -1
    return at == first


def settle_ended(
    queue: TimerQueue, table: TimerTable, ended: list[Ended], troubles: Troubles
) -> None:
    """Drops what ended from the table, and from those that are left over."""
    named = set[int]()
    by_key: dict[int, list[tuple[Ended, str, str | None]]] = {}
    for one in ended:
        if one.at is not None and _is_meant(queue, one, one.at):
            named.add(one.at)
        elif one.unique_id:  # also one that was put for another store
            by_key.setdefault(key_of(one.unique_id), []).append((one, one.unique_id, None))
            topic, _, rest = one.unique_id.partition("+")
            if rest:
                by_key.setdefault(key_of(rest), []).append((one, rest, topic))
    for entry in table.with_offsets(named) if named else ():
        table.drop(entry.at)
    for entry in table.with_keys(by_key) if by_key else ():
        if _has_ended(queue, entry.at, by_key[entry.key]):
            table.drop(entry.at)
    of_ids = [one for same in by_key.values() for one in same]
    for at in list(troubles.undelivered):
        if at in named or (of_ids and _has_ended(queue, at, of_ids)):
            troubles.delivered(at)
            table.copied.discard(at)


def _has_ended(queue: TimerQueue, at: int, ended: list[tuple[Ended, str, str | None]]) -> bool:
    """Whether the message has one of the ids."""
    properties = _properties(queue, at)
    return any(
        at < one.before
        and properties.get("UNIQ_KEY") == unique_id
        and topic in (None, properties.get("REAL_TOPIC"))
        for one, unique_id, topic in ended
    )


def _is_meant(queue: TimerQueue, one: Ended, at: int) -> bool:
    """Whether the message that is named has the id that is named. One that retention removed is
    delivered by nobody, whatever its id was."""
    if at >= one.before:
        return False
    removed = at < queue.bounds(catch_up=False)[0]
    return removed or _properties(queue, at).get("UNIQ_KEY", "") == one.unique_id


def _properties(queue: TimerQueue, at: int) -> dict[str, str]:
    try:
        message = queue.message(at)
    except (CorruptRecordError, ReadFailedError):
        return {}
    return {} if message is None else message.properties


def marker_of(message: Message) -> dict[str, str]:
    """The properties of the record that cancels a message."""
    properties = message.properties
    return {
        MARKER: properties.get("UNIQ_KEY", ""),
        "TIMER_OUT_MS": f"{due_of(properties)}",
        "REAL_TOPIC": properties.get("REAL_TOPIC", ""),
        "REAL_QID": properties.get("REAL_QID", "0"),
        ENDS: f"{message.queue_offset}",
    }


def again_of(message: Message, when_ms: int | None, span_ms: int) -> dict[str, str]:
    """The properties of a message that is put once more."""
    properties = message.properties
    times = properties.get("TIMER_ROLL_TIMES", "0")
    times = f"{int(times) + 1}" if times.isascii() and times.isdigit() else "1"
    properties |= {"TIMER_ROLL_TIMES": times, ENDS: f"{message.queue_offset}"}
    properties.pop("TIMER_ENQUEUE_MS", None)
    if when_ms is not None:
        properties |= {"TIMER_DELIVER_MS": f"{when_ms}", "TIMER_OUT_MS": f"{when_ms}"}
        for name in ("TIMER_DELAY_MS", "TIMER_DELAY_SEC"):
            properties.pop(name, None)
        properties |= {"TIMER_DELAY_MS": f"{span_ms}"} if span_ms > 0 else {}
    return properties
