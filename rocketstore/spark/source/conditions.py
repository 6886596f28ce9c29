"""What a query asks of rows, answered where the log is read: exactly as Spark would answer it.

A condition is about a row as Spark sees it (store times are microseconds there). `keep` tests rows;
`narrow` says beforehand which part of the log and which records can hold such rows at all.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rocketstore.columns import CodedColumn
from rocketstore.values import LIMITS, RecordFilter, parse_json

if TYPE_CHECKING:
    from rocketstore.spark.schema import Field

__all__ = [
    "CODED",
    "NUMBERS",
    "OPTIONAL",
    "Condition",
    "Narrowed",
    "conditions_text",
    "keep",
    "narrow",
    "parse_conditions",
    "testable",
]

ORDER: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NUMBERS: Final = ("int", "bigint", "timestamp")
#: Texts that come again and again: each is compared once a chunk, not once a row.
CODED: Final = ("topic", "born_host", "store_host")
#: Texts that a message may have none of. Of all other columns each row has a value.
OPTIONAL: Final = ("tags", "keys")
OFFSET_MAX: Final = 2**63 - 1
QUEUE_ID_END: Final = 2**31
#: Segments are passed over by the store time of their first record. Clocks are put back now and
#: then, so those that are nearer than this to the times that are asked for are read all the same.
CLOCK_SLACK_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a row. `test`: "in" one of `values`, or an order ("<", "<=", ">", ">=")
    against the only one, or "given" and "missing" for texts that may be null."""

    field: Field
    test: str
    values: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Where rows can be: records that begin in [begin, end), chosen by `wanted`, arguments of
    `rocketstore.scan`."""

    wanted: dict[str, Any]
    begin: int
    end: int


def plain_tag(tag: str) -> bool:
    """Whether `rocketstore.scan` takes a tag as it is written, and a row that shows it holds
    exactly its bytes."""
    return tag.strip() == tag and tag not in ("", "*") and "\ufffd" not in tag


def keep(columns: Mapping[str, Any], rows: int, conditions: Iterable[Condition]) -> Any:
    """Which rows of a chunk fulfil all conditions: a boolean array. Tags are left to the scan."""
    kept = np.ones(rows, bool)
    for condition in conditions:
        if condition.field.column != "tags" or condition.test != "in":
            kept &= holds(condition, columns[condition.field.column])
    return kept


def holds(condition: Condition, column: Any) -> Any:
    if condition.test in ("given", "missing"):
        there = np.diff(column.offsets) > 0
        return there if condition.test == "given" else ~there
    if isinstance(column, CodedColumn):
        verdicts = [answer(condition, word) for word in column.values]
        return np.asarray(verdicts, bool)[column.codes]
    shown = as_shown(column, condition.field.kind)
    if condition.test == "in":
        return np.isin(shown, np.asarray(condition.values, np.int64))
    return ORDER[condition.test](shown, condition.values[0])


def answer(condition: Condition, word: str) -> bool:
    """Texts are in the order of their code points, which is that of their bytes as UTF-8."""
    if condition.test == "in":
        return word in condition.values
    return bool(ORDER[condition.test](word, condition.values[0]))


def as_shown(column: Any, kind: str) -> Any:
    """Numbers as the row has them, in 64 bits."""
    if kind == "timestamp":
        return np.ascontiguousarray(column) * 1000
    narrow_kind = np.int32 if kind == "int" else np.int64
    return column.astype(narrow_kind, copy=False).astype(np.int64, copy=False)


# ---- narrowing ----


def narrow(wanted: Mapping[str, Any], conditions: Sequence[Condition]) -> Narrowed | None:
    """The smallest part of the log that we know to hold all rows that `wanted` chooses and that
    fulfil the conditions; None when there cannot be any."""
    if any(condition.test == "in" and not condition.values for condition in conditions):
        return None
    found = dict(wanted)
    asked: dict[str, list[Condition]] = {}
    for condition in conditions:
        asked.setdefault(condition.field.column, []).append(condition)
    topics = words(asked.get("topic", ()))
    if topics is not None and not narrow_topics(found, topics):
        return None
    queue_ids = words(asked.get("queue_id", ()))
    if queue_ids is not None and not narrow_queues(found, queue_ids):
        return None
    tags = words(asked.get("tags", ()))
    if tags is not None:
        known = RecordFilter.of(tags=found.get("tags")).tags
        found["tags"] = sorted(tags if known is None else tags & known)
        if not found["tags"]:
            return None
    if not narrow_times(found, *span(asked.get("store_timestamp_ms", ()))):
        return None
    begin, end = span(asked.get("physical_offset", ()))
    return Narrowed(found, max(begin, 0), min(end, OFFSET_MAX))


def words(conditions: Iterable[Condition]) -> set[Any] | None:
    """The values that conditions of one column leave; None where none of them lists values."""
    found: set[Any] | None = None
    for condition in conditions:
        if condition.test == "in":
            found = set(condition.values) if found is None else found & set(condition.values)
    return found


def span(conditions: Iterable[Condition]) -> tuple[int, int]:
    """[first, end) of the numbers that conditions of one column leave."""
    first, end = -OFFSET_MAX, OFFSET_MAX
    for condition in conditions:
        low, high = min(condition.values), max(condition.values)
        if condition.test in ("in", ">=", ">"):
            first = max(first, low + (condition.test == ">"))
        if condition.test in ("in", "<=", "<"):
            end = min(end, high + (condition.test != "<"))
    return first, end


def narrow_topics(found: dict[str, Any], topics: set[str]) -> bool:
    accept = RecordFilter.of(**found).acceptance()
    found.pop("topic_pattern", None)
    found["topics"] = sorted(topic for topic in topics if accept is None or accept(topic))
    return bool(found["topics"])


def narrow_queues(found: dict[str, Any], queue_ids: set[int]) -> bool:
    if any(queue_id < 0 for queue_id in queue_ids):
        return True  # A scan cannot be asked for such a record; a test of the rows finds it.
    possible = {queue_id for queue_id in queue_ids if queue_id < QUEUE_ID_END}
    known = RecordFilter.of(queues=found.get("queues"))
    if known.queues_by_topic is not None:
        found["queues"] = {topic: sorted(ids & possible) for topic, ids in known.queues_by_topic}
        return any(found["queues"].values())
    if known.queue_ids is not None:
        possible &= known.queue_ids
    found["queues"] = sorted(possible)
    return bool(possible)


def narrow_times(found: dict[str, Any], first_us: int, end_us: int) -> bool:
    if first_us > -OFFSET_MAX:
        first_ms = (first_us - CLOCK_SLACK_US) // 1000
        found["begin"] = max(found.get("begin", first_ms), first_ms)
    if end_us < OFFSET_MAX:
        end_ms = (end_us + CLOCK_SLACK_US) // 1000 + 1
        found["end"] = min(found.get("end", end_ms), end_ms)
    first, end = found.get("begin"), found.get("end")
    return first is None or end is None or bool(first <= end)


# ---- as text ----


def testable(condition: Condition) -> bool:
    """Whether rows and scans can be asked this."""
    field, test, values = condition.field, condition.test, condition.values
    if test in ("given", "missing"):
        return field.column in OPTIONAL and not values
    number = field.kind in NUMBERS
    if not number and field.column not in (*CODED, "tags"):
        return False
    if any(type(value) is not (int if number else str) for value in values):
        return False
    if field.column == "tags":
        return test == "in" and all(map(plain_tag, values))
    return test == "in" or (test in ORDER and len(values) == 1)


def conditions_text(conditions: Iterable[Condition]) -> str:
    """JSON: the value of the option `conditions`."""
    return json.dumps([[c.field.name, c.test, list(c.values)] for c in conditions])


def parse_conditions(text: str, fields: Iterable[Field]) -> tuple[Condition, ...]:
    """The inverse. Raises ValueError for what is no condition of these fields that can be
    tested."""
    known = {field.name: field for field in fields}
    found = []
    try:
        rows: Any = parse_json(text, LIMITS["spark"])
        for name, test, values in rows:
            condition = Condition(known[name], test, tuple(values))
            if not testable(condition):
                raise ValueError(f"{name} {test} {values}")
            found.append(condition)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no condition of these columns: {error!r}") from error
    return tuple(found)
