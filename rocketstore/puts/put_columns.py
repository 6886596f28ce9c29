"""Columns of messages, each with a topic and a queue of its own: checked, then encoded or put."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Required, TypedDict

import numpy as np

from rocketstore._native.append.put_result import PutResult, nothing_put
from rocketstore._native.put import put_columns as native
from rocketstore.errors import InvalidTopicError, MessageRejectedError
from rocketstore.log.layout.paths import check_topic
from rocketstore.log.queues.delayed_puts import SCHEDULE_TOPIC
from rocketstore.puts.arrays import array_of, offsets_of, strings
from rocketstore.values.clock import Clock, SystemClock
from rocketstore.values.compression import COMPRESSION_BITS
from rocketstore.values.reserved_names import RESERVED_PROPERTIES

if TYPE_CHECKING:
    from rocketstore._native.put.writer import Writer
    from rocketstore.engine.writing_engine import WritingEngine
    from rocketstore.values.arguments import Column, Numbers
    from rocketstore.values.durability import Durability
    from rocketstore.values.timestamps import Duration

__all__ = [
    "SCHEDULE_TOPIC",
    "SHARD_KEY",
    "MessageColumns",
    "message_columns",
    "plain_writers",
    "put_columns",
    "refuse_reserved",
]

#: The property of a shard key, for which there is no column of its own here.
SHARD_KEY = "__SHARDINGKEY"

#: Milliseconds that mean none: the log would write the time of the put.
NO_TIME = -(2**63)


class MessageColumns(TypedDict, total=False):
    """The columns of messages apart from their bodies: what `Store.put_columns` and `encode_frames`
    take. Only `topics` must be given."""

    #: The topics that occur.
    topics: Required[Sequence[str]]
    #: For each row its place in `topics`; default: all rows have the first topic.
    topic_rows: Numbers | None
    #: For each row, or one for all; default 0.
    queue_ids: Numbers
    tags: Column | None
    keys: Column | None
    #: Offsets, names and values, as Arrow keeps maps.
    properties: tuple[Numbers, Column, Column] | None
    #: For each row, or one for all; default: the time of the call.
    born_timestamps_ms: Numbers | None
    born_host: str
    #: For each row, or one for all; default 0.
    flags: Numbers | None
    #: The same, of bodies that are compressed: bits 0x1 and 0x700.
    sys_flags: Numbers | None
    #: For each row, or one for all; default 0.
    reconsume_times: Numbers | None


def message_columns(
    function: Callable[..., object],
    bodies: Column,
    columns: MessageColumns,
    max_body_bytes: int,
    clock: Clock | None = None,
) -> native.MessageColumns:
    """Columns as `encode_frames` says, of one length and in one layout; `function` was called with
    them."""
    unknown = [name for name in columns if name not in MessageColumns.__annotations__]
    if unknown:
        close = difflib.get_close_matches(unknown[0], MessageColumns.__annotations__, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise TypeError(f"{function.__name__}() has no argument {unknown[0]!r}{hint}")
    if "topics" not in columns:
        raise TypeError(f"{function.__name__}() needs topics=, a list of the topics that occur")
    topics = columns["topics"]
    if isinstance(topics, (str, bytes)):
        raise TypeError(f"topics = {topics!r}: expected a list of texts; for one, [{topics!r}]")
    if not hasattr(topics, "__iter__"):
        raise TypeError(f"topics: expected a list of texts, not {type(topics).__name__}")
    # Its own len() may say something else than what it gives.
    checked = tuple(check_topic(topic, wide=True) for topic in topics)
    column = strings("bodies", bodies)
    count = column.rows
    return native.MessageColumns(
        column,
        checked,
        topic_places(columns.get("topic_rows"), count, len(checked)),
        queue_column(columns.get("queue_ids", 0), count),
        born_column(columns.get("born_timestamps_ms"), count, (clock or SystemClock()).now_ms()),
        born_host=columns.get("born_host", "127.0.0.1:0"),
        max_body=max_body_bytes,
        refused=refuse_reserved,
        **number_columns(
            count,
            flags=columns.get("flags"),
            sys_flags=columns.get("sys_flags"),
            reconsume_times=columns.get("reconsume_times"),
        ),
        **property_columns(
            count, columns.get("tags"), columns.get("keys"), columns.get("properties")
        ),
    )


def put_columns(
    engine: WritingEngine,
    bodies: Any,
    columns: native.MessageColumns,
    durability: Durability | None,
    timeout_s: Duration | None,
) -> PutResult:
    """Puts the `columns` that were made of `bodies`."""
    if len(bodies[0]) == 1:  # offsets of no rows
        return nothing_put(engine.config.durability if durability is None else durability)
    return native.put_message_columns(
        engine.commit_log.log,
        columns,
        plain_writers(engine),
        record_crc=engine.record_crc,
        durability=durability,
        timeout_s=timeout_s,
    )


def plain_writers(engine: WritingEngine) -> Callable[[bytes, int], Writer]:
    """Gives the writer of a topic and queue, or refuses them."""

    def writer_of(raw: bytes, queue_id: int) -> Writer:
        try:
            topic = raw.decode()
        except UnicodeDecodeError:
            raise InvalidTopicError(f"topic {raw!r}: not UTF-8") from None
        engine.check_topic(topic)
        if queue_id < 0:
            raise MessageRejectedError(f"queue_id = {queue_id}: 0 or more")
        if topic == SCHEDULE_TOPIC:
            raise MessageRejectedError(f"topic {topic!r}: use put_message for delayed messages")
        return engine.plain_writer(topic, queue_id)

    return writer_of


def topic_places(given: Any, count: int, topics: int) -> Any:
    rows = whole(given, 0, count, np.int32, "topic_rows")
    if rows.size and not topics:
        raise MessageRejectedError("topics: no topic; give those that occur")
    wrong = np.flatnonzero((rows < 0) | (rows >= topics))
    if wrong.size:
        refuse_number("topic_rows", rows, wrong, f"places in topics are 0 … {topics - 1}")
    return rows


def queue_column(given: Any, count: int) -> Any:
    queues = whole(given, 0, count, np.int32, "queue_ids")
    wrong = np.flatnonzero(queues < 0)
    if wrong.size:
        raise MessageRejectedError(f"queue_ids: {queues[wrong[0]]} is below 0 (row {wrong[0]})")
    return queues


def born_column(given: Any, count: int, now_ms: int) -> Any:
    born = whole(given, now_ms, count, np.int64, "born_timestamps_ms")
    wrong = np.flatnonzero(born == NO_TIME)
    if wrong.size:
        refuse_number("born_timestamps_ms", born, wrong, f"{NO_TIME + 1} … {2**63 - 1}")
    return born


def number_columns(count: int, **given: Any) -> dict[str, Any]:
    found = {
        name: whole(numbers, 0, count, np.int32, name)
        for name, numbers in given.items()
        if numbers is not None
    }
    if np.any(found.get("sys_flags", np.zeros(0, np.int32)) & ~COMPRESSION_BITS):
        raise MessageRejectedError(
            f"sys_flags: bits that say how a body is compressed ({COMPRESSION_BITS:#x}), no others"
        )
    return found


def property_columns(
    count: int, tags: Column | None, keys: Column | None, properties: Any
) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, texts in (("tags", tags), ("keys", keys)):
        if texts is not None:
            given[name] = strings(name, texts, count)
    if properties is not None:
        if not isinstance(properties, (tuple, list)) or len(properties) != 3:
            raise TypeError(
                "properties: expected the tuple (offsets, names, values), as Arrow keeps maps, "
                f"not {type(properties).__name__}"
            )
        places, names, values = properties
        given["names"] = strings("names", names)
        given["values"] = strings("values", values, given["names"].rows)
        given["property_places"] = property_places(places, count, given["names"].rows)
    return given


def whole(given: Any, default: int, count: int, kind: Any, what: str) -> Any:
    """An array of `count` integers, made from one or from as many."""
    array = array_of(what, default if given is None else given)
    of_other_kind = array.size and array.dtype.kind not in "iu"  # of an empty list it is a float
    if of_other_kind or array.ndim > 1 or (array.ndim and array.size != count):
        raise MessageRejectedError(
            f"{what}: expected one integer, or {count} of them, "
            f"not dtype {array.dtype}, shape {array.shape}"
        )
    if not np.can_cast(array.dtype, kind):
        limits = np.iinfo(kind)
        wrong = np.flatnonzero((array < limits.min) | (array > limits.max))
        if wrong.size:
            refuse_number(what, array, wrong, f"{limits.min} … {limits.max}")
    # A copy: native code finds topics by them, whatever another thread does to the caller's.
    return np.array(array, kind, order="C") if array.ndim else np.full(count, array, kind)


def refuse_number(what: str, array: Any, wrong: Any, limits: str) -> NoReturn:
    """`wrong`: the rows that are, of an array, or of one number for all."""
    row = wrong[0]
    found = f"{array[row]} (row {row})" if array.ndim else f"{array}"
    raise MessageRejectedError(f"{what}: {limits}, not {found}")


def property_places(given: Any, count: int, entries: int) -> Any:
    places = offsets_of("properties", given)
    if places.shape != (count + 1,) or places[0] < 0 or places[-1] > entries:
        raise MessageRejectedError(
            f"properties: {count} rows need {count + 1} offsets up to {entries}"
        )
    if np.any(places[1:] < places[:-1]):
        raise MessageRejectedError("properties: offsets must not fall")
    return places


def refuse_reserved(name: bytes) -> None:
    text = name.decode("utf-8", "replace")
    if text in RESERVED_PROPERTIES and text != SHARD_KEY:
        raise MessageRejectedError(
            f"property {text!r} is reserved by RocketMQ; {RESERVED_PROPERTIES[text]}"
        )
    if text.startswith("INNER_"):
        raise MessageRejectedError(f"property {text!r}: those of batches cannot be in a frame")
    if text.endswith("__CRC32#"):
        raise MessageRejectedError(f"property {text!r} looks like the record CRC")
