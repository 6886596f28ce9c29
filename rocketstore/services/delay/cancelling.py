"""Cancels messages that wait for a time of their own, and gives them another time.

Both put one record into the timer topic, so that each is there as a whole or not at all: a marker in
RocketMQ's form, or the message again with its new time, in the form in which RocketMQ puts one again
that is due too late for its wheel. `__ENDS` names the message that the record is about.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rocketstore.errors import CorruptRecordError, ReadFailedError
from rocketstore.log.queues.delayed_puts import TIMER_TOPIC
from rocketstore.puts.put_message import put_message
from rocketstore.services.delay.copies import ENDS
from rocketstore.services.delay.timer_runs import key_of
from rocketstore.services.delay.timer_topic import MARKER, due_of, is_marker

if TYPE_CHECKING:
    from rocketstore._native.format.message import Message
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.services.delay.timers import Timers

__all__ = ["cancel", "drop", "found", "put_again", "reschedule"]


def cancel(engine: WritingEngine, timers: Timers, chosen: str | int) -> int | None:
    """Puts the markers; gives the physical offset after them, None where nothing waits. The lock of
    the timers is held, and they are caught up."""
    end = None
    for message in found(timers, chosen):
        properties = message.properties
        marker = {
            MARKER: properties.get("UNIQ_KEY", ""),
            "TIMER_OUT_MS": f"{due_of(properties)}",
            "REAL_TOPIC": properties.get("REAL_TOPIC", ""),
            "REAL_QID": properties.get("REAL_QID", "0"),
            ENDS: f"{message.queue_offset}",
        }
        end = _put(engine, message, b"", marker)
        drop(timers, message)
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


def put_again(engine: WritingEngine, message: Message, when_ms: int, span_ms: int) -> int:
    """Puts a message that waits once more, for another time, the end of a span where that is not 0;
    gives the physical offset after it. What waited before ends there."""
    properties = message.properties
    times = properties.get("TIMER_ROLL_TIMES", "0")
    times = f"{int(times) + 1}" if times.isascii() and times.isdigit() else "1"
    properties |= {
        "TIMER_DELIVER_MS": f"{when_ms}",
        "TIMER_OUT_MS": f"{when_ms}",
        "TIMER_ROLL_TIMES": times,
        ENDS: f"{message.queue_offset}",
    }
    for name in ("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_ENQUEUE_MS"):
        properties.pop(name, None)
    properties |= {"TIMER_DELAY_MS": f"{span_ms}"} if span_ms > 0 else {}
    return _put(engine, message, message.body_view, properties)


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
    return waiting


def drop(timers: Timers, message: Message) -> None:
    """A message waits no more."""
    at = message.queue_offset
    if at in timers.troubles.undelivered:
        timers.troubles.delivered(at)
        timers.table.copied.discard(at)
    else:
        timers.table.drop(at)
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
