"""RocketMQ's putMessage: one message with every field as given."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

from rocketstore._native.append.put_result import PutResult, as_waiting
from rocketstore._native.format.codec import encode_properties, pack_host
from rocketstore._native.put import put_message as native
from rocketstore.errors import MessageRejectedError
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC, TIMER_TOPIC, Delay, DelayedPuts
from rocketstore.values.arguments import Body, text, whole_number
from rocketstore.values.durability import Durability, check_port, queue_ids_of
from rocketstore.values.system_flags import IN_QUEUES, INNER_BATCH, TRANSACTION_TYPE
from rocketstore.values.timestamps import Duration, Timestamp, timestamp_ms

if TYPE_CHECKING:
    from rocketstore.engine.writing_engine import WritingEngine

__all__ = ["MessageFields", "check_numbers", "put_message"]

#: The bits of numbers that a recovery of RocketMQ reads in every record (format.md 14.1).
_NUMBERS = {"DELAY": 32, "INNER_NUM": 16, "INNER_BASE": 64}
_DECIMAL = re.compile(r"[+-]?[0-9]{1,19}")


class MessageFields(TypedDict, total=False):
    """The fields that `put_message` takes, apart from topic and body."""

    queue_id: int
    properties: Mapping[str, str] | None
    flag: int
    sys_flag: int
    born_time: Timestamp | None
    born_host: str | None
    store_host: str | None
    reconsume_times: int
    prepared_transaction_offset: int
    delay_level: int | None
    deliver_at: Timestamp | None
    deliver_after: Duration | None
    expected_queue_offset: int | None


def check_numbers(topic: str, properties: Mapping[str, str]) -> None:
    """MessageRejectedError for a record at which a recovery of RocketMQ would cut the log, because
    it cannot read a number in it."""
    names = ["DELAY"] if topic == "SCHEDULE_TOPIC_XXXX" else []
    if properties.get("INNER_NUM") and properties.get("INNER_BASE"):
        names += ["INNER_NUM", "INNER_BASE"]
    for name in names:
        value, most = properties.get(name, ""), 1 << (_NUMBERS[name] - 1)
        if value and not (_DECIMAL.fullmatch(value) and -most <= int(value) < most):
            raise MessageRejectedError(f"{name} = {value!r}: {-most} … {most - 1}, in digits")


def put_message(
    engine: WritingEngine,
    topic: str,
    body: Body,
    queue_id: int,
    properties: Mapping[str, str] | None,
    *,
    flag: int,
    sys_flag: int,
    born_time: Timestamp | None,
    born_host: str | None,
    store_host: str | None,
    reconsume_times: int,
    prepared_transaction_offset: int,
    delay_level: int | None,
    durability: Durability | None,
    timeout_s: Duration | None,
    expected: int | None,
    deliver_at: Timestamp | None = None,
    deliver_after: Duration | None = None,
    only_latest: bool = False,
) -> PutResult:
    topic = text("topic", topic)
    engine.check_topic(topic)
    (queue_id,) = queue_ids_of(queue_id, None)
    if whole_number("sys_flag", sys_flag, 0, 2**32 - 1) & INNER_BATCH:
        # It took one place in its queue, and a client of RocketMQ hands out as many as it says.
        raise MessageRejectedError(
            f"sys_flag = {sys_flag:#x}: an inner batch needs a batch queue, and the store writes "
            "none; put its messages one by one, as a consumer hands them out"
        )
    fields = dict(properties or {})
    for name in ("__CRC32#", "INNER_MULTI_QUEUE_OFFSET"):
        fields.pop(name, None)
    if durability is None and fields.get("WAIT", "").lower() == "false":
        durability = "memory"
    at = -1 if expected is None else whole_number("expected_queue_offset", expected, 0, 2**63 - 1)
    asked = (delay_level, deliver_at, deliver_after)
    delay = _delay(engine.delayed_puts, topic, fields, sys_flag, asked)
    if delay is not None:
        delay.check(expected)
        topic, queue_id = _keep(delay, topic, queue_id, fields)
    encoded = encode_properties(fields)
    check_numbers(topic, fields)
    host = engine.config.store_host
    lights = engine.multi_dispatch_queues(topic, queue_id, fields)
    try:
        result = native.put_message(
            engine.plain_writer(topic, queue_id),
            body,
            encoded,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp_ms=None if born_time is None else timestamp_ms("born_time", born_time),
            born_host=_host("born_host", born_host or host),
            store_host=_host("store_host", store_host or host),
            reconsume_times=reconsume_times,
            prepared_transaction_offset=prepared_transaction_offset,
            lights=lights,
            durability=durability,
            timeout_s=timeout_s,
            expected=at,
            only_latest=only_latest,
        )
    finally:
        if lights:
            engine.write.put_states.settle(lights)
    if delay is not None:
        delay.note()
    return as_waiting(result, delay, fields.get("UNIQ_KEY"))


def _keep(delay: Delay, topic: str, queue_id: int, fields: dict[str, str]) -> tuple[str, int]:
    """Gives a message the properties that it has while it waits; gives the place where it does."""
    fields |= delay.own
    for name, value in delay.defaults:
        fields.setdefault(name, value)
    fields |= {"REAL_TOPIC": topic, "REAL_QID": f"{queue_id}"}
    return delay.queue.topic, delay.queue.queue_id


def _delay(
    delayed_puts: DelayedPuts,
    topic: str,
    fields: Mapping[str, str],
    sys_flag: int,
    asked: tuple[int | None, Timestamp | None, Duration | None],
) -> Delay | None:
    """The delay of a message that has to wait, None for all others. `asked`: by arguments."""
    half = sys_flag & TRANSACTION_TYPE not in IN_QUEUES
    system = topic in (SCHEDULE_TOPIC, TIMER_TOPIC)
    if any(value is not None for value in asked):
        delay = delayed_puts.delay(*asked)
        if delay is not None and (half or system):
            what = "half of a transaction" if half else f"message of {topic}"
            raise MessageRejectedError(f"{delay.asked}: a {what} cannot be delayed")
        return delay
    # A copy that RocketMQ has delivered keeps these properties (K-62): its delay is over.
    if half or system or "REAL_TOPIC" in fields or "TIMER_OUT_MS" in fields:
        return None
    value = fields.get("DELAY", "")
    if _DECIMAL.fullmatch(value) and 0 < int(value) < 1 << 31:
        return delayed_puts.level(int(value))
    return _due(delayed_puts, fields)


def _due(delayed_puts: DelayedPuts, fields: Mapping[str, str]) -> Delay | None:
    """The time that RocketMQ's properties ask for: seconds win, then milliseconds, then the time."""
    for name, factor in (("TIMER_DELAY_SEC", 1000), ("TIMER_DELAY_MS", 1), ("TIMER_DELIVER_MS", 0)):
        value = fields.get(name)
        if value is None:
            continue
        if not _DECIMAL.fullmatch(value):
            raise MessageRejectedError(f"{name} = {value!r}: it is no number")
        return (
            delayed_puts.due(int(value)) if not factor else delayed_puts.after(int(value) * factor)
        )
    return None


def _host(name: str, host: str) -> bytes:
    packed = pack_host(host, name)
    check_port(name, host)
    return packed
