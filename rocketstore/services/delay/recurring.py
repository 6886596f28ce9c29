"""Messages that come again: how often, and when next.

One that waits has the property `__EVERY`: "ms 60000", or "cron Europe/Berlin 30 9 * * MON-FRI". When it is
due its copy is put, and then it is put again with its next time, in the form of one that got
another time: so it ends there what waited before. `TimerTable.copied` names those of which the copy
is there and the next one not yet.
"""

from __future__ import annotations

import datetime
import re
import uuid
import zoneinfo
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Final, NamedTuple

from rocketstore._native.format.message import Message
from rocketstore.engine.writing_engine import WritingEngine
from rocketstore.errors import CronSyntaxError, MessageRejectedError
from rocketstore.log.queues.delayed_puts import LATEST_MS, TIMER_TOPIC
from rocketstore.puts.put_message import put_message
from rocketstore.services.delay.copies import EVERY, SOURCE, target_of
from rocketstore.services.delay.timers import Timers, drop, found
from rocketstore.values.arguments import Body, text
from rocketstore.values.durability import queue_ids_of
from rocketstore.values.reserved_names import RESERVED_PROPERTIES
from rocketstore.values.timestamps import Duration, duration_of

__all__ = ["every_of", "following_ms", "repeat", "sooner_ms"]

LENGTH_MAX: Final = 256
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)
_FIELDS: Final = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31, L for the last day, LW for the last working day",
    "month": "1 to 12, or JAN to DEC",
    "day-of-week": "0 to 7, or SUN to SAT, MON#1 for the first, 5L for the last",
}


# ---- times ----


def every_of(every: Duration | str, timezone: str) -> str:
    """What the property says.

    Raises:
        CronSyntaxError: it is no expression, or no time follows it.
        ValueError, TypeError: it is no time that passes; there is no such zone.
        ModuleNotFoundError: there is no cronsim.
    """
    if not isinstance(every, str):
        span = duration_of("every", every)
        if span < _MILLISECOND:
            raise ValueError(f"every = {every!r}: expected a millisecond or more")
        return f"ms {span // _MILLISECOND}"
    _zone(timezone)
    if len(every) > LENGTH_MAX:
        raise CronSyntaxError(every, LENGTH_MAX, f"more than {LENGTH_MAX} characters")
    _cron(every, datetime.datetime.now(datetime.UTC))
    return f"cron {timezone} {' '.join(every.split())}"


def next_ms(every: str, after_ms: int) -> int | None:
    """The first time of a property after another time of it, or after any time for a cron
    expression; None where the calendar ends before.

    Raises:
        MessageRejectedError: the property says nothing, or what it needs is not installed.
    """
    kind, _, rest = every.partition(" ")
    found_ms: int | None
    try:
        if kind == "ms":
            found_ms = after_ms + max(1, int(rest))
        else:
            zone, _, expression = rest.partition(" ")
            found_ms = _next_cron_ms(expression, _zone(zone), after_ms)
    except OverflowError:
        return None
    except (ValueError, ModuleNotFoundError) as error:
        raise MessageRejectedError(f"{EVERY} = {every!r}: {error}") from error
    return None if found_ms is None or found_ms > LATEST_MS else found_ms


