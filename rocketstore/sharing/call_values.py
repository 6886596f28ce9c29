"""What calls of a guest and their answers are made of: fields out of JSON, each checked as hostile bytes,
results of puts, and rules of retention.

What is wrong is a TypeError, a ValueError or a ConfigError, which names the field.
"""

from __future__ import annotations

import dataclasses
import datetime
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from rocketstore._native.append.put_result import PutResult, restore_put_result
from rocketstore.config import StoreConfig
from rocketstore.log.queues.delayed_puts import Change
from rocketstore.services.retention.rule import Retention
from rocketstore.values.arguments import text, whole_number
from rocketstore.values.durability import durability_of

if TYPE_CHECKING:
    from rocketstore.values.durability import Durability

__all__ = [
    "MOST_ID",
    "SHARED",
    "Fields",
    "changes_in",
    "durability_in",
    "moment_in",
    "moment_of",
    "numbers_in",
    "results_in",
    "results_text",
    "rule_fields",
    "rule_of",
    "several",
    "texts_in",
]

Fields: TypeAlias = Mapping[str, Any]

#: Options of the host by which its guests put.
SHARED: Final = (
    *("sync_flush_timeout_ms", "max_message_size_bytes", "max_wait_ms", "delay_levels"),
    *("store_host", "auto_wide_topic", "index_enabled", "write_buffer_bytes", "record_crc"),
    *("multi_dispatch_enabled", "light_queue_enabled", "commit_log_file_size_bytes"),
    *("max_unflushed_bytes", "max_undispatched_bytes", "deliver_delayed", "durability", "visible"),
    *sorted(StoreConfig.LIVE - {"max_message_size_bytes", "sync_flush_timeout_ms"}),
)
#: Queues a claim names, or one commit moves, and messages of one transaction, at most.
MOST: Final = 65_536
MOST_ID: Final = 2**63 - 1
#: Of a result: its place, queue and time, whether it is a duplicate, the promise, when it is due, and the host.
_RESULT: Final = struct.Struct("<qqiqq?hqB20s")
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


def durability_in(fields: Fields) -> Durability | None:
    given = fields.get("durability")
    return None if given is None else durability_of(text("durability", given))


def texts_in(name: str, given: object) -> dict[str, str]:
    if not isinstance(given, dict):
        raise TypeError(f"{name}: expected texts by name, not {type(given).__name__}")
    return {text(name, key): text(name, value) for key, value in given.items()}


def several(name: str, given: object, most: int = MOST) -> Sequence[Any]:
    if not isinstance(given, list) or len(given) > most:
        raise TypeError(f"{name}: expected a list of at most {most}")
    return given


def numbers_in(name: str, given: object) -> dict[int, int]:
    """Whole numbers by queue id. JSON has texts as names."""
    if not isinstance(given, dict) or len(given) > MOST or not all(map(str.isdecimal, given)):
        raise TypeError(f"{name}: expected at most {MOST} numbers by queue id")
    return {
        whole_number(name, int(key[:11]), 0, 2**31 - 1): whole_number(name, at, 0, MOST_ID)
        for key, at in given.items()
    }


def moment_of(span: datetime.timedelta) -> list[int]:
    """A span as `moment_in` takes it."""
    return [span // _MICROSECOND]


def moment_in(name: str, given: object) -> int | datetime.timedelta | None:
    """Milliseconds since 1970, or a span as the list of its microseconds."""
    if isinstance(given, list):
        span = given[0] if len(given) == 1 else None
        return whole_number(name, span, -(10**18), 10**18) * _MICROSECOND
    return None if given is None else whole_number(name, given, -(2**62), 2**62)


def changes_in(fields: Fields) -> list[Change]:
    found = []
    for one in several("changes", fields.get("changes", [])):
        unique_id, when_ms, span_ms = [*several("changes", one, 3), None, None, None][:3]
        at = None if when_ms is None else whole_number("changes", when_ms, 0, MOST_ID)
        found.append(
            Change(text("changes", unique_id), at, whole_number("changes", span_ms, 0, MOST_ID))
        )
    return found


def results_text(results: Sequence[PutResult]) -> bytes:
    """What `results_in` takes: results of single messages, without their ids."""
    parts = []
    for one in results:
        fields: Any = one.__reduce__()[1]
        host = fields[7]
        parts.append(
            _RESULT.pack(*fields[:5], one.duplicate, fields[6], fields[12], len(host), host)
        )
    return b"".join(parts)


def results_in(data: bytes, ids: Sequence[str | None]) -> list[PutResult]:
    """The results of messages with these unique ids."""
    found = []
    for each, name in zip(_RESULT.iter_unpack(data), ids, strict=True):
        begin, end, queue_id, at, stored_ms, duplicate, level, due_ms, size, host = each
        places = (begin, end, queue_id, at, stored_ms, 1, level, host[:size], None, None, None)
        found.append(restore_put_result(*places, duplicate, due_ms, name))
    return found


def rule_fields(rule: Retention) -> dict[str, object]:
    """A rule as JSON has it: spans as lists of microseconds."""

    def plain(value: Any) -> object:
        if isinstance(value, datetime.timedelta):
            return moment_of(value)
        return sorted(value) if isinstance(value, frozenset) else value

    given = ((f.name, f.default, getattr(rule, f.name)) for f in dataclasses.fields(rule))
    return {name: plain(value) for name, default, value in given if value != default}


def rule_of(given: object) -> Retention:
    """ConfigError, TypeError: it is none."""
    if not isinstance(given, dict):
        raise TypeError("rule: expected the parts of a Retention by name")
    spans = {n: given[n] for n in ("max_age", "check_every") if isinstance(given.get(n), list)}
    return Retention(**given | {name: moment_in(name, span) for name, span in spans.items()})