def following_ms(properties: Mapping[str, str], due_ms: int, now_ms: int) -> int | None:
    """When a message that is due comes again, which is after now; None where it does not.

    Raises: as `next_ms`.
    """
    every = properties.get(EVERY)
    if every is None:
        return None
    if (interval := _interval_ms(every)) is None:
        return next_ms(every, max(due_ms, now_ms))
    return next_ms(every, due_ms + max(0, now_ms - due_ms) // interval * interval)


def sooner_ms(properties: Mapping[str, str], due_ms: int, now_ms: int) -> int:
    """When a message comes whose clock was set back to now: what waits for a span waits no longer
    than that from now on, and what waits for a time that was named keeps it.

    Raises: as `next_ms`.
    """
    span_ms = _interval_ms(f"ms {properties.get('TIMER_DELAY_MS')}")
    if span_ms is None or due_ms <= now_ms + span_ms:
        return due_ms
    every = properties.get(EVERY, "ms")
    return now_ms + span_ms if every.startswith("ms") else next_ms(every, now_ms) or due_ms


def _interval_ms(every: str) -> int | None:
    found = re.fullmatch(r"ms ([1-9][0-9]{0,17})", every)
    return None if found is None else int(found[1])


def _next_cron_ms(expression: str, zone: datetime.tzinfo, after_ms: int) -> int | None:
    """None, OverflowError: none follows."""
    after = datetime.datetime.fromtimestamp(after_ms // 1000, zone)
    for moment in _cron(expression, after):
        found_ms = round(moment.timestamp() * 1000)
        if found_ms > after_ms:  # not so in the second of two equal hours
            return found_ms
    return None


def _cron(expression: str, after: datetime.datetime) -> Iterator[datetime.datetime]:
    """Iterates the times of an expression. CronSyntaxError, ModuleNotFoundError."""
    cronsim = _cronsim()
    try:
        times: Iterator[datetime.datetime] = cronsim.CronSim(expression, after)
    except cronsim.CronSimError as error:
        raise _syntax_error(expression, f"{error}".removeprefix("Bad ")) from None
    return times


def _syntax_error(expression: str, field: str) -> CronSyntaxError:
    fields = list(re.finditer(r"\S+", expression))
    names = list(_FIELDS)[0 if len(fields) == 6 else 1 :]
    if field not in names:
        at = fields[6].start() if len(fields) > 6 else len(expression)
        return CronSyntaxError(
            expression, at, "five fields are wanted, as in: 30 9 * * MON-FRI, or six with seconds"
        )
    word = fields[names.index(field)]
    hint = f"{field}: {_FIELDS[field]}; several are 1,3, a range is 1-5, each second one is */2"
    if field == "day-of-month" and {*re.findall("[0-9]+", word[0])} <= {"30", "31"}:
        hint = f"{field}: no month that the expression names has day {word[0]}"
    return CronSyntaxError(expression, word.start(), hint)


def _zone(name: str) -> datetime.tzinfo:
    """ValueError: there is none of this name."""
    if name == "UTC":
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(text("timezone", name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"timezone = {name!r}: expected a name as Europe/Berlin, of zones that this system or "
            "the package tzdata has"
        ) from None


def _cronsim() -> ModuleType:
    try:
        import cronsim
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            "a cron expression needs cronsim: pip install 'rocketstore[cron]'", name="cronsim"
        ) from None
    module: ModuleType = cronsim  # also where no checker can see it
    return module


# ---- a new series ----


class Wanted(NamedTuple):
    """What a call asks for."""

    topic: str
    body: Body
    queue_id: int
    properties: Mapping[str, str]
    every: str
    unique_id: str | None
    start_ms: int | None


def repeat(engine: WritingEngine, timers: Timers, wanted: Wanted) -> tuple[str, int | None]:
    """Begins a series, in the place of those that wait with its id; gives its id, and the physical
    offset after what was put, None where it is there as it is. The lock of the timers is held, and
    they are caught up."""
    engine.check_topic(text("topic", wanted.topic))
    queue_ids_of(wanted.queue_id, None)
    for name in wanted.properties:
        if name in RESERVED_PROPERTIES and name not in ("TAGS", "KEYS"):
            raise MessageRejectedError(f"properties[{name!r}]: {RESERVED_PROPERTIES[name]}")
    if wanted.unique_id is not None and not text("unique_id", wanted.unique_id):
        raise ValueError("unique_id is empty: give a text by which the messages are cancelled")
    before = [] if wanted.unique_id is None else found(timers, wanted.unique_id)
    unique_id = uuid.uuid4().hex.upper() if wanted.unique_id is None else wanted.unique_id
    own = {**wanted.properties, "UNIQ_KEY": unique_id}
    if len(before) == 1 and _is_same(before[0], wanted, own):
        return unique_id, None
    now_ms = engine.write.clock.now_ms()
    due_ms = _first_ms(wanted.every, wanted.start_ms, now_ms)
    own |= {
        "REAL_TOPIC": wanted.topic,
        "REAL_QID": f"{wanted.queue_id}",
        "TIMER_DELIVER_MS": f"{due_ms}",
        "TIMER_OUT_MS": f"{due_ms}",
        EVERY: wanted.every,
        **({"TIMER_DELAY_MS": f"{due_ms - now_ms}"} if wanted.start_ms is None else {}),
    }
    if before:
        own["TIMER_ROLL_TIMES"] = "1"  # it ends those of its id
    result = put_message(
        engine,
        TIMER_TOPIC,
        wanted.body,
        0,
        own,
        flag=0,
        sys_flag=0,
        born_time=None,
        born_host=None,
        store_host=None,
        reconsume_times=0,
        prepared_transaction_offset=0,
        delay_level=0,
        expected=None,
        durability="memory",  # the caller waits
        timeout_s=None,
    )
    for message in before:
        drop(timers, message)
    engine.delayed_puts.note_due(due_ms)
    return unique_id, result.end_offset


def _is_same(message: Message, wanted: Wanted, properties: Mapping[str, str]) -> bool:
    """Whether a message that waits comes as often, with the same content."""
    if message.properties.get(EVERY) != wanted.every or message.body != bytes(wanted.body):
        return False
    target = target_of(message)
    if target is None:
        return False
    target.properties.pop(SOURCE)
    place = (target.topic, target.queue_id, target.properties)
    return place == (wanted.topic, wanted.queue_id, properties)


def _first_ms(every: str, start_ms: int | None, now_ms: int) -> int:
    interval = _interval_ms(every)
    if interval is None:
        due_ms = next_ms(every, max(now_ms, now_ms if start_ms is None else start_ms - 1))
    elif start_ms is None or start_ms > now_ms:
        due_ms = now_ms + interval if start_ms is None else start_ms
    else:
        due_ms = following_ms({EVERY: every}, start_ms, now_ms)
    if due_ms is None or due_ms > LATEST_MS:
        said = repr(every.split(" ", 2)[2]) if interval is None else f"{interval} ms"
        raise MessageRejectedError(f"every = {said}: no time follows before the year 10000")
    return due_ms
